//! Postponed sending: short RC requests that are posted one by one are sent together at the next poll of the socket,
//! with one system call for each train of packets instead of one for each request.
//!
//! A request is postponed if several of its queue pair are already in flight and a poll has just found something: the
//! polling thread is then processing answers, and polls again when it has posted the requests that follow from them. So
//! no request is postponed that would be the only one in flight. Nothing is postponed while the device's thread sleeps
//! until something arrives. If nobody else polls again, that thread does, within its interval of 2 ms.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;

use crate::sync::lock;

/// How long after a successful poll requests may wait for the next one, in nanoseconds: about as long as 64 short
/// answers take. A thread that computes for longer polls rarely.
const WINDOW_NS: u64 = 50_000;
/// Minimum number of a queue pair's requests in flight when another one is postponed.
pub(crate) const UNDER_WAY: usize = 4;
/// Maximum number of postponed requests of a queue pair.
pub(crate) const MAX_POSTPONED: usize = 32;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Postponed {
    /// End of the window after the last successful poll.
    until_ns: AtomicU64,
    /// Queue pairs with postponed requests. One whose requests have been sent otherwise may still be listed.
    numbers: Mutex<VecDeque<u32>>,
    some: AtomicBool,
}

impl Postponed {
    /// Records that a poll at `now_ns` has found something.
    pub(crate) fn note_found(&self, now_ns: u64) {
        self.until_ns.store(now_ns + WINDOW_NS, Ordering::Relaxed);
    }

    /// Whether a poll has just found something, so that posted requests may wait for the next one.
    pub(crate) fn has_just_found(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns.load(Ordering::Relaxed)
    }

    /// Whether any requests are postponed.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.some.load(Ordering::SeqCst)
    }

    /// Records that requests of a queue pair are postponed.
    pub(crate) fn push(&self, number: u32) {
        let mut numbers = lock(&self.numbers);
        numbers.push_back(number);
        self.some.store(true, Ordering::SeqCst);
    }

    /// Removes the queue pair that has waited longest.
    pub(crate) fn pop(&self) -> Option<u32> {
        let mut numbers = lock(&self.numbers);
        let number = numbers.pop_front();
        if numbers.is_empty() {
            self.some.store(false, Ordering::SeqCst);
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::{Postponed, WINDOW_NS};

    #[test]
    fn what_is_posted_waits_only_soon_after_a_look_that_found_something() {
        let postponed = Postponed::default();
        assert!(!postponed.has_just_found(1));
        postponed.note_found(1_000);
        assert!(postponed.has_just_found(1_000) && postponed.has_just_found(999 + WINDOW_NS));
        assert!(!postponed.has_just_found(1_000 + WINDOW_NS));
    }

    #[test]
    fn who_waits_longest_goes_first() {
        let postponed = Postponed::default();
        postponed.push(7);
        postponed.push(9);
        assert!(postponed.has_some());
        assert_eq!((postponed.pop(), postponed.has_some()), (Some(7), true));
        assert_eq!((postponed.pop(), postponed.has_some()), (Some(9), false));
        assert_eq!(postponed.pop(), None);
    }
}
