//! The two ways of a transfer: to the region, and from it.

use std::ops::Range;

use dunlin_verbs::{PeerMemory, PeerSource};

use crate::client::{Pipeline, RemoteRegion};
use crate::error::CallError;

/// One way of a transfer, with the caller's memory.
pub(super) trait Way {
    /// Puts a piece into the batch of a pipeline: where in the region, which of the bytes, its number; `false`: no room.
    ///
    /// # Errors
    /// When it cannot be sent at all.
    fn submit(
        &mut self,
        pipeline: &mut Pipeline,
        region: &RemoteRegion,
        at: u64,
        range: Range<usize>,
        tag: u64,
    ) -> Result<bool, CallError>;

    /// Takes what a piece has brought.
    fn take(&mut self, range: Range<usize>, bytes: &[u8]);

    /// Moves a piece at once, where the memory of the region is mapped here. Whether it did.
    fn at_once(
        &mut self,
        pipeline: &mut Pipeline,
        region: &RemoteRegion,
        at: u64,
        range: Range<usize>,
    ) -> bool;
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
    fn submit(
        &mut self,
        pipeline: &mut Pipeline,
        region: &RemoteRegion,
        at: u64,
        range: Range<usize>,
        tag: u64,
    ) -> Result<bool, CallError> {
        pipeline.write(region, at, &self.source[range], tag)
    }

    fn take(&mut self, _range: Range<usize>, _bytes: &[u8]) {}

    fn at_once(
        &mut self,
        pipeline: &mut Pipeline,
        region: &RemoteRegion,
        at: u64,
        range: Range<usize>,
    ) -> bool {
        if self.target.is_none() {
            self.target = pipeline.region_target(region);
        }
        let target = self.target.as_ref().filter(|target| target.is_open());
        let (Some(target), Ok(at)) = (target, usize::try_from(at)) else {
            return false;
        };
        target.store(at, &self.source[range]);
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
    fn submit(
        &mut self,
        pipeline: &mut Pipeline,
        region: &RemoteRegion,
        at: u64,
        range: Range<usize>,
        tag: u64,
    ) -> Result<bool, CallError> {
        pipeline.read(region, at, range.len(), tag)
    }

    fn take(&mut self, range: Range<usize>, bytes: &[u8]) {
        self.into[range].copy_from_slice(bytes);
    }

    fn at_once(
        &mut self,
        pipeline: &mut Pipeline,
        region: &RemoteRegion,
        at: u64,
        range: Range<usize>,
    ) -> bool {
        if self.source.is_none() {
            self.source = pipeline.region_source(region);
        }
        let source = self.source.as_ref().filter(|source| source.is_open());
        let (Some(source), Ok(at)) = (source, usize::try_from(at)) else {
            return false;
        };
        source.load(at, &mut self.into[range])
    }
}
