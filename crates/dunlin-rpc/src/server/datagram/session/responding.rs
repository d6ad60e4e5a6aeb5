//! Puts the outcome of a call into packets: in one piece, in segments, or kept and sent as often as the client asks.

use dunlin_verbs::{Device, Work};

use super::executing::filled;
use super::{Session, Tools};
use crate::channel::call_id::slot_of;
use crate::channel::datagram::segments::{put_segment, SegmentHead, Transfer};
use crate::channel::message::Kind;
use crate::channel::ChannelError;
use crate::error::{FailureReason, WireFailure};
use crate::server::connection::Outcome;

/// Maximum size in bytes of one client's long responses that wait or are being sent.
const MAX_TRANSFER_BYTES: usize = 64 << 20;

impl Session {
    /// Sends a part of a kept response, if there is one.
    #[inline]
    pub(super) fn put_response<D: Device>(
        &mut self,
        call: u64,
        number: u32,
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        let Some(answerer) = &mut self.answerer else {
            let words = "a message of a different datagram protocol";
            return Err(ChannelError::violation(words));
        };
        let packet = tools
            .outgoing
            .begin(&mut self.open_packet, &self.target, tools.endpoint)?;
        if answerer.put(call, number, packet) {
            D::charge(Work::Copy(packet.bytes().len()));
        }
        Ok(())
    }

    /// Keeps a response and sends its first part. `held` says that its request was handed to a handler elsewhere.
    pub(super) fn keep<D: Device>(
        &mut self,
        call: u64,
        outcome: Outcome,
        held: bool,
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        let Some(answerer) = &mut self.answerer else {
            return Ok(());
        };
        let (mut bytes, mut failed) = match outcome {
            Outcome::Short(bytes) => (bytes, false),
            Outcome::Long(buffer) => (filled(buffer).into(), false),
            Outcome::Failure(failure) => (failure.encode(), true),
        };
        let kept = answerer.kept();
        if bytes.len() > answerer.piece() && kept > 0 && kept + bytes.len() > MAX_TRANSFER_BYTES {
            let words =
                format!("limit reached: {kept} bytes of long responses are kept, {MAX_TRANSFER_BYTES} allowed");
            bytes = WireFailure::new(FailureReason::Overloaded, 0, words).encode();
            failed = true;
        }
        if failed {
            bytes.truncate(answerer.piece());
        }
        answerer.answer(call, bytes, failed, held);
        self.put_response(call, 0, tools)
    }

    #[cold]
    pub(super) fn respond<D: Device>(
        &mut self,
        call: u64,
        outcome: Outcome,
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        self.slots[slot_of(call)].working = false;
        if self.answerer.is_some() {
            return self.keep(call, outcome, false, tools);
        }
        let bytes: Box<[u8]> = match outcome {
            Outcome::Short(bytes) => bytes.into(),
            Outcome::Long(buffer) => filled(buffer),
            Outcome::Failure(failure) => {
                let mut bytes = failure.encode();
                bytes.truncate(self.capacity);
                return self.push(Kind::Failure, call, &bytes, tools);
            }
        };
        if bytes.len() <= self.capacity {
            *tools.usual = bytes.len();
            return self.push(Kind::Response, call, &bytes, tools);
        }
        if self.transfer_bytes + bytes.len() > MAX_TRANSFER_BYTES && self.transfer_bytes > 0 {
            let words = format!(
                "limit reached: {} bytes of long responses are in flight, {MAX_TRANSFER_BYTES} allowed",
                self.transfer_bytes
            );
            let failure = WireFailure::new(FailureReason::Overloaded, 0, &words);
            return self.respond(call, Outcome::Failure(failure), tools);
        }
        self.transfer_bytes += bytes.len();
        let kind = Kind::ResponseSegment;
        let transfer = Transfer::new(kind, 0, call, bytes);
        self.transfers.push_back(transfer);
        self.continue_transfers(tools)
    }

    /// Ends a call that no handler has seen. If the message is lost, the client is told on request that the call was
    /// not executed.
    #[cold]
    pub(super) fn refuse<D: Device>(
        &mut self,
        call: u64,
        failure: WireFailure,
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        self.slots[slot_of(call)].given_up = true;
        self.respond(call, Outcome::Failure(failure), tools)
    }

    pub(super) fn end_transfer(&mut self) {
        if let Some(ended) = self.transfers.pop_front() {
            self.transfer_bytes -= ended.bytes.len();
            self.transfer = self.transfer.wrapping_add(1);
        }
    }

    /// Sends segments of the first long response, as many as may be in flight.
    pub(super) fn continue_transfers<D: Device>(
        &mut self,
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        let piece = self.piece();
        let Some(transfer) = self.transfers.front_mut() else {
            return Ok(());
        };
        while let Some(range) = transfer.next(piece) {
            let head = SegmentHead {
                total: transfer.bytes.len() as u32,
                offset: range.start as u32,
                transfer: self.transfer,
            };
            let packet =
                tools
                    .outgoing
                    .begin(&mut self.open_packet, &self.target, tools.endpoint)?;
            put_segment::<D>(packet, transfer, head, range);
        }
        Ok(())
    }
}
