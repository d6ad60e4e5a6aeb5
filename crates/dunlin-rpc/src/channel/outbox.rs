//! The sending half of a ring: encodes messages into batches and keeps account of the free space at the peer.
//!
//! It works on plain values, without queue pair or memory. [`super::ring::RingChannel`] writes the batches.

use dunlin_verbs::PeerMemory;

use super::batch::{self, Canaries, Form, FRAME_BYTES, LINE_BYTES, LONG_LINES, WORD_BYTES};
use super::message;
use super::message_place::MessagePlace;
use super::ChannelError;

/// Number of bytes of content after which a batch is written without waiting for more, so that the peer can start on
/// it.
const FULL_BYTES: usize = 24 * LINE_BYTES;
/// The same where batches are stored into mapped memory and the peer has nothing to read: it waits for this one.
/// Measured on two cores with 64 bytes: one line is slower with 8 calls outstanding, three and more are with 4.
const FULL_BYTES_LEAST: usize = 2 * LINE_BYTES;

/// The sending half.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// The batch that is not written yet, as it will be laid out in the ring.
    batch: Box<[u8]>,
    /// The end of the content in the batch, and the limit up to which it may grow without checks.
    end: usize,
    limit: usize,
    /// The batch is full when its content ends here or later.
    full_end: usize,
    full_bytes_least: usize,
    messages: u32,
    /// Number of lines written since the start of the connection (RB²'s tail).
    written: u64,
    /// Number of lines that the peer is known to have consumed (RB²'s local head).
    consumed_by_peer: u64,
    /// The peer's ring has 2^shift lines.
    shift: u32,
    canaries: Canaries,
    form: Form,
}

/// A contiguous part of a batch and its position in the peer's ring.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// Byte offset in the ring.
    pub(crate) offset: usize,
    /// Whole lines, except for a separate commit word.
    pub(crate) bytes: &'a [u8],
}

impl Outbox {
    /// For a ring of `lines` (a power of two) at the peer, whose canaries have this seed, payloads of at most
    /// `eager_bytes`, and batches of this form.
    pub(crate) fn new(lines: usize, eager_bytes: usize, seed: u64, form: Form) -> Self {
        debug_assert!(lines.is_power_of_two());
        let mut outbox = Self {
            batch: vec![0; Self::batch_bytes(eager_bytes)].into_boxed_slice(),
            end: form.content_at(),
            limit: 0,
            full_end: 0,
            full_bytes_least: FULL_BYTES,
            messages: 0,
            written: 0,
            consumed_by_peer: 0,
            shift: lines.trailing_zeros(),
            canaries: Canaries::new(seed),
            form,
        };
        outbox.set_limit();
        outbox
    }

    /// Size in the ring of the longest batch with payloads of at most `eager_bytes`: one that was almost full, plus
    /// such a payload.
    pub(crate) fn batch_bytes(eager_bytes: usize) -> usize {
        batch::lines_of(FULL_BYTES + message::message_bytes(eager_bytes)) * LINE_BYTES
    }

    /// Number of free lines in the peer's ring.
    #[inline]
    fn free(&self) -> usize {
        (1usize << self.shift) - (self.written - self.consumed_by_peer) as usize
    }

    fn set_limit(&mut self) {
        self.limit = self.form.content_at() + batch::content_of(self.free());
        let unread = (self.written - self.consumed_by_peer) as usize * LINE_BYTES;
        self.full_end = FRAME_BYTES + unread.clamp(self.full_bytes_least, FULL_BYTES);
    }

    /// From now on batches are stored by the processor and cost no NIC a message: a batch is full when it is as long as
    /// what the peer has not read yet, so that the peer reads while we write, and neither waits for the other.
    pub(crate) fn batch_adaptively(&mut self) {
        self.full_bytes_least = FULL_BYTES_LEAST;
        self.set_limit();
    }

    /// Whether a message with `payload` bytes fits into the current batch.
    #[inline]
    pub(crate) fn fits(&self, payload: usize) -> bool {
        self.end < self.full_end && self.end + message::message_bytes(payload) <= self.limit
    }

    /// The number of lines that the peer is known to have consumed.
    #[inline]
    pub(crate) fn known_consumed(&self) -> u64 {
        self.consumed_by_peer
    }

    /// Whether there is nothing to write.
    #[inline]
    pub(crate) fn is_flushed(&self) -> bool {
        self.messages == 0
    }

    /// Records the peer's count of consumed lines, given as its lower 32 bits. It may only grow, up to what was
    /// written.
    #[inline]
    pub(crate) fn peer_consumed(&mut self, low: u32) -> Result<(), ChannelError> {
        let more = u64::from(low.wrapping_sub(self.consumed_by_peer as u32));
        if more > self.written - self.consumed_by_peer {
            return Err(ChannelError::violation(
                "it claims to have read messages that were never sent",
            ));
        }
        self.consumed_by_peer += more;
        self.set_limit();
        Ok(())
    }

    /// The place of the next message, for whose payload [`Outbox::fits`] was true.
    #[inline(always)]
    pub(crate) fn place(&mut self) -> MessagePlace<'_> {
        MessagePlace::new(&mut self.batch, &mut self.end, &mut self.messages)
    }

    /// Number of bytes that runs of whole messages may take in the current batch.
    #[inline]
    pub(crate) fn run_room(&self) -> usize {
        let most = self.batch.len() - self.form.behind_content();
        if self.end >= self.full_end {
            return 0;
        }
        self.limit.min(most).saturating_sub(self.end)
    }

    /// The place for runs, for which [`Outbox::run_room`] had room of `bytes`.
    ///
    /// # Panics
    /// When it had not.
    #[inline]
    pub(crate) fn run_space(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.batch[self.end..][..bytes]
    }

    /// Adds the messages that were encoded into [`Outbox::run_space`] to the batch.
    #[inline]
    pub(crate) fn commit_run(&mut self, bytes: usize, messages: u32) {
        self.end += bytes;
        self.messages += messages;
    }

    /// Size of the peer's ring in bytes.
    pub(crate) fn ring_bytes(&self) -> usize {
        LINE_BYTES << self.shift
    }

    /// Number of lines of the current batch.
    #[inline]
    fn lines(&self) -> usize {
        (self.end + self.form.behind_content()).div_ceil(LINE_BYTES)
    }

    /// Writes the head and the commit word of the batch; returns its number of lines.
    ///
    /// # Errors
    /// When messages were added that did not fit: writing it would overwrite what the peer has not read.
    #[inline(always)]
    fn close_batch(&mut self, consumed: u64) -> Result<usize, ChannelError> {
        let lines = self.lines();
        if lines > self.free() {
            return Err(ChannelError::overrun());
        }
        let canary = self.canaries.current();
        let head = batch::head(canary, lines, self.messages).to_le_bytes();
        let commit = batch::commit(canary, consumed).to_le_bytes();
        match self.form {
            Form::Twice => {
                self.batch[..WORD_BYTES].copy_from_slice(&commit);
                self.batch[WORD_BYTES..FRAME_BYTES].copy_from_slice(&head);
            }
            Form::Sealed => {
                let end = lines * LINE_BYTES;
                self.batch[..WORD_BYTES].copy_from_slice(&head);
                self.batch[end - WORD_BYTES..end].copy_from_slice(&commit);
            }
        }
        Ok(lines)
    }

    /// Byte offset in the ring of a line, given by its number since the start of the connection.
    #[inline]
    fn offset(&self, line: u64) -> usize {
        (line as usize & ((1 << self.shift) - 1)) * LINE_BYTES
    }

    /// The bytes of a batch of `lines` lines before the end of the ring, and those at its start.
    #[inline]
    fn around_the_end(&self, lines: usize) -> (Piece<'_>, Piece<'_>) {
        let offset = self.offset(self.written);
        let bytes = &self.batch[..lines * LINE_BYTES];
        let (before_end, after) = bytes.split_at(bytes.len().min(self.ring_bytes() - offset));
        let piece = |offset, bytes| Piece { offset, bytes };
        (piece(offset, before_end), piece(0, after))
    }

    /// The batch as contiguous pieces, in the order in which to write them; only the last non-empty one completes it.
    ///
    /// # Errors
    /// As for [`Outbox::close_batch`].
    pub(crate) fn pieces(&mut self, consumed: u64) -> Result<[Piece<'_>; 3], ChannelError> {
        let lines = self.close_batch(consumed)?;
        let (mut before_end, after) = self.around_the_end(lines);
        let piece = |offset, bytes| Piece { offset, bytes };
        Ok(match self.form {
            Form::Twice => {
                let commit = piece(before_end.offset, &before_end.bytes[..WORD_BYTES]);
                before_end.offset += WORD_BYTES;
                before_end.bytes = &before_end.bytes[WORD_BYTES..];
                [before_end, after, commit]
            }
            Form::Sealed => [piece(0, &[]), before_end, after],
        })
    }

    /// Stores the batch into the peer's mapped ring, in the same order.
    ///
    /// # Errors
    /// As for [`Outbox::close_batch`].
    #[inline]
    pub(crate) fn store(
        &mut self,
        consumed: u64,
        ring: &impl PeerMemory,
    ) -> Result<(), ChannelError> {
        let lines = self.close_batch(consumed)?;
        let (before_end, after) = self.around_the_end(lines);
        match self.form {
            Form::Twice => {
                if !after.bytes.is_empty() {
                    ring.store(after.offset, after.bytes);
                }
                ring.publish(before_end.offset, before_end.bytes);
            }
            Form::Sealed => {
                ring.store(before_end.offset, before_end.bytes);
                ring.store(after.offset, after.bytes);
            }
        }
        Ok(())
    }

    /// To be called when the batch was written. Where batches are long, returns the place of the next one after its
    /// first line, which the reader polls: offset and number of bytes.
    #[inline]
    pub(crate) fn written(&mut self) -> Option<(usize, usize)> {
        let lines = self.lines();
        self.written += lines as u64;
        self.end = self.form.content_at();
        self.messages = 0;
        self.canaries.advance();
        self.set_limit();
        if lines < LONG_LINES {
            return None;
        }
        let second = self.offset(self.written + 1);
        let expected = ((lines - 1) * LINE_BYTES).min(self.ring_bytes() - second);
        Some((second, expected))
    }
}
