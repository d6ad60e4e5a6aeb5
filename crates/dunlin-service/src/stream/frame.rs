//! The frames of streams, and the two calls that carry them.
//!
//! ```text
//! push:    session u128 | number u32 | frames          answer: verdict u8 (0: taken)
//! pull:    session u128 | number of the last answer    answer: verdict u8 | number u32 | frames
//! frame:   kind u8 | stream | length | body            stream and lengths are numbers of seven bits a byte
//! OPEN     number of the method u16 | check u32 | credit | header of the request
//! MESSAGE  a message
//! END      of the client: nothing; of the server: a status
//! RESET    nothing: the client has given the stream up
//! CREDIT   bytes
//! HEAD     metadata, before the server's first message
//! ```
//!
//! A session's streams are numbered from 1 upwards in the order in which they are opened; a number is not used again.

use crate::varint::{self, Reader};

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Open = 1,
    Message = 2,
    End = 3,
    Reset = 4,
    Credit = 5,
    Head = 6,
}

/// Cost of a message in addition to its bytes, so that the number of empty ones is bounded, too.
pub(crate) const MESSAGE_COST: usize = 64;
/// Maximum size of a message of a stream, in bytes; the same as gRPC's default limit.
pub(crate) const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// Approximate maximum size of the frames in a call, in bytes.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// Initial credit of a client, before the server has granted any: the smallest window that a server may have.
pub(crate) const FIRST_CREDIT: usize = 16 << 10;
/// Default window of a stream, at either end.
pub(crate) const WINDOW: usize = 64 << 10;
/// Credit granted by a peer is limited to this.
pub(crate) const MOST_CREDIT: usize = 16 << 20;

/// First byte of answers to pushes and pulls.
pub(crate) mod verdict {
    pub(crate) const TAKEN: u8 = 0;
    /// The server no longer knows the session: its streams have ended.
    pub(crate) const UNKNOWN_SESSION: u8 = 1;
    /// The client has violated the protocol; a description follows.
    pub(crate) const VIOLATION: u8 = 2;
    /// The server has reached its limit of sessions.
    pub(crate) const TOO_MANY: u8 = 3;
}

/// Bytes before the frames of a push: session and number.
pub(crate) const PUSH_PREFIX: usize = 20;
/// Bytes before the frames of an answer to a pull: verdict and number.
pub(crate) const PULL_PREFIX: usize = 5;

/// Appends a frame.
pub(crate) fn put(target: &mut Vec<u8>, kind: Kind, stream: u64, body: &[u8]) {
    target.push(kind as u8);
    varint::put(target, stream);
    varint::put_counted(target, body);
}

/// A frame received from a peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// `None` for a kind added by a later version, which is ignored.
    pub(crate) kind: Option<Kind>,
    pub(crate) stream: u64,
    pub(crate) body: &'a [u8],
}

/// Reads the next frame; `None` if it is malformed.
pub(crate) fn read<'a>(reader: &mut Reader<'a>) -> Option<Frame<'a>> {
    let kind = match reader.byte()? {
        1 => Some(Kind::Open),
        2 => Some(Kind::Message),
        3 => Some(Kind::End),
        4 => Some(Kind::Reset),
        5 => Some(Kind::Credit),
        6 => Some(Kind::Head),
        _ => None,
    };
    Some(Frame {
        kind,
        stream: reader.number()?,
        body: reader.counted()?,
    })
}

/// Whether one of these frames ends a stream.
pub(crate) fn has_end(frames: &[u8]) -> bool {
    let mut reader = Reader(frames);
    std::iter::from_fn(|| read(&mut reader)).any(|frame| frame.kind == Some(Kind::End))
}

/// Splits a push or a pull into the session, the number, and the rest.
pub(crate) fn read_prefix(bytes: &[u8]) -> Option<(u128, u32, &[u8])> {
    let (session, rest) = bytes.split_first_chunk::<16>()?;
    let (number, rest) = rest.split_first_chunk::<4>()?;
    Some((
        u128::from_le_bytes(*session),
        u32::from_le_bytes(*number),
        rest,
    ))
}

/// Encodes session and number.
pub(crate) fn prefix(session: u128, number: u32) -> [u8; PUSH_PREFIX] {
    let mut bytes = [0; PUSH_PREFIX];
    bytes[..16].copy_from_slice(&session.to_le_bytes());
    bytes[16..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// The body of an OPEN frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Open<'a> {
    pub(crate) method: dunlin::HandlerId,
    pub(crate) check: u32,
    pub(crate) credit: usize,
    pub(crate) header: &'a [u8],
}

impl<'a> Open<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = self.method.to_le_bytes().to_vec();
        body.extend_from_slice(&self.check.to_le_bytes());
        varint::put(&mut body, self.credit as u64);
        body.extend_from_slice(self.header);
        body
    }

    pub(crate) fn decode(body: &'a [u8]) -> Option<Self> {
        let (method, rest) = body.split_first_chunk::<2>()?;
        let (check, rest) = rest.split_first_chunk::<4>()?;
        let mut reader = Reader(rest);
        let credit = usize::try_from(reader.number()?).ok()?;
        Some(Self {
            method: u16::from_le_bytes(*method),
            check: u32::from_le_bytes(*check),
            credit,
            header: reader.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_come_back_and_anything_is_read_without_harm(stream: u64, body: Vec<u8>, any: Vec<u8>) {
            let mut bytes = Vec::new();
            put(&mut bytes, Kind::Message, stream, &body);
            bytes.push(77);
            let mut reader = Reader(&bytes);
            let frame = read(&mut reader).unwrap();
            prop_assert_eq!(frame, Frame { kind: Some(Kind::Message), stream, body: &body });
            prop_assert_eq!(reader.0, &[77]);
            let mut reader = Reader(&any);
            while let Some(frame) = read(&mut reader) {
                let _ = Open::decode(frame.body);
            }
            let _ = read_prefix(&any);
        }
    }
}
