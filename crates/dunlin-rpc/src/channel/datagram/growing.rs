//! A long message being received. Its claimed length costs memory only as its bytes arrive. If there is no memory for
//! them, its parts are accepted all the same, because the error is reported when the last one is here.

use super::spare::{LongBytes, Spare};
use crate::memory::{self, NoMemory};

/// The part that has arrived.
#[derive(Debug)]
pub(crate) struct Growing {
    total: usize,
    /// `None` if there was no memory.
    bytes: Option<LongBytes>,
}

impl Default for Growing {
    /// No message.
    fn default() -> Self {
        Self {
            total: 0,
            bytes: Some(LongBytes::default()),
        }
    }
}

impl Growing {
    /// Nothing yet of a message that claims `total` bytes.
    pub(crate) fn new(total: usize, spare: &Spare) -> Self {
        Self {
            total,
            bytes: Some(spare.empty(total)),
        }
    }

    /// Length of the whole message in bytes.
    #[inline]
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Whether it holds memory: something has arrived and was stored.
    #[inline]
    pub(crate) fn holds_bytes(&self) -> bool {
        self.bytes.as_ref().is_some_and(|bytes| !bytes.is_empty())
    }

    /// Takes the next piece.
    #[inline]
    pub(crate) fn push(&mut self, piece: &[u8]) {
        let Some(bytes) = &mut self.bytes else {
            return;
        };
        match memory::reserve(bytes, piece.len()) {
            Ok(()) => bytes.extend_from_slice(piece),
            Err(NoMemory(_)) => self.bytes = None,
        }
    }

    /// Takes a piece that belongs at `offset`, in any order.
    pub(crate) fn put(&mut self, offset: usize, piece: &[u8]) {
        let Some(bytes) = &mut self.bytes else {
            return;
        };
        if offset == bytes.len() {
            return self.push(piece);
        }
        let end = offset + piece.len();
        let missing = end.saturating_sub(bytes.len());
        if memory::reserve(bytes, missing).is_err() {
            self.bytes = None;
            return;
        }
        let length = bytes.len().max(end);
        bytes.resize(length, 0);
        bytes[offset..end].copy_from_slice(piece);
    }

    /// What has arrived.
    ///
    /// # Errors
    /// When there was no memory for it.
    pub(crate) fn bytes(&self) -> Result<&[u8], NoMemory> {
        let bytes = self.bytes.as_ref().ok_or(NoMemory(self.total))?;
        Ok(bytes.as_slice())
    }

    /// The message.
    ///
    /// # Errors
    /// As for [`Growing::bytes`].
    pub(crate) fn into_bytes(self) -> Result<LongBytes, NoMemory> {
        self.bytes.ok_or(NoMemory(self.total))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pieces_stand_where_they_belong() {
        let mut growing = Growing::new(8, &Spare::default());
        assert!(!growing.holds_bytes());
        growing.put(4, &[5, 6]);
        growing.put(0, &[1, 2, 3, 4]);
        growing.push(&[7, 8]);
        assert!(growing.holds_bytes());
        assert_eq!(growing.total(), 8);
        assert_eq!(growing.bytes(), Ok(&[1, 2, 3, 4, 5, 6, 7, 8][..]));
        assert_eq!(growing.into_bytes().unwrap()[..], [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn one_without_memory_takes_what_else_comes_and_says_so_at_the_end() {
        let mut growing = Growing::new(10, &Spare::default());
        growing.push(&[1, 2]);
        // More than any address space.
        growing.put(1 << 60, &[3]);
        assert!(!growing.holds_bytes());
        growing.push(&[4]);
        growing.put(0, &[5]);
        assert_eq!(growing.bytes(), Err(NoMemory(10)));
        assert_eq!(growing.into_bytes(), Err(NoMemory(10)));
    }
}
