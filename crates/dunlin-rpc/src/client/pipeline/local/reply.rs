//! Responses to one thread's calls: passed on by counting references, without a copy.

use std::ops::Deref;
use std::rc::Rc;

use crate::call::lane::Answer;
use crate::channel::batch::LINE_BYTES;
use crate::channel::buffers::Bytes;
use crate::channel::short_copy;
use crate::client::driver::calls::Keep;

/// Maximum size in bytes of memory for a short response that a slot keeps for the next one.
const KEPT_BYTES: usize = 4096;

/// A response to a call of a [`super::LocalClient`]. Dereferences to a byte slice; a long one is in registered memory
/// that returns to its pool when the reply is dropped.
#[derive(Clone)]
pub struct LocalReply(Rc<Response>);

enum Response {
    /// The number of bytes, in memory that may be longer.
    Short(usize, Box<[u8]>),
    Landed(Box<dyn Bytes>),
}

impl Deref for LocalReply {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Response::Short(length, memory) => &memory[..*length],
            Response::Landed(landed) => landed.bytes(),
        }
    }
}

impl AsRef<[u8]> for LocalReply {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for LocalReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalReply({} bytes)", self.len())
    }
}

/// The last response of a slot, whose memory is reused when its task has dropped it.
pub(super) struct CountedReply(Option<Rc<Response>>);

impl Keep for CountedReply {
    type Reply = LocalReply;

    fn empty() -> Self {
        Self(None)
    }

    #[inline]
    fn keep(&mut self, answer: Answer<'_>) {
        if let (Answer::Short(source), Some(kept)) = (&answer, &mut self.0) {
            if let Some(Response::Short(length, memory)) = Rc::get_mut(kept) {
                if let Some(target) = memory.get_mut(..source.len()) {
                    short_copy::copy(target, source);
                    *length = source.len();
                    return;
                }
            }
        }
        self.keep_anew(answer);
    }

    #[inline]
    fn take(&mut self) -> Option<LocalReply> {
        let kept = self.0.as_ref()?;
        match &**kept {
            Response::Short(_, memory) if memory.len() <= KEPT_BYTES => {
                Some(LocalReply(Rc::clone(kept)))
            }
            _ => self.0.take().map(LocalReply),
        }
    }
}

impl CountedReply {
    #[cold]
    fn keep_anew(&mut self, answer: Answer<'_>) {
        self.0 = Some(Rc::new(match answer {
            Answer::Short(source) => {
                let mut memory = source.to_vec();
                memory.resize(source.len().next_multiple_of(LINE_BYTES), 0);
                Response::Short(source.len(), memory.into())
            }
            Answer::Long(landed) => Response::Landed(landed),
        }));
    }
}
