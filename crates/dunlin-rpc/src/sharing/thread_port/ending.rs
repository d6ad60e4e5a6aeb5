//! The end of a thread's calls when its lane ends: the server says goodbye, or the lane is lost.

use dunlin_verbs::thread;

use super::ThreadPort;
use crate::call::lane::{CallId, Sink};
use crate::config::UNHEARD_PAUSE;
use crate::error::CallError;
use crate::sharing::calls::slot_of;

/// Number of pauses in which a dispatcher that has taken an answer hands it out.
const PAUSES_FOR_MAIL: u32 = 1000;

impl ThreadPort {
    /// Called when the lane is lost: every outstanding call ends.
    #[cold]
    pub(super) fn lose(&mut self, sink: &mut dyn Sink) -> CallError {
        let error = self.status.error();
        // Answers taken before still count, also those that a dispatcher is about to hand out.
        self.take_mail(sink);
        for _ in 0..PAUSES_FOR_MAIL {
            if self.calls.out().all(|call| self.port.is_out(call)) {
                break;
            }
            thread::sleep(UNHEARD_PAUSE);
            self.empty_mailbox(sink);
        }
        self.end_those(|_, _| true, &error, sink);
        self.staging.clear();
        error
    }

    /// Ends outstanding calls.
    fn end_those(
        &mut self,
        which: impl Fn(&Self, CallId) -> bool,
        error: &CallError,
        sink: &mut dyn Sink,
    ) {
        let ended: Vec<CallId> = self.calls.out().filter(|&call| which(self, call)).collect();
        for call in ended {
            self.port.end(slot_of(call));
            if let Some(tag) = self.calls.finish(call) {
                sink.complete(tag, Err(error.clone()));
            }
        }
    }

    /// Checks whether the lane has ended.
    ///
    /// # Errors
    /// If the lane is lost, and every call with it.
    #[inline]
    pub(super) fn look_at_end(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        match self.status.is_open() {
            true => Ok(()),
            false => self.end_calls(sink),
        }
    }

    #[cold]
    fn end_calls(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        if self.status.is_leaving() && self.staging.has_messages() {
            self.send();
            if self.staging.has_messages() && self.status.is_leaving() {
                self.refuse(sink);
            }
        }
        if self.status.is_lost() {
            return Err(self.lose(sink));
        }
        Ok(())
    }

    /// Ends calls that were not sent: the server takes no more requests, and gives no room or credits for them.
    fn refuse(&mut self, sink: &mut dyn Sink) {
        let operations = self.staging.take_operations();
        let unsent = |this: &Self, call| this.staging.slots().contains(&slot_of(call));
        self.end_those(unsent, &CallError::ShuttingDown, sink);
        self.staging.clear();
        for operation in operations {
            self.staging.push_operation(operation);
        }
    }

    pub(super) fn refusal(&self) -> Option<CallError> {
        if self.status.is_leaving() {
            return Some(CallError::ShuttingDown);
        }
        self.status.is_lost().then(|| self.status.error())
    }
}
