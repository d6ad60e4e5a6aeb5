//! A request or a response as one packet: a header with what the transport knew, followed by the payload.
//!
//! Numbers are big-endian, as in the headers that Wireshark's users know; `dunlin.lua` reads the same.
//!
//! ```text
//! 0   version, 1           8   connection           32  nanoseconds that it took; of a request 0
//! 1   kind                 16  number of the call   40  length of the peer's name, 41 of the method's
//! 2   handler, u16         24  bytes of the whole   42  both names, and the payload, or its beginning
//! 4   code of an error, u32    payload
//! ```

use std::time::Duration;

use dunlin::{CallEnd, CapturedCall};

/// Version of the header.
const VERSION: u8 = 1;
/// Bytes before the names.
const HEADER_BYTES: usize = 42;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A request.
    Request = 0,
    /// A response.
    Answer = 1,
    /// The handler's error.
    Error = 2,
    /// The handler panicked.
    Panicked = 3,
    /// The caller no longer waited for a response.
    Cancelled = 4,
}

/// A packet.
#[derive(Debug)]
pub struct Frame<'a> {
    /// A request, or the kind of its outcome.
    pub kind: Kind,
    /// Time since 1970.
    pub at: Duration,
    /// The call of the packet.
    pub call: &'a CapturedCall,
}

impl<'a> Frame<'a> {
    /// The packets of a call: its request and its outcome.
    pub fn both(call: &'a CapturedCall) -> [Self; 2] {
        let kind = match call.end {
            CallEnd::Answered => Kind::Answer,
            CallEnd::Panicked => Kind::Panicked,
            CallEnd::Cancelled => Kind::Cancelled,
            _ => Kind::Error,
        };
        let began = call.began;
        let frame = |kind, at| Self { kind, at, call };
        [frame(Kind::Request, began), frame(kind, began + call.took)]
    }

    /// Bytes of the whole payload, and the captured part of it.
    pub fn payload(&self) -> (u64, &'a [u8]) {
        match self.kind {
            Kind::Request => (self.call.request_bytes, &self.call.request),
            _ => (self.call.answer_bytes, &self.call.answer),
        }
    }

    /// The packet, and the length that it would have with the whole payload.
    pub fn encode(&self) -> (Vec<u8>, u64) {
        let call = self.call;
        let (code, took) = match (self.kind, call.end) {
            (Kind::Request, _) => (0, 0),
            (_, CallEnd::Failed(code)) => (code, call.took.as_nanos() as u64),
            _ => (0, call.took.as_nanos() as u64),
        };
        let (length, payload) = self.payload();
        let (peer, name) = (short(&call.peer), short(&call.name));
        let mut bytes = Vec::with_capacity(HEADER_BYTES + peer.len() + name.len() + payload.len());
        bytes.extend([VERSION, self.kind as u8]);
        bytes.extend(call.handler.to_be_bytes());
        bytes.extend(code.to_be_bytes());
        for number in [call.connection, call.number, length, took] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend([peer.len() as u8, name.len() as u8]);
        bytes.extend([peer, name].concat());
        let header = bytes.len() as u64;
        bytes.extend(payload);
        (bytes, header + length)
    }
}

/// A name, cut to what one byte can count.
fn short(name: &str) -> &[u8] {
    &name.as_bytes()[..name.len().min(u8::MAX.into())]
}
