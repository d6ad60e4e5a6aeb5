//! The receiving half of a ring: finds batches that have arrived, copies them out, checks their messages.
//!
//! The peer may write any bytes at any time. So a batch is copied into private memory before anything in it is looked
//! at, and each length is checked against our own limits.

use dunlin_verbs::Memory;

use super::batch::{self, Canaries, Form, COMMIT_WORD, LINE_BYTES};
use super::lines::Lines;
use super::message::{self, Header, Kind, RawHeader};
use super::outbox::Outbox;
use super::ChannelError;

/// A message of the open batch: its length was checked, its kind was not.
pub(crate) struct Message<'a> {
    pub(crate) header: RawHeader,
    pub(crate) payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// The first in these bytes of a batch, with `most` bytes of payload.
    #[inline(always)]
    fn of(bytes: &'a [u8], most: usize) -> Result<Self, ChannelError> {
        let Some(header) = RawHeader::first(bytes) else {
            return Err(ChannelError::violation("a batch ends before its messages"));
        };
        if header.length() > most {
            return Err(ChannelError::violation(
                "a message in the ring is longer than agreed",
            ));
        }
        match bytes[header.bytes()..].get(..header.length()) {
            Some(payload) => Ok(Self { header, payload }),
            None => Err(ChannelError::violation("a message ends beyond its batch")),
        }
    }

    /// Where its payload begins when it stands at `at`, and where the next message does.
    #[inline(always)]
    fn passed(&self, at: usize, end: usize) -> (usize, usize) {
        let payload = at + self.header.bytes();
        // The last message may lack the bytes that fill it up.
        (
            payload,
            (payload + message::padded(self.payload.len())).min(end),
        )
    }
}

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Byte offset of the ring in its region.
    start: usize,
    /// The ring has 2^shift lines.
    shift: u32,
    /// Lines consumed since the start of the connection (RB²'s head).
    head: u64,
    /// Batches opened since then.
    opened: u64,
    canaries: Canaries,
    form: Form,
    /// Longest payload that an honest peer puts into the ring.
    eager_bytes: usize,
    /// The content of the last batch, private; `at .. end` of it is not read yet and holds `messages`.
    content: Box<[u8]>,
    at: usize,
    end: usize,
    messages: u32,
    /// Where the payload of the last message begins.
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
            canaries: Canaries::new(seed),
            form,
            eager_bytes,
            content: vec![0; Outbox::batch_bytes(eager_bytes)].into_boxed_slice(),
            at: 0,
            end: 0,
            messages: 0,
            payload_at: 0,
        }
    }

    /// Lines consumed.
    #[inline]
    pub(crate) fn consumed(&self) -> u64 {
        self.head
    }

    /// Batches that were opened since the start of the connection.
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    /// Messages of the open batch that are not taken yet.
    #[inline]
    pub(crate) fn messages(&self) -> u32 {
        self.messages
    }

    /// Bytes of the open batch that were copied out.
    #[inline]
    pub(crate) fn opened_bytes(&self) -> usize {
        self.end
    }

    /// The payload of the message that [`Inbox::take`] returned last.
    ///
    /// # Panics
    /// When `header` is another's.
    #[inline]
    pub(crate) fn payload(&self, header: Header) -> &[u8] {
        &self.content[self.payload_at..self.payload_at + header.length as usize]
    }

    /// The head and the commit word of the next batch, when they are there: lines, messages, and what the peer has
    /// consumed.
    #[inline]
    fn arrived(&self, ring: Lines<'_>) -> Option<(usize, u32, u32)> {
        let canary = self.canaries.current();
        let head = ring.word(self.head, 0);
        let (lines, messages) = batch::read_head(head, canary)?;
        // The peer says how many lines; a position is taken modulo the ring, so this looks into it whatever was said.
        let last = self.head + self.form.commit_line(lines) as u64;
        let consumed = batch::read_commit(ring.word(last, COMMIT_WORD), canary)?;
        // A device that is software may write bytes, not words: the first look saw half of the head, and the commit
        // word came after it.
        (ring.word(self.head, 0) == head).then_some((lines, messages, consumed))
    }

    /// Whether nothing has begun to arrive: one load, for who looks again and again.
    #[inline]
    pub(crate) fn is_idle(&self, memory: &Memory) -> bool {
        let ring = Lines::new(memory, self.start, self.shift);
        self.messages == 0 && !batch::is_head(ring.word(self.head, 0), self.canaries.current())
    }

    /// Whether a message waits.
    #[inline]
    pub(crate) fn has_arrival(&self, memory: &Memory) -> bool {
        let ring = Lines::new(memory, self.start, self.shift);
        self.messages > 0 || self.arrived(ring).is_some()
    }

    /// Opens the next batch, if it is there and the last is taken, and says how many lines the peer had consumed when
    /// it sent it (lower 32 bits).
    ///
    /// # Errors
    /// When what is there is no batch that this side would accept.
    #[inline]
    pub(crate) fn open(&mut self, memory: &Memory) -> Result<Option<u32>, ChannelError> {
        debug_assert_eq!(self.messages, 0);
        let ring = Lines::new(memory, self.start, self.shift);
        let Some((lines, messages, consumed)) = self.arrived(ring) else {
            return Ok(None);
        };
        if lines * LINE_BYTES > self.content.len() || lines > 1 << self.shift {
            return Err(ChannelError::violation("a batch is longer than agreed"));
        }
        // From here on the batch is private, and what the peer does to it does not matter.
        match self.form {
            Form::Sealed => ring.copy_sealed(self.head, lines, &mut self.content),
            Form::FirstLineLast | Form::Twice => {
                ring.copy_content(self.head, lines, &mut self.content);
            }
        }
        self.head += lines as u64;
        self.opened += 1;
        self.canaries.advance();
        self.at = 0;
        self.end = batch::content_of(lines);
        self.messages = messages;
        if let Some((lines, ..)) = self.arrived(ring) {
            for ahead in 1..lines.min(32) {
                ring.prefetch(self.head + ahead as u64);
            }
        }
        Ok(Some(consumed))
    }

    /// Takes the next message of the open batch.
    ///
    /// # Errors
    /// When what is there is no message that this side would accept.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<Option<Header>, ChannelError> {
        if self.messages == 0 {
            return Ok(None);
        }
        let next = Message::of(&self.content[self.at..self.end], self.eager_bytes)?;
        let Some(header) = next.header.decode() else {
            return Err(ChannelError::violation("a message header is malformed"));
        };
        (self.payload_at, self.at) = next.passed(self.at, self.end);
        self.messages -= 1;
        Ok(Some(header))
    }

    /// Takes the next message of the open batch, which has one, if it is of this kind. All others are left to
    /// [`Inbox::take`].
    ///
    /// # Errors
    /// As for [`Inbox::take`].
    #[inline(always)]
    pub(crate) fn take_if(&mut self, kind: Kind) -> Result<Option<Message<'_>>, ChannelError> {
        let next = Message::of(&self.content[self.at..self.end], self.eager_bytes)?;
        if !next.header.is(kind) {
            return Ok(None);
        }
        (self.payload_at, self.at) = next.passed(self.at, self.end);
        self.messages -= 1;
        Ok(Some(next))
    }
}
