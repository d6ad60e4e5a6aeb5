//! When to send again, and how much at a time: a timeout from the measured round trip, and a window that losses halve.
//!
//! Queue pairs of one peer measure the same way and the same socket at its end, so they share what they measure (as
//! TCP's connections may, RFC 9040). Thousands that come at once make round trips of some 0.1 ms ones of 0.5 s; if each
//! had to learn that by its own timeouts, what they send again would be most of what stands in the peer's socket.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Nothing is sent again sooner: a peer's thread may be off its core for so long.
const LEAST_TIMEOUT_NS: u64 = 1_000_000;
/// The timeout before a round trip was measured; TCP's second is for other distances.
const FIRST_TIMEOUT_NS: u64 = 10_000_000;
/// So many queue pairs of one peer are a crowd: what they send can be most of what stands in its socket.
const CROWD: usize = 64;
/// The timeout is doubled so often at most.
const MOST_DOUBLINGS: u32 = 16;
/// Losses do not make the window smaller than this: with fewer packets on their way hardly one arrives out of order,
/// and so nobody notices before the timeout that one is missing.
const LEAST_WINDOW_PACKETS: u32 = 4;

/// What was measured of round trips, and the timeout that follows from it (RFC 6298).
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    /// Zero: nothing was measured.
    smoothed_ns: u64,
    variation_ns: u64,
}

impl Estimate {
    fn add(&mut self, measured_ns: u64) {
        let measured_ns = measured_ns.max(1);
        if self.smoothed_ns == 0 {
            self.smoothed_ns = measured_ns;
            self.variation_ns = measured_ns / 2;
            return;
        }
        let difference_ns = self.smoothed_ns.abs_diff(measured_ns);
        self.variation_ns = self.variation_ns - self.variation_ns / 4 + difference_ns / 4;
        self.smoothed_ns = (self.smoothed_ns - self.smoothed_ns / 8 + measured_ns / 8).max(1);
    }

    fn timeout_ns(&self) -> Option<u64> {
        let timeout_ns = self.variation_ns.saturating_mul(4);
        (self.smoothed_ns > 0).then(|| timeout_ns.saturating_add(self.smoothed_ns))
    }
}

/// What all requesters of one peer have measured. Two that add at once may lose one measurement of many.
#[derive(Debug, Default)]
pub struct PeerRoundTrip {
    smoothed_ns: AtomicU64,
    variation_ns: AtomicU64,
}

impl PeerRoundTrip {
    fn get(&self) -> Estimate {
        Estimate {
            smoothed_ns: self.smoothed_ns.load(Ordering::Relaxed),
            variation_ns: self.variation_ns.load(Ordering::Relaxed),
        }
    }

    fn add(&self, measured_ns: u64) {
        let mut estimate = self.get();
        estimate.add(measured_ns);
        self.smoothed_ns
            .store(estimate.smoothed_ns, Ordering::Relaxed);
        self.variation_ns
            .store(estimate.variation_ns, Ordering::Relaxed);
    }
}

/// The time from a packet to its acknowledgement.
#[derive(Clone, Debug)]
pub(super) struct RoundTrip {
    own: Estimate,
    peer: Arc<PeerRoundTrip>,
    /// What is being measured: the sequence number that has to be acknowledged, and when it was sent.
    measured: Option<(u64, u64)>,
    doublings: u32,
}

impl RoundTrip {
    pub(super) fn new(peer: Arc<PeerRoundTrip>) -> Self {
        Self {
            own: Estimate::default(),
            peer,
            measured: None,
            doublings: 0,
        }
    }

    /// A packet whose acknowledgement is asked for, and which says that everything before `end` has come, was sent for
    /// the first time.
    pub(super) fn sent(&mut self, now_ns: u64, end: u64) {
        if self.measured.is_none() {
            self.measured = Some((end, now_ns));
        }
    }

    /// Everything before `end` was acknowledged.
    pub(super) fn acknowledged(&mut self, now_ns: u64, end: u64) {
        let Some((_, sent_ns)) = self.measured.filter(|(measured, _)| end >= *measured) else {
            return;
        };
        self.measured = None;
        self.doublings = 0;
        let measured_ns = now_ns.saturating_sub(sent_ns);
        self.own.add(measured_ns);
        self.peer.add(measured_ns);
    }

    /// Packets are sent again: nobody knows any more which of them an acknowledgement is for (Karn).
    pub(super) fn sent_again(&mut self) {
        self.measured = None;
    }

    /// The timeout has passed, after so long without progress: the next one is longer, until a round trip was measured
    /// again.
    ///
    /// In a crowd only quick packets are measured: the others are sent again, and what is acknowledged then tells
    /// nothing (Karn). So a timeout counts as a measurement there: the round trip takes at least as long.
    pub(super) fn timed_out(&mut self, waited_ns: u64) {
        if Arc::strong_count(&self.peer) > CROWD {
            self.peer.add(waited_ns);
        }
        self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
    }

    /// Whether a timeout has passed, and no round trip was measured since.
    pub(super) fn is_waiting_longer(&self) -> bool {
        self.doublings > 0
    }

    /// How long an acknowledgement may take, by what this queue pair has measured or all of the peer have, whichever is
    /// more.
    pub(super) fn timeout_ns(&self) -> u64 {
        let own_ns = self.own.timeout_ns().unwrap_or(FIRST_TIMEOUT_NS);
        let peer_ns = self.peer.get().timeout_ns().unwrap_or(0);
        let once_ns = own_ns.max(peer_ns).max(LEAST_TIMEOUT_NS);
        once_ns.saturating_mul(1 << self.doublings)
    }
}

/// Packets that may be on their way at once: all that the peer can keep, but fewer after losses. Grows by a packet for
/// each window that was acknowledged, and up to half of what it was before a silence with each packet.
#[derive(Clone, Debug)]
pub(super) struct Window {
    most: u32,
    packets: u32,
    /// Below it the window grows with each packet.
    threshold: u32,
    /// Packets acknowledged since it grew last.
    acknowledged: u32,
}

impl Window {
    pub(super) fn new(most: u32) -> Self {
        Self {
            most,
            packets: most,
            threshold: most,
            acknowledged: 0,
        }
    }

    pub(super) fn packets(&self) -> u32 {
        self.packets
    }

    /// So many packets more were acknowledged.
    pub(super) fn acknowledged(&mut self, packets: u64) {
        if self.packets >= self.most {
            return;
        }
        let mut packets = u32::try_from(packets).unwrap_or(u32::MAX).min(self.most);
        if self.packets < self.threshold {
            let grown = packets.min(self.threshold - self.packets);
            self.packets += grown;
            packets -= grown;
        }
        self.acknowledged += packets;
        while self.acknowledged >= self.packets && self.packets < self.most {
            self.acknowledged -= self.packets;
            self.packets += 1;
        }
    }

    /// A packet is missing, and others arrive.
    pub(super) fn lost(&mut self) {
        let least = LEAST_WINDOW_PACKETS.min(self.most);
        self.packets = (self.packets / 2).max(least);
        self.threshold = self.packets;
        self.acknowledged = 0;
    }

    /// Nothing was heard for as long as an acknowledgement may take.
    pub(super) fn silent(&mut self) {
        self.lost();
        self.packets = LEAST_WINDOW_PACKETS.min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_round_trip() {
        let mut trip = RoundTrip::new(Arc::default());
        assert_eq!(trip.timeout_ns(), FIRST_TIMEOUT_NS);
        let mut now = 0;
        for (round, delay) in [4_000_000; 50].into_iter().enumerate() {
            trip.sent(now, round as u64 + 1);
            // Others that leave meanwhile are not measured.
            trip.sent(now + 1, round as u64 + 2);
            trip.acknowledged(now + 1, round as u64);
            now += delay;
            trip.acknowledged(now, round as u64 + 1);
        }
        let timeout = trip.timeout_ns();
        assert!((4_000_000..4_100_000).contains(&timeout), "{timeout}");
        trip.sent(now, 1_000);
        trip.acknowledged(now + 12_000_000, 1_000);
        assert!(trip.timeout_ns() > 12_000_000);
        for round in 2_000..2_100 {
            trip.sent(now, round);
            trip.acknowledged(now + 20_000, round);
        }
        assert_eq!(trip.timeout_ns(), LEAST_TIMEOUT_NS);
    }

    #[test]
    fn what_others_of_the_peer_have_measured_counts() {
        let peer = Arc::new(PeerRoundTrip::default());
        let mut slow = RoundTrip::new(Arc::clone(&peer));
        let mut other = RoundTrip::new(Arc::clone(&peer));
        other.sent(0, 1);
        other.acknowledged(10_000, 1);
        slow.sent(0, 1);
        slow.acknowledged(500_000_000, 1);
        assert!(other.timeout_ns() > 62_500_000);
        assert!(RoundTrip::new(Arc::clone(&peer)).timeout_ns() > 62_500_000);
        // Those of another peer are not waited for.
        assert_eq!(
            RoundTrip::new(Arc::default()).timeout_ns(),
            FIRST_TIMEOUT_NS
        );
        for round in 1..200 {
            other.sent(0, round + 1);
            other.acknowledged(10_000, round + 1);
        }
        assert_eq!(other.timeout_ns(), LEAST_TIMEOUT_NS);
        assert!(slow.timeout_ns() > 500_000_000);
    }

    #[test]
    fn a_crowd_learns_from_timeouts() {
        for (count, crowd) in [(8, false), (CROWD, true)] {
            let peer = Arc::new(PeerRoundTrip::default());
            let new = |_| RoundTrip::new(Arc::clone(&peer));
            let mut all: Vec<RoundTrip> = (0..count).map(new).collect();
            for one in &mut all[1..] {
                one.sent(0, 1);
                one.timed_out(FIRST_TIMEOUT_NS);
                one.sent_again();
            }
            // One that was quick is not the measure of all.
            all[0].sent(0, 1);
            all[0].acknowledged(10_000, 1);
            assert_eq!(all[0].timeout_ns() > LEAST_TIMEOUT_NS, crowd);
        }
    }

    #[test]
    fn a_silence_that_all_hear_is_as_long_for_them_as_it_was() {
        let silence_ns = 67_000_000;
        let peer = Arc::new(PeerRoundTrip::default());
        let new = |_| RoundTrip::new(Arc::clone(&peer));
        let mut all: Vec<RoundTrip> = (0..4 * CROWD).map(new).collect();
        for one in &mut all {
            one.timed_out(silence_ns);
        }
        let next = RoundTrip::new(Arc::clone(&peer));
        assert!((silence_ns..4 * silence_ns).contains(&next.timeout_ns()));
    }

    #[test]
    fn silence_doubles_the_timeout_until_a_first_sending_is_acknowledged() {
        let mut trip = RoundTrip::new(Arc::default());
        trip.sent(0, 1);
        trip.acknowledged(10_000, 1);
        trip.sent(20_000, 2);
        trip.timed_out(LEAST_TIMEOUT_NS);
        trip.sent_again();
        trip.timed_out(LEAST_TIMEOUT_NS);
        assert_eq!(trip.timeout_ns(), 4 * LEAST_TIMEOUT_NS);
        trip.acknowledged(2_000_000, 2);
        assert_eq!(trip.timeout_ns(), 4 * LEAST_TIMEOUT_NS);
        trip.sent(2_000_000, 3);
        trip.acknowledged(2_010_000, 3);
        assert_eq!(trip.timeout_ns(), LEAST_TIMEOUT_NS);
        for _ in 0..100 {
            trip.timed_out(LEAST_TIMEOUT_NS);
        }
        assert_eq!(trip.timeout_ns(), LEAST_TIMEOUT_NS << MOST_DOUBLINGS);
    }

    #[test]
    fn losses_halve_the_window_and_acknowledgements_open_it() {
        let mut window = Window::new(128);
        window.acknowledged(1_000);
        assert_eq!(window.packets(), 128);
        window.lost();
        assert_eq!(window.packets(), 64);
        window.acknowledged(63);
        assert_eq!(window.packets(), 64);
        window.acknowledged(1);
        assert_eq!(window.packets(), 65);
        window.silent();
        assert_eq!(window.packets(), LEAST_WINDOW_PACKETS);
        window.acknowledged(28);
        assert_eq!(window.packets(), 32);
        window.acknowledged(31);
        assert_eq!(window.packets(), 32);
        window.acknowledged(1);
        assert_eq!(window.packets(), 33);
        for _ in 0..1_000 {
            window.acknowledged(u64::MAX);
        }
        assert_eq!(window.packets(), 128);
    }

    #[test]
    fn a_peer_that_keeps_little_has_a_small_window() {
        let mut window = Window::new(2);
        window.lost();
        window.silent();
        assert_eq!(window.packets(), 2);
        window.acknowledged(5);
        assert_eq!(window.packets(), 2);
    }
}
