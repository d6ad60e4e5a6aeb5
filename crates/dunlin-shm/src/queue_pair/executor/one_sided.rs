//! One-sided verbs: loads, stores and atomics on the peer's regions.

use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::sync::Arc;

use dunlin_verbs::{copy_in_order, Access, CompletionStatus, Placement, RemoteAddress};

use super::{unreliable_or, Executor, Reason, Step};
use crate::control::Command;
use crate::port::{Nonsense, Outbound};
use crate::queue_pair::mapped::{fetch_to_write, fetched_at_once, Range};
use crate::queue_pair::shared::Shared;
use crate::queue_pair::work::{Source, Work};

impl Executor {
    /// Executes a plain WRITE to a region that is already mapped; returns `false` without doing anything if the request
    /// needs more than that.
    #[inline(always)]
    pub(crate) fn write_at_once(
        &self,
        remote: &RemoteAddress,
        length: usize,
        copy: impl FnOnce(*mut u8),
    ) -> bool {
        let Some(outbound) = &self.outbound else {
            return false;
        };
        let key = remote.key.0;
        let Some(region) = self.regions.get(key) else {
            return false;
        };
        if !outbound.peer_receives() || !outbound.table.holds(key) {
            return false;
        }
        let Some(target) = region.place(remote, length as u64, Access::REMOTE_WRITE) else {
            return false;
        };
        copy(target);
        fence(Ordering::Release);
        true
    }

    /// The mapping of `length` bytes at the peer, if there is one and they may be written.
    pub(in crate::queue_pair) fn mapped(
        &self,
        remote: RemoteAddress,
        length: usize,
        access: Access,
    ) -> Option<Range> {
        let outbound = self.outbound.as_ref()?;
        let region = self.regions.get(remote.key.0)?;
        let start = region.place(&remote, length as u64, access)?;
        Some(Range {
            port: Arc::clone(&outbound.port),
            table: outbound.table.clone(),
            key: remote.key.0,
            start: NonNull::new(start)?,
            length,
            _mapping: region.mapping(),
        })
    }

    /// Prefetches the lines of a location that will be written soon, as many as a core fetches at a time.
    #[inline]
    pub(crate) fn expect_write(&self, remote: &RemoteAddress, length: usize) {
        let Some(region) = self.regions.get(remote.key.0) else {
            return;
        };
        let length = fetched_at_once(length);
        if let Some(start) = region.place(remote, length as u64, Access::REMOTE_WRITE) {
            fetch_to_write(start, length);
        }
    }

    /// Executes a WRITE: writes the bytes without notifying the peer.
    #[inline(always)]
    pub(super) fn write(&mut self, pair: &Shared, work: &Work<'_>, remote: RemoteAddress) -> Step {
        match self.find(pair, remote, work.length as u64, Access::REMOTE_WRITE) {
            Ok(target) => {
                place_on(pair, work.source, target);
                Step::Done(work.length)
            }
            Err(Step::Fail(status)) => unreliable_or(pair, work, status),
            Err(step) => step,
        }
    }

    pub(super) fn read(
        &mut self,
        pair: &Shared,
        work: &Work<'_>,
        remote: RemoteAddress,
    ) -> Result<Step, Nonsense> {
        let mut from = match self.find(pair, remote, work.length as u64, Access::REMOTE_READ) {
            Ok(from) => from.cast_const(),
            Err(step) => return Ok(step),
        };
        work.source.each(|to, length| {
            // SAFETY: `find` checked the range at the peer, posting checked our segment; the two may be the same
            // memory.
            unsafe { std::ptr::copy(from, to, length) };
            from = from.wrapping_add(length);
        });
        fence(Ordering::Acquire);
        if work.length > 0 && !self.holds(remote) {
            return Ok(Step::Fail(CompletionStatus::RemoteAccess));
        }
        Ok(Step::Done(work.length))
    }

    /// Whether the region that was just read is still registered. If it has ended meanwhile, its pages may have been
    /// returned to the system, and what was read is not what they contained.
    #[inline(always)]
    fn holds(&self, remote: RemoteAddress) -> bool {
        let holds = |outbound: &Outbound| outbound.table.holds(remote.key.0);
        self.outbound.as_ref().is_some_and(holds)
    }

    pub(super) fn atomic(
        &mut self,
        pair: &Shared,
        work: &Work<'_>,
        remote: RemoteAddress,
        operate: impl FnOnce(&AtomicU64) -> u64,
    ) -> Result<Step, Nonsense> {
        let target = match self.find(pair, remote, 8, Access::REMOTE_ATOMIC) {
            Ok(target) => target,
            Err(step) => return Ok(step),
        };
        if target as usize % 8 != 0 {
            return Ok(Step::Fail(CompletionStatus::RemoteInvalidRequest));
        }
        // SAFETY: `find` checked the 8 bytes, and they are aligned.
        let old = operate(unsafe { AtomicU64::from_ptr(target.cast()) });
        if !self.holds(remote) {
            return Ok(Step::Fail(CompletionStatus::RemoteAccess));
        }
        work.source.each(|to, length| {
            let bytes = old.to_ne_bytes();
            // SAFETY: posting checked the segment; never more than the 8 bytes that there are.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, length.min(8)) };
        });
        Ok(Step::Done(8))
    }

    /// The location of `length` bytes at the peer.
    #[inline(always)]
    pub(super) fn find(
        &mut self,
        pair: &Shared,
        remote: RemoteAddress,
        length: u64,
        access: Access,
    ) -> Result<*mut u8, Step> {
        let key = remote.key.0;
        if let (Some(region), Some(outbound)) = (self.regions.get(key), &self.outbound) {
            let target = region.place(&remote, length, access);
            return target
                .filter(|_| outbound.table.holds(key))
                .ok_or(Step::Fail(CompletionStatus::RemoteAccess));
        }
        self.find_slowly(pair, remote, length, access)
    }

    #[cold]
    fn find_slowly(
        &mut self,
        pair: &Shared,
        remote: RemoteAddress,
        length: u64,
        access: Access,
    ) -> Result<*mut u8, Step> {
        let key = remote.key.0;
        self.read_mail(pair);
        if self.regions.get(key).is_some() {
            return self.find(pair, remote, length, access);
        }
        if length == 0 {
            return Ok(std::ptr::NonNull::<u64>::dangling().as_ptr().cast());
        }
        if let Some((_, status)) = self.refused.take_if(|(refused, _)| *refused == key) {
            return Err(Step::Fail(status));
        }
        // There is no need to request the region of a key that is not in force.
        let in_force = self
            .outbound
            .as_ref()
            .is_some_and(|outbound| outbound.table.holds(key));
        if !in_force || key == 0 {
            return Err(Step::Fail(CompletionStatus::RemoteAccess));
        }
        if self.asked != Some(key) {
            self.asked = Some(key);
            if let Some(remote) = self.remote {
                self.notices.ask(pair, |pair, incarnation| Command::Map {
                    pair,
                    incarnation,
                    remote,
                    key,
                });
            }
        }
        Err(Step::Wait(Reason::Peer))
    }
}

/// Writes the bytes to their location in the order that the device promises.
#[inline(always)]
pub(super) fn place_on(pair: &Shared, source: Source<'_>, target: *mut u8) {
    match pair.core.attributes.placement {
        Placement::InOrder => place(source, target),
        Placement::Unordered => place_backwards(source, target),
    }
}

/// Writes the bytes to their location from the end, eight aligned bytes at a time, and before any later request of this
/// queue pair.
#[cold]
fn place_backwards(source: Source<'_>, target: *mut u8) {
    let mut bytes = Vec::new();
    match source {
        Source::Inline(inline) => bytes.extend_from_slice(inline),
        _ => source.each(|from, length| {
            let at = bytes.len();
            bytes.resize(at + length, 0);
            // SAFETY: posting checked the segment.
            unsafe { std::ptr::copy(from.cast_const(), bytes[at..].as_mut_ptr(), length) };
        }),
    }
    let mut end = bytes.len();
    while end > 0 {
        let start = match (target as usize + end) % 8 {
            0 if end >= 8 => end - 8,
            _ => end - 1,
        };
        let at = target.wrapping_add(start);
        // SAFETY: `find` checked the range; eight bytes are aligned as just seen.
        unsafe {
            match <[u8; 8]>::try_from(&bytes[start..end]) {
                Ok(word) => AtomicU64::from_ptr(at.cast())
                    .store(u64::from_ne_bytes(word), Ordering::Release),
                Err(_) => {
                    std::sync::atomic::AtomicU8::from_ptr(at).store(bytes[start], Ordering::Release)
                }
            }
        }
        end = start;
    }
    fence(Ordering::Release);
}

/// Writes the bytes to their location, visible in ascending order, and before any later request of this queue pair.
#[inline(always)]
pub(super) fn place(source: Source<'_>, mut target: *mut u8) {
    if let Source::Inline(bytes) = source {
        // SAFETY: `find` checked the range; inline bytes are ordinary memory of the poster and never a mapped region's.
        unsafe { copy_in_order(bytes.as_ptr(), target, bytes.len()) };
    } else {
        source.each(|from, length| {
            place_piece(from, target, length);
            target = target.wrapping_add(length);
        });
    }
    fence(Ordering::Release);
}

#[inline(always)]
pub(in crate::queue_pair) fn place_piece(from: *const u8, target: *mut u8, length: usize) {
    let distance = (target as usize).abs_diff(from as usize);
    if distance < length {
        // SAFETY: both ranges were checked; they are the same memory.
        unsafe { std::ptr::copy(from, target, length) };
    } else {
        // SAFETY: both ranges were checked and do not overlap.
        unsafe { copy_in_order(from, target, length) };
    }
}
