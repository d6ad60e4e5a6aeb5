//! The messages that go to one rank: short ones in one ring message made in its slots, long ones in pieces.

use std::collections::VecDeque;

use dunlin_ring::RingError;

use crate::link::Link;
use crate::target::Outcome;
use crate::wire::{Context, Header, Kind, HEADER_BYTES};

/// A message of a nonblocking send that is not yet in the ring as a whole.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) context: Context,
    pub(crate) tag: u32,
    pub(crate) bytes: Vec<u8>,
    /// Bytes that are in the ring.
    pub(crate) sent: usize,
    /// Where to report the end; none for what is left of a blocking call that failed.
    pub(crate) outcome: Option<Outcome>,
}

/// The messages to one rank, in the order of their sends.
pub(crate) type Outbound = VecDeque<Outgoing>;

/// Puts as much of a message into the ring as has room, and counts it in `sent`. Returns whether all of it is there.
pub(crate) fn push(
    link: &mut dyn Link,
    (context, tag): (Context, u32),
    bytes: &[u8],
    sent: &mut usize,
    piece_bytes: usize,
) -> Result<bool, RingError> {
    let header = |kind, length: usize| Header {
        kind,
        context,
        tag,
        length: length as u64,
    };
    if bytes.len() <= piece_bytes {
        let header = header(Kind::Whole, bytes.len());
        return put(link, header, bytes);
    }
    while *sent < bytes.len() {
        let header = match *sent {
            0 => header(Kind::First, bytes.len()),
            at => header(Kind::Piece, at),
        };
        let end = bytes.len().min(*sent + piece_bytes);
        if !put(link, header, &bytes[*sent..end])? {
            return Ok(false);
        }
        *sent = end;
    }
    Ok(true)
}

fn put(link: &mut dyn Link, header: Header, bytes: &[u8]) -> Result<bool, RingError> {
    put_with(link, header, bytes.len(), &mut |place| {
        place.copy_from_slice(bytes);
    })
}

/// Puts a ring message into the ring whose payload `fill` writes into its slots; false when there is no room.
pub(crate) fn put_with(
    link: &mut dyn Link,
    header: Header,
    length: usize,
    fill: &mut dyn FnMut(&mut [u8]),
) -> Result<bool, RingError> {
    link.try_send(HEADER_BYTES + length, &mut |place| {
        let (head, payload) = place.split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header.encode());
        fill(payload);
    })
}
