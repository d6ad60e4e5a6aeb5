//! A queue whose entries have increasing numbers by which they can be looked up. The oldest entries are removed first.

use std::collections::VecDeque;

/// See the module. Numbers begin at zero.
#[derive(Debug)]
pub(crate) struct Ledger<T> {
    base: u64,
    entries: VecDeque<Option<T>>,
    live: usize,
}

impl<T> Ledger<T> {
    pub(crate) fn new() -> Self {
        Self {
            base: 0,
            entries: VecDeque::new(),
            live: 0,
        }
    }

    /// The number of the next entry.
    pub(crate) fn next(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    /// The distance from the oldest entry to the next number.
    pub(crate) fn span(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    pub(crate) fn push(&mut self, entry: T) -> u64 {
        let number = self.next();
        self.entries.push_back(Some(entry));
        self.live += 1;
        number
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.base)?).ok()
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        self.entries.get(self.index(number)?)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let index = self.index(number)?;
        self.entries.get_mut(index)?.as_mut()
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<T> {
        let index = self.index(number)?;
        let entry = self.entries.get_mut(index)?.take()?;
        self.live -= 1;
        while matches!(self.entries.front(), Some(None)) {
            self.entries.pop_front();
            self.base += 1;
        }
        Some(entry)
    }

    /// The oldest entry.
    pub(crate) fn first(&self) -> Option<(u64, &T)> {
        // The front entry is never empty.
        Some((self.base, self.entries.front()?.as_ref()?))
    }

    /// Entries and their numbers, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let numbered = self.entries.iter().enumerate();
        numbered.filter_map(|(index, entry)| Some((self.base + index as u64, entry.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_while_entries_go() {
        let mut ledger = Ledger::new();
        for entry in 10..15 {
            assert_eq!(ledger.push(entry), entry - 10);
        }
        assert_eq!(ledger.remove(1), Some(11));
        assert_eq!(ledger.remove(1), None);
        assert_eq!(ledger.span(), 5);
        assert_eq!(ledger.remove(0), Some(10));
        assert_eq!((ledger.span(), ledger.len(), ledger.next()), (3, 3, 5));
        assert_eq!(ledger.get(0), None);
        assert_eq!(ledger.get(2), Some(&12));
        assert_eq!(ledger.get(5), None);
        *ledger.get_mut(4).unwrap() = 0;
        assert_eq!(
            ledger.iter().collect::<Vec<_>>(),
            [(2, &12), (3, &13), (4, &0)]
        );
    }
}
