//! Shared receive queues, and posting RECEIVEs to any queue.

use std::sync::Arc;

use dunlin_verbs::{Access, PostError, PostErrorKind, ReceiveRequest, Region, SharedReceiveQueue};

use crate::context;
use crate::inner::Inner;
use crate::pair::ReceiveQueueState;
use crate::stack;
use crate::work::{Receive, Seg, Segs};
use crate::world::World;

use super::SimRegion;

/// A receive queue shared by several queue pairs.
#[derive(Debug)]
pub struct SimSharedReceiveQueue {
    inner: Arc<Inner>,
    number: u32,
    host: u16,
    domain: u32,
}

impl SimSharedReceiveQueue {
    pub(super) fn new(
        inner: &Arc<Inner>,
        host: u16,
        domain: u32,
        limit: usize,
        segments: usize,
    ) -> Self {
        let number = create(&mut inner.world(host), host, domain, limit, segments);
        Self {
            inner: Arc::clone(inner),
            number,
            host,
            domain,
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn domain(&self) -> u32 {
        self.domain
    }
}

impl Drop for SimSharedReceiveQueue {
    fn drop(&mut self) {
        // Queue pairs may still use it.
        self.inner.world(self.host).release_receives(self.number);
    }
}

/// Creates a receive queue in the world.
pub(super) fn create(
    world: &mut World,
    host: u16,
    domain: u32,
    limit: usize,
    segments: usize,
) -> u32 {
    let number = world.receives.take();
    let entries = Default::default();
    world.receives[number] = ReceiveQueueState {
        entries,
        limit,
        segments,
        domain,
        host,
        users: 1,
        fetched: 0,
        ahead: None,
    };
    number
}

/// Puts a RECEIVE into a queue.
pub(super) fn push(
    world: &mut World,
    number: u32,
    request: &ReceiveRequest<'_, SimRegion>,
) -> Result<(), PostErrorKind> {
    let queue = &world.receives[number];
    if queue.entries.len() >= queue.limit {
        return Err(PostErrorKind::Full { limit: queue.limit });
    }
    if request.segments.len() > queue.segments {
        return Err(PostErrorKind::Segments {
            count: request.segments.len(),
            limit: queue.segments,
        });
    }
    let segs = convert(
        world,
        queue.host,
        queue.domain,
        request.segments,
        Access::LOCAL_WRITE,
    )?;
    world.receives[number].entries.push_back(Receive {
        id: request.id,
        segs,
    });
    Ok(())
}

/// Checks the segments of a request: inside their regions, of the right domain, with the access that is needed.
pub(super) fn convert(
    world: &World,
    host: u16,
    domain: u32,
    segments: &[dunlin_verbs::Segment<'_, SimRegion>],
    needed: Access,
) -> Result<Segs, PostErrorKind> {
    let regions = &world.hosts[usize::from(host)].regions;
    for (index, segment) in segments.iter().enumerate() {
        let good = u32::try_from(segment.length).is_ok()
            && segment.region.access().contains(needed)
            && regions.find(segment.region.key()).is_some_and(|region| {
                region.domain == domain
                    && region.contains(segment.offset as u64, segment.length as u64)
            });
        if !good {
            return Err(PostErrorKind::Segment(index));
        }
    }
    Ok(Segs::new(segments.iter().map(|segment| Seg {
        key: segment.region.key(),
        length: segment.length as u32,
        offset: segment.offset as u64,
    })))
}

/// Charges the calling core for posting RECEIVEs.
pub(super) fn charge(inner: &Inner, world: &World, host: u16, count: usize) {
    if inner.caller().is_some() {
        context::charge(world.hosts[usize::from(host)].parameters.post_receive * count as u64);
    }
}

impl SharedReceiveQueue for SimSharedReceiveQueue {
    type Region = SimRegion;

    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, SimRegion>],
    ) -> Result<(), PostError> {
        let mut world = self.inner.world(self.host);
        charge(&self.inner, &world, self.host, requests.len());
        for (index, request) in requests.iter().enumerate() {
            push(&mut world, self.number, request).map_err(|kind| PostError { index, kind })?;
        }
        drop(world);
        self.inner.notify();
        stack::settle();
        Ok(())
    }
}
