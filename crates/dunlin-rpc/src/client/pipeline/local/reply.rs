//! Responses of one thread's calls: a count of references away, not a copy.

use std::ops::Deref;
use std::rc::Rc;

use crate::call::lane::Answer;
use crate::channel::buffers::Bytes;
use crate::client::driver::calls::Keep;

/// Room for a short response that a place keeps for the next, at most, in bytes.
const KEPT_BYTES: usize = 4096;

/// A response of a [`super::LocalClient`]'s call. Reads as a byte slice; a long one stands in registered memory that
/// goes back to its pool with it.
#[derive(Clone)]
pub struct LocalReply(Rc<Response>);

enum Response {
    Short(Vec<u8>),
    Landed(Box<dyn Bytes>),
}

impl Deref for LocalReply {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Response::Short(bytes) => bytes,
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

/// The last response of each place, whose memory is used again when its task has dropped it.
#[derive(Default)]
pub(super) struct CountedReplies(Vec<Rc<Response>>);

impl Keep for CountedReplies {
    type Reply = LocalReply;

    #[inline]
    fn keep(&mut self, tag: usize, answer: Answer<'_>) -> LocalReply {
        if let (Answer::Short(source), Some(kept)) = (&answer, self.0.get_mut(tag)) {
            if let Some(Response::Short(bytes)) = Rc::get_mut(kept) {
                if source.len() <= bytes.capacity() {
                    bytes.clear();
                    bytes.extend_from_slice(source);
                    return LocalReply(Rc::clone(kept));
                }
            }
        }
        self.keep_anew(tag, answer)
    }
}

impl CountedReplies {
    #[cold]
    fn keep_anew(&mut self, tag: usize, answer: Answer<'_>) -> LocalReply {
        let response = Rc::new(match answer {
            Answer::Short(source) => Response::Short(source.to_vec()),
            Answer::Long(landed) => Response::Landed(landed),
        });
        if matches!(&*response, Response::Short(bytes) if bytes.len() <= KEPT_BYTES) {
            while self.0.len() <= tag {
                self.0.push(Rc::new(Response::Short(Vec::new())));
            }
            self.0[tag] = Rc::clone(&response);
        }
        LocalReply(response)
    }
}
