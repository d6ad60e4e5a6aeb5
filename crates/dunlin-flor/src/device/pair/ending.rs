//! The end of a logical queue pair: what becomes of its requests, and what the peer hears of it.

use dunlin_verbs::{CompletionStatus, Device, QueuePairState};

use super::super::frame::Kind;
use super::{Cause, Engine, Shared};
use crate::connection::MessageId;

impl<D: Device> Engine<D> {
    /// Tells the peer that nothing more is carried out here: as well as it can be told, since who dies says nothing.
    pub(crate) fn say_closed(&mut self, now_ns: u64) {
        if self.told_closed || !self.connected {
            return;
        }
        self.told_closed = self.send(now_ns, Kind::Closed, 0, 0, None);
        self.flush(now_ns);
    }

    /// What the peer has said makes no sense.
    pub(super) fn violated(&mut self, shared: &Shared<D>) {
        self.fail(shared, Some(CompletionStatus::General), Cause::Violation);
    }

    /// The connection is gone.
    pub(super) fn lose(&mut self, shared: &Shared<D>, cause: Cause) {
        self.peer_closed = true;
        self.told_closed = true;
        if matches!(cause, Cause::Device(_)) {
            // It may never say what it is done with, and what is left of the connection must not go on answering the
            // peer: that ends with its queue pairs.
            self.link = None;
        }
        self.fail(shared, Some(CompletionStatus::RetryExceeded), cause);
    }

    /// To Error: the first request ends so, if it is said how, and all others are flushed. RECEIVEs say no more than
    /// that, so the cause is kept beside them.
    pub(crate) fn fail(
        &mut self,
        shared: &Shared<D>,
        first: Option<CompletionStatus>,
        cause: Cause,
    ) {
        // Who is refused a request is still owed the answers to those before it.
        let owes_answers = matches!(cause, Cause::RefusedPeer);
        shared.failed_by(cause);
        if shared.state() != QueuePairState::Error {
            shared.set_state(QueuePairState::Error);
            self.first_end = first;
            // What has failed here must not be carried out by the peer afterwards, nor be read again from memory that
            // the user may change. What is said from now on tells the peer.
            let of_request =
                |id: MessageId| self.held.get(id.0).is_some_and(|held| held.of_request);
            if let Some(link) = &mut self.link {
                link.abandon(|id| !owes_answers || of_request(id));
            }
        }
        self.end_requests(shared);
        shared.flush_receives();
        self.responder.stop();
    }

    /// Ends all requests of a queue pair in error, unless a NIC still reads the memory of one: the user may change it
    /// once a completion has come.
    pub(super) fn end_requests(&mut self, shared: &Shared<D>) {
        if let Some(link) = &self.link {
            let read = |id| link.connection().is_under_way(MessageId(id));
            let mut held = self.held.iter();
            if held.any(|(id, held)| held.of_request && held.slot.is_none() && read(id)) {
                return;
            }
        }
        self.requester.flush(shared, self.first_end.take());
    }
}
