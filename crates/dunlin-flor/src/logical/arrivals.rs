//! Events from the underlying device: completions of acknowledgements, sends and RECEIVEs, passed to the state machine.

use dunlin_verbs::{Completion, CompletionOpcode, CompletionQueue, Device, Work};

use super::shared_acks::SharedAcks;
use super::{paths, LinkError, LogicalConnection};
use crate::ack::MAX_ACK_BYTES;
use crate::connection::Received;
use crate::number::GlobalNumber;
use crate::wire::{MAX_BODY_BYTES, SEND_HEADER_BYTES};

impl<D: Device> LogicalConnection<D> {
    /// When an event happened, by the clock of `now_ns`. If the device's clock cannot be queried, a completion with a
    /// timestamp also serves as a reading of the NIC's clock, late by its time in the queue.
    pub(super) fn time(&mut self, now_ns: u64, completion: &Completion) -> u64 {
        if let Some(hardware_ns) = completion.timestamp_ns {
            let device = &self.device;
            self.clock
                .see(now_ns, hardware_ns, || device.query_clock_ns());
        }
        self.clock.arrival(completion.timestamp_ns, now_ns).0
    }

    pub(super) fn poll_acks(&mut self, now_ns: u64) -> Result<(), LinkError> {
        let Some(acks) = &mut self.acks else {
            return Ok(());
        };
        let count = acks.poll(&mut self.polled)?;
        for index in 0..count {
            let completion = self.polled[index];
            let at_ns = self.time(now_ns, &completion);
            let Some(acks) = &mut self.acks else {
                return Ok(());
            };
            if let Some((bytes, length)) = acks.take(&completion)? {
                // A datagram may come from anyone: one that is not an acknowledgement is counted and dropped.
                let told = self
                    .connection
                    .received_ack(now_ns, &bytes[..length], at_ns);
                told.ok();
            }
        }
        Ok(())
    }

    pub(super) fn poll_sends(&mut self, now_ns: u64) -> Result<(), LinkError> {
        let count = self.sends.poll(&mut self.polled)?;
        for index in 0..count {
            let completion = self.polled[index];
            let at_ns = self.time(now_ns, &completion);
            let shared = &mut self.shared_acks;
            if shared
                .as_mut()
                .is_some_and(|acks| acks.give_back(completion.id))
            {
                continue;
            }
            let at_ns = completion.is_success().then_some(at_ns);
            self.completed(now_ns, completion.id, at_ns);
        }
        while let Some(global) = self.refused.pop_front() {
            self.completed(now_ns, global, None);
        }
        Ok(())
    }

    pub(super) fn completed(&mut self, now_ns: u64, global: u64, at_ns: Option<u64>) {
        if let Some(Some(slot)) = self.posted.remove(global) {
            self.fronts.give_back(slot);
        }
        self.connection
            .completed(now_ns, GlobalNumber(global), at_ns);
    }

    pub(super) fn poll_receives(&mut self, now_ns: u64) -> Result<(), LinkError> {
        let count = self.receives.poll(&mut self.polled)?;
        if count > 0 {
            self.introduce();
        }
        for index in 0..count {
            let completion = self.polled[index];
            let (path, slot) = paths::receive_of(completion.id);
            if !completion.is_success() {
                self.paths[path].flushed(slot);
                // Completions of a queue pair that was renewed meanwhile are ignored.
                if self.numbers.get(&completion.queue_pair) == Some(&path) {
                    self.connection.path_failed(now_ns, path);
                }
                continue;
            }
            // The first line of what the NIC has written.
            D::charge(Work::Arrived);
            let received = Received {
                path,
                receive: completion.id,
                arrived_ns: self.time(now_ns, &completion),
                marked: false,
            };
            self.paths[path].taken();
            if completion.opcode == CompletionOpcode::ReceiveWriteWithImmediate {
                let immediate = completion.immediate.unwrap_or(0);
                self.connection
                    .received_write(now_ns, received, immediate, completion.bytes);
            } else {
                let mut front = [0; SEND_HEADER_BYTES + MAX_BODY_BYTES];
                let length = completion.bytes.min(front.len());
                self.paths[path].read(slot, 0, &mut front[..length]);
                // A foreign message is counted; its buffer is returned by an action.
                let front = &front[..length];
                if self.shared_ack(now_ns, &received, front, completion.bytes)? {
                    continue;
                }
                let told = self
                    .connection
                    .received_send(now_ns, received, front, completion.bytes);
                told.ok();
            }
        }
        Ok(())
    }

    /// Handles a received message as an acknowledgement, if it is one that was sent among the data.
    fn shared_ack(
        &mut self,
        now_ns: u64,
        received: &Received,
        front: &[u8],
        bytes: usize,
    ) -> Result<bool, LinkError> {
        if self.shared_acks.is_none() || SharedAcks::<D::Region>::is_one(front).is_none() {
            return Ok(false);
        }
        let (path, slot) = paths::receive_of(received.receive);
        let mut whole = [0; 1 + MAX_ACK_BYTES];
        let length = bytes.min(whole.len());
        self.paths[path].read(slot, 0, &mut whole[..length]);
        self.recycle(received.receive)?;
        if let Some(ack) = SharedAcks::<D::Region>::is_one(&whole[..length]) {
            let at_ns = received.arrived_ns;
            // An invalid one is counted.
            self.connection.received_ack(now_ns, ack, at_ns).ok();
        }
        Ok(true)
    }
}
