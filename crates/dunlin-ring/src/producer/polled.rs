//! Messages that the consumer detects by polling them: each is WRITTEN by the call that makes it, and is its own tail.

use dunlin_verbs::{Device, Operation, Payload, Segment, SendFlags, SendRequest};

use super::ProducerCore;
use crate::design::TailSync;
use crate::effort;
use crate::error::RingError;
use crate::framing::HEADER_BYTES;
use crate::link::{Request, RingLink};

impl<D: Device> ProducerCore<D> {
    /// WRITEs one message that its reader polls: as a whole, or first the message and then its length.
    #[inline(never)]
    pub(super) fn write_message(
        &mut self,
        link: &mut impl RingLink<D>,
        offset: usize,
        units: u64,
        length: usize,
    ) -> Result<(), RingError> {
        D::charge(effort::WROTE_MESSAGE);
        let position = self.sender.tail();
        let whole = self.geometry.prefix + length + self.geometry.suffix;
        let remote = self
            .places
            .array
            .plus(self.geometry.offset(position) as u64);
        let length_last = self.design.tail_sync == TailSync::PollLength;
        let first = if length_last { HEADER_BYTES } else { 0 };
        let inline = whole - first <= self.inline_bytes;
        let to = position + units;
        // The only buffer of a design without an array is free again when its WRITE is complete.
        let staged = !self.design.mirrored && !inline;
        let signal = self.signals_at(to, staged);
        let (region, at) = self.local.place(offset);
        let segment = [Segment {
            region,
            offset: at + first,
            length: whole - first,
        }];
        let payload = if inline {
            Payload::Inline(self.local.bytes(offset + first, whole - first))
        } else {
            Payload::Segments(&segment)
        };
        let write = |remote| Operation::Write {
            remote,
            immediate: None,
        };
        let none = SendFlags::empty();
        let header = self.local.bytes(offset, HEADER_BYTES);
        // The length is sent inline, so the request that writes it does not read the array any more.
        let mut list: [Request<'_, D>; 2] = [
            SendRequest::new(to, write(remote.plus(first as u64)), payload, none),
            SendRequest::new(to, write(remote), Payload::Inline(header), none),
        ];
        let used = if length_last { 2 } else { 1 };
        // One doorbell each, as for every message without batching.
        for (index, request) in list[..used].chunks_mut(1).enumerate() {
            link.post(request, signal && index + 1 == used)?;
        }
        self.staged = staged;
        self.sender.wrote(units);
        self.told(to);
        self.pull_if_due(link)
    }

    /// Records that a message that is its own tail has been passed to the device.
    #[inline(always)]
    pub(super) fn told(&mut self, to: u64) {
        self.sender.transmitted();
        self.sender.advanced();
        if !self.design.mirrored {
            // Nothing on this side waits for it.
            self.sender.completed(to);
        }
    }
}
