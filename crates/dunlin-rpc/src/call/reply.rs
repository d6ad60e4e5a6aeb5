//! What a call brings back, and what a long one is made from.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::lane::Answer;
use crate::channel::buffers::{Bytes, BytesMut};

/// Responses up to this many bytes stand in the reply itself, without an allocation.
const INLINE_BYTES: usize = 112;

/// Aligned as the registers are by which a reply is moved from place to place: a move that begins elsewhere than the
/// one before it waits until that has reached the cache.
#[derive(Clone, Copy)]
#[repr(align(16))]
struct Inline([u8; INLINE_BYTES]);

/// A response. Reads as a byte slice; a long one stands in registered memory that goes back to its pool with the reply.
pub struct Reply(Place);

enum Place {
    Inline { length: u8, bytes: Inline },
    Heap(Box<[u8]>),
    Landed(Box<dyn Bytes>),
}

impl Reply {
    /// As the lane that it came from would have given it.
    pub(crate) fn into_answer<T>(self, take: impl FnOnce(Answer<'_>) -> T) -> T {
        match self.0 {
            Place::Landed(landed) => take(Answer::Long(landed)),
            _ => take(Answer::Short(&self)),
        }
    }

    #[inline]
    pub(crate) fn new(answer: Answer<'_>) -> Self {
        match answer {
            Answer::Short(source) if source.len() <= INLINE_BYTES => {
                let mut bytes = Inline([0; INLINE_BYTES]);
                bytes.0[..source.len()].copy_from_slice(source);
                Self(Place::Inline {
                    length: source.len() as u8,
                    bytes,
                })
            }
            Answer::Short(source) => Self(Place::Heap(source.into())),
            Answer::Long(landed) => Self(Place::Landed(landed)),
        }
    }
}

impl Deref for Reply {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Inline { length, bytes } => &bytes.0[..usize::from(*length)],
            Place::Heap(bytes) => bytes,
            Place::Landed(landed) => landed.bytes(),
        }
    }
}

impl AsRef<[u8]> for Reply {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({} bytes)", self.len())
    }
}

/// A request to fill in place, in registered memory: the server reads it from here, so a long request is copied once
/// only.
pub struct RequestBuffer(pub(crate) Box<dyn BytesMut>);

impl Deref for RequestBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes_ref()
    }
}

impl DerefMut for RequestBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

impl fmt::Debug for RequestBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestBuffer({} bytes)", self.len())
    }
}
