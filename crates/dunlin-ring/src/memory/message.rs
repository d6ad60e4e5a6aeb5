//! A message read in place.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A message in the ring, read in place (RB² §IV-C, zero copy at the receiver).
///
/// The memory belongs to a region that the peer can write at any moment, so it cannot be accessed as `&[u8]`: a
/// reference would promise that the bytes do not change. Instead the reader copies as much of it as it needs, directly
/// from the slots. An honest peer does not write a message before its reader is done with it; with a dishonest one, two
/// reads of the same bytes may differ. So read a value that decides something only once.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    start: NonNull<u8>,
    length: usize,
    memory: PhantomData<&'a [u8]>,
}

/// A word at any alignment.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Anywhere(u64);

impl std::fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl<'a> Message<'a> {
    /// # Safety
    /// `length` bytes from `start` are valid for reads for `'a`; others may write them.
    #[inline(always)]
    pub(super) unsafe fn new(start: NonNull<u8>, length: usize) -> Self {
        Self {
            start,
            length,
            memory: PhantomData,
        }
    }

    /// A message in private memory.
    pub(crate) fn private(bytes: &'a [u8]) -> Self {
        Self {
            start: NonNull::from(bytes).cast(),
            length: bytes.len(),
            memory: PhantomData,
        }
    }

    /// Length of the message in bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies `target.len()` bytes from `offset` out of the message.
    ///
    /// # Panics
    /// When the range is out of bounds.
    #[inline(always)]
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        self.check(offset, target.len());
        // SAFETY: in bounds as checked; `target` is private memory. The peer may tear the copy; bytes have no invalid
        // values.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.start.as_ptr().add(offset),
                target.as_mut_ptr(),
                target.len(),
            );
        }
    }

    /// Reads the eight bytes from `offset` as a little-endian number, exactly once.
    ///
    /// # Panics
    /// When they are out of bounds.
    #[inline(always)]
    pub fn u64_at(&self, offset: usize) -> u64 {
        self.check(offset, 8);
        // SAFETY: in bounds as checked, and the wrapper allows any alignment; volatile, so that the bytes are read
        // exactly once.
        let word = unsafe {
            let place = self.start.as_ptr().add(offset).cast::<Anywhere>();
            place.read_volatile()
        };
        u64::from_le(word.0)
    }

    /// Reads `N` bytes from `offset` as an array.
    ///
    /// # Panics
    /// When the range is out of bounds.
    #[inline(always)]
    pub fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.read(offset, &mut bytes);
        bytes
    }

    /// Copies the whole message.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        self.read(0, &mut bytes);
        bytes
    }

    /// The exclusive or of all words of the message, and its last bytes: reads every byte without a copy.
    pub fn fold(&self) -> u64 {
        let mut sum = 0;
        let mut at = 0;
        while at + 8 <= self.length && self.start.as_ptr() as usize % 8 == 0 {
            // SAFETY: in bounds and aligned; anyone may change the word.
            let word = unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) };
            sum ^= word.load(Ordering::Relaxed);
            at += 8;
        }
        while at < self.length {
            sum ^= u64::from(self.array::<1>(at)[0]);
            at += 1;
        }
        sum
    }

    #[inline(always)]
    fn check(&self, offset: usize, length: usize) {
        if offset > self.length || length > self.length - offset {
            outside(offset, length, self.length);
        }
    }
}

#[cold]
#[inline(never)]
fn outside(offset: usize, length: usize, message: usize) -> ! {
    panic!("range of {length} bytes at offset {offset} exceeds the message of {message} bytes");
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn reads_what_is_there() {
        let bytes: Vec<u8> = (0..100).collect();
        let message = Message::private(&bytes);
        assert_eq!((message.len(), message.is_empty()), (100, false));
        assert_eq!(message.to_vec(), bytes);
        assert_eq!(message.array::<3>(97), [97, 98, 99]);
        assert_eq!(message.u64_at(1), 0x0807_0605_0403_0201);
        let mut some = [0; 5];
        message.read(10, &mut some);
        assert_eq!(some, [10, 11, 12, 13, 14]);
        assert_eq!(Message::private(&[1, 2, 4]).fold(), 7);
    }

    #[test]
    #[should_panic(expected = "range of 3 bytes at offset 98 exceeds the message of 100 bytes")]
    fn does_not_read_beyond_the_end() {
        let bytes = [0; 100];
        let _ = Message::private(&bytes).array::<3>(98);
    }
}
