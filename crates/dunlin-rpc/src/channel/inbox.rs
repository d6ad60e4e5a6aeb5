//! The receiving half of a ring: finds messages that have arrived, checks them and copies them out.
//!
//! The peer may write any bytes at any time. So a message is looked at once, its length is checked against our own limits,
//! and its payload is copied into private memory before anything else sees it.

use dunlin_verbs::Memory;

use super::line::{self, Header, BODY_BYTES, HEADER_BYTES};
use super::lines::Lines;
use super::ChannelError;

/// How many lines of a batch the processor is asked to fetch ahead of the one that is read.
const PREFETCHED_LINES: u64 = 14;

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Byte offset of the ring in its region.
    start: usize,
    /// The ring has 2^shift lines.
    shift: u32,
    /// Lines consumed since the start of the connection (RB²'s head).
    head: u64,
    /// Up to here, lines of the batch that is being read remain to be asked for.
    batch_end: u64,
    /// Longest payload that an honest peer puts into the ring.
    eager_bytes: usize,
    /// The last message, private: header and payload, and slack for copies of whole bodies.
    message: Box<[u8]>,
}

/// A message that has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Its head, checked.
    pub(crate) header: Header,
    /// Lower 32 bits of the lines that the peer had consumed when it sent this.
    pub(crate) peer_consumed: u32,
}

impl Inbox {
    /// For a ring of `lines` (a power of two) at byte `start` of its region.
    pub(crate) fn new(start: usize, lines: usize, eager_bytes: usize) -> Self {
        debug_assert!(lines.is_power_of_two());
        let message = vec![0; line::lines_for(eager_bytes) * BODY_BYTES].into_boxed_slice();
        Self {
            start,
            shift: lines.trailing_zeros(),
            head: 0,
            batch_end: 0,
            eager_bytes,
            message,
        }
    }

    /// Lines consumed.
    #[inline]
    pub(crate) fn consumed(&self) -> u64 {
        self.head
    }

    /// The payload of the message that [`Inbox::receive`] returned last.
    #[inline]
    pub(crate) fn payload(&self, header: Header) -> &[u8] {
        &self.message[HEADER_BYTES..HEADER_BYTES + header.length as usize]
    }

    #[inline]
    fn lines<'a>(&self, memory: &'a Memory) -> Lines<'a> {
        Lines::new(memory, self.start, self.shift)
    }

    /// The tag of the line at `position`, if that line has arrived.
    #[inline]
    fn arrived(&self, lines: Lines<'_>, position: u64) -> Option<u64> {
        let tag = lines.tag(position);
        (tag as u32 == line::lap(position, self.shift)).then_some(tag)
    }

    /// Whether the first line of a message is there.
    #[inline]
    pub(crate) fn has_arrival(&self, memory: &Memory) -> bool {
        self.arrived(self.lines(memory), self.head).is_some()
    }

    /// Takes the next message, if all its lines are there.
    ///
    /// # Errors
    /// When what is there is no message that this side would accept.
    #[inline]
    pub(crate) fn receive(&mut self, memory: &Memory) -> Result<Option<Arrival>, ChannelError> {
        let lines = self.lines(memory);
        let Some(mut tag) = self.arrived(lines, self.head) else {
            return Ok(None);
        };
        let (bodies, _) = self.message.as_chunks_mut::<BODY_BYTES>();
        let Some((first, rest)) = bodies.split_first_mut() else {
            return Ok(None);
        };
        // From here on the first line is private, and what the peer does to it does not matter.
        lines.body(self.head, first);
        let header = Header::read(first)
            .ok_or_else(|| ChannelError::violation("a message header is malformed"))?;
        if header.length as usize > self.eager_bytes {
            return Err(ChannelError::violation(
                "a message in the ring is longer than agreed",
            ));
        }
        let count = line::lines_for(header.length as usize);
        let following = u64::from(first[line::FOLLOWING_AT]);
        if following != 0 {
            self.batch_end = self.head + 1 + following.saturating_sub(PREFETCHED_LINES);
            for ahead in 1..=following.min(PREFETCHED_LINES) {
                lines.prefetch(self.head + ahead);
            }
        }
        let mut position = self.head;
        for body in rest.iter_mut().take(count - 1) {
            position += 1;
            tag = lines.tag(position);
            if tag as u32 != line::lap(position, self.shift) {
                return Ok(None);
            }
            lines.body(position, body);
        }
        self.head = position + 1;
        if self.head < self.batch_end {
            for ahead in 0..count as u64 {
                lines.prefetch(self.head + PREFETCHED_LINES - ahead);
            }
        }
        Ok(Some(Arrival {
            header,
            peer_consumed: (tag >> 32) as u32,
        }))
    }
}
