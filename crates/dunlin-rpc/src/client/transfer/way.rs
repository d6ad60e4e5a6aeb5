//! The ways of a transfer: to the region, and from it, of plain slices and of registered memory.

use std::ops::Range;

use dunlin_verbs::{PeerMemory, PeerSource};

use super::lane::TransferLane;
use super::TransferBuffer;
use crate::call::lane::MappedRegion;
use crate::error::CallError;

/// Some of the bytes of a transfer, and where they go or come from.
pub(super) struct Piece<'p, 't> {
    pub(super) lane: &'p mut TransferLane<'t>,
    /// Where in the region.
    pub(super) at: u64,
    /// Which of the caller's bytes.
    pub(super) range: Range<usize>,
}

/// One way of a transfer, with the caller's memory.
pub(super) trait Way {
    /// Puts a piece of this number into the batch of its lane; `false`: no room.
    ///
    /// # Errors
    /// When it cannot be sent at all.
    fn submit(&mut self, piece: Piece<'_, '_>, number: u64) -> Result<bool, CallError>;

    /// Takes what a piece has brought, if it did not land where it belongs.
    fn take(&mut self, range: Range<usize>, bytes: &[u8]);

    /// Moves a piece at once, where the memory of the region is mapped here. Whether it did.
    fn at_once(&mut self, piece: Piece<'_, '_>) -> bool;
}

/// Where bytes to put stand.
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

/// A part of a buffer, and the buffer.
impl Source for (&TransferBuffer, Range<usize>) {
    fn bytes(&self) -> &[u8] {
        // A transfer checks first that there are some.
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
        // What is beyond is submitted, and the error says so.
        let place = |target: &MappedRegion<_>| target.place(piece.at, piece.range.len());
        let (Some(target), Some(at)) = (target, target.and_then(place)) else {
            return false;
        };
        let bytes = &self.source.bytes()[piece.range];
        target.memory.store(at, bytes);
        // One that has gone meanwhile may have got nothing of it.
        target.memory.is_open()
    }
}

/// Where bytes that are got are to stand.
pub(super) trait Target {
    /// These of them; `None` while some are on their way into memory of their own.
    fn bytes_mut(&mut self, range: Range<usize>) -> Option<&mut [u8]>;

    /// Copies what has come for this range.
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

/// A part of a buffer, and the buffer.
impl Target for (&mut TransferBuffer, Range<usize>) {
    fn bytes_mut(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        let stands = self.1.start + range.start..self.1.start + range.end;
        Some(&mut self.0.bytes_mut().ok()?[stands])
    }

    fn fill(&mut self, range: Range<usize>, bytes: &[u8]) {
        // Other pieces may be landing beside it by themselves.
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
