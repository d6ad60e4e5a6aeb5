//! The error state: everything posted is flushed, until a reset.

use dunlin_verbs::{AsyncEvent, CompletionStatus, QueuePairState};

use super::{Engine, Protocol, Shared};
use crate::socket::Train;
use crate::sync::now_ns;

impl Engine {
    /// Moves the queue pair to error at the request of its user, who knows what was delivered: so that is acknowledged
    /// to the peer first.
    pub(crate) fn give_up(&mut self, shared: &Shared, train: &mut Train) {
        self.send_postponed(shared, train);
        self.acknowledge_last(shared, now_ns(), train);
        self.enter_error(shared);
    }

    /// Moves the queue pair to error and flushes what is posted.
    pub(crate) fn enter_error(&mut self, shared: &Shared) {
        if shared.state_in_engine() != QueuePairState::Error {
            shared.set_state(QueuePairState::Error);
            shared
                .core
                .push_event(AsyncEvent::QueuePairFatal(shared.number));
        }
        if let Protocol::Reliable { requester, .. } = &mut self.protocol {
            requester.fail(CompletionStatus::Flushed);
        }
        // Requests that finished before keep their own status.
        self.report_finished(shared);
        self.protocol = Protocol::None;
        self.held_back.clear();
        self.flush(shared);
    }

    /// Flushes what is posted on a queue pair in error.
    pub(crate) fn flush(&mut self, shared: &Shared) {
        while !self.sends.is_empty() {
            self.end_send(shared, CompletionStatus::Flushed);
        }
        match self.current.take() {
            // A RECEIVE of a shared queue is for the next message of another queue pair, whatever becomes of this one.
            Some(receive) if shared.shares_receives => shared.receives.put_back(receive),
            Some(receive) => shared.fail_receive(&receive, CompletionStatus::Flushed),
            None => {}
        }
        if !shared.shares_receives {
            while let Some(receive) = shared.receives.pop() {
                shared.fail_receive(&receive, CompletionStatus::Flushed);
            }
        }
    }
}
