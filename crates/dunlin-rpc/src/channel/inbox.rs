//! The receiving half of a ring: finds messages that have arrived, checks them and copies them out.
//!
//! The peer may write any bytes at any time. So a message is looked at once, its length is checked against our own limits,
//! and its payload is copied into private memory before anything else sees it.

use std::sync::atomic::Ordering;

use dunlin_verbs::Memory;

use super::line::{self, Header, BODY_BYTES, HEADER_BYTES, LINE_BYTES};
use super::ChannelError;

/// How many lines beyond the message being read the processor is asked to fetch: a message of two lines on.
const PREFETCHED_LINES: usize = 2;

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

    /// The tag of the line at `index` of the ring, if that line has arrived in `lap`.
    #[inline]
    fn arrived(&self, memory: &Memory, index: usize, lap: u32) -> Option<u64> {
        let at = self.start + index * LINE_BYTES + BODY_BYTES;
        let tag = memory.atomic_u64(at).load(Ordering::Acquire);
        (tag as u32 == lap).then_some(tag)
    }

    /// Index and lap of the line that comes next.
    #[inline]
    fn next(&self) -> (usize, u32) {
        let mask = (1u64 << self.shift) - 1;
        (
            (self.head & mask) as usize,
            line::lap(self.head, self.shift),
        )
    }

    /// Whether the first line of a message is there.
    #[inline]
    pub(crate) fn has_arrival(&self, memory: &Memory) -> bool {
        let (index, lap) = self.next();
        self.arrived(memory, index, lap).is_some()
    }

    /// Takes the next message, if all its lines are there.
    ///
    /// # Errors
    /// When what is there is no message that this side would accept.
    #[inline]
    pub(crate) fn receive(&mut self, memory: &Memory) -> Result<Option<Arrival>, ChannelError> {
        let (index, lap) = self.next();
        match self.arrived(memory, index, lap) {
            Some(tag) => self.take(memory, index, lap, tag),
            None => Ok(None),
        }
    }

    /// Takes the message whose first line is there.
    #[inline]
    fn take(
        &mut self,
        memory: &Memory,
        index: usize,
        lap: u32,
        mut tag: u64,
    ) -> Result<Option<Arrival>, ChannelError> {
        let from = self.start + index * LINE_BYTES;
        // From here on the first line is private, and what the peer does to it does not matter.
        memory.read_strided::<BODY_BYTES, LINE_BYTES>(from, &mut self.message[..BODY_BYTES]);
        let header = Header::read(&self.message)
            .ok_or_else(|| ChannelError::violation("a message header is malformed"))?;
        if header.length as usize > self.eager_bytes {
            return Err(ChannelError::violation(
                "a message in the ring is longer than agreed",
            ));
        }
        let lines = line::lines_for(header.length as usize);
        let size = 1usize << self.shift;
        for i in 1..lines {
            let wraps = index + i >= size;
            let (index, lap) = if wraps {
                (index + i - size, lap.wrapping_add(1))
            } else {
                (index + i, lap)
            };
            match self.arrived(memory, index, lap) {
                Some(last) => tag = last,
                None => return Ok(None),
            }
            let start = self.start + index * LINE_BYTES;
            let target = &mut self.message[i * BODY_BYTES..(i + 1) * BODY_BYTES];
            memory.read_strided::<BODY_BYTES, LINE_BYTES>(start, target);
        }
        self.head += lines as u64;
        // Messages come in batches: the next one is probably there already.
        let ahead = self.start + ((index + lines) & (size - 1)) * LINE_BYTES;
        memory.prefetch(ahead + PREFETCHED_LINES * LINE_BYTES);
        memory.prefetch(ahead + (PREFETCHED_LINES + 1) * LINE_BYTES);
        Ok(Some(Arrival {
            header,
            peer_consumed: (tag >> 32) as u32,
        }))
    }
}
