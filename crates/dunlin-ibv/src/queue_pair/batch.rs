//! What posting sends and posting RECEIVEs have in common: requests are prepared in batches, and their segments are
//! checked and translated.

use std::sync::Arc;

use dunlin_verbs::{Access, PostErrorKind, Region, Segment};

use crate::device::Domain;
use crate::region::IbvRegion;
use crate::sys::types::Sge;

/// Number of requests passed to the provider with one call; a longer list takes several.
pub(super) const BATCH: usize = 32;

/// Prepares the requests of a batch up to the first that is refused; returns how many there are before it.
#[inline]
pub(super) fn prepare_all<R>(
    batch: &[R],
    mut prepare: impl FnMut(usize, &R) -> Result<(), PostErrorKind>,
) -> (usize, Result<(), PostErrorKind>) {
    for (at, request) in batch.iter().enumerate() {
        if let Err(kind) = prepare(at, request) {
            return (at, Err(kind));
        }
    }
    (batch.len(), Ok(()))
}

/// Checks the segments of a request, of which there may be `limit`, and returns their length; `written`: by the device.
#[inline]
pub(super) fn check_segments(
    segments: &[Segment<'_, IbvRegion>],
    limit: usize,
    domain: &Arc<Domain>,
    written: bool,
) -> Result<usize, PostErrorKind> {
    let count = segments.len();
    if count > limit {
        return Err(PostErrorKind::Segments { count, limit });
    }
    let mut sum = 0usize;
    for (at, segment) in segments.iter().enumerate() {
        let (region, length) = (segment.region, segment.length);
        let inside = region.memory().contains(segment.offset, length);
        let written = written && length > 0;
        if !inside
            || !region.belongs_to(domain)
            || written && !region.access().contains(Access::LOCAL_WRITE)
        {
            return Err(PostErrorKind::Segment(at));
        }
        sum = sum.saturating_add(length);
    }
    Ok(sum)
}

impl Sge {
    pub(super) const EMPTY: Self = Self {
        address: 0,
        length: 0,
        lkey: 0,
    };

    /// The entry of a segment that was checked, and whose length has 32 bits.
    #[inline]
    pub(super) fn of(segment: &Segment<'_, IbvRegion>) -> Self {
        let start = segment.region.memory().start().as_ptr() as u64;
        Self {
            address: start + segment.offset as u64,
            length: segment.length as u32,
            lkey: segment.region.lkey(),
        }
    }
}
