//! When which queue pair wants to be looked at again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

use crate::sync::lock;

/// Deadlines of queue pairs. One may have several here; those that mean nothing any more are found out when they come.
#[derive(Debug)]
pub(crate) struct Timers {
    heap: Mutex<BinaryHeap<Reverse<(u64, u32)>>>,
    /// The first deadline; `u64::MAX`: none.
    next_ns: AtomicU64,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self {
            heap: Mutex::new(BinaryHeap::new()),
            next_ns: AtomicU64::new(u64::MAX),
        }
    }

    /// The queue pair of this number is to be looked at when it is `deadline_ns`.
    pub(crate) fn set(&self, deadline_ns: u64, number: u32) {
        let mut heap = lock(&self.heap);
        heap.push(Reverse((deadline_ns, number)));
        self.next_ns.fetch_min(deadline_ns, Ordering::SeqCst);
    }

    /// The first deadline.
    #[inline]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let next_ns = self.next_ns.load(Ordering::SeqCst);
        (next_ns != u64::MAX).then_some(next_ns)
    }

    /// The next queue pair whose deadline has come.
    pub(crate) fn pop(&self, now_ns: u64) -> Option<u32> {
        if self.next_ns.load(Ordering::Relaxed) > now_ns {
            return None;
        }
        let mut heap = lock(&self.heap);
        let Reverse((first, number)) = *heap.peek()?;
        if first > now_ns {
            return None;
        }
        heap.pop();
        let next = heap.peek().map_or(u64::MAX, |Reverse((next, _))| *next);
        self.next_ns.store(next, Ordering::SeqCst);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::Timers;

    #[test]
    fn deadlines_come_in_order_and_not_early() {
        let timers = Timers::new();
        assert_eq!(timers.next_ns(), None);
        timers.set(30, 3);
        timers.set(10, 1);
        timers.set(20, 2);
        assert_eq!(timers.next_ns(), Some(10));
        assert_eq!(timers.pop(9), None);
        assert_eq!(timers.pop(20), Some(1));
        assert_eq!(timers.pop(20), Some(2));
        assert_eq!(timers.pop(20), None);
        assert_eq!(timers.next_ns(), Some(30));
        assert_eq!(timers.pop(30), Some(3));
        assert_eq!(timers.next_ns(), None);
    }
}
