//! When a packet of a session may be sent: the rate limiter of eRPC (§5.2; Carousel's, for one session).
//!
//! eRPC keeps packets of all sessions in a wheel ordered by time. Here a lane is one session and is polled by its own
//! thread, so only the time of its next packet is kept, and the packet is not made earlier.

/// The time of a session's next packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pacer {
    next_ns: u64,
}

impl Pacer {
    /// Whether a packet may be sent now.
    #[inline]
    pub(crate) fn lets_go(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// To be called when a packet of this length was sent, at a rate in bytes per second. Time in which nothing was
    /// sent is not made up for.
    #[inline]
    pub(crate) fn left(&mut self, bytes: usize, rate: f64, now_ns: u64) {
        let takes = (bytes as f64 * 1e9 / rate) as u64;
        self.next_ns = self.next_ns.max(now_ns).saturating_add(takes);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn over_any_stretch_no_more_leaves_than_the_rate_allows(
            looks in prop::collection::vec((0u64..100_000, 64usize..4096), 1..300), rate in 2e6f64..1e10
        ) {
            let mut pacer = Pacer::default();
            let (mut now, mut sent, mut last) = (0, 0.0, 0.0);
            for (pause, bytes) in looks {
                now += pause;
                if pacer.lets_go(now) {
                    pacer.left(bytes, rate, now);
                    sent += bytes as f64;
                    last = bytes as f64;
                }
            }
            prop_assert!(sent - last <= now as f64 * rate / 1e9 + 1.0 + 300.0 * rate / 1e9);
        }
    }

    #[test]
    fn a_pause_is_no_credit_for_a_burst() {
        let mut pacer = Pacer::default();
        pacer.left(1000, 1e9, 1_000_000);
        assert!(!pacer.lets_go(1_000_999));
        assert!(pacer.lets_go(1_001_000));
        pacer.left(1000, 1e9, 9_000_000);
        assert!(!pacer.lets_go(9_000_999));
    }
}
