//! What a call brings back, and what a long one is made from.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::lane::Answer;
use crate::channel::buffers::{Bytes, BytesMut};
use crate::channel::short_copy;

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
    /// A whole word says how many, so that which of the three it is takes a word, too: what is behind it begins where
    /// moves of the whole do.
    Inline {
        length: usize,
        bytes: Inline,
    },
    Heap(Box<[u8]>),
    Landed(Box<dyn Bytes>),
}

impl Reply {
    pub(crate) const EMPTY: Self = Self(Place::Inline {
        length: 0,
        bytes: Inline([0; INLINE_BYTES]),
    });

    /// As the lane that it came from would have given it.
    pub(crate) fn into_answer<T>(self, take: impl FnOnce(Answer<'_>) -> T) -> T {
        match self.0 {
            Place::Landed(landed) => take(Answer::Long(landed)),
            _ => take(Answer::Short(&self)),
        }
    }

    #[inline]
    pub(crate) fn new(answer: Answer<'_>) -> Self {
        let mut reply = Self::EMPTY;
        reply.renew(answer);
        reply
    }

    /// Another in its place: a short one is written where it stands.
    #[inline]
    pub(crate) fn renew(&mut self, answer: Answer<'_>) {
        if let (Place::Inline { length, bytes }, Answer::Short(source)) = (&mut self.0, &answer) {
            if let Some(target) = bytes.0.get_mut(..source.len()) {
                short_copy::copy(target, source);
                *length = source.len();
                return;
            }
        }
        self.renew_other(answer);
    }

    #[cold]
    fn renew_other(&mut self, answer: Answer<'_>) {
        self.0 = match answer {
            Answer::Short(source) if source.len() > INLINE_BYTES => Place::Heap(source.into()),
            Answer::Long(landed) => Place::Landed(landed),
            Answer::Short(source) => {
                let mut bytes = Inline([0; INLINE_BYTES]);
                short_copy::copy(&mut bytes.0[..source.len()], source);
                Place::Inline {
                    length: source.len(),
                    bytes,
                }
            }
        };
    }

    /// Takes it from where it stood; there the next may be written.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        match &self.0 {
            Place::Inline { length, bytes } => Self(Place::Inline {
                length: *length,
                bytes: *bytes,
            }),
            _ => std::mem::replace(self, Self::EMPTY),
        }
    }
}

impl Deref for Reply {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Inline { length, bytes } => &bytes.0[..*length],
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
