//! The NIC's clock and the processor's (Flor A.2.1): timestamps come by the one, timers run by the other.

/// How long an offset is trusted before the NIC is asked again.
pub const CORRECTION_INTERVAL_NS: u64 = 100_000;
/// An error that is not worth a correction.
pub const CORRECTION_THRESHOLD_NS: u64 = 10_000;

/// Whose clock a timestamp is by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockSource {
    /// The NIC's.
    Hardware,
    /// The processor's, when the completion was polled.
    Software,
}

/// Knows by how much the NIC's clock is ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockSync {
    /// NIC's minus processor's, wrapping.
    offset_ns: Option<u64>,
    asked_ns: u64,
    asked: u64,
    corrected: u64,
}

impl ClockSync {
    /// One that knows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the NIC's clock should be read with the operation at hand: it costs about 1 µs, so not with each.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let elapsed_ns = now_ns.saturating_sub(self.asked_ns);
        self.offset_ns.is_none() || elapsed_ns >= CORRECTION_INTERVAL_NS
    }

    /// The NIC's clock showed `hardware_ns` at `now_ns`. Says whether the offset was corrected.
    pub fn read(&mut self, now_ns: u64, hardware_ns: u64) -> bool {
        self.asked_ns = now_ns;
        self.asked += 1;
        let offset_ns = hardware_ns.wrapping_sub(now_ns);
        let wrong = self.offset_ns.is_none_or(|known| {
            let error_ns = offset_ns.wrapping_sub(known);
            error_ns.min(error_ns.wrapping_neg()) > CORRECTION_THRESHOLD_NS
        });
        if wrong {
            self.offset_ns = Some(offset_ns);
            self.corrected += 1;
        }
        wrong
    }

    /// A timestamp of the NIC by the processor's clock, and whose it is: without one, or without an offset, it is
    /// `polled_ns`, when the completion was seen. Never later than that.
    pub fn arrival(&self, timestamp_ns: Option<u64>, polled_ns: u64) -> (u64, ClockSource) {
        match (timestamp_ns, self.offset_ns) {
            (Some(timestamp), Some(offset)) => {
                let here = timestamp.wrapping_sub(offset);
                (here.min(polled_ns), ClockSource::Hardware)
            }
            _ => (polled_ns, ClockSource::Software),
        }
    }

    /// The share of reads that corrected the offset; the paper saw less than 1 %.
    pub fn corrected_share(&self) -> f64 {
        self.corrected as f64 / self.asked.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_corrected_above_10_us_and_read_every_100() {
        let mut sync = ClockSync::new();
        assert!(sync.is_due(0));
        assert_eq!(sync.arrival(Some(7), 50), (50, ClockSource::Software));
        assert!(sync.read(1_000, 501_000));
        assert_eq!(
            sync.arrival(Some(502_000), 9_000),
            (2_000, ClockSource::Hardware)
        );
        assert_eq!(sync.arrival(None, 9_000), (9_000, ClockSource::Software));
        assert!(!sync.is_due(100_999));
        assert!(sync.is_due(101_000));
        assert!(!sync.read(101_000, 611_000));
        assert_eq!(sync.arrival(Some(502_000), 9_000).0, 2_000);
        assert!(!sync.is_due(150_000));
        assert!(sync.read(201_000, 690_999));
        assert_eq!(sync.arrival(Some(690_999), 300_000).0, 201_000);
        assert!((sync.corrected_share() - 2.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_clock_behind_ours_works_as_well() {
        let mut sync = ClockSync::new();
        sync.read(1_000_000, 5);
        assert_eq!(sync.arrival(Some(10), 2_000_000).0, 1_000_005);
        // Nothing arrives after it was seen.
        assert_eq!(sync.arrival(Some(10_000_000), 2_000_000).0, 2_000_000);
    }
}
