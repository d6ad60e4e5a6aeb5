//! The directions of a transfer: to the region, and from it, with plain slices and with registered memory.

use std::ops::Range;

use dunlin_verbs::{PeerMemory, PeerSource};

use super::lane::TransferLane;
use super::TransferBuffer;
use crate::call::lane::MappedRegion;
use crate::error::CallError;

/// A part of a transfer's bytes, with the lane and the position.
pub(super) struct Piece<'p, 't> {
    pub(super) lane: &'p mut TransferLane<'t>,
    /// Offset in the region.
    pub(super) at: u64,
    /// The range of the caller's bytes.
    pub(super) range: Range<usize>,
}

/// One direction of a transfer, with the caller's memory.
pub(super) trait Way {
    /// Adds the piece with this number to the batch of its lane; `false`: no room.
    ///
    /// # Errors
    /// When it cannot be sent at all.
    fn submit(&mut self, piece: Piece<'_, '_>, number: u64) -> Result<bool, CallError>;

    /// Takes what a piece has brought, if it was not placed directly.
    fn take(&mut self, range: Range<usize>, bytes: &[u8]);

    /// Copies a piece directly, if the memory of the region is mapped here. Returns whether it did.
    fn at_once(&mut self, piece: Piece<'_, '_>) -> bool;
}

/// The source of bytes to put.
pub(super) trait Source {
    /// All of them.
    fn bytes(&self) -> &[u8];

    /// As [`Way::submit`].
    fn submit(&self, piece: Piece<'_, '_>, number: u64) -> Result<bool, CallError>;
}

impl Source for &[u8] {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn submit(&self, piece: Piece<'_, '_>, number: u64) -> Result<bool, CallError> {
        let Piece { lane, at, range } = piece;
        lane.pipeline.write(lane.region, at, &self[range], number)
    }
}

/// A buffer, and the part of it to put.
impl Source for (&TransferBuffer, Range<usize>) {
    fn bytes(&self) -> &[u8] {
        // A transfer checks in advance that they are accessible.
        self.0.bytes().map_or(&[], |bytes| &bytes[self.1.clone()])
    }

    fn submit(&self, piece: Piece<'_, '_>, number: u64) -> Result<bool, CallError> {
        let Piece { lane, at, range } = piece;
        let stands = self.1.start + range.start..self.1.start + range.end;
        let own = self.0.use_to_send(stands);
        match lane.pipeline.submit_own(lane.region, at, &own, number)? {
            Some(submitted) => Ok(submitted),
            None => self.bytes().submit(Piece { lane, at, range }, number),
        }
    }
}

/// To the region.
pub(super) struct Put<S> {
    source: S,
    target: Option<MappedRegion<dyn PeerMemory>>,
}

impl<S: Source> Put<S> {
    pub(super) fn of(source: S) -> Self {
        Self {
            source,
            target: None,
        }
    }
}

impl<S: Source> Way for Put<S> {
    fn submit(&mut self, piece: Piece<'_, '_>, number: u64) -> Result<bool, CallError> {
        self.source.submit(piece, number)
    }

    fn take(&mut self, _range: Range<usize>, _bytes: &[u8]) {}

    fn at_once(&mut self, piece: Piece<'_, '_>) -> bool {
        if self.target.is_none() {
            let lane = piece.lane;
            self.target = lane.pipeline.region_target(lane.region);
        }
        let target = self.target.as_ref().filter(|t| t.memory.is_open());
        // A range beyond it is submitted, which returns the error.
        let place = |target: &MappedRegion<_>| target.place(piece.at, piece.range.len());
        let (Some(target), Some(at)) = (target, target.and_then(place)) else {
            return false;
        };
        let bytes = &self.source.bytes()[piece.range];
        target.memory.store(at, bytes);
        // A mapping that was closed meanwhile may have received nothing of it.
        target.memory.is_open()
    }
}

/// The target of bytes that are read.
pub(super) trait Target {
    /// The bytes of this range; `None` while some are being placed directly.
    fn bytes_mut(&mut self, range: Range<usize>) -> Option<&mut [u8]>;

    /// Copies what has arrived for this range.
    fn fill(&mut self, range: Range<usize>, bytes: &[u8]);

    /// As [`Way::submit`].
    fn submit(&mut self, piece: Piece<'_, '_>, number: u64) -> Result<bool, CallError>;
}

impl Target for &mut [u8] {
    fn bytes_mut(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        Some(&mut self[range])
    }

    fn fill(&mut self, range: Range<usize>, bytes: &[u8]) {
        self[range].copy_from_slice(bytes);
    }

    fn submit(&mut self, piece: Piece<'_, '_>, number: u64) -> Result<bool, CallError> {
        read(piece, number)
    }
}

/// A buffer, and the part of it to fill.
impl Target for (&mut TransferBuffer, Range<usize>) {
    fn bytes_mut(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        let stands = self.1.start + range.start..self.1.start + range.end;
        Some(&mut self.0.bytes_mut().ok()?[stands])
    }

    fn fill(&mut self, range: Range<usize>, bytes: &[u8]) {
        // Other pieces may be placed directly next to it.
        self.0.fill(self.1.start + range.start, bytes);
    }

    fn submit(&mut self, piece: Piece<'_, '_>, number: u64) -> Result<bool, CallError> {
        let Piece { lane, at, range } = piece;
        let stands = self.1.start + range.start..self.1.start + range.end;
        let own = self.0.use_to_fill(stands);
        match lane.pipeline.submit_own(lane.region, at, &own, number)? {
            Some(submitted) => Ok(submitted),
            None => read(Piece { lane, at, range }, number),
        }
    }
}

fn read(piece: Piece<'_, '_>, number: u64) -> Result<bool, CallError> {
    let Piece { lane, at, range } = piece;
    lane.pipeline.read(lane.region, at, range.len(), number)
}

/// From the region.
pub(super) struct Get<T> {
    into: T,
    source: Option<MappedRegion<dyn PeerSource>>,
}

impl<T: Target> Get<T> {
    pub(super) fn of(into: T) -> Self {
        Self { into, source: None }
    }
}

impl<T: Target> Way for Get<T> {
    fn submit(&mut self, piece: Piece<'_, '_>, number: u64) -> Result<bool, CallError> {
        self.into.submit(piece, number)
    }

    fn take(&mut self, range: Range<usize>, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.into.fill(range, bytes);
        }
    }

    fn at_once(&mut self, piece: Piece<'_, '_>) -> bool {
        if self.source.is_none() {
            let lane = piece.lane;
            self.source = lane.pipeline.region_source(lane.region);
        }
        let source = self.source.as_ref().filter(|s| s.memory.is_open());
        let place = |source: &MappedRegion<_>| source.place(piece.at, piece.range.len());
        let (Some(source), Some(at)) = (source, source.and_then(place)) else {
            return false;
        };
        let into = self.into.bytes_mut(piece.range);
        into.is_some_and(|into| source.memory.load(at, into))
    }
}
