//! The NIC's clock and the processor's (Flor A.2.1): timestamps use the one, timers the other.
//!
//! The paper queries the NIC's clock every 100 µs and corrects errors of more than 10 µs; the same is done here if a
//! device's clock can be queried ([`AskedClock`]). Most cannot. Then only completions are available: each is a reading
//! of the NIC's clock that is late by its time in the queue, and a thread that has been busy or asleep reads it tens of
//! microseconds late. Used directly, such readings would make a late poll look like a long round trip. So the reading
//! with the least delay counts, corrected for how far the clocks may have drifted apart since.

use super::asked::{AskedClock, ClockCounts};

/// Trust in the best reading decreases by a nanosecond per this many: several times the drift between two clocks, so
/// that the next timely reading replaces it.
const DRIFT_SHARE: u64 = 1_000;
/// A reading that is further behind was late: it says nothing about the clocks. The paper's bound for an error.
pub const TIMELY_NS: u64 = 10_000;
/// After this many consecutive late readings, over at least `LATE_NS`, the thread is not late: the NIC's clock was
/// set back.
pub const LATE_READINGS: u32 = 64;
/// See [`LATE_READINGS`].
pub const LATE_NS: u64 = 10_000_000;

/// The clock that a timestamp refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockSource {
    /// The NIC's.
    Hardware,
    /// The processor's, when the completion was polled.
    Software,
}

/// The best reading so far.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The NIC's clock minus the processor's, wrapping.
    offset_ns: u64,
    at_ns: u64,
}

/// Tracks the offset of the NIC's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockSync {
    best: Option<Reading>,
    /// Time of the last reading that was not late.
    timely_ns: u64,
    /// Number of late ones since.
    late: u32,
    /// The offset from a device whose clock can be queried: then nothing else counts.
    asked: AskedClock,
}

impl ClockSync {
    /// Creates an instance without readings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Handles a completion seen at `now_ns` that happened at `hardware_ns` by the NIC's clock. `ask` queries that
    /// clock; it is called if a query is due, and returns `None` if the clock cannot be queried.
    pub fn see(&mut self, now_ns: u64, hardware_ns: u64, ask: impl FnOnce() -> Option<u64>) {
        if self.asked.is_due(now_ns) {
            if let Some(shown_ns) = ask() {
                self.asked.answered(now_ns, shown_ns);
            }
        }
        if self.asked.offset_ns().is_none() {
            self.read(now_ns, hardware_ns);
        }
    }

    /// How often the device's clock was queried and corrected; zero if it cannot be queried.
    pub fn counts(&self) -> ClockCounts {
        self.asked.counts()
    }

    /// Uses a completion as a reading: it was seen at `now_ns` and happened at `hardware_ns` by the NIC's clock.
    pub fn read(&mut self, now_ns: u64, hardware_ns: u64) {
        let offset_ns = hardware_ns.wrapping_sub(now_ns);
        if let Some(best) = self.best {
            let drifted_ns = now_ns.saturating_sub(best.at_ns) / DRIFT_SHARE;
            let behind_ns = best
                .offset_ns
                .wrapping_sub(drifted_ns)
                .wrapping_sub(offset_ns);
            // A reading ahead of the best one is beyond half the range, since numbers wrap.
            if behind_ns <= i64::MAX as u64 && !self.is_set_back(now_ns, behind_ns) {
                return;
            }
        }
        self.best = Some(Reading {
            offset_ns,
            at_ns: now_ns,
        });
        self.timely_ns = now_ns;
        self.late = 0;
    }

    /// Counts a reading that is this far behind the best one. Returns whether there were too many of them to be
    /// explained by a late thread.
    fn is_set_back(&mut self, now_ns: u64, behind_ns: u64) -> bool {
        if behind_ns <= TIMELY_NS {
            self.timely_ns = now_ns;
            self.late = 0;
            return false;
        }
        self.late = self.late.saturating_add(1);
        self.late >= LATE_READINGS && now_ns.saturating_sub(self.timely_ns) >= LATE_NS
    }

    /// Converts a timestamp of the NIC to the processor's clock, and returns which clock it is based on: without a
    /// timestamp or an offset, it is `polled_ns`, when the completion was seen. Never later than that.
    pub fn arrival(&self, timestamp_ns: Option<u64>, polled_ns: u64) -> (u64, ClockSource) {
        let known = self.asked.offset_ns();
        let known = known.or_else(|| self.best.map(|best| best.offset_ns));
        match (timestamp_ns, known) {
            (Some(timestamp), Some(offset_ns)) => {
                let here = timestamp.wrapping_sub(offset_ns);
                (here.min(polled_ns), ClockSource::Hardware)
            }
            _ => (polled_ns, ClockSource::Software),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What `sync` makes of something that happened at `at_ns` and was seen `late_ns` later, with a NIC clock that is
    /// ahead by `ahead_ns`.
    fn look(sync: &mut ClockSync, at_ns: u64, late_ns: u64, ahead_ns: u64) -> u64 {
        let hardware = at_ns.wrapping_add(ahead_ns);
        sync.read(at_ns + late_ns, hardware);
        sync.arrival(Some(hardware), at_ns + late_ns).0
    }

    #[test]
    fn the_reading_that_was_least_late_counts() {
        // Ahead, behind, and wrapping.
        for ahead in [0, 500_000, u64::MAX - 700_000] {
            let mut sync = ClockSync::new();
            assert_eq!(sync.arrival(Some(7), 50), (50, ClockSource::Software));
            // The first is late by 60 µs, and taken as correct.
            assert_eq!(look(&mut sync, 1_000_000, 60_000, ahead), 1_060_000);
            // One that is late by 300 ns corrects it, and later ones do not affect it.
            assert_eq!(look(&mut sync, 1_100_000, 300, ahead), 1_100_300);
            assert_eq!(look(&mut sync, 1_200_000, 60_000, ahead), 1_200_300);
            assert_eq!(look(&mut sync, 1_300_000, 5_000, ahead), 1_300_300);
            assert_eq!(sync.arrival(None, 9).1, ClockSource::Software);
        }
    }

    #[test]
    fn nothing_arrives_after_it_was_seen() {
        let mut sync = ClockSync::new();
        sync.read(1_000_000, 5);
        assert_eq!(sync.arrival(Some(10_000_000), 2_000_000).0, 2_000_000);
    }

    #[test]
    fn a_clock_that_is_set_back_is_followed_and_a_thread_that_is_late_is_not() {
        let mut sync = ClockSync::new();
        look(&mut sync, 1_000_000_000, 0, 500_000_000);
        let mut at = 1_000_000_000;
        for _ in 0..LATE_READINGS - 1 {
            at += 200_000;
            assert!(look(&mut sync, at, 90_000, 500_000_000) <= at);
        }
        // A timely one shows that the thread was late.
        at += 200_000;
        look(&mut sync, at, 1_000, 500_000_000);
        for _ in 0..LATE_READINGS {
            at += 200_000;
            look(&mut sync, at, 1_000, 400_000_000);
        }
        at += 200_000;
        assert_eq!(look(&mut sync, at, 2_000, 400_000_000), at + 1_000);
    }

    #[test]
    fn what_the_device_says_counts_more_than_completions() {
        let mut sync = ClockSync::new();
        sync.see(1_000_000, 700_000, || None);
        assert_eq!(sync.arrival(Some(700_000), 1_000_000).0, 1_000_000);
        assert_eq!(sync.counts(), ClockCounts::default());
        // According to the query it is 250 us behind, so the completion waited for 50 us.
        sync.see(1_000_000, 700_000, || Some(750_000));
        assert_eq!(sync.arrival(Some(700_000), 1_000_000).0, 950_000);
        sync.see(1_050_000, 790_000, || unreachable!("not yet"));
        sync.see(1_100_000, 790_000, || Some(855_000));
        assert_eq!(sync.arrival(Some(700_000), 1_000_000).0, 950_000);
        assert_eq!(sync.counts().asked, 1);
        sync.see(1_200_000, 790_000, || Some(960_001));
        assert_eq!(sync.counts().corrected, 1);
        assert_eq!(sync.arrival(Some(900_000), 1_200_000).0, 1_139_999);
    }

    proptest! {
        /// With clocks that drift, polls that are up to 90 µs late, and one in eight on time, the converted timestamp
        /// is off by 3 µs at most.
        #[test]
        fn drift_is_followed(
            parts_per_million in -190_i64..190,
            looks in prop::collection::vec((1_u64..200_000, 0_u64..90_000), 50..400),
        ) {
            let mut sync = ClockSync::new();
            let mut at = 1_000_000;
            for (index, (step, late)) in looks.into_iter().enumerate() {
                at += step;
                let late = if index % 8 == 0 { late % 100 } else { late };
                let drifted = at as i64 * parts_per_million / 1_000_000;
                let error = look(&mut sync, at, late, drifted as u64) as i64 - at as i64;
                prop_assert!(error.abs() <= 3_000, "{error} ns, {late} ns late");
            }
        }
    }
}
