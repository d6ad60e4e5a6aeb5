//! The paper's way to follow the NIC's clock (A.2.1): it is queried, and an error that is large enough is corrected.

/// A clock that was last queried this long ago is queried again with the next operation.
pub const ASK_NS: u64 = 100_000;
/// An error up to this is not corrected: the answer itself may be late by about as much.
pub const ERROR_NS: u64 = 10_000;

/// How often a clock was queried, and how often that led to a correction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockCounts {
    /// Number of queries, not counting the first one, which has nothing to correct.
    pub asked: u64,
    /// Number of times that the error was more than [`ERROR_NS`].
    pub corrected: u64,
}

/// An answer of the device.
#[derive(Clone, Copy, Debug)]
struct Answer {
    /// The NIC's clock minus the processor's, wrapping, as last corrected.
    offset_ns: u64,
    /// When it was last queried.
    at_ns: u64,
}

/// Tracks the offset of the NIC's clock by querying it.
#[derive(Clone, Copy, Debug, Default)]
pub struct AskedClock {
    last: Option<Answer>,
    counts: ClockCounts,
}

impl AskedClock {
    /// Whether the next operation should query the clock.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.last
            .is_none_or(|last| now_ns.saturating_sub(last.at_ns) >= ASK_NS)
    }

    /// Records that the NIC's clock showed `hardware_ns` when it was queried at `now_ns`.
    pub fn answered(&mut self, now_ns: u64, hardware_ns: u64) {
        let offset_ns = hardware_ns.wrapping_sub(now_ns);
        let Some(last) = &mut self.last else {
            self.last = Some(Answer {
                offset_ns,
                at_ns: now_ns,
            });
            return;
        };
        last.at_ns = now_ns;
        self.counts.asked += 1;
        let error = offset_ns.wrapping_sub(last.offset_ns) as i64;
        if error.unsigned_abs() > ERROR_NS {
            self.counts.corrected += 1;
            last.offset_ns = offset_ns;
        }
    }

    /// By how much the NIC's clock is ahead, wrapping; `None` before the first answer.
    pub fn offset_ns(&self) -> Option<u64> {
        self.last.map(|last| last.offset_ns)
    }

    /// See [`ClockCounts`].
    pub fn counts(&self) -> ClockCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queries a clock that gains this many parts per million every 100 us, `rounds` times.
    fn ask(parts_per_million: i64, ahead_ns: u64, rounds: u64) -> AskedClock {
        let mut clock = AskedClock::default();
        for round in 0..rounds {
            let now = 1_000_000 + round * ASK_NS;
            assert!(clock.is_due(now));
            let gained = now as i64 * parts_per_million / 1_000_000;
            let hardware = now.wrapping_add(ahead_ns).wrapping_add(gained as u64);
            clock.answered(now, hardware);
            assert!(!clock.is_due(now + ASK_NS - 1));
            let known = clock.offset_ns().expect("it was asked");
            let error = hardware.wrapping_sub(now).wrapping_sub(known) as i64;
            assert!(error.unsigned_abs() <= ERROR_NS);
        }
        clock
    }

    #[test]
    fn a_clock_is_corrected_when_it_has_drifted_far_enough() {
        for ahead in [0, 77, u64::MAX - 500_000] {
            // 10 ns each time: after 1,001 of them the error exceeds 10 us.
            for drift in [100, -100] {
                let counts = ask(drift, ahead, 4_005).counts();
                assert_eq!((counts.asked, counts.corrected), (4_004, 4));
            }
            assert_eq!(ask(0, ahead, 5_000).counts().corrected, 0);
        }
    }
}
