//! The table of a client's files, and of the creations in progress.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use super::file_state::FileState;
use crate::types::Ino;

/// Identifies the creation of a file: later ones are greater.
pub(super) type Making = u64;

#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) known: HashMap<Ino, Arc<Mutex<FileState>>>,
    /// Files that are being created: their leases may arrive before their numbers.
    making: BTreeSet<Making>,
    /// The latest creation so far.
    youngest: Making,
    /// Files that were removed from the table while others were being created, with the latest creation at that moment.
    left: VecDeque<(Making, Ino)>,
}

impl Files {
    pub(super) fn is_making(&self) -> bool {
        !self.making.is_empty()
    }

    pub(super) fn begin_making(&mut self) -> Making {
        self.youngest += 1;
        self.making.insert(self.youngest);
        self.youngest
    }

    /// Whether a file was in the table and was removed since this creation began. It could be the created one: then the
    /// lease granted at its creation has been released.
    pub(super) fn left_since(&self, making: Making, ino: Ino) -> bool {
        let mut since = self.left.iter().rev().take_while(|(at, _)| *at >= making);
        since.any(|(_, left)| *left == ino)
    }

    /// Files removed before the oldest creation in progress no longer matter.
    pub(super) fn end_making(&mut self, making: Making) {
        self.making.remove(&making);
        let oldest = self.making.first().copied().unwrap_or(Making::MAX);
        while self.left.front().is_some_and(|(at, _)| *at < oldest) {
            self.left.pop_front();
        }
    }

    /// Removes a file from the table.
    pub(super) fn let_go(&mut self, ino: Ino) {
        self.known.remove(&ino);
        if self.is_making() {
            self.left.push_back((self.youngest, ino));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Files;

    #[test]
    fn a_file_leaves_the_table_while_others_are_made_and_is_remembered_for_their_makers() {
        let mut files = Files::default();
        files.let_go(1);
        let first = files.begin_making();
        files.let_go(2);
        let second = files.begin_making();
        files.let_go(3);
        let left = |files: &Files, making| [1, 2, 3].map(|ino| files.left_since(making, ino));
        assert_eq!(left(&files, first), [false, true, true]);
        assert_eq!(left(&files, second), [false, false, true]);
        files.end_making(first);
        assert_eq!(left(&files, second), [false, false, true]);
        assert_eq!(files.left.len(), 1);
        files.end_making(second);
        assert!(files.left.is_empty() && !files.is_making());
    }

    #[test]
    fn nothing_is_remembered_for_long_where_a_file_is_always_being_made() {
        let mut files = Files::default();
        let mut making = files.begin_making();
        for ino in 0..1000 {
            files.let_go(ino);
            let next = files.begin_making();
            files.end_making(making);
            making = next;
            assert!(files.is_making() && files.left.len() <= 1);
        }
    }
}
