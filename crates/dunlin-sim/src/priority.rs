//! Priorities of packets, eight as in Ethernet (IEEE 802.1Q): a queue for each, and the order of service.
//!
//! A queue pair, or an address handle, has a traffic class; its upper three bits are the priority, which is the default
//! where switches and NICs trust the code point. Class 0 is priority 0, and is used where none is set.

use std::collections::VecDeque;

/// Number of priorities.
pub(crate) const PRIORITIES: usize = 8;

/// The priority of a traffic class.
#[inline]
pub(crate) fn of_class(traffic_class: u8) -> u8 {
    traffic_class >> 5
}

/// The bit of a priority in a set.
#[inline]
pub(crate) fn bit(priority: u8) -> u8 {
    1 << priority
}

/// A queue for each priority.
#[derive(Clone, Debug)]
pub(crate) struct Queues<T> {
    queues: [VecDeque<T>; PRIORITIES],
    waiting: u8,
}

impl<T> Default for Queues<T> {
    fn default() -> Self {
        Self {
            queues: std::array::from_fn(|_| VecDeque::new()),
            waiting: 0,
        }
    }
}

impl<T> Queues<T> {
    /// The priorities with waiting entries.
    #[inline]
    pub(crate) fn waiting(&self) -> u8 {
        self.waiting
    }

    /// Number of waiting entries.
    pub(crate) fn len(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    #[inline]
    pub(crate) fn push(&mut self, priority: u8, item: T) {
        self.queues[usize::from(priority)].push_back(item);
        self.waiting |= bit(priority);
    }

    #[inline]
    pub(crate) fn front(&self, priority: u8) -> Option<&T> {
        self.queues[usize::from(priority)].front()
    }

    #[inline]
    pub(crate) fn pop(&mut self, priority: u8) -> Option<T> {
        let queue = &mut self.queues[usize::from(priority)];
        let item = queue.pop_front();
        if queue.is_empty() {
            self.waiting &= !bit(priority);
        }
        item
    }

    /// Moves the first entry to the end.
    pub(crate) fn rotate(&mut self, priority: u8) {
        let queue = &mut self.queues[usize::from(priority)];
        if !queue.is_empty() {
            queue.rotate_left(1);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.waiting = 0;
    }
}

/// The order of service: strict priorities first, the highest of them before the others; the remaining bandwidth is
/// shared by weight (start-time fair queueing: the priority that has had the least for its weight is next, and one that
/// was idle has saved nothing up).
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    strict: u8,
    weights: [f64; PRIORITIES],
    /// Bytes served of each, divided by its weight.
    had: [f64; PRIORITIES],
    /// That value of the priority served last, at that time.
    now: f64,
}

/// Minimum weight, which replaces a weight of 0.
const LEAST_WEIGHT: f64 = 1e-3;

impl Turns {
    pub(crate) fn new(strict: f64, weights: [f64; PRIORITIES]) -> Self {
        Self {
            strict: strict as u8,
            weights: weights.map(|weight| weight.max(LEAST_WEIGHT)),
            had: [0.0; PRIORITIES],
            now: 0.0,
        }
    }

    /// The priority to serve next among those that are ready.
    #[inline]
    pub(crate) fn next(&self, ready: u8) -> Option<u8> {
        if ready == 0 {
            return None;
        }
        let strict = ready & self.strict;
        if ready.is_power_of_two() || strict != 0 {
            let of = if strict != 0 { strict } else { ready };
            return Some(7 - of.leading_zeros() as u8);
        }
        let had = |priority: &u8| self.had[usize::from(*priority)].max(self.now);
        let all = (0..PRIORITIES as u8).filter(|&priority| ready & bit(priority) != 0);
        all.min_by(|one, other| had(one).total_cmp(&had(other)))
    }

    /// Accounts for `bytes` served of a priority.
    #[inline]
    pub(crate) fn serve(&mut self, priority: u8, bytes: u64) {
        if self.strict & bit(priority) != 0 {
            return;
        }
        let place = usize::from(priority);
        self.now = self.had[place].max(self.now);
        self.had[place] = self.now + bytes as f64 / self.weights[place];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: [f64; PRIORITIES] = [1.0; PRIORITIES];

    /// Number of packets of each of these priorities served in a hundred turns, with all of them always ready.
    fn shares(turns: &mut Turns, ready: &[(u8, u64)]) -> Vec<usize> {
        let set = ready
            .iter()
            .fold(0, |set, &(priority, _)| set | bit(priority));
        let mut had = vec![0; ready.len()];
        for _ in 0..100 {
            let next = turns.next(set).expect("some are ready");
            let place = ready.iter().position(|&(priority, _)| priority == next);
            let place = place.expect("one of those that are ready");
            had[place] += 1;
            turns.serve(next, ready[place].1);
        }
        had
    }

    #[test]
    fn strict_ones_go_first_and_others_share_by_weight_and_bytes() {
        let mut turns = Turns::new(f64::from(bit(6) | bit(2)), ONE);
        assert_eq!(turns.next(0), None);
        assert_eq!(turns.next(bit(0)), Some(0));
        assert_eq!(turns.next(bit(0) | bit(2) | bit(7)), Some(2));
        assert_eq!(turns.next(bit(2) | bit(6) | bit(7)), Some(6));
        assert_eq!(shares(&mut turns, &[(0, 100), (7, 100)]), [50, 50]);
        assert_eq!(shares(&mut turns, &[(0, 100), (7, 300)]), [75, 25]);
        let mut weights = ONE;
        weights[1] = 4.0;
        let mut turns = Turns::new(0.0, weights);
        assert_eq!(shares(&mut turns, &[(0, 100), (1, 100)]), [20, 80]);
    }

    #[test]
    fn who_was_away_has_saved_nothing_up() {
        let mut turns = Turns::new(0.0, ONE);
        shares(&mut turns, &[(0, 100)]);
        assert_eq!(shares(&mut turns, &[(0, 100), (1, 100)]), [50, 50]);
    }

    #[test]
    fn queues_know_who_waits() {
        let mut queues = Queues::default();
        queues.push(3, 'a');
        queues.push(3, 'b');
        queues.push(0, 'c');
        queues.rotate(3);
        assert_eq!((queues.waiting(), queues.len()), (bit(3) | bit(0), 3));
        assert_eq!(
            (queues.pop(3), queues.pop(3), queues.pop(3)),
            (Some('b'), Some('a'), None)
        );
        assert_eq!((queues.waiting(), queues.front(0)), (bit(0), Some(&'c')));
        queues.clear();
        assert_eq!((queues.waiting(), queues.len()), (0, 0));
    }
}
