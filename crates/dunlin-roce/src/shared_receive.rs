//! Shared receive queues, and the checks for all RECEIVEs.

use std::sync::Arc;

use dunlin_verbs::process::Generation;
use dunlin_verbs::{Access, PostError, PostErrorKind, ReceiveRequest, Segment, SharedReceiveQueue};

use crate::region::RoceRegion;
use crate::work::{Bytes, Piece, Receive, ReceiveQueue};

/// A receive queue that is shared by several queue pairs.
#[derive(Debug)]
pub struct RoceSharedReceiveQueue {
    queue: Arc<ReceiveQueue>,
    made_in: Generation,
}

impl RoceSharedReceiveQueue {
    pub(crate) fn new(queue: ReceiveQueue, made_in: Generation) -> Self {
        Self {
            queue: Arc::new(queue),
            made_in,
        }
    }

    pub(crate) fn queue(&self) -> &Arc<ReceiveQueue> {
        &self.queue
    }
}

impl SharedReceiveQueue for RoceSharedReceiveQueue {
    type Region = RoceRegion;

    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, RoceRegion>],
    ) -> Result<(), PostError> {
        self.made_in.check().map_err(PostError::forked)?;
        post_receives(&self.queue, requests)
    }
}

/// Checks RECEIVEs and adds them to a queue.
pub(crate) fn post_receives(
    queue: &ReceiveQueue,
    requests: &[ReceiveRequest<'_, RoceRegion>],
) -> Result<(), PostError> {
    for (index, request) in requests.iter().enumerate() {
        receive_of(queue, request)
            .and_then(|receive| {
                let limit = queue.limit;
                let posted = queue.push(receive);
                posted.then_some(()).ok_or(PostErrorKind::Full { limit })
            })
            .map_err(|kind| PostError { index, kind })?;
    }
    Ok(())
}

fn receive_of(
    queue: &ReceiveQueue,
    request: &ReceiveRequest<'_, RoceRegion>,
) -> Result<Receive, PostErrorKind> {
    let segments = request.segments;
    Ok(Receive {
        id: request.id,
        bytes: bytes_of(segments, queue.segments, queue.domain, Access::LOCAL_WRITE)?,
    })
}

/// Checks segments and keeps what they name: they must be in bounds of their regions, in the protection domain, and
/// have the access.
pub(crate) fn bytes_of(
    segments: &[Segment<'_, RoceRegion>],
    limit: usize,
    domain: u64,
    access: Access,
) -> Result<Bytes, PostErrorKind> {
    if segments.len() > limit {
        return Err(PostErrorKind::Segments {
            count: segments.len(),
            limit,
        });
    }
    let piece = |(index, segment): (usize, &Segment<'_, RoceRegion>)| {
        let region = segment.region.region();
        let fits = region.memory().contains(segment.offset, segment.length)
            && region.grant.domain == domain
            && region.grant.access.contains(access);
        if !fits {
            return Err(PostErrorKind::Segment(index));
        }
        Ok(Piece {
            region: Arc::clone(region),
            offset: segment.offset,
            length: segment.length,
        })
    };
    if let [segment] = segments {
        return Ok(Bytes::Piece(piece((0, segment))?));
    }
    let pieces: Result<Box<[Piece]>, PostErrorKind> =
        segments.iter().enumerate().map(piece).collect();
    pieces.map(Bytes::Pieces)
}
