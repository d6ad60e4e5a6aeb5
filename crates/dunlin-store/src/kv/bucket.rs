//! The words of a bucket: seven places and a control word.
//!
//! A place is empty (0) or refers to an item: from the top, 16 bits of the key's hash (the tag), 8 bits for the length
//! of the item's chunk, and 40 bits for its offset in units of 32 bytes. The control word of a main bucket holds the
//! version of its whole chain, 36 bits of which the lowest is set while the chain is being changed, and the number of
//! the next bucket plus one, 28 bits; that of an overflow bucket holds the next bucket only.

use super::classes::{Chunk, UNIT_BYTES};

/// Number of places in a bucket.
pub(crate) const PLACES: usize = 7;
/// Offset of the control word in its bucket.
pub(crate) const CONTROL: usize = PLACES * 8;

const TAG_SHIFT: u32 = 48;
const CODE_SHIFT: u32 = 40;
const UNITS: u64 = (1 << CODE_SHIFT) - 1;
const NEXT_BITS: u32 = 28;
const NEXT: u64 = (1 << NEXT_BITS) - 1;

/// A place of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(pub(crate) u64);

impl Place {
    pub(crate) const EMPTY: Self = Self(0);

    /// Creates a place for the chunk at `offset`, which is not 0.
    pub(crate) fn new(tag: u16, chunk: Chunk) -> Self {
        let units = (chunk.offset / UNIT_BYTES) as u64;
        Self(u64::from(tag) << TAG_SHIFT | u64::from(chunk.code) << CODE_SHIFT | (units & UNITS))
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this may be the place of a key with this tag.
    #[inline]
    pub(crate) fn has_tag(self, tag: u16) -> bool {
        // Branchless.
        (self.0 != 0) & ((self.0 >> TAG_SHIFT) as u16 == tag)
    }

    #[inline]
    pub(crate) fn chunk(self) -> Chunk {
        Chunk {
            offset: (self.0 & UNITS) as usize * UNIT_BYTES,
            code: (self.0 >> CODE_SHIFT) as u8,
        }
    }
}

/// The control word of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control(pub(crate) u64);

impl Control {
    /// Whether the chain is being changed.
    #[inline]
    pub(crate) fn is_changing(self) -> bool {
        self.0 >> NEXT_BITS & 1 == 1
    }

    /// Returns the control word with the next version; in every second version the chain is being changed.
    #[inline]
    pub(crate) fn advanced(self) -> Self {
        Self(self.0.wrapping_add(1 << NEXT_BITS))
    }

    /// The number of the next bucket plus one; 0 at the end of the chain.
    #[inline]
    pub(crate) fn next(self) -> u32 {
        (self.0 & NEXT) as u32
    }

    /// Returns the control word with another next bucket.
    pub(crate) fn with_next(self, next: u32) -> Self {
        Self(self.0 & !NEXT | u64::from(next) & NEXT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_parts_apart() {
        let chunk = Chunk {
            offset: 0xff_ffff_ffff * UNIT_BYTES,
            code: 0x5a,
        };
        let place = Place::new(0xbeef, chunk);
        assert!(place.has_tag(0xbeef) && !place.has_tag(0xbeee));
        assert_eq!(place.chunk(), chunk);
        assert!(!Place::EMPTY.has_tag(0));

        let control = Control(0).with_next(0xfff_ffff);
        assert_eq!((control.next(), control.is_changing()), (0xfff_ffff, false));
        let changing = control.advanced();
        assert_eq!(
            (changing.next(), changing.is_changing()),
            (0xfff_ffff, true)
        );
        // The version wraps around without touching the next bucket.
        assert_eq!(
            Control(u64::MAX).advanced(),
            Control(0).with_next(0xfff_ffff)
        );
    }
}
