//! Selects the blocks of a zone that are polled: a polling server does not check all of them each time.

use super::{ALL, BLOCKS, CALLS};

/// Number of polls of which one covers every block of a zone; the others cover those where messages were found before.
const LOOKS_PER_SCAN: u32 = 16;
/// Number of consecutive polls without success after which a zone that may rest is skipped.
const LOOKS_BEFORE_REST: u32 = 16;
/// One in this many polls of a resting zone is carried out.
const LOOKS_PER_REST: u32 = 4;

/// A poll of a zone, and what is known from earlier ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    /// Blocks in which messages were ever found, those still to be checked in this poll, and the number of polls.
    known: u32,
    left: u32,
    looks: u32,
    /// Number of polls since something was found.
    vain: u32,
}

impl Scan {
    /// Begins a poll when the last is finished. `true`: it covers every block.
    #[inline]
    pub(crate) fn begin(&mut self) -> bool {
        if self.left != 0 {
            return false;
        }
        self.looks = self.looks.wrapping_add(1);
        self.left = match self.looks % LOOKS_PER_SCAN {
            0 => ALL,
            // And the first that was not used yet: clients use the lowest free one.
            _ => self.known | (self.known & (ALL >> (BLOCKS - CALLS))).wrapping_add(1),
        };
        self.left == ALL
    }

    /// As [`Scan::begin`], but a zone in which nothing was found for long is polled only now and then: with many zones,
    /// polling all of them each time takes as long as the skipped polls delay a message.
    #[inline]
    pub(crate) fn begin_or_rest(&mut self) {
        if self.left != 0 {
            return;
        }
        self.vain = self.vain.wrapping_add(1);
        if self.vain < LOOKS_BEFORE_REST || self.vain % LOOKS_PER_REST == 0 {
            self.begin();
        }
    }

    /// The next block of this poll.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<usize> {
        let block = (self.left != 0).then(|| self.left.trailing_zeros() as usize);
        self.left &= self.left.wrapping_sub(1);
        block
    }

    /// Restricts the blocks still to be checked in this poll to those that `new` returns as having something new.
    #[inline]
    pub(crate) fn keep(&mut self, new: impl FnOnce(u32) -> u32) {
        self.left = new(self.left);
    }

    /// Records that messages are, or will be, in these blocks.
    #[inline]
    pub(crate) fn found(&mut self, blocks: u32) {
        self.known |= blocks;
        self.vain = 0;
    }

    /// Makes this poll cover every block.
    pub(crate) fn look_at_all(&mut self) {
        self.left = ALL;
    }

    /// Adds a block to be checked; `false`: it was already to be.
    #[inline]
    pub(crate) fn add(&mut self, block: u32) -> bool {
        let new = self.left & 1 << block == 0;
        self.left |= 1 << block;
        new
    }

    /// Whether blocks are still to be checked.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.left != 0
    }

    /// Number of polls in this turn.
    #[inline]
    pub(crate) fn looks(&self) -> u32 {
        self.looks
    }

    /// Starts over for another turn.
    pub(crate) fn restart(&mut self) {
        (self.left, self.looks) = (0, 0);
    }
}
