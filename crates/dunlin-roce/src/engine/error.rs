//! The error state: everything posted is flushed, and stays so until a reset.

use dunlin_verbs::{AsyncEvent, CompletionStatus, QueuePairState};

use super::{Engine, Protocol, Shared};

impl Engine {
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
        if let Some(receive) = self.current.take() {
            shared.fail_receive(&receive, CompletionStatus::Flushed);
        }
        if !shared.shares_receives {
            while let Some(receive) = shared.receives.pop() {
                shared.fail_receive(&receive, CompletionStatus::Flushed);
            }
        }
    }
}
