//! Short requests of RC that are posted one by one and go out together with the next look at the socket: one system
//! call for each train of packets instead of one for each request.
//!
//! A request waits where several of its queue pair are under way already, and a look has just found something: whoever
//! looks is then at work on answers, and looks again when it has posted what follows from them. So nothing waits that
//! would be alone on its way. While the device's thread sleeps until something comes nothing waits either; where nobody
//! looks again that thread does, within the 2 ms of its rounds.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;

use crate::sync::lock;

/// How long after a look that found something requests may wait for the next, in nanoseconds: about what 64 short
/// answers take. Who computes for longer looks seldom.
const WINDOW_NS: u64 = 50_000;
/// Requests of a queue pair that are under way when another one waits, at least.
pub(crate) const UNDER_WAY: usize = 4;
/// Requests of one queue pair that wait at most.
pub(crate) const MAX_POSTPONED: usize = 32;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Postponed {
    /// Until when the last look that found something has just been.
    until_ns: AtomicU64,
    /// Queue pairs with requests that wait. One whose requests went out otherwise may still be here.
    numbers: Mutex<VecDeque<u32>>,
    some: AtomicBool,
}

impl Postponed {
    /// A look at `now_ns` has found something.
    pub(crate) fn note_found(&self, now_ns: u64) {
        self.until_ns.store(now_ns + WINDOW_NS, Ordering::Relaxed);
    }

    /// Whether a look has just found something: then what is posted may wait for the next.
    pub(crate) fn has_just_found(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns.load(Ordering::Relaxed)
    }

    /// Whether any wait.
    #[inline]
    pub(crate) fn has_some(&self) -> bool {
        self.some.load(Ordering::SeqCst)
    }

    /// Requests of a queue pair wait.
    pub(crate) fn push(&self, number: u32) {
        let mut numbers = lock(&self.numbers);
        numbers.push_back(number);
        self.some.store(true, Ordering::SeqCst);
    }

    /// The queue pair that has waited longest.
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
