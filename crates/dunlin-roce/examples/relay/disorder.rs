//! What becomes of the packets of one direction, by a seed.

use std::collections::VecDeque;
use std::time::Duration;

/// So many packets go first, at most, before one that is late.
const OVERTAKING: u64 = 8;
/// A late packet that nobody overtakes goes after this time.
const LATEST: Duration = Duration::from_millis(1);

/// How many packets of a million have each fate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) lost: u32,
    pub(crate) doubled: u32,
    pub(crate) late: u32,
    /// Marked as by a queue that grew long, if they say that they may be.
    pub(crate) marked: u32,
}

/// How many packets had each fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) taken: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) late: u64,
    pub(crate) marked: u64,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Counts {
            taken,
            lost,
            doubled,
            late,
            marked,
        } = self;
        write!(
            f,
            "{taken} packets, {lost} lost, {doubled} doubled, {late} late, {marked} marked"
        )
    }
}

/// A packet that is late.
#[derive(Debug)]
struct Held {
    /// Packets that go first.
    behind: u64,
    due: Duration,
    bytes: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Direction {
    rates: Rates,
    /// State of splitmix64 (Steele et al., OOPSLA '14).
    random: u64,
    held: VecDeque<Held>,
    counts: Counts,
}

impl Direction {
    pub(crate) fn new(rates: Rates, seed: u64, number: u64) -> Self {
        Self {
            rates,
            random: seed.wrapping_mul(2).wrapping_add(number),
            held: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn happens(&mut self, rate: u32) -> bool {
        self.random() % 1_000_000 < u64::from(rate)
    }

    /// Takes a packet; `send` is given what goes on now.
    pub(crate) fn take(&mut self, now: Duration, packet: &[u8], send: &mut impl FnMut(&[u8])) {
        // As many numbers for every packet, whatever becomes of it.
        let lost = self.happens(self.rates.lost);
        let doubled = self.happens(self.rates.doubled);
        let late = self.happens(self.rates.late);
        let behind = 1 + self.random() % OVERTAKING;
        let marked = self.happens(self.rates.marked).then(|| marked(packet));
        let packet = match &marked {
            Some(Some(marked)) => {
                self.counts.marked += 1;
                marked
            }
            _ => packet,
        };
        self.counts.taken += 1;
        if lost {
            self.counts.lost += 1;
            return;
        }
        if doubled {
            self.counts.doubled += 1;
            send(packet);
        }
        if late {
            self.counts.late += 1;
            self.held.push_back(Held {
                behind,
                due: now + LATEST,
                bytes: packet.to_vec(),
            });
            return;
        }
        send(packet);
        for held in &mut self.held {
            held.behind -= u64::from(held.behind > 0);
        }
        self.send_held(send, |held| held.behind == 0);
    }

    /// Sends late packets whose time has come.
    pub(crate) fn release(&mut self, now: Duration, send: &mut impl FnMut(&[u8])) {
        self.send_held(send, |held| held.due <= now);
    }

    fn send_held(&mut self, send: &mut impl FnMut(&[u8]), ready: impl Fn(&Held) -> bool) {
        self.held.retain(|held| {
            let ready = ready(held);
            if ready {
                send(&held.bytes);
            }
            !ready
        });
    }

    /// When [`Direction::release`] is to be called.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.held.front().map(|held| held.due)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }
}

/// The packet with the mark of congestion (RFC 3168), if it says that it may be marked.
fn marked(packet: &[u8]) -> Option<Vec<u8>> {
    let mut packet = packet.to_vec();
    match packet.first()? >> 4 {
        4 if packet.len() >= 20 && matches!(packet[1] & 3, 1 | 2) => {
            packet[1] |= 3;
            packet[10..12].fill(0);
            let words = packet[..20].chunks_exact(2);
            let sum: u32 = words
                .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
                .sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            packet[10..12].copy_from_slice(&(!sum as u16).to_be_bytes());
        }
        6 if packet.len() >= 40 && matches!(packet[1] >> 4 & 3, 1 | 2) => packet[1] |= 3 << 4,
        _ => return None,
    }
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates = Rates {
        lost: 50_000,
        doubled: 50_000,
        late: 50_000,
        marked: 0,
    };

    #[test]
    fn a_packet_that_may_be_marked_is_and_its_checksum_is_right() {
        // From 192.168.0.1 to 192.168.0.199, UDP: its checksum is 0xb861, and each mark takes one from it.
        let mut packet = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(marked(&packet), None);
        packet[1] = 2;
        packet[11] -= 2;
        let marked = marked(&packet).unwrap();
        assert_eq!(marked[1], 3);
        assert_eq!(marked[10..12], [0xb8, 0x5e]);
        let mut v6 = [0; 40];
        v6[0] = 0x60;
        assert_eq!(super::marked(&v6), None);
        v6[1] = 0x20;
        assert_eq!(super::marked(&v6).unwrap()[1], 0x30);
    }

    /// The packets that come out of `count` that go in.
    fn run(rates: Rates, seed: u64, count: u32) -> (Vec<u32>, Counts) {
        let mut direction = Direction::new(rates, seed, 0);
        let mut out = Vec::new();
        let mut send = |packet: &[u8]| {
            out.push(u32::from_le_bytes(packet.try_into().unwrap()));
        };
        for number in 0..count {
            direction.take(Duration::ZERO, &number.to_le_bytes(), &mut send);
        }
        direction.release(LATEST, &mut send);
        assert_eq!(direction.due(), None);
        (out, direction.counts())
    }

    #[test]
    fn each_fate_has_its_rate_and_the_seed_replays_it() {
        let (out, counts) = run(RATES, 7, 100_000);
        for one in [counts.lost, counts.doubled, counts.late] {
            assert!((4_000..6_000).contains(&one), "{counts}");
        }
        assert!(out.len() as u64 <= counts.taken - counts.lost + counts.doubled);
        assert!(!out.is_sorted());
        assert_eq!(run(RATES, 7, 100_000), (out.clone(), counts));
        assert_ne!(run(RATES, 8, 100_000).0, out);
    }

    #[test]
    fn without_rates_packets_go_as_they_come() {
        let (out, _) = run(Rates::default(), 7, 1_000);
        assert!(out.into_iter().eq(0..1_000));
    }

    #[test]
    fn a_late_packet_is_overtaken_and_comes() {
        let late = Rates {
            late: 100_000,
            ..Rates::default()
        };
        let (mut out, _) = run(late, 3, 1_000);
        assert!(!out.is_sorted());
        out.sort_unstable();
        assert!(out.into_iter().eq(0..1_000));
    }
}
