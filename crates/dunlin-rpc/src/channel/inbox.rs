//! The receiving half of a ring: finds messages that have arrived, checks them and copies them out.
//!
//! The peer may write any bytes at any time. So a message is looked at once, its length is checked against our own limits,
//! and its payload is copied into private memory before anything else sees it.

use std::sync::atomic::Ordering;

use dunlin_verbs::Memory;

use super::line::{self, Header, BODY_BYTES, HEADER_BYTES, LINE_BYTES};
use super::ChannelError;

/// Lines asked for ahead of the message that is being read.
const PREFETCHED_LINES: u64 = 4;

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Byte offset of the ring in its region.
    start: usize,
    /// The ring has 2^shift lines.
    shift: u32,
    /// Lines consumed since the start of the connection (RB²'s head).
    head: u64,
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
    fn offset(&self, position: u64) -> usize {
        let mask = (1u64 << self.shift) - 1;
        self.start + (position & mask) as usize * LINE_BYTES
    }

    /// Lines from the next message to the end of the ring.
    #[inline]
    fn lines_until_end(&self) -> usize {
        let mask = (1u64 << self.shift) - 1;
        (mask + 1 - (self.head & mask)) as usize
    }

    /// The tag of the line at `position`, if that line has arrived.
    #[inline]
    fn arrived(&self, memory: &Memory, position: u64) -> Option<u64> {
        let tag = memory
            .atomic_u64(self.offset(position) + BODY_BYTES)
            .load(Ordering::Acquire);
        (tag as u32 == line::lap(position, self.shift)).then_some(tag)
    }

    /// Whether the first line of a message is there.
    #[inline]
    pub(crate) fn has_arrival(&self, memory: &Memory) -> bool {
        self.arrived(memory, self.head).is_some()
    }

    /// Takes the next message, if all its lines are there.
    ///
    /// # Errors
    /// When what is there is no message that this side would accept.
    #[inline]
    pub(crate) fn receive(&mut self, memory: &Memory) -> Result<Option<Arrival>, ChannelError> {
        let Some(mut tag) = self.arrived(memory, self.head) else {
            return Ok(None);
        };
        let offset = self.offset(self.head);
        let low = memory.atomic_u64(offset).load(Ordering::Relaxed);
        let call = memory.atomic_u64(offset + 8).load(Ordering::Relaxed);
        let header = Header::decode(u64::from_le(low), u64::from_le(call))
            .ok_or(ChannelError::Violation("a message header is malformed"))?;
        if header.length as usize > self.eager_bytes {
            return Err(ChannelError::Violation(
                "a message in the ring is longer than agreed",
            ));
        }
        let lines = line::lines_for(header.length as usize);
        for i in 1..lines {
            match self.arrived(memory, self.head + i as u64) {
                Some(last) => tag = last,
                None => return Ok(None),
            }
        }
        let until_end = self.lines_until_end().min(lines);
        let target = &mut self.message[..lines * BODY_BYTES];
        let (first, second) = target.split_at_mut(until_end * BODY_BYTES);
        memory.read_strided::<BODY_BYTES, LINE_BYTES>(offset, first);
        if !second.is_empty() {
            memory.read_strided::<BODY_BYTES, LINE_BYTES>(self.start, second);
        }
        self.head += lines as u64;
        // Messages come in batches: the lines after this message are probably there.
        for ahead in 0..PREFETCHED_LINES {
            memory.prefetch(self.offset(self.head + ahead));
        }
        Ok(Some(Arrival {
            header,
            peer_consumed: (tag >> 32) as u32,
        }))
    }
}
