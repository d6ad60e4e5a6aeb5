//! Carries out the actions of the state machine: work requests, memory, and events for the user.

use dunlin_verbs::{Device, Work};

use super::{paths, LinkError, LinkEvent, LogicalConnection};
use crate::ack::Ack;
use crate::connection::{Action, Delivery, Incoming, Verb, WorkRequest};
use crate::wire::SEND_HEADER_BYTES;

impl<D: Device> LogicalConnection<D> {
    pub(super) fn act(&mut self, now_ns: u64) -> Result<(), LinkError> {
        while let Some(action) = self.connection.poll(now_ns) {
            match action {
                Action::Post(work) => {
                    D::charge(Work::Compute(self.config.chunk_ns));
                    self.post(&work)?;
                }
                Action::Acknowledge(ack) => {
                    if let Some(acks) = &mut self.acks {
                        acks.send(&ack)?;
                    }
                    self.share(&ack);
                }
                Action::AcknowledgeTo(address) => {
                    if let Some(acks) = &mut self.acks {
                        acks.connect(&self.device, &self.domain, &address)?;
                    }
                }
                Action::Place {
                    receive,
                    message,
                    offset,
                    bytes,
                    total,
                } => self.place(receive, message, (offset, bytes, total)),
                Action::Recycle(receive) => self.recycle(receive)?,
                Action::Provide {
                    message,
                    bytes,
                    tag: 0,
                } => self.provide(message, bytes),
                Action::Provide {
                    message,
                    bytes,
                    tag,
                } => self.events.push_back(LinkEvent::Announced {
                    message,
                    bytes,
                    tag,
                }),
                Action::Deliver(delivery) => self.deliver(delivery)?,
                Action::Discard(Incoming::Assembled(message)) => {
                    self.assembled.remove(&message);
                }
                Action::Discard(Incoming::Written(message)) => {
                    if let Some((_, landing)) = self.landed.remove(&message) {
                        self.landings.release(now_ns, landing);
                    }
                }
                Action::Finished(id, outcome) => {
                    self.sources.remove(id.0);
                    self.events.push_back(LinkEvent::Finished(id, outcome));
                }
                Action::Fence { path } => self.paths[path].fence(),
                Action::Renew { path } => self.paths[path].ask_to_renew(),
                Action::Connect { path, address } => self.connect_backup(now_ns, path, &address),
                Action::Lost => self.events.push_back(LinkEvent::Lost),
            }
        }
        Ok(())
    }

    /// Sends an acknowledgement on the data queue pair, if they share it. One that is not accepted is lost.
    fn share(&mut self, ack: &Ack) {
        let Some(shared) = &mut self.shared_acks else {
            return;
        };
        let Some((id, segment)) = shared.take(ack) else {
            return;
        };
        let path = self.connection.primary();
        if self.paths[path].post_ack(id, segment).is_err() {
            shared.give_back(id);
        }
    }

    pub(super) fn post(&mut self, work: &WorkRequest) -> Result<(), LinkError> {
        let global = work.global.0;
        let (piece, front) = match &work.verb {
            Verb::Send { front, piece } => (*piece, Some(front)),
            Verb::Write { piece, .. } => (Some(*piece), None),
        };
        let slot = front.map(|front| self.fronts.take(front.bytes()));
        let source = piece.and_then(|piece| Some((piece, self.sources.get(piece.message.0)?)));
        let taken = self.paths[work.path].post(work, source, slot.map(|slot| (&self.fronts, slot)));
        let place = self.posted.push(slot);
        debug_assert_eq!(place, global);
        if taken.is_err() {
            // On some devices, a queue pair in error accepts nothing: report that as a failed completion.
            self.refused.push_back(global);
        }
        Ok(())
    }

    pub(super) fn place(
        &mut self,
        receive: u64,
        message: Incoming,
        (offset, bytes, total): (u32, u32, u32),
    ) {
        let (path, slot) = paths::receive_of(receive);
        let (offset, bytes) = (offset as usize, bytes as usize);
        match message {
            Incoming::Assembled(message) => {
                let whole = self.assembled.entry(message);
                let whole = whole.or_insert_with(|| vec![0; total as usize]);
                let target = &mut whole[offset..offset + bytes];
                D::charge(Work::Copy(bytes));
                self.paths[path].read(slot, SEND_HEADER_BYTES, target);
            }
            Incoming::Written(message) => {
                if let Some((_, landing)) = self.landed.get(&message) {
                    D::charge(Work::Copy(bytes));
                    let mut copy = vec![0; bytes];
                    self.paths[path].read(slot, SEND_HEADER_BYTES, &mut copy);
                    landing.write(offset, &copy);
                }
            }
        }
    }

    pub(super) fn recycle(&mut self, receive: u64) -> Result<(), LinkError> {
        let (path, slot) = paths::receive_of(receive);
        self.paths[path].returned(slot);
        Ok(self.paths[path].post_receives()?)
    }

    pub(super) fn provide(&mut self, message: u32, bytes: u32) {
        // If memory is not available, the message is refused, whatever the reason.
        match self.landing(bytes, false) {
            Some(landing) => self.grant(message, 0, landing),
            None => self.connection.refuse(message),
        }
    }

    pub(super) fn deliver(&mut self, delivery: Delivery) -> Result<(), LinkError> {
        let event = match delivery {
            Delivery::Whole { receive, bytes } => {
                let (path, slot) = paths::receive_of(receive);
                D::charge(Work::Copy(bytes as usize));
                let mut message = vec![0; bytes as usize];
                self.paths[path].read(slot, SEND_HEADER_BYTES, &mut message);
                self.recycle(receive)?;
                LinkEvent::Message(message)
            }
            Delivery::Pieces {
                message: Incoming::Assembled(message),
                ..
            } => LinkEvent::Message(self.assembled.remove(&message).unwrap_or_default()),
            Delivery::Pieces {
                message: Incoming::Written(message),
                quarantine_ns,
                ..
            } => {
                let Some((tag, mut landing)) = self.landed.remove(&message) else {
                    return Ok(());
                };
                landing.rest_ns = quarantine_ns;
                LinkEvent::Landed { tag, landing }
            }
        };
        self.events.push_back(event);
        Ok(())
    }
}
