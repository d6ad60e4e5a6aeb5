//! Shared receive queues, from which several queue pairs take RECEIVEs when messages are polled.

use std::sync::{Arc, Mutex};

use dunlin_verbs::{PostError, PostErrorKind, ReceiveRequest, SharedReceiveQueue};

use crate::core::lock;
use crate::device::Handle;
use crate::receive::{check_receive, ReceiveSlot};
use crate::region::ShmRegion;

/// A receive queue that is shared by several queue pairs.
#[derive(Debug)]
pub struct ShmSharedReceiveQueue {
    core: Arc<SharedReceiveCore>,
    device: Arc<Handle>,
}

/// The ring and its lock.
#[derive(Debug)]
pub(crate) struct SharedReceiveCore {
    pub(crate) domain: u64,
    segments: usize,
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    slots: Box<[ReceiveSlot]>,
    head: usize,
    filled: usize,
}

impl SharedReceiveCore {
    /// Takes the oldest RECEIVE, in exchange for an empty slot.
    pub(crate) fn take(&self, into: &mut ReceiveSlot) -> bool {
        let mut ring = lock(&self.ring);
        if ring.filled == 0 {
            return false;
        }
        let head = ring.head;
        std::mem::swap(&mut ring.slots[head], into);
        ring.head = (head + 1) % ring.slots.len();
        ring.filled -= 1;
        true
    }
}

impl ShmSharedReceiveQueue {
    pub(crate) fn new(device: &Arc<Handle>, domain: u64, requests: usize, segments: usize) -> Self {
        Self {
            core: Arc::new(SharedReceiveCore {
                domain,
                segments,
                ring: Mutex::new(Ring {
                    slots: (0..requests)
                        .map(|_| ReceiveSlot::with_segments(segments))
                        .collect(),
                    head: 0,
                    filled: 0,
                }),
            }),
            device: Arc::clone(device),
        }
    }

    pub(crate) fn core(&self) -> &Arc<SharedReceiveCore> {
        &self.core
    }
}

impl SharedReceiveQueue for ShmSharedReceiveQueue {
    type Region = ShmRegion;

    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, ShmRegion>],
    ) -> Result<(), PostError> {
        self.device
            .core()
            .made_in
            .check()
            .map_err(PostError::forked)?;
        let mut ring = lock(&self.core.ring);
        for (index, request) in requests.iter().enumerate() {
            check_receive(request, self.core.segments).map_err(|kind| PostError { index, kind })?;
            let limit = ring.slots.len();
            if ring.filled == limit {
                return Err(PostError {
                    index,
                    kind: PostErrorKind::Full { limit },
                });
            }
            let tail = (ring.head + ring.filled) % limit;
            ring.slots[tail].fill(request);
            ring.filled += 1;
        }
        Ok(())
    }
}
