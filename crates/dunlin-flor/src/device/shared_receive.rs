//! Receive queues that are shared by several logical queue pairs.

use std::sync::Arc;

use dunlin_verbs::{Device, PostError, ReceiveRequest, SharedReceiveQueue};

use super::core::Handle;
use super::region::FlorRegion;
use super::work::ReceiveQueue;

/// A shared receive queue of a [`FlorDevice`](super::FlorDevice).
#[derive(Debug)]
pub struct FlorSharedReceiveQueue<D: Device> {
    queue: Arc<ReceiveQueue<D::Region>>,
    device: Arc<Handle<D>>,
}

impl<D: Device> FlorSharedReceiveQueue<D> {
    pub(crate) fn new(device: &Arc<Handle<D>>, queue: ReceiveQueue<D::Region>) -> Self {
        Self {
            queue: Arc::new(queue),
            device: Arc::clone(device),
        }
    }

    pub(crate) fn queue(&self) -> &Arc<ReceiveQueue<D::Region>> {
        &self.queue
    }
}

impl<D: Device> SharedReceiveQueue for FlorSharedReceiveQueue<D> {
    type Region = FlorRegion<D::Region>;

    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, Self::Region>],
    ) -> Result<(), PostError> {
        let core = self.device.core();
        core.made_in.check().map_err(PostError::forked)?;
        let posted = self.queue.post(requests);
        // A request may have been waiting for them.
        core.attend();
        posted
    }
}
