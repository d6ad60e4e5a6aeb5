//! One-sided operations of a pipeline, and of other lanes that belong to one caller.

use std::sync::Arc;

use dunlin_verbs::{AnyRegion, PeerMemory, PeerSource};

use super::super::region::attach_on;
use super::super::wait::Waiter;
use super::super::RemoteRegion;
use super::{Pipeline, NEVER_CLOSED};
use crate::call::lane::{Lane, MappedRegion, Submitted};
use crate::call::own::Own;
use crate::call::wanted::{RegionKey, Wanted};
use crate::error::CallError;

/// Adds a one-sided operation to the batch of a lane that belongs to one caller, after attaching its region if
/// necessary, for which `waiter` makes a wait. `false`: there is no room, poll first.
pub(in crate::client) fn submit_attached<'w>(
    lane: &mut dyn Lane,
    region: &RemoteRegion,
    waiter: impl Fn() -> Waiter<'w>,
    mut submit: impl FnMut(&mut dyn Lane, &RegionKey) -> Result<Submitted, CallError>,
) -> Result<bool, CallError> {
    let key = region.key();
    loop {
        match submit(lane, key) {
            Ok(Submitted::Call(_)) => return Ok(true),
            Ok(Submitted::Full) => return Ok(false),
            Ok(Submitted::Unattached) => {
                // Responses to other calls that arrive meanwhile could not be delivered: the callback is passed with a
                // poll.
                if lane.outstanding() > 0 {
                    return Ok(false);
                }
                attach_on(lane, key, waiter())?;
            }
            Err(error) => return Err(error),
        }
    }
}

impl Pipeline {
    /// Reads `length` bytes of a region, as [`Pipeline::submit`]; the response consists of the bytes. The first
    /// operation on a region waits until it is attached on this connection.
    ///
    /// # Errors
    /// When it cannot be sent at all: see [`crate::RemoteRegion::read`].
    pub fn read(
        &mut self,
        region: &RemoteRegion,
        offset: u64,
        length: usize,
        tag: u64,
    ) -> Result<bool, CallError> {
        self.operate(region, offset, &Wanted::Read(length), tag)
    }

    /// Writes into a region; the response is empty.
    ///
    /// # Errors
    /// As for [`Pipeline::read`].
    pub fn write(
        &mut self,
        region: &RemoteRegion,
        offset: u64,
        bytes: &[u8],
        tag: u64,
    ) -> Result<bool, CallError> {
        self.operate(region, offset, &Wanted::Write(bytes), tag)
    }

    /// Adds to 8 bytes of a region; the response is their previous value.
    ///
    /// # Errors
    /// As for [`Pipeline::read`].
    pub fn fetch_add(
        &mut self,
        region: &RemoteRegion,
        offset: u64,
        add: u64,
        tag: u64,
    ) -> Result<bool, CallError> {
        self.operate(region, offset, &Wanted::FetchAndAdd(add), tag)
    }

    /// Replaces 8 bytes of a region if they equal `compare`; the response is their previous value.
    ///
    /// # Errors
    /// As for [`Pipeline::read`].
    pub fn compare_and_swap(
        &mut self,
        region: &RemoteRegion,
        offset: u64,
        (compare, swap): (u64, u64),
        tag: u64,
    ) -> Result<bool, CallError> {
        self.operate(
            region,
            offset,
            &Wanted::CompareAndSwap { compare, swap },
            tag,
        )
    }

    fn operate(
        &mut self,
        region: &RemoteRegion,
        offset: u64,
        wanted: &Wanted<'_>,
        tag: u64,
    ) -> Result<bool, CallError> {
        self.submit_attached(region, |lane, key| {
            lane.submit_one_sided(key, offset, wanted, tag)
        })
    }

    fn submit_attached(
        &mut self,
        region: &RemoteRegion,
        submit: impl FnMut(&mut dyn Lane, &RegionKey) -> Result<Submitted, CallError>,
    ) -> Result<bool, CallError> {
        self.lane.check()?;
        if !self.reaches_memory() {
            return Ok(false);
        }
        let waiter = || Waiter::new(self.wait, self.deadline, &NEVER_CLOSED).of(self.server);
        submit_attached(self.lane.as_mut(), region, waiter, submit)
    }

    /// Allocates memory that no peer can access, for [`Pipeline::submit_own`].
    pub(in crate::client) fn allocate(
        &mut self,
        length: usize,
    ) -> Result<Arc<dyn AnyRegion>, CallError> {
        self.lane.check()?;
        self.lane.allocate(length)
    }

    /// As [`Pipeline::read`] and [`Pipeline::write`], for the caller's own memory; the response is empty. `None`: its
    /// lane cannot use that memory.
    pub(in crate::client) fn submit_own(
        &mut self,
        region: &RemoteRegion,
        offset: u64,
        own: &Own<'_>,
        tag: u64,
    ) -> Result<Option<bool>, CallError> {
        let mut has_it = true;
        let submitted = self.submit_attached(region, |lane, key| {
            let submitted = lane.submit_own(key, offset, own, tag)?;
            has_it = submitted.is_some();
            Ok(submitted.unwrap_or(Submitted::Full))
        })?;
        Ok(has_it.then_some(submitted))
    }

    /// The memory of a region, if it is mapped here and may be written: available once a WRITE to it has succeeded.
    pub(in crate::client) fn region_target(
        &mut self,
        region: &RemoteRegion,
    ) -> Option<MappedRegion<dyn PeerMemory>> {
        self.lane.region_target(region.key())
    }

    /// The same for reading, once a READ has succeeded.
    pub(in crate::client) fn region_source(
        &mut self,
        region: &RemoteRegion,
    ) -> Option<MappedRegion<dyn PeerSource>> {
        self.lane.region_source(region.key())
    }
}
