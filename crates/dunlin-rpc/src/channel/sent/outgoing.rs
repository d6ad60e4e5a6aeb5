//! Messages to be sent, each in a place of its own, from which one list of SENDs takes several.

use dunlin_link::Ticket;
use dunlin_verbs::{
    Device, Operation, Payload, PostError, QueuePair, Region, Segment, SendFlags, SendRequest, Work,
};

use super::WORD_BYTES;
use crate::channel::carrier::QUIET;

/// Maximum number of SENDs per doorbell.
pub(super) const TOGETHER: usize = 16;

/// The place of a message.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    bytes: usize,
    /// The SEND that used it last.
    ticket: Ticket,
}

/// As many places as the peer has RECEIVEs, used in turn: a message's number determines its place.
#[derive(Debug)]
pub(super) struct Outgoing<D: Device> {
    places: Box<[Place]>,
    bytes: Box<[u8]>,
    /// The same in registered memory, if requests cannot carry that much inline.
    staging: Option<D::Region>,
    /// Size of a place.
    slot_bytes: usize,
    /// Number of bytes that a request can carry inline.
    inline_bytes: usize,
}

impl<D: Device> Outgoing<D> {
    pub(super) fn new(
        (places, slot_bytes): (usize, usize),
        staging: Option<D::Region>,
        inline_bytes: usize,
    ) -> Self {
        Self {
            places: vec![Place::default(); places].into(),
            bytes: vec![0; places * slot_bytes].into(),
            staging,
            slot_bytes,
            inline_bytes,
        }
    }

    pub(super) fn places(&self) -> u64 {
        self.places.len() as u64
    }

    #[inline]
    fn place(&self, number: u64) -> usize {
        (number % self.places()) as usize
    }

    /// The last SEND from a message's place, which may be that of an earlier message.
    #[inline]
    pub(super) fn ticket(&self, number: u64) -> Ticket {
        self.places[self.place(number)].ticket
    }

    /// The whole place of a message.
    #[inline]
    pub(super) fn bytes_of(&mut self, number: u64) -> &mut [u8] {
        let at = self.place(number) * self.slot_bytes;
        &mut self.bytes[at..][..self.slot_bytes]
    }

    /// To be called when the message was made.
    #[inline]
    pub(super) fn made(&mut self, number: u64, bytes: usize) {
        let place = self.place(number);
        self.places[place].bytes = bytes;
    }

    /// Writes the first word of a message that is being sent by the SEND with this ticket.
    pub(super) fn seal(&mut self, number: u64, word: [u8; WORD_BYTES], ticket: Ticket) {
        let place = self.place(number);
        self.places[place].ticket = ticket;
        let (at, length) = (place * self.slot_bytes, self.places[place].bytes);
        let bytes = &mut self.bytes[at..][..length];
        bytes[..WORD_BYTES].copy_from_slice(&word);
        if let Some(staging) = self.staging.as_ref().filter(|_| length > self.inline_bytes) {
            D::charge(Work::Copy(length));
            staging.memory().write(at, bytes);
        }
    }

    /// Posts the messages from this number on, one for each of the flags, with one doorbell.
    pub(super) fn post(
        &self,
        queue_pair: &mut D::QueuePair,
        first: u64,
        flags: &[SendFlags],
    ) -> Result<(), PostError> {
        if let &[flags] = flags {
            let segment = self.segment(first);
            return queue_pair.post_send(&[self.request(first, flags, &segment)]);
        }
        let number = |i: usize| first + i.min(flags.len() - 1) as u64;
        let segments: [_; TOGETHER] = std::array::from_fn(|i| self.segment(number(i)));
        let requests: [_; TOGETHER] = std::array::from_fn(|i| {
            let flags = flags.get(i).copied().unwrap_or(SendFlags::empty());
            self.request(number(i), flags, &segments[i])
        });
        queue_pair.post_send(&requests[..flags.len()])
    }

    /// The place of a message in registered memory, if its request does not carry it inline.
    #[inline]
    fn segment(&self, number: u64) -> Option<Segment<'_, D::Region>> {
        let place = self.place(number);
        let length = self.places[place].bytes;
        let staging = self.staging.as_ref();
        let region = staging.filter(|_| length > self.inline_bytes)?;
        Some(Segment {
            region,
            offset: place * self.slot_bytes,
            length,
        })
    }

    #[inline]
    fn request<'a>(
        &'a self,
        number: u64,
        flags: SendFlags,
        segment: &'a Option<Segment<'a, D::Region>>,
    ) -> SendRequest<'a, D::Region, D::AddressHandle> {
        let place = self.place(number);
        let payload = match segment {
            Some(_) => Payload::Segments(segment.as_slice()),
            None => {
                Payload::Inline(&self.bytes[place * self.slot_bytes..][..self.places[place].bytes])
            }
        };
        SendRequest::new(QUIET, Operation::Send { immediate: None }, payload, flags)
    }
}
