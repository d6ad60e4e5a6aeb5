//! The receiving half of a ring: finds batches that have arrived, copies them out, checks their messages.
//!
//! The peer may write any bytes at any time. So a batch is copied into private memory before anything in it is read,
//! and each length is checked against our own limits.

use dunlin_verbs::Memory;

use super::batch::{self, Canaries, Form, LAST_WORD, LINE_BYTES, LONG_LINES};
use super::lines::Lines;
use super::message::{self, Header, SHORT_BYTES};
use super::outbox::Outbox;
use super::short_messages::ShortMessages;
use super::upcoming::Upcoming;
use super::ChannelError;

#[cold]
pub(super) fn too_long() -> ChannelError {
    ChannelError::violation("a message in the ring is longer than negotiated")
}

#[cold]
pub(super) fn ends_beyond() -> ChannelError {
    ChannelError::violation("a message extends beyond its batch")
}

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Byte offset of the ring in its region.
    start: usize,
    /// The ring has 2^shift lines.
    shift: u32,
    /// Number of lines consumed since the start of the connection (RB²'s head).
    head: u64,
    /// Number of batches opened since then.
    opened: u64,
    /// Number of lines of the last batch.
    last_lines: usize,
    canaries: Canaries,
    form: Form,
    /// Maximum length of a payload that an honest peer puts into the ring.
    eager_bytes: usize,
    /// Private copy of the last batch; `at .. end` of it is unread and holds `messages` messages.
    batch: Box<[u8]>,
    at: usize,
    end: usize,
    messages: u32,
    /// Whether nothing of the open batch was read yet.
    is_new: bool,
    /// Offset of the payload of the last message.
    payload_at: usize,
}

impl Inbox {
    /// For a ring of `lines` (a power of two) at byte `start` of its region, with canaries of this seed and batches of
    /// this form.
    pub(crate) fn new(
        start: usize,
        lines: usize,
        eager_bytes: usize,
        seed: u64,
        form: Form,
    ) -> Self {
        debug_assert!(lines.is_power_of_two());
        Self {
            start,
            shift: lines.trailing_zeros(),
            head: 0,
            opened: 0,
            last_lines: 0,
            canaries: Canaries::new(seed),
            form,
            eager_bytes,
            batch: vec![0; Outbox::batch_bytes(eager_bytes)].into_boxed_slice(),
            at: 0,
            end: 0,
            messages: 0,
            is_new: false,
            payload_at: 0,
        }
    }

    /// Number of lines consumed.
    #[inline]
    pub(crate) fn consumed(&self) -> u64 {
        self.head
    }

    /// Number of batches opened since the start of the connection.
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    /// Number of messages of the open batch that are not taken yet.
    #[inline]
    pub(crate) fn messages(&self) -> u32 {
        self.messages
    }

    /// The requests of the open batch, returned once per batch, before the first is taken.
    #[inline]
    pub(crate) fn take_new(&mut self) -> Option<Upcoming<'_>> {
        let content = &self.batch[self.at..self.end];
        std::mem::take(&mut self.is_new).then(|| Upcoming::new(content, self.messages))
    }

    /// Number of bytes of the open batch that were copied out.
    #[inline]
    pub(crate) fn opened_bytes(&self) -> usize {
        self.end
    }

    /// The payload of the message that [`Inbox::take`] returned last.
    ///
    /// # Panics
    /// When `header` belongs to another message.
    #[inline]
    pub(crate) fn payload(&self, header: Header) -> &[u8] {
        &self.batch[self.payload_at..self.payload_at + header.length as usize]
    }

    /// Whether the next batch may have arrived, judging by the word that its reader polls.
    #[inline]
    fn may_have_arrived(&self, ring: Lines<'_>) -> bool {
        let differs = ring.word(self.head, 0) ^ self.canaries.current();
        differs & self.form.canary_bits() == 0
    }

    /// The head and the commit word of the next batch, if it has arrived: number of lines, of messages, and of lines
    /// that the peer has consumed.
    #[inline]
    fn arrived(&self, ring: Lines<'_>) -> Option<(usize, u32, u32)> {
        let canary = self.canaries.current();
        match self.form {
            Form::Twice => {
                let consumed = batch::read_commit(ring.word(self.head, 0), canary)?;
                let (lines, messages) = batch::read_head(ring.word(self.head, 1), canary)?;
                Some((lines, messages, consumed))
            }
            Form::Sealed => {
                let head = ring.word(self.head, 0);
                let (lines, messages) = batch::read_head(head, canary)?;
                // The number of lines comes from the peer; a position is taken modulo the ring, so this never reads
                // outside it.
                let last = self.head + lines as u64 - 1;
                let consumed = batch::read_commit(ring.word(last, LAST_WORD), canary)?;
                // A software device may write bytes instead of words: the first poll saw half of the head, and the
                // commit word arrived after that.
                (ring.word(self.head, 0) == head).then_some((lines, messages, consumed))
            }
        }
    }

    /// Whether nothing has begun to arrive: one load, for pollers.
    #[inline]
    pub(crate) fn is_idle(&self, memory: &Memory) -> bool {
        let ring = Lines::new(memory, self.start, self.shift);
        if self.last_lines > 1 {
            // Another long one is likely to follow, and its second line is then fetched together with the first.
            ring.prefetch(self.head + 1);
        }
        self.messages == 0 && !self.may_have_arrived(ring)
    }

    /// Whether a message waits.
    #[inline]
    pub(crate) fn has_arrival(&self, memory: &Memory) -> bool {
        let ring = Lines::new(memory, self.start, self.shift);
        self.messages > 0 || (self.may_have_arrived(ring) && self.arrived(ring).is_some())
    }

    /// Opens the next batch, if it has arrived and all messages of the last were taken, and returns the number of lines
    /// (lower 32 bits) that the peer had consumed when it sent it.
    ///
    /// # Errors
    /// When it is not a batch that this side accepts.
    #[inline]
    pub(crate) fn open(&mut self, memory: &Memory) -> Result<Option<u32>, ChannelError> {
        debug_assert_eq!(self.messages, 0);
        let ring = Lines::new(memory, self.start, self.shift);
        let Some((lines, messages, consumed)) = self.arrived(ring) else {
            return Ok(None);
        };
        if lines * LINE_BYTES > self.batch.len() || lines > 1 << self.shift {
            return Err(ChannelError::violation("a batch is longer than negotiated"));
        }
        if messages == 0 {
            // There is no reason to send one, and a reader counts messages to know when to turn to other connections.
            return Err(ChannelError::violation("an empty batch"));
        }
        // From here on the batch is private, and later writes of the peer do not matter.
        ring.copy(self.head, lines, &mut self.batch);
        self.head += lines as u64;
        self.last_lines = lines;
        self.opened += 1;
        self.canaries.advance();
        self.at = self.form.content_at();
        self.payload_at = self.at;
        self.end = lines * LINE_BYTES - self.form.behind_content();
        self.messages = messages;
        self.is_new = true;
        // A short batch is not followed so soon, and reading the next line takes it away from its writer.
        if lines >= LONG_LINES {
            self.fetch_next(ring);
        }
        Ok(Some(consumed))
    }

    /// Prefetches the lines of the next batch, if it has arrived already.
    fn fetch_next(&self, ring: Lines<'_>) {
        if let Some((lines, ..)) = self.arrived(ring) {
            for ahead in 1..lines.min(32) {
                ring.prefetch(self.head + ahead as u64);
            }
        }
    }

    /// Takes the next message of the open batch.
    ///
    /// # Errors
    /// When it is not a message that this side accepts.
    pub(crate) fn take(&mut self) -> Result<Option<Header>, ChannelError> {
        if self.messages == 0 {
            return Ok(None);
        }
        let rest = &self.batch[self.at..self.end];
        if rest.len() < SHORT_BYTES {
            return Err(ChannelError::violation(
                "a batch ends before its last message",
            ));
        }
        let Some((header, bytes)) = Header::first(rest) else {
            return Err(ChannelError::violation("a malformed message header"));
        };
        let length = header.length as usize;
        if length > self.eager_bytes {
            return Err(too_long());
        }
        if length > rest.len() - bytes {
            return Err(ends_beyond());
        }
        self.pass(bytes, length);
        Ok(Some(header))
    }

    /// The messages of the open batch that have short headers, up to the first other one. All others are left to
    /// [`Inbox::take`].
    #[inline(always)]
    pub(crate) fn short_messages(&mut self) -> ShortMessages<'_> {
        ShortMessages {
            rest: &self.batch[self.at..self.end],
            left: self.messages,
            behind_header: self.end - self.payload_at,
            eager_bytes: self.eager_bytes,
            end: self.end,
            at: &mut self.at,
            payload_at: &mut self.payload_at,
            messages: &mut self.messages,
        }
    }

    /// Moves past the next message, which has this header size and payload length.
    fn pass(&mut self, header: usize, length: usize) {
        self.payload_at = self.at + header;
        // The last message may lack its padding.
        self.at = (self.payload_at + message::padded(length)).min(self.end);
        self.messages -= 1;
    }
}
