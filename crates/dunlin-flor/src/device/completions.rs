//! Completion queues of logical queue pairs, as seen by their owners.

use std::sync::Arc;

use dunlin_verbs::software::Completions;
use dunlin_verbs::{Completion, CompletionQueue, CompletionQueueError, Device, Notify, VerbsError};

use super::core::Handle;

/// A completion queue of a [`FlorDevice`](super::FlorDevice). Polling an empty one makes progress on the queue pairs
/// that complete there.
#[derive(Debug)]
pub struct FlorCompletionQueue<D: Device> {
    completions: Arc<Completions<D::CompletionChannel>>,
    device: Arc<Handle<D>>,
}

impl<D: Device> FlorCompletionQueue<D> {
    pub(crate) fn new(
        device: &Arc<Handle<D>>,
        completions: Completions<D::CompletionChannel>,
    ) -> Self {
        Self {
            completions: Arc::new(completions),
            device: Arc::clone(device),
        }
    }

    pub(crate) fn completions(&self) -> &Arc<Completions<D::CompletionChannel>> {
        &self.completions
    }
}

impl<D: Device> CompletionQueue for FlorCompletionQueue<D> {
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, CompletionQueueError> {
        let core = self.device.core();
        core.made_in.check()?;
        if self.completions.is_empty() {
            core.poll_for(&self.completions);
        }
        if self.completions.is_overrun() {
            let limit = self.completions.capacity();
            return Err(CompletionQueueError::Overrun { limit });
        }
        Ok(self.completions.take(completions))
    }

    fn request_notify(&mut self, notify: Notify) -> Result<(), VerbsError> {
        let core = self.device.core();
        core.made_in.check()?;
        if !self.completions.has_channel() {
            return Err(VerbsError::Invalid {
                argument: "notify",
                why: "the completion queue was created without a channel".to_owned(),
            });
        }
        self.completions.arm(notify);
        // The caller is about to sleep: the device's thread takes over polling.
        core.attend();
        Ok(())
    }
}
