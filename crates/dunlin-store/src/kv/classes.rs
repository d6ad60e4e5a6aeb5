//! Size classes: the lengths of the chunks that hold items.
//!
//! As in memcached and in MICA's segregated fits, chunks have one of a few lengths, so that the memory of one item can
//! be reused for another. Up to 256 bytes the classes are multiples of 32; above, there are four between consecutive
//! powers of two. Items longer than 16 KiB take whole blocks.

use super::layout::BLOCK_BYTES;

/// Lengths and offsets of chunks are multiples of this: two chunks share one cache line at most, and none touches more
/// lines than its length requires.
pub(crate) const UNIT_BYTES: usize = 32;
/// Number of classes of chunks that share blocks.
pub(crate) const CLASSES: usize = 32;
/// The code of a chunk that is a run of blocks: its length is stored only in the item.
pub(crate) const RUN: u8 = u8::MAX;
/// The longest chunk that shares its block with others.
pub(crate) const MAX_SHARED_BYTES: usize = 16 << 10;

/// Classes below this one are multiples of the unit.
const FINE: usize = 8;

/// The location of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// From the start of the memory, in bytes.
    pub(crate) offset: usize,
    /// Its class, or [`RUN`].
    pub(crate) code: u8,
}

/// Returns the smallest class for `bytes`; `None` if a run of blocks is needed.
#[inline]
pub(crate) fn class_of(bytes: usize) -> Option<u8> {
    let units = bytes.div_ceil(UNIT_BYTES).max(1);
    if units <= FINE {
        return Some(units as u8 - 1);
    }
    if units > MAX_SHARED_BYTES / UNIT_BYTES {
        return None;
    }
    // Four steps between a power of two and the next.
    let power = (units - 1).ilog2() as usize;
    let step = ((units - 1) >> (power - 2)) & 3;
    Some((FINE + (power - 3) * 4 + step) as u8)
}

/// Bytes of a chunk of this class.
#[inline]
pub(crate) fn class_bytes(class: u8) -> usize {
    let class = usize::from(class);
    if class < FINE {
        return (class + 1) * UNIT_BYTES;
    }
    let (power, step) = ((class - FINE) / 4 + 3, (class - FINE) % 4);
    ((5 + step) << (power - 2)) * UNIT_BYTES
}

/// Bytes of an item in this chunk at most: a length that may be changing is checked against it.
#[inline]
pub(crate) fn most_bytes(code: u8) -> usize {
    if code == RUN {
        usize::MAX
    } else {
        class_bytes(code.min(CLASSES as u8 - 1))
    }
}

/// Number of blocks in a run for `bytes`.
pub(crate) fn run_blocks(bytes: usize) -> u32 {
    bytes.div_ceil(BLOCK_BYTES) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_the_smallest_class_that_holds_it() {
        for class in 1..CLASSES as u8 {
            assert!(class_bytes(class) > class_bytes(class - 1));
            assert_eq!(class_bytes(class) % UNIT_BYTES, 0);
        }
        assert_eq!(class_bytes(CLASSES as u8 - 1), MAX_SHARED_BYTES);
        for bytes in 0..=MAX_SHARED_BYTES {
            let class = class_of(bytes).unwrap();
            assert!(class_bytes(class) >= bytes);
            assert!(class == 0 || class_bytes(class - 1) < bytes, "{bytes}");
        }
        assert_eq!(class_of(MAX_SHARED_BYTES + 1), None);
    }

    /// Above 256 bytes at most a quarter is wasted.
    #[test]
    fn little_is_lost() {
        for bytes in 257..=MAX_SHARED_BYTES {
            assert!(class_bytes(class_of(bytes).unwrap()) * 4 < bytes * 5);
        }
    }
}
