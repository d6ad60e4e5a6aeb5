//! When to retransmit, and how much may be in flight: a timeout from the measured round trip, and a window that is
//! halved by losses.
//!
//! Queue pairs of one peer measure the same path and the same socket at its end, so they share their measurements (as
//! TCP connections may, RFC 9040). Thousands that start at the same time turn round trips of about 0.1 ms into 0.5 s;
//! if each had to learn that from its own timeouts, retransmissions would make up most of what is queued in the peer's
//! socket.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Minimum timeout: a peer's thread may be off its core for this long.
const LEAST_TIMEOUT_NS: u64 = 1_000_000;
/// Timeout until a round trip has been measured; TCP's second is meant for longer distances.
const FIRST_TIMEOUT_NS: u64 = 10_000_000;
/// This many queue pairs of one peer are a crowd: what they send may be most of what is queued in its socket.
const CROWD: usize = 64;
/// Maximum number of times that the timeout is doubled.
const MOST_DOUBLINGS: u32 = 16;
/// Losses do not reduce the window below this: with fewer packets in flight hardly any arrives out of order, so a
/// missing one is not noticed before the timeout.
const LEAST_WINDOW_PACKETS: u32 = 4;

/// Measured round trips, and the timeout derived from them (RFC 6298).
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    /// Zero: nothing has been measured.
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

/// The measurements of all requesters of one peer. Two concurrent updates may lose one of many measurements.
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
    /// The measurement in progress: the sequence number that must be acknowledged, and when it was sent.
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

    /// Records that a packet was sent for the first time whose acknowledgement is requested, and will confirm
    /// everything before `end`.
    pub(super) fn sent(&mut self, now_ns: u64, end: u64) {
        if self.measured.is_none() {
            self.measured = Some((end, now_ns));
        }
    }

    /// Records that everything before `end` was acknowledged.
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

    /// Records a retransmission: it is then unknown which transmission an acknowledgement is for (Karn).
    pub(super) fn sent_again(&mut self) {
        self.measured = None;
    }

    /// Records a timeout after this long without progress: the next one is longer, until a round trip has been measured
    /// again.
    ///
    /// In a crowd, only fast round trips are measured: the other packets are retransmitted, and their acknowledgements
    /// are not usable (Karn). So there a timeout counts as a measurement: the round trip takes at least that long.
    pub(super) fn timed_out(&mut self, waited_ns: u64) {
        if Arc::strong_count(&self.peer) > CROWD {
            self.peer.add(waited_ns);
        }
        self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
    }

    /// Whether a timeout has expired and no round trip has been measured since.
    pub(super) fn is_waiting_longer(&self) -> bool {
        self.doublings > 0
    }

    /// How long an acknowledgement may take, according to this queue pair's measurements or those of all queue pairs of
    /// the peer, whichever is longer.
    pub(super) fn timeout_ns(&self) -> u64 {
        let own_ns = self.own.timeout_ns().unwrap_or(FIRST_TIMEOUT_NS);
        let peer_ns = self.peer.get().timeout_ns().unwrap_or(0);
        let once_ns = own_ns.max(peer_ns).max(LEAST_TIMEOUT_NS);
        once_ns.saturating_mul(1 << self.doublings)
    }
}

/// Maximum number of packets in flight: all that the peer can buffer, but fewer after losses. It grows by one packet
/// for each window that was acknowledged; after a silence, until it reaches half of its former size, by one for each
/// packet.
#[derive(Clone, Debug)]
pub(super) struct Window {
    most: u32,
    packets: u32,
    /// Below it, the window grows with each packet.
    threshold: u32,
    /// Number of packets acknowledged since it last grew.
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

    /// Records that this many more packets were acknowledged.
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

    /// Records that a packet is missing while others arrive.
    pub(super) fn lost(&mut self) {
        let least = LEAST_WINDOW_PACKETS.min(self.most);
        self.packets = (self.packets / 2).max(least);
        self.threshold = self.packets;
        self.acknowledged = 0;
    }

    /// Records that nothing was received for as long as an acknowledgement may take.
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
            // Others sent meanwhile are not measured.
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
        // Those of another peer are not affected.
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
            // A single fast one does not determine the timeout.
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
