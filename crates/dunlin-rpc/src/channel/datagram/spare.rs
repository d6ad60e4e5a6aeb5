//! Memory of long messages, kept for the next one: memory returned to the system is mapped again page by page, which
//! takes longer than copying the message.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};

use crate::channel::buffers::{Bytes, BytesMut};
use crate::memory::{self, NoMemory};

/// Maximum number of bytes kept.
const KEPT_BYTES: usize = 32 << 20;
/// Shorter memory is left to the allocator.
const SHORTEST: usize = 32 << 10;
/// Memory longer than this many times the length of a message is not used for it.
const MOST_TIMES: usize = 4;

/// Memory released by messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spare(Arc<Mutex<Vec<Vec<u8>>>>);

impl Spare {
    /// The shortest memory kept for a message of `length` bytes, with the contents of its last message.
    fn take(&self, length: usize) -> Option<Vec<u8>> {
        let mut kept = self.0.try_lock().ok()?;
        let fits = |bytes: &Vec<u8>| (length..=length * MOST_TIMES).contains(&bytes.capacity());
        let (place, _) = kept
            .iter()
            .enumerate()
            .filter(|(_, bytes)| fits(bytes))
            .min_by_key(|(_, bytes)| bytes.capacity())?;
        Some(kept.swap_remove(place))
    }

    fn give_back(&self, bytes: Vec<u8>) {
        // After a fork the lock may never be released; then the memory is not kept.
        let Ok(mut kept) = self.0.try_lock() else {
            return;
        };
        let all: usize = kept.iter().map(Vec::capacity).sum();
        if all + bytes.capacity() <= KEPT_BYTES {
            kept.push(bytes);
        }
    }

    /// Empty memory that is to grow to `length` bytes.
    pub(crate) fn empty(&self, length: usize) -> LongBytes {
        let mut bytes = self.take(length).unwrap_or_default();
        bytes.clear();
        LongBytes {
            bytes,
            home: Some(self.clone()),
        }
    }

    /// `length` bytes to be filled: zeros or remains of earlier messages.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub(crate) fn unfilled(&self, length: usize) -> Result<LongBytes, NoMemory> {
        let mut bytes = self.take(length).unwrap_or_default();
        let missing = length.saturating_sub(bytes.len());
        memory::reserve(&mut bytes, missing)?;
        bytes.resize(length, 0);
        Ok(LongBytes {
            bytes,
            home: Some(self.clone()),
        })
    }

    /// A copy.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn copied(&self, from: &[u8]) -> Result<LongBytes, NoMemory> {
        let mut copy = self.empty(from.len());
        memory::reserve(&mut copy, from.len())?;
        copy.extend_from_slice(from);
        Ok(copy)
    }
}

/// A long message, or the part of it that has arrived. Its memory returns to where it came from.
#[derive(Debug, Default)]
pub(crate) struct LongBytes {
    bytes: Vec<u8>,
    home: Option<Spare>,
}

impl Deref for LongBytes {
    type Target = Vec<u8>;

    #[inline]
    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for LongBytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl AsRef<[u8]> for LongBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for LongBytes {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for LongBytes {}

impl Bytes for LongBytes {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl BytesMut for LongBytes {
    fn bytes_ref(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn resize(&mut self, length: usize) -> bool {
        let fits = length <= self.bytes.capacity();
        if fits {
            self.bytes.resize(length, 0);
        }
        fits
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
        self
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Drop for LongBytes {
    fn drop(&mut self) {
        if let Some(home) = self
            .home
            .take()
            .filter(|_| self.bytes.capacity() >= SHORTEST)
        {
            home.give_back(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn memory_serves_again_and_shows_nothing_that_was_not_written() {
        let spare = Spare::default();
        let mut first = spare.unfilled(100_000).unwrap();
        assert!(first.iter().all(|&byte| byte == 0));
        first.fill(7);
        let place = first.as_ptr();
        drop(first);
        let mut second = spare.empty(80_000);
        assert_eq!((second.len(), second.as_ptr()), (0, place));
        second.extend_from_slice(&[1; 10]);
        // Memory too long for this message is left for others.
        assert_ne!(spare.empty(1_000).as_ptr(), place);
        drop(second);
        assert_ne!(spare.empty(10_000).as_ptr(), place);
        let third = spare.unfilled(90_000).unwrap();
        assert_eq!((third.len(), third.as_ptr()), (90_000, place));
        assert_eq!(third[..11], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
        assert_eq!(spare.copied(&[3; 40_000]).unwrap()[..], [3; 40_000]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let spare = Spare::default();
        let many: Vec<_> = (0..40).map(|_| spare.unfilled(1 << 20).unwrap()).collect();
        drop(many);
        let kept: usize = spare.0.lock().unwrap().iter().map(Vec::capacity).sum();
        assert_eq!(kept, KEPT_BYTES);
        drop(spare.unfilled(100).unwrap());
        assert_eq!(spare.0.lock().unwrap().len(), KEPT_BYTES >> 20);
    }
}
