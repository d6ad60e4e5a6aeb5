//! The result of a call, and the memory of a long request.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::lane::Answer;
use crate::channel::buffers::{Bytes, BytesMut};
use crate::channel::short_copy;

/// Responses of up to this many bytes are stored in the reply itself, without an allocation.
const INLINE_BYTES: usize = 112;

/// Aligned to the registers by which a reply is moved: a load at another alignment than the store before it waits until
/// that store has reached the cache.
#[derive(Clone, Copy)]
#[repr(align(16))]
struct Inline([u8; INLINE_BYTES]);

/// A response. Dereferences to a byte slice; a long one is in registered memory that returns to its pool when the reply
/// is dropped.
pub struct Reply(Place);

enum Place {
    /// The length takes a whole word, so that the discriminant of the enum takes a word, too: what is behind it is
    /// aligned like the moves of the whole.
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

    /// Passes it on as the lane that it came from would have.
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

    /// Replaces the response; a short one is written in place.
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

    /// Takes the response out; the next one may be written in its place.
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

/// A request to be filled in place, in registered memory: the server reads it from here, so a long request is copied
/// only once.
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
