//! The end of a logical queue pair: what happens to its requests, and what is sent to the peer.

use dunlin_verbs::{CompletionStatus, Device, QueuePairState};

use super::super::frame::Kind;
use super::{Cause, Engine, Shared};
use crate::connection::MessageId;

impl<D: Device> Engine<D> {
    /// Tells the peer that nothing more is executed here. This is best effort: a process that dies sends nothing.
    pub(crate) fn say_closed(&mut self, now_ns: u64) {
        if self.told_closed || !self.connected {
            return;
        }
        self.told_closed = self.send(now_ns, Kind::Closed, 0, 0, None);
        self.flush(now_ns);
    }

    /// Fails the queue pair because the peer violated the protocol.
    pub(super) fn violated(&mut self, shared: &Shared<D>) {
        self.fail(shared, Some(CompletionStatus::General), Cause::Violation);
    }

    /// Fails the queue pair because the connection is lost.
    pub(super) fn lose(&mut self, shared: &Shared<D>, cause: Cause) {
        self.peer_closed = true;
        self.told_closed = true;
        if matches!(cause, Cause::Device(_)) {
            // The NIC may never report its remaining completions, and the rest of the connection must not keep
            // answering the peer: dropping it ends its queue pairs.
            self.link = None;
        }
        self.fail(shared, Some(CompletionStatus::RetryExceeded), cause);
    }

    /// Moves to Error: the first request completes with this status, if there is one, and all others are flushed.
    /// RECEIVEs carry no further detail, so the cause is stored separately.
    pub(crate) fn fail(
        &mut self,
        shared: &Shared<D>,
        first: Option<CompletionStatus>,
        cause: Cause,
    ) {
        // A peer whose request is refused is still owed the answers to those before it.
        let owes_answers = matches!(cause, Cause::RefusedPeer);
        shared.failed_by(cause);
        if shared.state() != QueuePairState::Error {
            shared.set_state(QueuePairState::Error);
            self.first_end = first;
            // The peer must not execute requests that have failed here, nor may their memory be read again, because the
            // user may change it. Messages sent from now on inform the peer.
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
    /// once its completion has been delivered.
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
