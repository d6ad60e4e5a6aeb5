//! What a thread has prepared for its lane and not sent yet: the run of encoded messages for the next coalesced
//! message, and the one-sided operations that go with it.

use super::calls::slot_of;
use super::combining::Run;
use crate::call::lane::OPERATIONS_STAGED;
use crate::channel::message::{self, Header, DESCRIPTOR_BYTES, HEADER_BYTES};
use crate::channel::one_sided::OneSided;
use crate::channel::short_copy::copy;

/// Maximum number of messages in a run: half of a renewal, so that a run never waits for more credits than there can
/// be.
pub(crate) const RUN_MESSAGES: u32 = crate::admission::credits::CREDITS / 2;
/// Length in bytes beyond which a run is sent.
const RUN_BYTES: usize = 1024;

/// See the module.
pub(super) struct Staging {
    /// `used` bytes of messages; with room for any message that goes into the ring.
    bytes: Box<[u8]>,
    used: usize,
    /// Maximum number of messages.
    most: u32,
    messages: u32,
    requests: u32,
    operations: Vec<OneSided>,
    /// Slots of the calls in the run.
    slots: Vec<u16>,
    /// Offsets in the run of descriptors of the lane's memory, with their slots.
    longs: Vec<(usize, u16)>,
    /// Longest payload that the lane carries in its ring.
    eager: usize,
}

impl Staging {
    /// For `most` messages at a time; not for any lane yet: see [`Staging::settle`].
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

    /// Switches to a lane that carries payloads of `eager` bytes in its ring, and keeps what is staged.
    pub(super) fn settle(&mut self, eager: usize) {
        self.eager = eager;
        let longest = RUN_BYTES.max(message::message_bytes(eager));
        if self.bytes.len() < longest {
            let mut bytes = vec![0; longest];
            bytes[..self.used].copy_from_slice(&self.bytes[..self.used]);
            self.bytes = bytes.into();
        }
    }

    /// Longest payload that fits.
    #[inline]
    pub(super) fn eager(&self) -> usize {
        self.eager
    }

    /// Whether a message with `payload` bytes fits. A single message may make a run, whatever its length.
    #[inline]
    pub(super) fn fits(&self, payload: usize) -> bool {
        let together = self.used + message::message_bytes(payload);
        self.messages == 0 || self.messages < self.most && together <= RUN_BYTES.min(self.eager)
    }

    /// Whether the run is to be sent without waiting for more: it holds at least `calls` calls, or no more fit, or it
    /// holds other messages than calls.
    pub(super) fn is_worth(&self, calls: usize) -> bool {
        self.slots.len() >= calls
            || self.messages >= self.most
            || self.requests < self.messages
            || self.has_operations()
    }

    /// Adds a message that is not a call.
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

    /// Adds the message of a call.
    #[inline]
    pub(super) fn push_call(&mut self, header: Header, payload: &[u8]) {
        self.push(header, payload);
        self.slots.push(slot_of(header.call));
        self.requests += 1;
    }

    /// The same for a long request, whose payload is a descriptor of the lane's memory.
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

    /// Changes the memory of the long request at this index among them.
    pub(super) fn replace_long(&mut self, place: usize, descriptor: &[u8; DESCRIPTOR_BYTES]) {
        let (at, _) = self.longs[place];
        self.bytes[at..at + DESCRIPTOR_BYTES].copy_from_slice(descriptor);
    }

    /// Adds a one-sided operation.
    pub(super) fn push_operation(&mut self, operation: OneSided) {
        self.slots.push(slot_of(operation.call));
        self.operations.push(operation);
    }

    /// Whether another operation fits.
    pub(super) fn takes_operation(&self) -> bool {
        self.operations.len() < OPERATIONS_STAGED
    }

    /// Whether nothing is staged.
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

    /// Whether all `out` outstanding calls are still here, and may go to another lane: one-sided operations may not.
    pub(super) fn is_all_of(&self, out: usize) -> bool {
        out <= self.slots.len() && self.operations.is_empty()
    }

    /// The one-sided operations only, to be sent.
    pub(super) fn run_of_operations(&self) -> Run<'_> {
        Run {
            operations: &self.operations,
            ..Run::NONE
        }
    }

    /// Removes the operations: they were sent, or stay when the rest moves.
    pub(super) fn take_operations(&mut self) -> Vec<OneSided> {
        let gone = std::mem::take(&mut self.operations);
        self.slots.retain(|slot| {
            !gone
                .iter()
                .any(|operation| slot_of(operation.call) == *slot)
        });
        gone
    }

    /// The slots of the staged calls.
    pub(super) fn slots(&self) -> &[u16] {
        &self.slots
    }

    /// The whole run, to be sent.
    #[inline]
    pub(super) fn run(&self) -> Run<'_> {
        Run {
            bytes: &self.bytes[..self.used],
            messages: self.messages,
            requests: self.requests,
            operations: &self.operations,
        }
    }

    /// Clears the run: it was sent, or its calls have ended.
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
