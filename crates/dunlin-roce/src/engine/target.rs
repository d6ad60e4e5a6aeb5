//! The targets of a peer's packets: memory that was granted, and RECEIVEs.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use dunlin_verbs::{Access, CompletionStatus};

use super::Shared;
use crate::memory::RegionCore;
use crate::packet::{AtomicTarget, RemoteRange};
use crate::reliable::{AccessError, Delivered, Target};
use crate::work::Receive;

/// A queue pair as seen by its peer's packets.
#[derive(Debug)]
pub(super) struct Inbound<'a> {
    pub(super) shared: &'a Shared,
    pub(super) access: Access,
    pub(super) current: &'a mut Option<Receive>,
}

/// The memory that a key grants in the protection domain of `shared`, through a queue pair that allows `allowed`.
pub(super) fn granted(
    shared: &Shared,
    allowed: Access,
    range: &RemoteRange,
    access: Access,
) -> Result<(Arc<RegionCore>, usize), AccessError> {
    if !allowed.contains(access) {
        return Err(AccessError);
    }
    let regions = &shared.core.regions;
    regions
        .find(shared.domain, range.key, access, range.address, range.bytes)
        .ok_or(AccessError)
}

impl Target for Inbound<'_> {
    fn check(&mut self, range: &RemoteRange, access: Access) -> Result<(), AccessError> {
        granted(self.shared, self.access, range, access).map(|_| ())
    }

    fn write(&mut self, address: u64, key: u32, bytes: &[u8]) -> Result<(), AccessError> {
        let range = RemoteRange {
            address,
            key,
            bytes: bytes.len() as u32,
        };
        let (region, offset) = granted(self.shared, self.access, &range, Access::REMOTE_WRITE)?;
        let written = region.write_in_order(offset, bytes);
        written.then_some(()).ok_or(AccessError)
    }

    fn atomic(
        &mut self,
        target: &AtomicTarget,
        change: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<u64, AccessError> {
        let range = RemoteRange {
            address: target.address,
            key: target.key,
            bytes: 8,
        };
        let (region, offset) = granted(self.shared, self.access, &range, Access::REMOTE_ATOMIC)?;
        if offset % 8 != 0 {
            return Err(AccessError);
        }
        let old = region.access(offset, 8, |memory| {
            let cell = memory.atomic_u64(offset);
            match cell.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change) {
                Ok(old) | Err(old) => old,
            }
        });
        old.ok_or(AccessError)
    }

    fn take_receive(&mut self) -> Option<u64> {
        if self.current.is_none() {
            *self.current = self.shared.receives.pop();
        }
        self.current
            .as_ref()
            .map(|receive| receive.bytes.len() as u64)
    }

    fn fill_receive(&mut self, offset: u32, bytes: &[u8]) -> Result<(), AccessError> {
        let receive = self.current.as_ref().ok_or(AccessError)?;
        receive
            .bytes
            .scatter(offset as usize, bytes)
            .map_err(|_| AccessError)
    }

    fn deliver(&mut self, delivered: Delivered) {
        if let Some(receive) = self.current.take() {
            self.shared.complete_receive(&receive, delivered, None);
        }
    }

    fn fail_receive(&mut self, too_long: bool) {
        if let Some(receive) = self.current.take() {
            let status = if too_long {
                CompletionStatus::LocalLength
            } else {
                CompletionStatus::LocalProtection
            };
            self.shared.fail_receive(&receive, status);
        }
    }
}
