//! The times at which queue pairs must be handled next.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

use crate::sync::lock;

/// No time.
const NEVER: u64 = u64::MAX;

/// Times of queue pairs. One queue pair may have several; outdated ones are recognised when they expire.
#[derive(Debug)]
pub(crate) struct Timers {
    /// Deadlines, which are far apart and seldom expire.
    deadlines: Mutex<BinaryHeap<Reverse<(u64, u32)>>>,
    first_deadline_ns: AtomicU64,
    /// Delayed acknowledgements, all with the same delay, hence in the order in which they were added.
    acknowledgements: Mutex<VecDeque<(u64, u32)>>,
    first_acknowledgement_ns: AtomicU64,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self {
            deadlines: Mutex::new(BinaryHeap::new()),
            first_deadline_ns: AtomicU64::new(NEVER),
            acknowledgements: Mutex::new(VecDeque::new()),
            first_acknowledgement_ns: AtomicU64::new(NEVER),
        }
    }

    /// Registers a deadline of the queue pair with this number.
    pub(crate) fn set(&self, deadline_ns: u64, number: u32) {
        let mut deadlines = lock(&self.deadlines);
        deadlines.push(Reverse((deadline_ns, number)));
        self.first_deadline_ns
            .fetch_min(deadline_ns, Ordering::SeqCst);
    }

    /// Registers the time at which the queue pair with this number acknowledges, unless it has before.
    pub(crate) fn acknowledge(&self, due_ns: u64, number: u32) {
        let mut acknowledgements = lock(&self.acknowledgements);
        acknowledgements.push_back((due_ns, number));
        self.first_acknowledgement_ns
            .fetch_min(due_ns, Ordering::SeqCst);
    }

    /// The earliest of all times.
    #[inline]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let deadline_ns = self.first_deadline_ns.load(Ordering::SeqCst);
        let acknowledgement_ns = self.first_acknowledgement_ns.load(Ordering::SeqCst);
        let next_ns = deadline_ns.min(acknowledgement_ns);
        (next_ns != NEVER).then_some(next_ns)
    }

    /// Returns the next queue pair whose deadline has expired.
    pub(crate) fn pop_deadline(&self, now_ns: u64) -> Option<u32> {
        if self.first_deadline_ns.load(Ordering::Relaxed) > now_ns {
            return None;
        }
        let mut deadlines = lock(&self.deadlines);
        let Reverse((first_ns, number)) = *deadlines.peek()?;
        if first_ns > now_ns {
            return None;
        }
        deadlines.pop();
        let next_ns = deadlines
            .peek()
            .map_or(NEVER, |Reverse((next_ns, _))| *next_ns);
        self.first_deadline_ns.store(next_ns, Ordering::SeqCst);
        Some(number)
    }

    /// Returns the next queue pair whose acknowledgement is due.
    pub(crate) fn pop_acknowledgement(&self, now_ns: u64) -> Option<u32> {
        if self.first_acknowledgement_ns.load(Ordering::Relaxed) > now_ns {
            return None;
        }
        let mut acknowledgements = lock(&self.acknowledgements);
        let (first_ns, number) = *acknowledgements.front()?;
        if first_ns > now_ns {
            return None;
        }
        acknowledgements.pop_front();
        let next_ns = acknowledgements
            .front()
            .map_or(NEVER, |(next_ns, _)| *next_ns);
        self.first_acknowledgement_ns
            .store(next_ns, Ordering::SeqCst);
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
        assert_eq!(timers.pop_deadline(9), None);
        assert_eq!(timers.pop_deadline(20), Some(1));
        assert_eq!(timers.pop_deadline(20), Some(2));
        assert_eq!(timers.pop_deadline(20), None);
        assert_eq!(timers.next_ns(), Some(30));
        assert_eq!(timers.pop_deadline(30), Some(3));
        assert_eq!(timers.next_ns(), None);
    }

    #[test]
    fn acknowledgements_come_beside_them() {
        let timers = Timers::new();
        timers.set(25, 9);
        timers.acknowledge(10, 1);
        timers.acknowledge(20, 2);
        assert_eq!(timers.next_ns(), Some(10));
        assert_eq!(timers.pop_acknowledgement(9), None);
        assert_eq!(timers.pop_acknowledgement(15), Some(1));
        assert_eq!(timers.pop_acknowledgement(15), None);
        assert_eq!(timers.pop_acknowledgement(20), Some(2));
        assert_eq!(timers.next_ns(), Some(25));
        assert_eq!(timers.pop_deadline(25), Some(9));
    }
}
