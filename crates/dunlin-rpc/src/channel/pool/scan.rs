//! Which blocks of a zone are looked at: a server that polls does not look at all of them each time.

use super::{ALL, BLOCKS, CALLS};

/// Looks between two looks at every block of a zone; the others are at those where messages were found before.
const LOOKS_PER_SCAN: u32 = 16;
/// Looks in vain, one after the other, after which a zone that may rest is passed over.
const LOOKS_BEFORE_REST: u32 = 16;
/// Of so many looks at a zone that rests, one is a look.
const LOOKS_PER_REST: u32 = 4;

/// A look at a zone, and what is known from those before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    /// Blocks that messages were ever found in, those that are still to be looked at in this look, and looks.
    known: u32,
    left: u32,
    looks: u32,
    /// Looks since something was found.
    vain: u32,
}

impl Scan {
    /// Begins a look when the last is over. `true`: at every block.
    #[inline]
    pub(crate) fn begin(&mut self) -> bool {
        if self.left != 0 {
            return false;
        }
        self.looks = self.looks.wrapping_add(1);
        self.left = match self.looks % LOOKS_PER_SCAN {
            0 => ALL,
            // And the first that was not used yet: clients use the lowest that is free.
            _ => self.known | (self.known & (ALL >> (BLOCKS - CALLS))).wrapping_add(1),
        };
        self.left == ALL
    }

    /// As [`Scan::begin`], of a zone in which nothing was found for long only now and then: where there are many,
    /// looking at all of them each time takes as long as the looks that are left out.
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

    /// The next block of this look.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<usize> {
        let block = (self.left != 0).then(|| self.left.trailing_zeros() as usize);
        self.left &= self.left.wrapping_sub(1);
        block
    }

    /// Of the blocks that are still to be looked at in this look, only those that `new` says have something new.
    #[inline]
    pub(crate) fn keep(&mut self, new: impl FnOnce(u32) -> u32) {
        self.left = new(self.left);
    }

    /// Messages are, or will be, in these blocks.
    #[inline]
    pub(crate) fn found(&mut self, blocks: u32) {
        self.known |= blocks;
        self.vain = 0;
    }

    /// This look is at every block.
    pub(crate) fn look_at_all(&mut self) {
        self.left = ALL;
    }

    /// A block is to be looked at; `false`: it was already.
    #[inline]
    pub(crate) fn add(&mut self, block: u32) -> bool {
        let new = self.left & 1 << block == 0;
        self.left |= 1 << block;
        new
    }

    /// Whether blocks are still to be looked at.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.left != 0
    }

    /// Looks in this turn.
    #[inline]
    pub(crate) fn looks(&self) -> u32 {
        self.looks
    }

    /// Another turn begins.
    pub(crate) fn restart(&mut self) {
        (self.left, self.looks) = (0, 0);
    }
}
