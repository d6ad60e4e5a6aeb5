//! The ring between the threads that complete requests and the one that polls: bounded, with many producers and one
//! consumer.
//!
//! Each slot has a sequence number (Vyukov): `position` when it is free for the producer of that position, `position +
//! 1` when it is full. A full ring refuses the entry; the caller reports that as an overrun.

use crate::sync::{AtomicU64, Ordering, UnsafeCell};

#[repr(align(64))]
#[derive(Debug)]
struct Line<T>(T);

#[derive(Debug)]
struct Slot<T> {
    sequence: AtomicU64,
    value: UnsafeCell<T>,
}

/// The completion ring.
#[derive(Debug)]
pub(crate) struct CompletionRing<T> {
    mask: u64,
    slots: Box<[Slot<T>]>,
    tail: Line<AtomicU64>,
    head: Line<AtomicU64>,
}

// SAFETY: a slot's value is accessed by the producer that won its position, then, after the release store of the
// sequence, by the one consumer; never by two threads at once. `T` moves between threads.
unsafe impl<T: Send> Sync for CompletionRing<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for CompletionRing<T> {}

impl<T: Copy> CompletionRing<T> {
    /// Creates a ring of at least `entries`, rounded up to a power of two.
    pub(crate) fn new(entries: usize, blank: T) -> Self {
        let capacity = entries.next_power_of_two().max(2);
        Self {
            mask: capacity as u64 - 1,
            slots: (0..capacity as u64)
                .map(|position| Slot {
                    sequence: AtomicU64::new(position),
                    value: UnsafeCell::new(blank),
                })
                .collect(),
            tail: Line(AtomicU64::new(0)),
            head: Line(AtomicU64::new(0)),
        }
    }

    /// Number of entries that fit.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Adds `value`; `false` if the ring is full.
    pub(crate) fn push(&self, value: T) -> bool {
        let mut position = self.tail.0.load(Ordering::Relaxed);
        loop {
            let slot = &self.slots[(position & self.mask) as usize];
            let ahead = slot.sequence.load(Ordering::Acquire).wrapping_sub(position) as i64;
            if ahead < 0 {
                return false;
            }
            if ahead > 0 {
                position = self.tail.0.load(Ordering::Relaxed);
                continue;
            }
            match self.tail.0.compare_exchange_weak(
                position,
                position + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // SAFETY: the exchange gave this position to us alone, and the acquire load above saw the
                    // consumer's release of the slot.
                    slot.value.with_mut(|place| unsafe { place.write(value) });
                    slot.sequence.store(position + 1, Ordering::Release);
                    return true;
                }
                Err(now) => position = now,
            }
        }
    }

    /// Takes the oldest entry.
    ///
    /// # Safety
    /// Must be called by only one thread at a time.
    #[inline]
    pub(crate) unsafe fn pop(&self) -> Option<T> {
        let position = self.head.0.load(Ordering::Relaxed);
        let slot = &self.slots[(position & self.mask) as usize];
        if slot.sequence.load(Ordering::Acquire) != position + 1 {
            return None;
        }
        // SAFETY: the sequence shows that the producer is done with the slot, and we are the only consumer.
        let value = slot.value.with(|place| unsafe { place.read() });
        slot.sequence
            .store(position + self.mask + 1, Ordering::Release);
        self.head.0.store(position + 1, Ordering::Relaxed);
        Some(value)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::CompletionRing;

    #[test]
    fn is_first_in_first_out_and_refuses_when_full() {
        let ring = CompletionRing::new(3, 0u32);
        assert_eq!(ring.capacity(), 4);
        for lap in 0..5 {
            for i in 0..4 {
                assert!(ring.push(lap * 10 + i));
            }
            assert!(!ring.push(99));
            for i in 0..4 {
                // SAFETY: this thread is the only consumer.
                assert_eq!(unsafe { ring.pop() }, Some(lap * 10 + i));
            }
            // SAFETY: as above.
            assert_eq!(unsafe { ring.pop() }, None);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::CompletionRing;
    use loom::sync::Arc;

    /// Two producers and a consumer: every entry arrives once, complete, and in its producer's order.
    #[test]
    fn loom_completion_ring() {
        loom::model(|| {
            let ring = Arc::new(CompletionRing::new(2, (0u32, 0u32)));
            let producers: Vec<_> = (1..=2u32)
                .map(|who| {
                    let ring = Arc::clone(&ring);
                    loom::thread::spawn(move || ring.push((who, who * 100)))
                })
                .collect();
            let mut seen = Vec::new();
            for _ in 0..2 {
                // SAFETY: this thread is the only consumer.
                if let Some(value) = unsafe { ring.pop() } {
                    seen.push(value);
                }
            }
            for producer in producers {
                assert!(producer.join().unwrap());
            }
            // SAFETY: as above.
            while let Some(value) = unsafe { ring.pop() } {
                seen.push(value);
            }
            seen.sort_unstable();
            assert_eq!(seen, [(1, 100), (2, 200)]);
        });
    }

    /// A full ring refuses and is usable again after a pop.
    #[test]
    fn loom_completion_ring_full() {
        loom::model(|| {
            let ring = Arc::new(CompletionRing::new(2, 0u32));
            assert!(ring.push(1) && ring.push(2));
            let other = Arc::clone(&ring);
            let producer = loom::thread::spawn(move || other.push(3));
            // SAFETY: this thread is the only consumer.
            assert_eq!(unsafe { ring.pop() }, Some(1));
            let pushed = producer.join().unwrap();
            // SAFETY: as above.
            assert_eq!(unsafe { ring.pop() }, Some(2));
            // SAFETY: as above.
            assert_eq!(unsafe { ring.pop() }, pushed.then_some(3));
        });
    }
}
