//! The sending half of a ring: encodes messages into batches and keeps account of the room at the peer.
//!
//! Pure values: it knows neither queue pair nor memory. [`super::ring::RingChannel`] writes the batches out.

use super::batch::{self, Canaries, FIRST_BYTES, HEAD_BYTES, LINE_BYTES};
use super::message::{self, Header, HEADER_BYTES};
use super::ChannelError;

/// Bytes of content after which a batch is written without waiting for more: the peer has work then.
const FULL_BYTES: usize = 24 * LINE_BYTES;

/// From this many lines on a batch is long: another like it is likely to follow.
const LONG_LINES: usize = 8;

/// Copies with moves of fixed sizes that overlap, where the bytes are few: a call of `memcpy` costs more than they do.
///
/// # Panics
/// When the lengths differ.
#[inline]
pub(crate) fn copy(target: &mut [u8], source: &[u8]) {
    #[inline]
    fn both_ends<const N: usize>(target: &mut [u8], source: &[u8]) {
        let last = source.len() - N;
        target[..N].copy_from_slice(&source[..N]);
        target[last..last + N].copy_from_slice(&source[last..]);
    }
    assert_eq!(target.len(), source.len());
    match source.len() {
        65..=128 => both_ends::<64>(target, source),
        33..=64 => both_ends::<32>(target, source),
        16..=32 => both_ends::<16>(target, source),
        8..16 => both_ends::<8>(target, source),
        _ => target.copy_from_slice(source),
    }
}

/// The sending half.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// The content of the batch that is not written yet, and its first line, which is made last.
    content: Box<[u8]>,
    first: [u8; LINE_BYTES],
    /// Bytes of content, and up to where it may grow without a look at limits.
    used: usize,
    limit: usize,
    messages: u32,
    /// Lines written since the start of the connection (RB²'s tail).
    written: u64,
    /// Lines that the peer has consumed, as far as we know (RB²'s local head).
    consumed_by_peer: u64,
    /// The peer's ring has 2^shift lines.
    shift: u32,
    canaries: Canaries,
    /// The commit word goes by a WRITE of its own: the peer's device does not place the bytes of a WRITE in order.
    twice: bool,
}

/// A contiguous part of a batch and its place in the peer's ring.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// Byte offset in the ring.
    pub(crate) offset: usize,
    /// Whole lines, but for a first line that is written twice.
    pub(crate) bytes: &'a [u8],
}

impl Outbox {
    /// For a ring of `lines` (a power of two) at the peer, whose canaries have this seed, and payloads of at most `eager_bytes`.
    pub(crate) fn new(lines: usize, eager_bytes: usize, seed: u64) -> Self {
        debug_assert!(lines.is_power_of_two());
        let mut outbox = Self {
            content: vec![0; Self::batch_bytes(eager_bytes)].into_boxed_slice(),
            first: [0; LINE_BYTES],
            used: 0,
            limit: 0,
            messages: 0,
            written: 0,
            consumed_by_peer: 0,
            shift: lines.trailing_zeros(),
            canaries: Canaries::new(seed),
            twice: false,
        };
        outbox.set_limit();
        outbox
    }

    /// For a peer whose device does not place the bytes of a WRITE in order of their addresses (FLOCK §4.1, RB² §IV-A).
    pub(crate) fn writing_twice(mut self) -> Self {
        self.twice = true;
        self
    }

    /// Bytes in the ring of the longest batch with payloads of at most `eager_bytes`: one that was almost full, and such a payload.
    pub(crate) fn batch_bytes(eager_bytes: usize) -> usize {
        batch::lines_of(FULL_BYTES + message::message_bytes(eager_bytes)) * LINE_BYTES
    }

    /// Lines of the peer's ring that nothing written stands in.
    #[inline]
    fn free(&self) -> usize {
        (1usize << self.shift) - (self.written - self.consumed_by_peer) as usize
    }

    fn set_limit(&mut self) {
        self.limit = batch::content_of(self.free());
    }

    /// Whether a message with `payload` bytes goes into the batch as it is.
    #[inline]
    pub(crate) fn fits(&self, payload: usize) -> bool {
        self.used < FULL_BYTES && self.used + message::message_bytes(payload) <= self.limit
    }

    /// The peer's count of consumed lines, as far as we know.
    #[inline]
    pub(crate) fn known_consumed(&self) -> u64 {
        self.consumed_by_peer
    }

    /// Whether nothing waits to be written.
    #[inline]
    pub(crate) fn is_flushed(&self) -> bool {
        self.messages == 0
    }

    /// Takes note of the peer's count of consumed lines, as its lower 32 bits. It may only grow, up to what was written.
    #[inline]
    pub(crate) fn peer_consumed(&mut self, low: u32) -> Result<(), ChannelError> {
        let more = u64::from(low.wrapping_sub(self.consumed_by_peer as u32));
        if more > self.written - self.consumed_by_peer {
            return Err(ChannelError::violation(
                "it claims to have read what was never sent",
            ));
        }
        self.consumed_by_peer += more;
        self.set_limit();
        Ok(())
    }

    /// Encodes a message of which [`Outbox::fits`] was true.
    ///
    /// # Panics
    /// When it is longer than this outbox is for.
    #[inline]
    pub(crate) fn push(&mut self, header: Header, payload: &[u8]) {
        let at = self.used + HEADER_BYTES;
        copy(&mut self.content[at..at + payload.len()], payload);
        self.commit(header);
    }

    /// Where the payload of the next message will stand, for up to `most` bytes, of which [`Outbox::fits`] was true.
    ///
    /// # Panics
    /// When it is longer than this outbox is for.
    #[inline]
    pub(crate) fn space(&mut self, most: usize) -> &mut [u8] {
        &mut self.content[self.used + HEADER_BYTES..][..most]
    }

    /// Puts the message into the batch whose payload was written into [`Outbox::space`].
    ///
    /// # Panics
    /// When it is longer than this outbox is for.
    #[inline]
    pub(crate) fn commit(&mut self, header: Header) {
        self.content[self.used..self.used + HEADER_BYTES].copy_from_slice(&header.encode());
        self.used += message::message_bytes(header.length as usize);
        self.messages += 1;
    }

    /// Bytes that runs of whole messages may take in the batch as it is.
    #[inline]
    pub(crate) fn run_room(&self) -> usize {
        let most = batch::content_of(self.content.len() / LINE_BYTES);
        if self.used >= FULL_BYTES {
            return 0;
        }
        self.limit.min(most).saturating_sub(self.used)
    }

    /// Where runs will stand, of which [`Outbox::run_room`] had room for `bytes`.
    ///
    /// # Panics
    /// When it had not.
    #[inline]
    pub(crate) fn run_space(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.content[self.used..][..bytes]
    }

    /// Puts the messages into the batch that were encoded into [`Outbox::run_space`].
    #[inline]
    pub(crate) fn commit_run(&mut self, bytes: usize, messages: u32) {
        self.used += bytes;
        self.messages += messages;
    }

    /// The batch as contiguous pieces, in the order to write them: after the first line what stands before the end of the ring and
    /// what stands at its start, then the first line; its commit word by itself where all is written twice.
    #[inline]
    pub(crate) fn pieces(&mut self, consumed: u64) -> [Piece<'_>; 4] {
        let lines = batch::lines_of(self.used);
        let canary = self.canaries.current();
        let head = batch::head(canary, lines, self.messages);
        let commit = batch::commit(canary, consumed);
        let (first, rest) = self.content.split_at(FIRST_BYTES);
        self.first[..HEAD_BYTES].copy_from_slice(&head.to_le_bytes());
        self.first[HEAD_BYTES..HEAD_BYTES + FIRST_BYTES].copy_from_slice(first);
        self.first[HEAD_BYTES + FIRST_BYTES..].copy_from_slice(&commit.to_le_bytes());
        let mask = (1u64 << self.shift) - 1;
        let line = |position: u64| (position & mask) as usize * LINE_BYTES;
        let second = line(self.written + 1);
        let rest = &rest[..(lines - 1) * LINE_BYTES];
        let (before_end, after) =
            rest.split_at(rest.len().min((LINE_BYTES << self.shift) - second));
        let whole = match self.twice {
            true => HEAD_BYTES + FIRST_BYTES,
            false => LINE_BYTES,
        };
        let piece = |offset, bytes| Piece { offset, bytes };
        [
            piece(second, before_end),
            piece(0, after),
            piece(line(self.written), &self.first[..whole]),
            piece(line(self.written) + whole, &self.first[whole..]),
        ]
    }

    /// The batch was written. Where batches are long, says where the next one will stand behind its first line, which the reader polls:
    /// offset and bytes.
    #[inline]
    pub(crate) fn written(&mut self) -> Option<(usize, usize)> {
        let lines = batch::lines_of(self.used);
        self.written += lines as u64;
        self.used = 0;
        self.messages = 0;
        self.canaries.advance();
        self.set_limit();
        let second = (self.written + 1) as usize & ((1 << self.shift) - 1);
        let expected = (lines - 1).min((1 << self.shift) - second);
        (lines >= LONG_LINES).then_some((second * LINE_BYTES, expected * LINE_BYTES))
    }
}
