//! The sending half of a ring: encodes messages into lines, batches them and keeps account of the room at the peer.
//!
//! Pure values: it knows neither queue pair nor memory. [`super::ring::RingChannel`] writes the batches out.

use super::line::{self, Header, BODY_BYTES, HEADER_BYTES, LINE_BYTES};
use super::ChannelError;

/// Lines gathered before they are written, at least: room for the longest message in the ring and then some.
const BATCH_LINES: usize = 64;
/// From this many lines on, the first line of a batch is written last.
const HELD_BACK_LINES: usize = 4;
/// Lines after which a batch is written without waiting for more: the peer has work then.
const FULL_LINES: usize = 24;

/// Copies up to a body, in moves of fixed sizes that overlap: a call of `memcpy` costs more than so few bytes do.
#[inline]
fn copy_short(target: &mut [u8], source: &[u8]) {
    #[inline]
    fn both_ends<const N: usize>(target: &mut [u8], source: &[u8]) {
        let last = source.len() - N;
        target[..N].copy_from_slice(&source[..N]);
        target[last..last + N].copy_from_slice(&source[last..]);
    }
    match source.len() {
        0 => {}
        1..4 => target[..source.len()].copy_from_slice(source),
        4..8 => both_ends::<4>(target, source),
        8..16 => both_ends::<8>(target, source),
        16..32 => both_ends::<16>(target, source),
        _ => both_ends::<32>(target, source),
    }
}

/// The sending half.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Encoded lines that are not written yet: `written .. tail`.
    batch: Vec<[u8; LINE_BYTES]>,
    /// Lines in `batch`.
    batched: usize,
    /// Lines encoded since the start of the connection (RB²'s tail).
    tail: u64,
    /// Lines that the peer has consumed, as far as we know (RB²'s local head).
    consumed_by_peer: u64,
    /// The peer's ring has 2^shift lines.
    shift: u32,
}

/// A contiguous part of a batch and its place in the peer's ring.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// Byte offset in the ring.
    pub(crate) offset: usize,
    /// The lines.
    pub(crate) bytes: &'a [u8],
}

impl Outbox {
    /// For a ring of `lines` (a power of two) at the peer and payloads of at most `eager_bytes`.
    pub(crate) fn new(lines: usize, eager_bytes: usize) -> Self {
        debug_assert!(lines.is_power_of_two());
        Self {
            batch: vec![[0; LINE_BYTES]; Self::batch_bytes(eager_bytes) / LINE_BYTES],
            batched: 0,
            tail: 0,
            consumed_by_peer: 0,
            shift: lines.trailing_zeros(),
        }
    }

    /// Bytes of the longest batch with payloads of at most `eager_bytes`.
    pub(crate) fn batch_bytes(eager_bytes: usize) -> usize {
        BATCH_LINES.max(line::lines_for(eager_bytes)) * LINE_BYTES
    }

    /// Lines of the peer's ring that are free.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        (1usize << self.shift) - (self.tail - self.consumed_by_peer) as usize
    }

    /// The peer's count of consumed lines, as far as we know.
    #[inline]
    pub(crate) fn known_consumed(&self) -> u64 {
        self.consumed_by_peer
    }

    /// Whether `lines` more fit into the batch.
    #[inline]
    pub(crate) fn batch_fits(&self, lines: usize) -> bool {
        self.batched < FULL_LINES && self.batched + lines <= self.batch.len()
    }

    /// Whether anything waits to be written.
    #[inline]
    pub(crate) fn is_flushed(&self) -> bool {
        self.batched == 0
    }

    /// Takes note of the peer's count of consumed lines, as its lower 32 bits. It may only grow, up to what was written.
    #[inline]
    pub(crate) fn peer_consumed(&mut self, low: u32) -> Result<(), ChannelError> {
        let more = u64::from(low.wrapping_sub(self.consumed_by_peer as u32));
        if more > self.tail - self.batched as u64 - self.consumed_by_peer {
            return Err(ChannelError::violation(
                "it claims to have read what was never sent",
            ));
        }
        self.consumed_by_peer += more;
        Ok(())
    }

    /// Encodes a message; `consumed` goes into the tags. The caller has checked room, batch and length.
    #[inline]
    pub(crate) fn push(&mut self, header: Header, payload: &[u8], consumed: u64) {
        debug_assert_eq!(header.length as usize, payload.len());
        let lines = line::lines_for(payload.len());
        debug_assert!(lines <= self.room() && self.batch_fits(lines));
        let target = &mut self.batch[self.batched..self.batched + lines];
        let Some((first, rest)) = target.split_first_mut() else {
            return;
        };
        let mut position = self.tail;
        let mut tag = || {
            let word = line::tag(line::lap(position, self.shift), consumed);
            position += 1;
            word.to_le_bytes()
        };
        let (head, tail) = payload.split_at(payload.len().min(BODY_BYTES - HEADER_BYTES));
        first[..HEADER_BYTES].copy_from_slice(&header.encode());
        copy_short(&mut first[HEADER_BYTES..BODY_BYTES], head);
        first[BODY_BYTES..].copy_from_slice(&tag());
        let (parts, remainder) = tail.as_chunks::<BODY_BYTES>();
        for (target, part) in rest.iter_mut().zip(parts) {
            target[..BODY_BYTES].copy_from_slice(part);
            target[BODY_BYTES..].copy_from_slice(&tag());
        }
        if let Some(target) = rest.get_mut(parts.len()) {
            copy_short(&mut target[..BODY_BYTES], remainder);
            target[BODY_BYTES..].copy_from_slice(&tag());
        }
        self.tail += lines as u64;
        self.batched += lines;
    }

    /// The batch as contiguous pieces, in the order to write them: what stands before the end of the ring, what stands at its start, and
    /// the first line last. The reader polls the first line, so while the others are written it does not take them away.
    #[inline]
    pub(crate) fn pieces(&mut self) -> [Piece<'_>; 3] {
        let mask = (1u64 << self.shift) - 1;
        let first = ((self.tail - self.batched as u64) & mask) as usize;
        let until_end = (1usize << self.shift) - first;
        let held_back = usize::from(self.batched >= HELD_BACK_LINES);
        let lines = &mut self.batch[..self.batched];
        if let (1, Some(first)) = (held_back, lines.first_mut()) {
            first[line::FOLLOWING_AT] = u8::try_from(self.batched - 1).unwrap_or(u8::MAX);
        }
        let lines = &*lines;
        let (before_end, after) = lines.split_at(self.batched.min(until_end));
        fn piece(line: usize, lines: &[[u8; LINE_BYTES]]) -> Piece<'_> {
            Piece {
                offset: line * LINE_BYTES,
                bytes: lines.as_flattened(),
            }
        }
        [
            piece(first + held_back, &before_end[held_back..]),
            piece(0, after),
            piece(first, &before_end[..held_back]),
        ]
    }

    /// The batch was written.
    #[inline]
    pub(crate) fn written(&mut self) {
        self.batched = 0;
    }
}
