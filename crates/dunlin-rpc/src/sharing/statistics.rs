//! What a thread has sent, for the thread scheduler (FLOCK §5.2): counted by the thread, taken by the scheduler.
//!
//! The median is kept to a power of two: Algorithm 1 sorts by it, and only needs to distinguish large from small.

use std::sync::atomic::{AtomicU64, Ordering};

use super::assignment::Sent;

/// One count for each power of two of a length in bytes.
const CLASSES: usize = 32;

/// The counts of a thread. Only the thread adds; the scheduler remembers what it last saw.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    classes: [AtomicU64; CLASSES],
    bytes: AtomicU64,
}

/// What the scheduler last saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    classes: [u64; CLASSES],
    bytes: u64,
}

/// What the scheduler saw at the ends of the last two intervals.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeenTwice {
    pub(crate) before: Seen,
    pub(crate) last: Seen,
}

impl Counts {
    /// Counts a request of this length; called only by the thread that the counts belong to.
    #[inline]
    pub(crate) fn add(&self, bytes: usize) {
        let class = (usize::BITS - bytes.leading_zeros()).min(CLASSES as u32 - 1) as usize;
        let bump = |count: &AtomicU64, by: u64| {
            count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed);
        };
        bump(&self.classes[class], 1);
        bump(&self.bytes, bytes as u64);
    }

    /// Returns what was sent since `seen`, which is updated.
    pub(crate) fn since(&self, seen: &mut Seen) -> Sent {
        let mut counts = [0; CLASSES];
        for (class, count) in counts.iter_mut().enumerate() {
            let now = self.classes[class].load(Ordering::Relaxed);
            *count = now - std::mem::replace(&mut seen.classes[class], now);
        }
        let bytes = self.bytes.load(Ordering::Relaxed);
        let requests: u64 = counts.iter().sum();
        let mut passed = 0;
        let middle = counts.iter().position(|&count| {
            passed += count;
            requests > 0 && passed >= requests.div_ceil(2)
        });
        Sent {
            median: middle.map_or(0, |class| (1u64 << class) >> 1),
            requests,
            bytes: bytes - std::mem::replace(&mut seen.bytes, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_number_and_bytes_since_the_last_look() {
        let (counts, mut seen) = (Counts::default(), Seen::default());
        assert_eq!(counts.since(&mut seen), Sent::default());
        for bytes in [64, 64, 64, 4096, 0] {
            counts.add(bytes);
        }
        let sent = |median, requests, bytes| Sent {
            median,
            requests,
            bytes,
        };
        assert_eq!(counts.since(&mut seen), sent(64, 5, 4288));
        assert_eq!(counts.since(&mut seen), sent(0, 0, 0));
        counts.add(1000);
        assert_eq!(counts.since(&mut seen), sent(512, 1, 1000));
    }
}
