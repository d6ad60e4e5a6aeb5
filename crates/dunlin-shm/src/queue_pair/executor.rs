//! The executor: carries out send requests, in order, as far as they go.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_verbs::{
    copy_in_order, Access, CompletionStatus, ConnectAttributes, EndpointAddress, Operation,
    QueuePairState, RemoteAddress, SendFlags, Transport,
};

use crate::control::Command;
use crate::core::lock;
use crate::mapping::Mapping;
use crate::port::{Nonsense, Outbound, Record, RecordKind};
use crate::region_table::key_index;

use super::datagram::Datagrams;
use super::shared::Shared;
use super::work::{LeftOver, Source, Work};

/// The control thread gets this long at least, whatever the connection's timeout is.
const CONTROL_TIME_MIN: Duration = Duration::from_millis(200);
/// A refused attach is asked for again after this.
const ATTACH_AGAIN: Duration = Duration::from_millis(5);
/// Sends of more than the ring has room for go in pieces of at least this.
const PIECE_BYTES_MIN: u64 = 4096;

/// A region of the peer, mapped here.
#[derive(Debug)]
pub(crate) struct PeerRegion {
    pub(crate) key: u32,
    pub(crate) access: Access,
    pub(crate) base: u64,
    pub(crate) length: u64,
    start: NonNull<u8>,
    _mapping: Arc<Mapping>,
}

// SAFETY: `start` is the start of the mapping, which may move between threads and which the value keeps.
unsafe impl Send for PeerRegion {}

impl PeerRegion {
    pub(crate) fn new(
        key: u32,
        access: Access,
        base: u64,
        length: u64,
        mapping: Arc<Mapping>,
    ) -> Self {
        Self {
            key,
            access,
            base,
            length,
            start: mapping.start(),
            _mapping: mapping,
        }
    }
}

/// An answer of the control thread.
#[derive(Debug)]
pub(crate) enum Mail {
    /// The peer's port, or a refusal.
    Port(Option<Outbound>),
    /// The region of a key, or a refusal.
    Region(u32, Option<PeerRegion>),
    /// The port of a datagram's destination, or a refusal.
    Datagram(super::work::Target, Option<Outbound>),
    /// A device that datagrams may have gone to is no more.
    Gone([u8; 16]),
}

/// How far a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Done, with this many bytes.
    Done(usize),
    /// Something has to happen first.
    Wait(Reason),
    /// It failed.
    Fail(CompletionStatus),
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// An answer of the peer's control thread.
    Peer,
    /// A RECEIVE at the peer.
    Receiver,
    /// Room in the peer's port.
    Room,
}

/// Executes sends of one queue pair.
#[derive(Debug)]
pub(crate) struct Executor {
    pub(crate) outbound: Option<Outbound>,
    regions: Vec<Option<PeerRegion>>,
    asked: Option<u32>,
    refused: Option<u32>,
    attach_again: Option<Instant>,
    queue: VecDeque<LeftOver>,
    /// Bytes of the first request that have crossed.
    crossed: usize,
    waiting: Option<(Reason, Instant)>,
    pub(crate) remote: Option<EndpointAddress>,
    pub(crate) attributes: ConnectAttributes,
    pub(crate) datagrams: Datagrams,
}

impl Executor {
    pub(crate) fn new(send_requests: usize) -> Self {
        Self {
            outbound: None,
            regions: Vec::new(),
            asked: None,
            refused: None,
            attach_again: None,
            queue: VecDeque::with_capacity(send_requests),
            crossed: 0,
            waiting: None,
            remote: None,
            attributes: ConnectAttributes::default(),
            datagrams: Datagrams::default(),
        }
    }

    /// Forgets everything but the room it has.
    pub(crate) fn reset(&mut self) {
        self.queue.clear();
        let queue = std::mem::take(&mut self.queue);
        *self = Self {
            queue,
            ..Self::new(0)
        };
    }

    /// Keeps a request for later.
    pub(crate) fn leave_over(&mut self, work: &Work<'_>) {
        self.queue.push_back(LeftOver::new(work));
    }

    /// Goes on with what was left over; `true` when nothing is left.
    pub(crate) fn run(&mut self, pair: &Shared) -> bool {
        while let Some(next) = self.queue.pop_front() {
            let work = next.work();
            match pair.state() {
                QueuePairState::ReadyToSend => {}
                QueuePairState::SendQueueDrained if self.crossed > 0 => {}
                QueuePairState::SendQueueDrained => {
                    self.queue.push_front(next);
                    return false;
                }
                QueuePairState::Reset => continue,
                _ => {
                    self.crossed = 0;
                    pair.complete(&work, CompletionStatus::Flushed, 0);
                    continue;
                }
            }
            match self.execute(pair, &work) {
                Step::Done(bytes) => {
                    if work.flags.contains(SendFlags::SIGNALED) {
                        pair.complete(&work, CompletionStatus::Success, bytes);
                    }
                }
                Step::Fail(status) => self.fail(pair, &work, status),
                Step::Wait(reason) => match self.overdue(pair, reason) {
                    None => {
                        self.queue.push_front(next);
                        return false;
                    }
                    Some(CompletionStatus::Success) => {
                        if work.flags.contains(SendFlags::SIGNALED) {
                            pair.complete(&work, CompletionStatus::Success, work.length);
                        }
                    }
                    Some(status) => self.fail(pair, &work, status),
                },
            }
            self.crossed = 0;
            self.waiting = None;
        }
        true
    }

    fn fail(&mut self, pair: &Shared, work: &Work<'_>, status: CompletionStatus) {
        pair.fail(work, status);
    }

    /// Whether the wait has lasted too long, and what becomes of the request then.
    fn overdue(&mut self, pair: &Shared, reason: Reason) -> Option<CompletionStatus> {
        let now = Instant::now();
        let since = match self.waiting {
            Some((same, since)) if same == reason => since,
            _ => {
                self.waiting = Some((reason, now));
                now
            }
        };
        let reliable = pair.transport == Transport::ReliableConnection;
        let attributes = &self.attributes;
        let timeout = Duration::from_nanos(attributes.timeout_ns)
            .saturating_mul(u32::from(attributes.retry_count) + 1)
            .max(CONTROL_TIME_MIN);
        let (bound, status) = match reason {
            Reason::Peer if attributes.timeout_ns == 0 && reliable => return None,
            Reason::Peer => (timeout, CompletionStatus::RetryExceeded),
            Reason::Receiver if attributes.receiver_not_ready_retries >= 7 => return None,
            Reason::Receiver => (
                Duration::from_nanos(attributes.receiver_not_ready_timer_ns)
                    .saturating_mul(attributes.receiver_not_ready_retries.into()),
                CompletionStatus::ReceiverNotReadyRetryExceeded,
            ),
            // A reliable receiver that is alive may take its time.
            Reason::Room if reliable => return None,
            Reason::Room => (timeout, CompletionStatus::Success),
        };
        let over = now.duration_since(since) >= bound;
        over.then_some(if reliable {
            status
        } else {
            CompletionStatus::Success
        })
    }

    /// A plain WRITE to a region that is mapped already; `false`, and nothing done, where it takes more than that.
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
        let Some(Some(region)) = self.regions.get(key_index(key)) else {
            return false;
        };
        let offset = remote.address.wrapping_sub(region.base);
        let there = outbound.port.state().load(Ordering::Relaxed);
        if region.key != key
            || !region.access.contains(Access::REMOTE_WRITE)
            || offset > region.length
            || length as u64 > region.length - offset
            || there.wrapping_sub(QueuePairState::ReadyToReceive as u32) > 3
            || !outbound.table.holds(key)
        {
            return false;
        }
        // SAFETY: the offset is within the mapping.
        copy(unsafe { region.start.as_ptr().add(offset as usize) });
        fence(Ordering::Release);
        true
    }

    /// Asks for the lines of a place that will be written soon, as many as a core fetches at a time.
    #[inline]
    pub(crate) fn expect_write(&self, remote: &RemoteAddress, length: usize) {
        const MOST: usize = 32 * 64;
        let Some(Some(region)) = self.regions.get(key_index(remote.key.0)) else {
            return;
        };
        let offset = remote.address.wrapping_sub(region.base);
        let length = length.min(MOST) as u64;
        if region.key != remote.key.0 || offset > region.length || length > region.length - offset {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        for line in (offset..offset + length).step_by(64) {
            use std::arch::x86_64::{_mm_prefetch, _MM_HINT_ET0};
            // SAFETY: within the mapping; a prefetch changes nothing.
            unsafe {
                _mm_prefetch::<_MM_HINT_ET0>(region.start.as_ptr().add(line as usize).cast());
            }
        }
    }

    /// Carries out one request, or the next part of it.
    #[inline(always)]
    pub(crate) fn execute(&mut self, pair: &Shared, work: &Work<'_>) -> Step {
        let Some(_in_use) = work.source.begin_use(pair.domain) else {
            return Step::Fail(CompletionStatus::LocalProtection);
        };
        if pair.transport == Transport::UnreliableDatagram {
            return self.execute_datagram(pair, work);
        }
        if self.outbound.is_none() {
            if let Some(step) = self.attach(pair) {
                return step;
            }
        }
        let Some(outbound) = self.outbound.as_mut() else {
            return Step::Wait(Reason::Peer);
        };
        let there = outbound.port.state().load(Ordering::Relaxed);
        if there.wrapping_sub(QueuePairState::ReadyToReceive as u32) > 3 {
            return self.not_receiving(pair, work, there);
        }
        match work.operation {
            Operation::Write {
                remote,
                immediate: None,
            } => match self.find(pair, *remote, work.length as u64, Access::REMOTE_WRITE) {
                Ok(target) => {
                    place(work.source, target);
                    Step::Done(work.length)
                }
                Err(Step::Fail(status)) => unreliable_or(pair, work, status),
                Err(step) => step,
            },
            _ => self.execute_other(pair, work),
        }
    }

    #[inline(never)]
    fn execute_other(&mut self, pair: &Shared, work: &Work<'_>) -> Step {
        let result = match *work.operation {
            Operation::Send { immediate } => self.send(pair, work, immediate),
            Operation::Write { remote, immediate } => {
                self.write_with_immediate(pair, work, remote, immediate.unwrap_or(0))
            }
            Operation::Read { remote } => self.read(pair, work, remote),
            Operation::CompareAndSwap {
                remote,
                compare,
                swap,
            } => self.atomic(pair, work, remote, |word| {
                match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(old) | Err(old) => old,
                }
            }),
            Operation::FetchAndAdd { remote, add } => self.atomic(pair, work, remote, |word| {
                word.fetch_add(add, Ordering::SeqCst)
            }),
        };
        match result {
            Ok(step) => step,
            Err(Nonsense) => Step::Fail(CompletionStatus::General),
        }
    }

    fn send(
        &mut self,
        pair: &Shared,
        work: &Work<'_>,
        immediate: Option<u32>,
    ) -> Result<Step, Nonsense> {
        let reliable = pair.transport == Transport::ReliableConnection;
        let Some(outbound) = self.outbound.as_mut() else {
            return Ok(Step::Wait(Reason::Peer));
        };
        let record = Record {
            kind: if immediate.is_some() {
                RecordKind::SendImmediate
            } else {
                RecordKind::Send
            },
            solicited: work.flags.contains(SendFlags::SOLICITED),
            more: false,
            bytes: 0,
            total: work.length as u32,
            immediate: immediate.unwrap_or(0),
        };
        if self.crossed == 0 {
            if !outbound.receiver_ready()? {
                return Ok(self.not_ready(work, reliable));
            }
            if work.length as u64 > outbound.receive_length() {
                if !reliable {
                    return Ok(Step::Done(work.length));
                }
                if outbound.room(0)?.is_none() {
                    return Ok(Step::Wait(Reason::Room));
                }
                let record = Record {
                    kind: RecordKind::TooLong,
                    ..record
                };
                outbound.publish(record, |_| {});
                return Ok(Step::Fail(CompletionStatus::RemoteInvalidRequest));
            }
        }
        loop {
            let left = work.length - self.crossed;
            let Some(room) = outbound.room(left as u64)? else {
                return Ok(Step::Wait(Reason::Room));
            };
            let fits = left as u64 <= room;
            if !fits
                && room < PIECE_BYTES_MIN.min(u64::from(outbound.port.geometry().data_bytes) / 2)
            {
                return Ok(Step::Wait(Reason::Room));
            }
            let bytes = if fits { left } else { room as usize };
            let crossed = self.crossed;
            let record = Record {
                more: !fits,
                bytes: bytes as u32,
                ..record
            };
            outbound.publish(record, |pieces| work.source.gather(crossed, pieces));
            self.crossed += bytes;
            if fits {
                self.crossed = 0;
                return Ok(Step::Done(work.length));
            }
        }
    }

    fn not_ready(&self, work: &Work<'_>, reliable: bool) -> Step {
        if !reliable {
            return Step::Done(work.length);
        }
        if self.attributes.receiver_not_ready_retries == 0 {
            return Step::Fail(CompletionStatus::ReceiverNotReadyRetryExceeded);
        }
        Step::Wait(Reason::Receiver)
    }

    fn write_with_immediate(
        &mut self,
        pair: &Shared,
        work: &Work<'_>,
        remote: RemoteAddress,
        immediate: u32,
    ) -> Result<Step, Nonsense> {
        let reliable = pair.transport == Transport::ReliableConnection;
        let target = match self.find(pair, remote, work.length as u64, Access::REMOTE_WRITE) {
            Ok(target) => target,
            Err(Step::Fail(status)) => return Ok(unreliable_or(pair, work, status)),
            Err(step) => return Ok(step),
        };
        let Some(outbound) = self.outbound.as_mut() else {
            return Ok(Step::Wait(Reason::Peer));
        };
        if !outbound.receiver_ready()? {
            return Ok(self.not_ready(work, reliable));
        }
        if outbound.room(0)?.is_none() {
            return Ok(Step::Wait(Reason::Room));
        }
        place(work.source, target);
        let record = Record {
            kind: RecordKind::WriteImmediate,
            solicited: work.flags.contains(SendFlags::SOLICITED),
            more: false,
            bytes: 0,
            total: work.length as u32,
            immediate,
        };
        outbound.publish(record, |_| {});
        Ok(Step::Done(work.length))
    }

    fn read(
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
            // SAFETY: `find` checked the range at the peer, posting checked our segment; the two may be the same memory.
            unsafe { std::ptr::copy(from, to, length) };
            from = from.wrapping_add(length);
        });
        fence(Ordering::Acquire);
        Ok(Step::Done(work.length))
    }

    fn atomic(
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
        work.source.each(|to, length| {
            let bytes = old.to_ne_bytes();
            // SAFETY: posting checked the segment; never more than the 8 bytes that there are.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, length.min(8)) };
        });
        Ok(Step::Done(8))
    }

    /// The place of `length` bytes at the peer.
    #[inline(always)]
    fn find(
        &mut self,
        pair: &Shared,
        remote: RemoteAddress,
        length: u64,
        access: Access,
    ) -> Result<*mut u8, Step> {
        let key = remote.key.0;
        if let (Some(Some(region)), Some(outbound)) =
            (self.regions.get(key_index(key)), &self.outbound)
        {
            if region.key == key {
                let offset = remote.address.wrapping_sub(region.base);
                if !outbound.table.holds(key)
                    || !region.access.contains(access)
                    || offset > region.length
                    || length > region.length - offset
                {
                    return Err(Step::Fail(CompletionStatus::RemoteAccess));
                }
                // SAFETY: the offset is within the mapping.
                return Ok(unsafe { region.start.as_ptr().add(offset as usize) });
            }
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
        if matches!(self.regions.get(key_index(key)), Some(Some(region)) if region.key == key) {
            return self.find(pair, remote, length, access);
        }
        if length == 0 {
            return Ok(std::ptr::NonNull::<u64>::dangling().as_ptr().cast());
        }
        if self.refused == Some(key) {
            self.refused = None;
            return Err(Step::Fail(CompletionStatus::RemoteAccess));
        }
        // A key that is not in force need not be asked for.
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
                pair.core.control.push(Command::Map {
                    pair: pair.me.clone(),
                    incarnation: pair.incarnation(),
                    remote,
                    key,
                });
            }
        }
        Err(Step::Wait(Reason::Peer))
    }

    /// The peer's queue pair takes nothing. If it was reset before we sent anything it may be connecting to us again: the port we
    /// have is of its earlier life.
    #[cold]
    fn not_receiving(&mut self, pair: &Shared, work: &Work<'_>, there: u32) -> Step {
        let fresh = self.outbound.as_ref().is_some_and(Outbound::is_fresh);
        if there != QueuePairState::Reset as u32 || !fresh {
            return unreliable_or(pair, work, CompletionStatus::RetryExceeded);
        }
        self.outbound = None;
        self.regions.clear();
        self.attach_again = Some(Instant::now());
        match self.attach(pair) {
            Some(step) if pair.transport == Transport::ReliableConnection => step,
            _ => Step::Done(work.length),
        }
    }

    /// Looks for the peer's port; `None` when it is there.
    #[cold]
    fn attach(&mut self, pair: &Shared) -> Option<Step> {
        self.read_mail(pair);
        if self.outbound.is_some() {
            return None;
        }
        if self.attach_again.is_some_and(|at| Instant::now() >= at) {
            self.attach_again = None;
            if let Some(remote) = self.remote {
                pair.core.control.push(Command::Attach {
                    pair: pair.me.clone(),
                    incarnation: pair.incarnation(),
                    remote,
                });
            }
        }
        Some(Step::Wait(Reason::Peer))
    }

    /// Takes in what the control thread answered.
    #[cold]
    pub(crate) fn read_mail(&mut self, pair: &Shared) {
        for (incarnation, mail) in pair.take_mail() {
            if incarnation != pair.incarnation() {
                continue;
            }
            match mail {
                Mail::Port(Some(outbound)) => {
                    self.outbound.get_or_insert(outbound);
                }
                Mail::Port(None) => self.attach_again = Some(Instant::now() + ATTACH_AGAIN),
                Mail::Region(key, region) => {
                    if self.asked == Some(key) {
                        self.asked = None;
                    }
                    let Some(region) = region else {
                        self.refused = Some(key);
                        continue;
                    };
                    self.unmap_revoked();
                    let index = key_index(key);
                    if self.regions.len() <= index {
                        self.regions.resize_with(index + 1, || None);
                    }
                    self.regions[index] = Some(region);
                }
                Mail::Datagram(target, outbound) => self.datagrams.answered(target, outbound),
                Mail::Gone(uid) => self.datagrams.forget(uid),
            }
        }
    }

    /// Lets go of the peer's regions whose keys were taken back.
    fn unmap_revoked(&mut self) {
        let Some(outbound) = &self.outbound else {
            return;
        };
        for region in &mut self.regions {
            if matches!(region, Some(region) if !outbound.table.holds(region.key)) {
                *region = None;
            }
        }
    }

    /// What `to_ready_to_receive` was given.
    pub(crate) fn connect(&mut self, pair: &Shared) {
        let link = lock(&pair.link);
        self.remote = link.remote;
        self.attributes = link.attributes;
    }
}

/// On UC a failure at the peer is silence.
#[cold]
fn unreliable_or(pair: &Shared, work: &Work<'_>, status: CompletionStatus) -> Step {
    if pair.transport == Transport::ReliableConnection {
        Step::Fail(status)
    } else {
        Step::Done(work.length)
    }
}

/// Writes the bytes at their place, visible in ascending order, and before whatever this queue pair does next.
#[inline(always)]
fn place(source: Source<'_>, mut target: *mut u8) {
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
pub(super) fn place_piece(from: *const u8, target: *mut u8, length: usize) {
    let distance = (target as usize).abs_diff(from as usize);
    if distance < length {
        // SAFETY: both ranges were checked; they are the same memory.
        unsafe { std::ptr::copy(from, target, length) };
    } else {
        // SAFETY: both ranges were checked and do not overlap.
        unsafe { copy_in_order(from, target, length) };
    }
}
