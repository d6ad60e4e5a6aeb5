//! The two ways of a transfer: to the region, and from it.

use std::ops::Range;

use dunlin_verbs::{PeerMemory, PeerSource};

use crate::client::{Pipeline, RemoteRegion};
use crate::error::CallError;

/// Some of the bytes of a transfer, and where they go or come from.
pub(super) struct Piece<'p> {
    pub(super) pipeline: &'p mut Pipeline,
    pub(super) region: &'p RemoteRegion,
    /// Where in the region.
    pub(super) at: u64,
    /// Which of the caller's bytes.
    pub(super) range: Range<usize>,
}

/// One way of a transfer, with the caller's memory.
pub(super) trait Way {
    /// Puts a piece of this number into the batch of its pipeline; `false`: no room.
    ///
    /// # Errors
    /// When it cannot be sent at all.
    fn submit(&mut self, piece: Piece<'_>, number: u64) -> Result<bool, CallError>;

    /// Takes what a piece has brought.
    fn take(&mut self, range: Range<usize>, bytes: &[u8]);

    /// Moves a piece at once, where the memory of the region is mapped here. Whether it did.
    fn at_once(&mut self, piece: Piece<'_>) -> bool;
}

/// To the region.
pub(super) struct Put<'s> {
    source: &'s [u8],
    target: Option<Box<dyn PeerMemory>>,
}

impl<'s> Put<'s> {
    pub(super) fn of(source: &'s [u8]) -> Self {
        Self {
            source,
            target: None,
        }
    }
}

impl Way for Put<'_> {
    fn submit(&mut self, piece: Piece<'_>, number: u64) -> Result<bool, CallError> {
        let bytes = &self.source[piece.range];
        piece.pipeline.write(piece.region, piece.at, bytes, number)
    }

    fn take(&mut self, _range: Range<usize>, _bytes: &[u8]) {}

    fn at_once(&mut self, piece: Piece<'_>) -> bool {
        if self.target.is_none() {
            self.target = piece.pipeline.region_target(piece.region);
        }
        let target = self.target.as_ref().filter(|target| target.is_open());
        let (Some(target), Ok(at)) = (target, usize::try_from(piece.at)) else {
            return false;
        };
        target.store(at, &self.source[piece.range]);
        // One that has gone meanwhile may have got nothing of it.
        target.is_open()
    }
}

/// From the region.
pub(super) struct Get<'s> {
    into: &'s mut [u8],
    source: Option<Box<dyn PeerSource>>,
}

impl<'s> Get<'s> {
    pub(super) fn of(into: &'s mut [u8]) -> Self {
        Self { into, source: None }
    }
}

impl Way for Get<'_> {
    fn submit(&mut self, piece: Piece<'_>, number: u64) -> Result<bool, CallError> {
        let length = piece.range.len();
        piece.pipeline.read(piece.region, piece.at, length, number)
    }

    fn take(&mut self, range: Range<usize>, bytes: &[u8]) {
        self.into[range].copy_from_slice(bytes);
    }

    fn at_once(&mut self, piece: Piece<'_>) -> bool {
        if self.source.is_none() {
            self.source = piece.pipeline.region_source(piece.region);
        }
        let source = self.source.as_ref().filter(|source| source.is_open());
        let (Some(source), Ok(at)) = (source, usize::try_from(piece.at)) else {
            return false;
        };
        source.load(at, &mut self.into[piece.range])
    }
}
