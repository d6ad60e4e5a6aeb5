//! An item: one word with the lengths of key and value, the key filled up to a word, the value.

use super::words::Words;
use crate::sync::Ordering;

/// The lengths of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) key: usize,
    pub(crate) value: usize,
}

impl Lengths {
    #[inline]
    pub(crate) fn from_word(word: u64) -> Self {
        Self {
            key: (word & 0xffff) as usize,
            value: (word >> 32) as usize,
        }
    }

    #[inline]
    fn word(self) -> u64 {
        self.key as u64 | (self.value as u64) << 32
    }

    /// Where the value begins, from the start of the item.
    #[inline]
    pub(crate) fn value_offset(self) -> usize {
        8 + self.key.next_multiple_of(8)
    }

    /// Bytes of the item.
    #[inline]
    pub(crate) fn item_bytes(self) -> usize {
        self.value_offset() + self.value
    }
}

/// The lengths of the item at `offset`. They may be any where the item is being changed.
#[inline]
pub(crate) fn lengths(words: &impl Words, offset: usize) -> Lengths {
    Lengths::from_word(words.word(offset).load(Ordering::Relaxed))
}

/// Whether the item at `offset`, which has a key of the same length, is `key`'s.
#[inline]
pub(crate) fn has_key(words: &impl Words, offset: usize, key: &[u8]) -> bool {
    let mut at = offset + 8;
    for chunk in key.chunks(8) {
        if words.word(at).load(Ordering::Relaxed) != key_word(chunk) {
            return false;
        }
        at += 8;
    }
    true
}

/// Writes an item. Readers may be looking at what stood there before: they are told by a version, elsewhere.
pub(crate) fn write(words: &impl Words, offset: usize, key: &[u8], value: &[u8]) {
    let lengths = Lengths {
        key: key.len(),
        value: value.len(),
    };
    let word = lengths.word();
    words.word(offset).store(word, Ordering::Relaxed);
    let mut at = offset + 8;
    for chunk in key.chunks(8) {
        words.word(at).store(key_word(chunk), Ordering::Relaxed);
        at += 8;
    }
    words.write(at, value);
}

/// Up to 8 bytes of a key as the word that they stand in.
#[inline]
fn key_word(chunk: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..chunk.len()].copy_from_slice(chunk);
    u64::from_ne_bytes(bytes)
}
