//! Records of the sort benchmark (gensort): 100 bytes, of which the first ten are the key.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Length of a record in bytes.
pub const RECORD_BYTES: usize = 100;
/// Length of its key, the first bytes of the record.
pub const KEY_BYTES: usize = 10;

/// A key as a number: keys compare like their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    first: u64,
    last: u16,
}

impl Key {
    /// Returns the key of a record, or of any bytes that begin with one.
    ///
    /// # Panics
    /// When there are fewer than [`KEY_BYTES`].
    #[inline]
    pub fn of(record: &[u8]) -> Self {
        let (first, rest) = record.split_first_chunk().expect("a key has ten bytes");
        let last = rest.first_chunk().expect("a key has ten bytes");
        Self {
            first: u64::from_be_bytes(*first),
            last: u16::from_be_bytes(*last),
        }
    }

    /// The bytes of the key.
    pub fn bytes(self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[..8].copy_from_slice(&self.first.to_be_bytes());
        bytes[8..].copy_from_slice(&self.last.to_be_bytes());
        bytes
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:04x}", self.first, self.last)
    }
}

/// A record's key and its index, which is sorted instead of the record. A single number, because comparing numbers
/// needs no branches: the key in the upper 80 bits, then the index in 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry(u128);

impl Entry {
    #[inline]
    pub(crate) fn new(key: Key, place: u32) -> Self {
        let upper = u128::from(key.first) << 48 | u128::from(key.last) << 32;
        Self(upper | u128::from(place))
    }

    /// The index of the record.
    #[inline]
    pub(crate) fn place(self) -> usize {
        self.0 as u32 as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_compare_as_bytes_do(one: [u8; KEY_BYTES], other: [u8; KEY_BYTES], place: u32) {
            let (a, b) = (Key::of(&one), Key::of(&other));
            prop_assert_eq!(a.cmp(&b), one.cmp(&other));
            prop_assert_eq!(a.bytes(), one);
            let entry = Entry::new(a, place);
            prop_assert_eq!(entry.place(), place as usize);
            if a != b {
                prop_assert_eq!(entry.cmp(&Entry::new(b, 0)), a.cmp(&b));
            }
        }
    }
}
