//! What is known about a method at compile time.

use std::cell::Cell;
use std::thread::LocalKey;

use crate::codec::Codec;
use crate::{Request, Response};

/// Which side sends one message, and which a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// One message in each direction.
    Unary = 0,
    /// One request, a stream of responses.
    ServerStreaming = 1,
    /// A stream of requests, one response.
    ClientStreaming = 2,
    /// A stream in each direction.
    Bidirectional = 3,
}

impl Kind {
    /// Returns the kind with this number.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        let all = [
            Self::Unary,
            Self::ServerStreaming,
            Self::ClientStreaming,
            Self::Bidirectional,
        ];
        all.get(usize::from(number)).copied()
    }
}

/// A method of a service; `service!` generates a type for each.
pub trait Method: Sized + Send + Sync + 'static {
    /// The message that the client sends.
    type Request: Default + Send + Sync + 'static;
    /// The message that the server sends.
    type Response: Default + Send + Sync + 'static;
    /// The codec of both messages.
    type Codec: Codec<Self::Request> + Codec<Self::Response>;
    /// Which side sends one message, and which a stream.
    const KIND: Kind;
    /// The name, as in gRPC: `/helloworld.Greeter/SayHello`.
    const PATH: &'static str;
    /// Its index among the methods of its service.
    const INDEX: usize;
    /// The check of the name, which is sent with each request; the lowest eight bits are zero.
    const CHECK: u32 = check(Self::PATH);

    /// This thread's reusable messages of the method.
    fn scratch() -> &'static LocalKey<Scratch<Self>>;
}

/// Messages that a thread keeps between two calls of a method, so that their memory is reused.
pub type Scratch<M> = Cell<Option<Box<Messages<M>>>>;

/// A request and a response.
#[derive(Debug)]
pub struct Messages<M: Method> {
    pub(crate) request: Request<M::Request>,
    pub(crate) response: Response<M::Response>,
}

impl<M: Method> Messages<M> {
    /// Returns those of this thread, or new ones. Inlined, like [`Messages::keep`]: each is about five instructions,
    /// and runs for every call and every answer.
    #[inline(always)]
    pub(crate) fn take() -> Box<Self> {
        M::scratch().with(Cell::take).unwrap_or_else(Self::make)
    }

    /// Returns the messages to the thread.
    #[inline(always)]
    pub(crate) fn keep(self: Box<Self>) {
        M::scratch().with(|place| place.set(Some(self)));
    }

    #[cold]
    fn make() -> Box<Self> {
        Box::new(Self {
            request: Request::new(M::Request::default()),
            response: Response::new(M::Response::default()),
        })
    }
}

/// FNV-1a of the name, folded to 24 bits and shifted. It is cheap and never changes. It only has to differ between two
/// methods that have the same number before and after a restart of the server.
pub(crate) const fn check(path: &str) -> u32 {
    let bytes = path.as_bytes();
    let mut hash: u32 = 0x811c_9dc5;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    (hash ^ hash >> 24) << 8
}

#[cfg(test)]
mod tests {
    use super::check;

    /// The checks are part of the wire format and must not change.
    #[test]
    fn checks_are_the_same_for_ever() {
        assert_eq!(check("/helloworld.Greeter/SayHello"), 0xa5ac_4600);
        assert_ne!(check("/a.B/C"), check("/a.B/D"));
        assert_eq!(check("/a.B/C") & 0xff, 0);
    }
}
