//! Completion queues, as seen by their owners: polling one receives packets from the socket.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use dunlin_verbs::software::Completions;
use dunlin_verbs::{Completion, CompletionQueue, CompletionQueueError, Notify, VerbsError};

use crate::channel::RoceCompletionChannel;
use crate::port::Port;

/// The contents of this device's completion queues.
pub(crate) type RoceCompletions = Completions<RoceCompletionChannel>;

/// A completion queue of the RoCE device.
#[derive(Debug)]
pub struct RoceCompletionQueue {
    completions: Arc<RoceCompletions>,
    port: Arc<Port>,
}

impl RoceCompletionQueue {
    pub(crate) fn new(port: &Arc<Port>, completions: RoceCompletions) -> Self {
        Self {
            completions: Arc::new(completions),
            port: Arc::clone(port),
        }
    }

    pub(crate) fn completions(&self) -> &Arc<RoceCompletions> {
        &self.completions
    }
}

impl CompletionQueue for RoceCompletionQueue {
    #[inline]
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, CompletionQueueError> {
        self.port.core.made_in.check()?;
        self.port.poll();
        if self.completions.is_overrun() {
            return Err(CompletionQueueError::Overrun {
                limit: self.completions.capacity(),
            });
        }
        Ok(self.completions.take(completions))
    }

    fn request_notify(&mut self, notify: Notify) -> Result<(), VerbsError> {
        let core = &self.port.core;
        core.made_in.check()?;
        if !self.completions.has_channel() {
            return Err(VerbsError::Invalid {
                argument: "notify",
                why: "the completion queue was created without a channel".to_owned(),
            });
        }
        // A thread that goes to sleep does not poll.
        self.port.send_postponed();
        self.completions.arm(notify);
        core.armed.fetch_add(1, Ordering::SeqCst);
        if core.wakes_ns.load(Ordering::SeqCst) == 0 {
            // The device's thread may be leaving the socket to threads that poll.
            core.call.raise();
        }
        Ok(())
    }
}
