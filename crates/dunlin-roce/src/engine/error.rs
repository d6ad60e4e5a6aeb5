//! The error state: everything posted is flushed, and stays so until a reset.

use dunlin_verbs::{AsyncEvent, CompletionStatus, QueuePairState};

use super::{Engine, Protocol, Shared};
use crate::socket::Train;
use crate::sync::now_ns;

impl Engine {
    /// Moves the queue pair to error because its user has it so, who knows what was delivered: the peer is told of that
    /// first.
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
        // Those that ended before have the status that they ended with.
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
            // Of a shared queue: it is for the next message of another, whatever becomes of this queue pair.
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
