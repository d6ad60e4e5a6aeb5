//! An item: one word with the lengths of key and value, the key padded to a word, the value.

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

    /// Offset of the value from the start of the item.
    #[inline]
    pub(crate) fn value_offset(self) -> usize {
        8 + self.key.next_multiple_of(8)
    }

    /// Length of the item in bytes.
    #[inline]
    pub(crate) fn item_bytes(self) -> usize {
        self.value_offset() + self.value
    }
}

/// Returns the lengths of the item at `offset`. They may have any value while the item is being changed.
#[inline]
pub(crate) fn lengths(words: &impl Words, offset: usize) -> Lengths {
    Lengths::from_word(words.word(offset).load(Ordering::Relaxed))
}

/// Whether the item at `offset`, whose key has the same length, belongs to `key`.
#[inline]
pub(crate) fn has_key(words: &impl Words, offset: usize, key: &[u8]) -> bool {
    let mut at = offset + 8;
    let mut differs = 0;
    for word in key_words(key) {
        differs |= words.word(at).load(Ordering::Relaxed) ^ word;
        at += 8;
    }
    differs == 0
}

/// Writes an item. Readers may be reading the previous contents: they detect the change by a version stored elsewhere.
pub(crate) fn write(words: &impl Words, offset: usize, key: &[u8], value: &[u8]) {
    let lengths = Lengths {
        key: key.len(),
        value: value.len(),
    };
    let word = lengths.word();
    words.word(offset).store(word, Ordering::Relaxed);
    let mut at = offset + 8;
    for word in key_words(key) {
        words.word(at).store(word, Ordering::Relaxed);
        at += 8;
    }
    words.write(at, value);
}

/// A key as words; the last is padded with zeros.
#[inline]
fn key_words(key: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (whole, rest) = key.as_chunks::<8>();
    let last = (!rest.is_empty()).then(|| match key.last_chunk::<8>() {
        // The last eight bytes, without those that are in the previous word: avoids a copy of variable length.
        Some(last) => (u64::from_le_bytes(*last) >> (64 - rest.len() * 8)).to_le(),
        None => {
            let number = rest
                .iter()
                .rev()
                .fold(0, |n, byte| n << 8 | u64::from(*byte));
            number.to_le()
        }
    });
    whole
        .iter()
        .map(|word| u64::from_ne_bytes(*word))
        .chain(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_bytes_and_zeros() {
        let key: Vec<u8> = (1..=40).collect();
        for length in 0..=key.len() {
            let mut bytes = key[..length].to_vec();
            bytes.resize(length.next_multiple_of(8), 0);
            let words: Vec<u8> = key_words(&key[..length])
                .flat_map(u64::to_ne_bytes)
                .collect();
            assert_eq!(words, bytes);
        }
    }
}
