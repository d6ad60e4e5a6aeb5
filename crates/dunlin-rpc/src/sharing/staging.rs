//! What a thread has ready for its lane and has not sent: the run of encoded messages that goes into the next coalesced
//! one, and the one-sided operations that go with it.

use super::calls::slot_of;
use super::combining::Run;
use crate::call::lane::OPERATIONS_STAGED;
use crate::channel::message::{self, Header, DESCRIPTOR_BYTES, HEADER_BYTES};
use crate::channel::one_sided::OneSided;
use crate::channel::short_copy::copy;

/// Messages of a run: half of a renewal, so that a run never waits for more credits than there can be.
pub(crate) const RUN_MESSAGES: u32 = crate::admission::credits::CREDITS / 2;
/// Bytes of a run beyond which it leaves.
const RUN_BYTES: usize = 1024;

/// See the module.
pub(super) struct Staging {
    /// `used` bytes of messages; room for any message that goes into the ring.
    bytes: Box<[u8]>,
    used: usize,
    /// Most messages.
    most: u32,
    messages: u32,
    requests: u32,
    operations: Vec<OneSided>,
    /// Slots of the calls in it.
    slots: Vec<u16>,
    /// Where in it descriptors stand of memory of the lane, and of which slots.
    longs: Vec<(usize, u16)>,
    /// Longest payload that the lane takes in its ring.
    eager: usize,
}

impl Staging {
    /// Of `most` messages at a time; for no lane yet: see [`Staging::settle`].
    pub(super) fn new(most: u32) -> Self {
        Self {
            bytes: Box::default(),
            used: 0,
            most,
            messages: 0,
            requests: 0,
            operations: Vec::with_capacity(OPERATIONS_STAGED),
            slots: Vec::with_capacity(RUN_MESSAGES as usize),
            longs: Vec::new(),
            eager: 0,
        }
    }

    /// From now on for a lane that takes payloads of `eager` bytes in its ring. What is here goes along.
    pub(super) fn settle(&mut self, eager: usize) {
        self.eager = eager;
        let longest = RUN_BYTES.max(message::message_bytes(eager));
        if self.bytes.len() < longest {
            let mut bytes = vec![0; longest];
            bytes[..self.used].copy_from_slice(&self.bytes[..self.used]);
            self.bytes = bytes.into();
        }
    }

    /// Longest payload that goes in.
    #[inline]
    pub(super) fn eager(&self) -> usize {
        self.eager
    }

    /// Whether a message with `payload` bytes fits. One long message may make a run, whatever its length.
    #[inline]
    pub(super) fn fits(&self, payload: usize) -> bool {
        let together = self.used + message::message_bytes(payload);
        self.messages == 0 || self.messages < self.most && together <= RUN_BYTES.min(self.eager)
    }

    /// Whether it is to leave without waiting for more: there are so many calls in it, or no more fit, or there are
    /// others than calls.
    pub(super) fn is_worth(&self, calls: usize) -> bool {
        self.slots.len() >= calls
            || self.messages >= self.most
            || self.requests < self.messages
            || self.has_operations()
    }

    /// Puts a message in that is no call.
    #[inline]
    pub(super) fn push(&mut self, header: Header, payload: &[u8]) {
        match header.short() {
            Some(short) => self.put(short, payload),
            None => self.put(header.encode(), payload),
        }
        self.messages += 1;
    }

    #[inline(always)]
    fn put<const N: usize>(&mut self, header: [u8; N], payload: &[u8]) {
        let rest = self.bytes[self.used..].split_first_chunk_mut();
        let (place, rest) = rest.expect("room for a header");
        *place = header;
        copy(&mut rest[..payload.len()], payload);
        self.used += N + message::padded(payload.len());
    }

    /// Puts the message of a call in.
    #[inline]
    pub(super) fn push_call(&mut self, header: Header, payload: &[u8]) {
        self.push(header, payload);
        self.slots.push(slot_of(header.call));
        self.requests += 1;
    }

    /// The same for a long request, whose payload is a descriptor of memory of the lane.
    pub(super) fn push_long_call(&mut self, header: Header, descriptor: &[u8; DESCRIPTOR_BYTES]) {
        // Such a message has no short header.
        let at = self.used + HEADER_BYTES;
        self.longs.push((at, slot_of(header.call)));
        self.push_call(header, descriptor);
    }

    /// Slots of the long requests.
    pub(super) fn longs(&self) -> impl Iterator<Item = u16> + '_ {
        self.longs.iter().map(|&(_, slot)| slot)
    }

    /// The long request of this place among them has other memory.
    pub(super) fn replace_long(&mut self, place: usize, descriptor: &[u8; DESCRIPTOR_BYTES]) {
        let (at, _) = self.longs[place];
        self.bytes[at..at + DESCRIPTOR_BYTES].copy_from_slice(descriptor);
    }

    /// Puts a one-sided operation in.
    pub(super) fn push_operation(&mut self, operation: OneSided) {
        self.slots.push(slot_of(operation.call));
        self.operations.push(operation);
    }

    /// Whether one more operation fits.
    pub(super) fn takes_operation(&self) -> bool {
        self.operations.len() < OPERATIONS_STAGED
    }

    /// Whether nothing is ready.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.messages == 0 && self.operations.is_empty()
    }

    pub(super) fn has_messages(&self) -> bool {
        self.messages > 0
    }

    pub(super) fn has_operations(&self) -> bool {
        !self.operations.is_empty()
    }

    /// Whether all calls that are `out` are here still, and may go to another lane: one-sided operations may not.
    pub(super) fn is_all_of(&self, out: usize) -> bool {
        out <= self.slots.len() && self.operations.is_empty()
    }

    /// The one-sided operations alone, to be sent.
    pub(super) fn run_of_operations(&self) -> Run<'_> {
        Run {
            operations: &self.operations,
            ..Run::NONE
        }
    }

    /// Takes them out: they were sent, or stay when the rest goes.
    pub(super) fn take_operations(&mut self) -> Vec<OneSided> {
        let gone = std::mem::take(&mut self.operations);
        self.slots.retain(|slot| {
            !gone
                .iter()
                .any(|operation| slot_of(operation.call) == *slot)
        });
        gone
    }

    /// The slots of the calls that are here.
    pub(super) fn slots(&self) -> &[u16] {
        &self.slots
    }

    /// All of it, to be sent.
    #[inline]
    pub(super) fn run(&self) -> Run<'_> {
        Run {
            bytes: &self.bytes[..self.used],
            messages: self.messages,
            requests: self.requests,
            operations: &self.operations,
        }
    }

    /// It was sent, or its calls have ended.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.operations.clear();
        self.slots.clear();
        self.messages = 0;
        self.requests = 0;
        self.longs.clear();
    }
}
