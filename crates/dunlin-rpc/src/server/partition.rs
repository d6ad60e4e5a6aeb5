//! A poller's connections in two parts: those from which requests are expected, all of which each pass polls, and quiet
//! ones, which are polled in turn.

use std::ops::{Index, IndexMut};

/// Items, of which the first part is expected to have work.
pub(super) struct Partition<T> {
    /// The expected items, then the quiet ones.
    items: Vec<T>,
    expected: usize,
    /// The quiet item whose turn was last.
    turn: usize,
}

impl<T> Partition<T> {
    pub(super) fn new() -> Self {
        Self {
            items: Vec::new(),
            expected: 0,
            turn: 0,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Number of items expected to have work, which are the first ones.
    #[inline]
    pub(super) fn expected(&self) -> usize {
        self.expected
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }

    /// Adds an item, which is expected to have work.
    pub(super) fn push(&mut self, item: T) {
        self.items.push(item);
        self.expect(self.items.len() - 1);
    }

    /// Removes an item. The last of its part takes its place; if it was itself the last of its part, the last of all
    /// does.
    pub(super) fn remove(&mut self, index: usize) -> T {
        let index = if index < self.expected {
            self.dismiss(index)
        } else {
            index
        };
        self.items.swap_remove(index)
    }

    /// Marks a quiet item as expected to have work. It changes places with the first of the quiet items.
    pub(super) fn expect(&mut self, index: usize) {
        debug_assert!(index >= self.expected);
        self.items.swap(self.expected, index);
        self.expected += 1;
    }

    /// Marks an expected item as quiet, and returns its new index.
    fn dismiss(&mut self, index: usize) -> usize {
        debug_assert!(index < self.expected);
        self.expected -= 1;
        self.items.swap(index, self.expected);
        self.expected
    }

    /// Sorts the items into the two parts, asking each once whether it is quiet.
    pub(super) fn sort(&mut self, mut is_quiet: impl FnMut(&mut T) -> bool) {
        // Downwards through the expected items, then upwards through those that were quiet before: an item that an
        // exchange moves to a visited index has been asked already.
        let first_quiet = self.expected;
        for index in (0..first_quiet).rev() {
            if is_quiet(&mut self.items[index]) {
                self.dismiss(index);
            }
        }
        for index in first_quiet..self.items.len() {
            if !is_quiet(&mut self.items[index]) {
                self.expect(index);
            }
        }
    }

    /// The quiet item whose turn it is.
    #[inline]
    pub(super) fn next_quiet(&mut self) -> Option<usize> {
        if self.expected == self.items.len() {
            return None;
        }
        self.turn += 1;
        if !(self.expected..self.items.len()).contains(&self.turn) {
            self.turn = self.expected;
        }
        Some(self.turn)
    }
}

impl<T> Index<usize> for Partition<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        &self.items[index]
    }
}

impl<T> IndexMut<usize> for Partition<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.items[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An operation on a partition of numbers.
    #[derive(Clone, Debug)]
    enum Step {
        Push,
        Remove(usize),
        Expect(usize),
        /// Each number whose bit is set is quiet.
        Sort(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            2 => Just(Step::Push),
            1 => any::<usize>().prop_map(Step::Remove),
            1 => any::<usize>().prop_map(Step::Expect),
            2 => any::<u64>().prop_map(Step::Sort),
        ];
        prop::collection::vec(step, 0..100)
    }

    proptest! {
        #[test]
        fn each_is_in_one_part_and_is_asked_and_has_its_turn_once(steps in steps()) {
            let mut partition = Partition::new();
            // Every number in the partition, and whether it is quiet.
            let mut model: Vec<(u32, bool)> = Vec::new();
            let mut pushed = 0;
            for step in steps {
                match step {
                    Step::Push => {
                        partition.push(pushed);
                        model.push((pushed, false));
                        pushed += 1;
                    }
                    Step::Remove(at) if !model.is_empty() => {
                        let index = at % model.len();
                        let stays = partition[index];
                        let removed = partition.remove(index);
                        prop_assert_eq!(stays, removed);
                        model.retain(|&(number, _)| number != removed);
                    }
                    Step::Expect(at) if partition.expected() < partition.len() => {
                        let quiet = partition.len() - partition.expected();
                        let index = partition.expected() + at % quiet;
                        let number = partition[index];
                        partition.expect(index);
                        model.iter_mut().find(|entry| entry.0 == number).unwrap().1 = false;
                    }
                    Step::Sort(quiet) => {
                        let mut asked = Vec::new();
                        let is_quiet = |number: u32| quiet >> (number % 64) & 1 == 1;
                        partition.sort(|&mut number| {
                            asked.push(number);
                            is_quiet(number)
                        });
                        asked.sort_unstable();
                        prop_assert_eq!(asked, model.iter().map(|entry| entry.0).collect::<Vec<_>>());
                        model.iter_mut().for_each(|entry| entry.1 = is_quiet(entry.0));
                    }
                    Step::Remove(_) | Step::Expect(_) => {}
                }
                let mut seen: Vec<_> = (0..partition.len())
                    .map(|index| (partition[index], index >= partition.expected()))
                    .collect();
                seen.sort_unstable();
                prop_assert_eq!(&seen, &model);
                let quiet = partition.len() - partition.expected();
                let mut turns: Vec<_> = (0..quiet).map(|_| partition.next_quiet().unwrap()).collect();
                turns.sort_unstable();
                prop_assert_eq!(turns, (partition.expected()..partition.len()).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn nobody_has_a_turn_where_all_are_expected() {
        let mut partition = Partition::new();
        assert_eq!(partition.next_quiet(), None);
        partition.push(1);
        assert_eq!(partition.next_quiet(), None);
    }
}
