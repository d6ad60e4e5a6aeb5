//! A send request as the executor sees it: just posted, or left over in the queue.

use std::sync::Arc;

use dunlin_verbs::{
    CompletionOpcode, Destination, Operation, Payload, Segment, SendFlags, SendRequest,
};

use crate::device::ShmAddressHandle;
use crate::receive::{InUse, OwnedSegment};
use crate::region::ShmRegion;

/// The destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) gid: [u8; 16],
    pub(crate) number: u32,
    pub(crate) queue_key: u32,
}

/// The bytes of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    Inline(&'a [u8]),
    Borrowed(&'a [Segment<'a, ShmRegion>]),
    Owned(&'a [OwnedSegment]),
}

impl Source<'_> {
    /// Calls `f` with start and length of each piece in order. The pieces are inside their regions, as posting checked.
    #[inline(always)]
    pub(crate) fn each(&self, mut f: impl FnMut(*mut u8, usize)) {
        match self {
            Source::Inline(bytes) => f(bytes.as_ptr().cast_mut(), bytes.len()),
            Source::Borrowed(segments) => {
                for segment in *segments {
                    let start = segment.region.region().memory.start().as_ptr();
                    f(start.wrapping_add(segment.offset), segment.length);
                }
            }
            Source::Owned(segments) => {
                for segment in *segments {
                    let start = segment.region.memory.start().as_ptr();
                    f(start.wrapping_add(segment.offset), segment.length);
                }
            }
        }
    }

    /// Holds the regions during a copy; `None` if one belongs to another domain or is no longer registered.
    #[inline(always)]
    pub(crate) fn begin_use(&self, domain: u64) -> Option<InUse<'_>> {
        match self {
            Source::Inline(_) => InUse::begin(&[], domain),
            // Borrowed from the poster, whose handles keep the registrations alive.
            Source::Borrowed(segments) => segments
                .iter()
                .all(|segment| segment.region.region().domain == domain)
                .then(|| InUse::begin(&[], domain))
                .flatten(),
            Source::Owned(segments) => InUse::begin(segments, domain),
        }
    }

    /// Copies bytes `skip ..` of the request into the two pieces, until they are full.
    #[inline]
    pub(crate) fn gather(&self, mut skip: usize, to: [(*mut u8, usize); 2]) {
        let mut to = to.into_iter().filter(|piece| piece.1 > 0);
        let mut target = to.next();
        self.each(|mut start, mut length| {
            let skipped = skip.min(length);
            skip -= skipped;
            start = start.wrapping_add(skipped);
            length -= skipped;
            while length > 0 {
                let Some((place, room)) = target else { return };
                let piece = length.min(room);
                // SAFETY: `start` has `length` bytes of a live region or of the request itself; `place` has `room`
                // bytes of the port, or of a copy that waits for one.
                unsafe { std::ptr::copy(start, place, piece) };
                start = start.wrapping_add(piece);
                length -= piece;
                target = if piece < room {
                    Some((place.wrapping_add(piece), room - piece))
                } else {
                    to.next()
                };
            }
        });
    }
}

/// The destination of a request's datagram, not copied until it is needed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TargetOf<'a> {
    Nowhere,
    Borrowed(&'a Destination<'a, ShmAddressHandle>),
    Owned(Target),
}

/// A request. What the poster wrote just before is borrowed: copying it here in wider pieces than it was written in
/// stalls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work<'a> {
    pub(crate) id: u64,
    pub(crate) operation: &'a Operation,
    pub(crate) flags: SendFlags,
    pub(crate) source: Source<'a>,
    pub(crate) length: usize,
    pub(crate) target: TargetOf<'a>,
    /// Number of entries posted up to and including this one.
    pub(crate) posted: u32,
}

impl<'a> Work<'a> {
    #[inline(always)]
    pub(crate) fn new(
        request: &'a SendRequest<'a, ShmRegion, ShmAddressHandle>,
        length: usize,
        posted: u32,
    ) -> Self {
        Self {
            id: request.id,
            operation: &request.operation,
            flags: request.flags,
            source: match request.payload {
                Payload::Inline(bytes) => Source::Inline(bytes),
                Payload::Segments(segments) => Source::Borrowed(segments),
            },
            length,
            target: match &request.destination {
                Some(destination) => TargetOf::Borrowed(destination),
                None => TargetOf::Nowhere,
            },
            posted,
        }
    }

    pub(crate) fn opcode(&self) -> CompletionOpcode {
        opcode(self.operation)
    }

    /// The destination of the datagram, if it is one.
    pub(crate) fn target(&self) -> Option<Target> {
        match self.target {
            TargetOf::Nowhere => None,
            TargetOf::Borrowed(destination) => Some(Target {
                gid: destination.handle.gid(),
                number: destination.queue_pair,
                queue_key: destination.queue_key,
            }),
            TargetOf::Owned(target) => Some(target),
        }
    }
}

pub(crate) fn opcode(operation: &Operation) -> CompletionOpcode {
    match operation {
        Operation::Send { .. } => CompletionOpcode::Send,
        Operation::Write { .. } => CompletionOpcode::Write,
        Operation::Read { .. } => CompletionOpcode::Read,
        Operation::CompareAndSwap { .. } => CompletionOpcode::CompareAndSwap,
        Operation::FetchAndAdd { .. } => CompletionOpcode::FetchAndAdd,
    }
}

/// A request that was left over, with its own copy of inline bytes and its own hold on regions.
#[derive(Debug)]
pub(crate) struct LeftOver {
    id: u64,
    operation: Operation,
    flags: SendFlags,
    inline: Option<Vec<u8>>,
    segments: Vec<OwnedSegment>,
    length: usize,
    target: Option<Target>,
    posted: u32,
}

impl LeftOver {
    pub(crate) fn new(work: &Work<'_>) -> Self {
        let mut segments = Vec::new();
        let mut inline = None;
        match work.source {
            Source::Inline(bytes) => inline = Some(bytes.to_vec()),
            Source::Borrowed(borrowed) => {
                segments.extend(borrowed.iter().map(|segment| OwnedSegment {
                    region: Arc::clone(segment.region.region()),
                    offset: segment.offset,
                    length: segment.length,
                }));
            }
            Source::Owned(owned) => segments.extend(owned.iter().map(|segment| OwnedSegment {
                region: Arc::clone(&segment.region),
                offset: segment.offset,
                length: segment.length,
            })),
        }
        Self {
            id: work.id,
            operation: *work.operation,
            flags: work.flags,
            inline,
            segments,
            length: work.length,
            target: work.target(),
            posted: work.posted,
        }
    }

    pub(crate) fn work(&self) -> Work<'_> {
        Work {
            id: self.id,
            operation: &self.operation,
            flags: self.flags,
            source: match &self.inline {
                Some(bytes) => Source::Inline(bytes),
                None => Source::Owned(&self.segments),
            },
            length: self.length,
            target: self.target.map_or(TargetOf::Nowhere, TargetOf::Owned),
            posted: self.posted,
        }
    }
}
