//! Sending responses: stored or written into the client's memory.

use dunlin_verbs::{
    Access, Device, Operation, Payload, PeerMemory, QueuePair, Region, Segment, Work,
};

use super::ServedPool;
use crate::channel::message::Header;
use crate::channel::pool::{CALLS, EVENT};
use crate::channel::ChannelError;
use crate::effort;

impl<D: Device> ServedPool<D> {
    /// Transfers a message whose payload is in the draft into a block of the client: it is stored if that memory is
    /// mapped, otherwise sent by a WRITE.
    #[inline]
    pub(super) fn write(
        &mut self,
        block: usize,
        header: Header,
        turn: u64,
    ) -> Result<(), ChannelError> {
        let message = self.draft.finish(header, turn, &self.writes, block);
        let at = (block + 1) * self.theirs.answer_bytes - message.len();
        self.unflushed = true;
        if let Some(answers) = self.peer_answers.as_ref().filter(|it| it.is_open()) {
            answers.store(at, message);
            self.usual = message.len();
            return Ok(());
        }
        let length = message.len();
        self.post(at, length)
    }

    /// WRITEs the message in the draft.
    fn post(&mut self, at: usize, length: usize) -> Result<(), ChannelError> {
        let message = self.draft.message(length);
        let write = Operation::Write {
            remote: self.theirs.answers.plus(at as u64),
            immediate: None,
        };
        let flags = self.carrier.next_flags();
        let posted;
        if length <= self.carrier.inline_bytes {
            let message = Payload::Inline(message);
            posted = self.carrier.post_write(write, message, flags)?;
        } else {
            if self.staging.is_none() {
                self.staging = Some(
                    self.carrier
                        .device
                        .allocate_region(
                            &self.carrier.domain,
                            (EVENT + 1) * self.theirs.answer_bytes,
                            Access::LOCAL_WRITE,
                        )
                        .map_err(ChannelError::memory)?,
                );
            }
            let Some(staging) = &self.staging else {
                return Ok(());
            };
            // A response stays here until the client puts its next request into the block, which it does after
            // receiving the response.
            staging.memory().write(at, message);
            D::charge(Work::Copy(length));
            let segment = [Segment {
                region: staging,
                offset: at,
                length,
            }];
            let message = Payload::Segments(&segment);
            posted = self.carrier.post_write(write, message, flags)?;
        }
        if D::QueuePair::MAPS_PEERS && self.peer_answers.is_none() {
            let bytes = (EVENT + 1) * self.theirs.answer_bytes;
            let pair = &mut self.carrier.queue_pair;
            self.peer_answers = pair.map_peer(self.theirs.answers, bytes);
        }
        // There were entries for all responses to a message when it was taken.
        match posted {
            true => Ok(()),
            false => Err(ChannelError::queue_pair(
                "an answer without an entry".to_owned(),
            )),
        }
    }

    /// Sends a response, with the state of the turn.
    #[inline]
    pub(super) fn answer(&mut self, block: usize, header: Header) -> Result<(), ChannelError> {
        D::charge(effort::SERVED);
        D::charge(effort::SEALED);
        D::charge(Work::Copy(header.length as usize));
        self.working &= !(1 << block);
        // The last response of a turn carries its end (§3.3), unless there is more to report than it has room for. It
        // must be to a call: a duplicate control message is answered twice, and the client expects one response.
        let is_call = block < CALLS;
        let over = is_call
            && self.ending
            && self.active
            && self.working == 0
            && (!self.patient || self.batch.is_whole())
            && !self.has_message();
        self.told |= is_call;
        self.told_over |= over;
        self.write(block, header, self.turn_word(over))
    }
}
