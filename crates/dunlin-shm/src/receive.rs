//! Posted RECEIVEs and the messages that fill them.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use dunlin_verbs::{
    Access, AsyncEvent, Completion, CompletionOpcode, CompletionStatus, PostErrorKind,
    ReceiveRequest, Transport, GRH_BYTES,
};

use crate::core::lock;
use crate::port::{Inbound, Record, RecordKind};
use crate::queue_pair::Shared;
use crate::region::{RegionCore, ShmRegion};
use crate::shared_receive::SharedReceiveCore;

/// Number of records taken from one port before the others get their turn, so that a sender that adds them as fast as
/// they are taken keeps nobody busy for longer. With the longest pieces of a message these are 2 MiB.
pub(crate) const RECORDS_PER_TURN: usize = 64;

/// A piece of a region, held by a posted request.
#[derive(Debug)]
pub(crate) struct OwnedSegment {
    pub(crate) region: Arc<RegionCore>,
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

/// Segments that are being copied to or from; the copy ends when this is dropped.
#[derive(Debug)]
pub(crate) struct InUse<'a>(&'a [OwnedSegment]);

impl<'a> InUse<'a> {
    /// `None` if a region belongs to another domain, or has ended.
    #[inline]
    pub(crate) fn begin(segments: &'a [OwnedSegment], domain: u64) -> Option<Self> {
        for (index, segment) in segments.iter().enumerate() {
            if segment.region.domain != domain || !segment.region.begin_use() {
                drop(Self(&segments[..index]));
                return None;
            }
        }
        Some(Self(segments))
    }
}

impl Drop for InUse<'_> {
    #[inline]
    fn drop(&mut self) {
        for segment in self.0 {
            segment.region.end_use();
        }
    }
}

/// A posted RECEIVE.
#[derive(Debug, Default)]
pub(crate) struct ReceiveSlot {
    pub(crate) id: u64,
    pub(crate) capacity: u64,
    pub(crate) segments: Vec<OwnedSegment>,
}

impl ReceiveSlot {
    pub(crate) fn with_segments(segments: usize) -> Self {
        Self {
            id: 0,
            capacity: 0,
            segments: Vec::with_capacity(segments),
        }
    }

    /// Stores a checked request in the slot.
    pub(crate) fn fill(&mut self, request: &ReceiveRequest<'_, ShmRegion>) {
        self.id = request.id;
        self.capacity = 0;
        self.segments.clear();
        for segment in request.segments {
            self.capacity += segment.length as u64;
            self.segments.push(OwnedSegment {
                region: Arc::clone(segment.region.region()),
                offset: segment.offset,
                length: segment.length,
            });
        }
    }

    /// Copies `length` bytes to position `at` of the buffer; the caller has checked the capacity.
    fn scatter(&self, mut at: usize, mut from: *const u8, mut length: usize) {
        for segment in &self.segments {
            if length == 0 {
                return;
            }
            if at >= segment.length {
                at -= segment.length;
                continue;
            }
            let piece = length.min(segment.length - at);
            // SAFETY: the segment was checked against its region when it was posted, and the region is alive; `from`
            // has `length` bytes in the port.
            unsafe {
                let to = segment.region.memory.start().as_ptr();
                std::ptr::copy(from, to.add(segment.offset + at), piece);
                from = from.add(piece);
            }
            length -= piece;
            at = 0;
        }
    }
}

/// Whether a RECEIVE may be posted to a queue that takes `segments` segments.
pub(crate) fn check_receive(
    request: &ReceiveRequest<'_, ShmRegion>,
    segments: usize,
) -> Result<(), PostErrorKind> {
    if request.segments.len() > segments {
        return Err(PostErrorKind::Segments {
            count: request.segments.len(),
            limit: segments,
        });
    }
    for (index, segment) in request.segments.iter().enumerate() {
        let region = segment.region.region();
        if !region.memory.contains(segment.offset, segment.length)
            || !region.access.contains(Access::LOCAL_WRITE)
        {
            return Err(PostErrorKind::Segment(index));
        }
    }
    Ok(())
}

/// The ring of posted RECEIVEs of one queue pair: its owner posts, the holder of the gate takes.
#[derive(Debug)]
pub(crate) struct ReceiveRing {
    slots: Box<[UnsafeCell<ReceiveSlot>]>,
    limit: usize,
    head: AtomicU64,
    tail: AtomicU64,
}

// SAFETY: a slot belongs to the poster until the release store of the tail, then to the taker until the release store
// of the head; each end is used by one thread at a time.
unsafe impl Sync for ReceiveRing {}

impl ReceiveRing {
    pub(crate) fn new(limit: usize, segments: usize) -> Self {
        Self {
            slots: (0..limit.max(1).next_power_of_two())
                .map(|_| UnsafeCell::new(ReceiveSlot::with_segments(segments)))
                .collect(),
            limit,
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed) == self.tail.load(Ordering::Relaxed)
    }

    /// Posts a RECEIVE; `false` if the ring is full.
    ///
    /// # Safety
    /// Must be called only by the queue pair's owner.
    pub(crate) unsafe fn post(&self, request: &ReceiveRequest<'_, ShmRegion>) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        if tail - self.head.load(Ordering::Acquire) >= self.limit as u64 {
            return false;
        }
        let index = tail as usize & (self.slots.len() - 1);
        // SAFETY: the slot is free, and there is only one poster.
        unsafe { &mut *self.slots[index].get() }.fill(request);
        self.tail.store(tail + 1, Ordering::Release);
        true
    }

    /// Takes the oldest RECEIVE, in exchange for an empty slot.
    ///
    /// # Safety
    /// Must be called only by the holder of the queue pair's receive gate.
    unsafe fn take(&self, into: &mut ReceiveSlot) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        if head == self.tail.load(Ordering::Acquire) {
            return false;
        }
        let index = head as usize & (self.slots.len() - 1);
        // SAFETY: the slot is full, and there is only one taker.
        std::mem::swap(unsafe { &mut *self.slots[index].get() }, into);
        self.head.store(head + 1, Ordering::Release);
        true
    }
}

/// The source of a queue pair's RECEIVEs.
#[derive(Debug)]
pub(crate) enum ReceiveSource {
    /// Its own ring.
    Own(ReceiveRing),
    /// A shared queue.
    Shared(Arc<SharedReceiveCore>),
}

/// The receiving side of a queue pair, protected by its gate.
#[derive(Debug)]
pub(crate) struct ReceiveState {
    /// The ports from which it receives: one if connected, one for each sender on UD.
    pub(crate) inbound: Vec<Inbound>,
    current: ReceiveSlot,
    active: bool,
    received: u64,
    /// Receiving itself has failed: the rest of the port is not delivered.
    broken: bool,
}

/// The result of one turn of a port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drained {
    /// Number of completions generated.
    pub(crate) made: usize,
    /// Whether the queue pair must fail.
    pub(crate) failed: bool,
    /// Whether the turn ended before the port was empty.
    pub(crate) more: bool,
}

/// Why a port generates no more completions.
enum Stop {
    /// There is no message, no RECEIVE for it, or no space for completions.
    Idle,
    /// The turn has ended.
    Turn,
    /// The peer wrote something invalid.
    Nonsense,
    /// The last completion was an error of this queue pair.
    Failed,
}

impl ReceiveState {
    pub(crate) fn new(segments: usize) -> Self {
        Self {
            inbound: Vec::new(),
            current: ReceiveSlot::with_segments(segments),
            active: false,
            received: 0,
            broken: false,
        }
    }

    /// Clears all state, as a reset does.
    pub(crate) fn reset(&mut self, source: &ReceiveSource) {
        self.inbound.clear();
        self.active = false;
        self.received = 0;
        self.broken = false;
        self.current.segments.clear();
        if let ReceiveSource::Own(ring) = source {
            // SAFETY: we hold the gate.
            while unsafe { ring.take(&mut self.current) } {
                self.current.segments.clear();
            }
        }
    }

    /// Drops the datagrams that arrived while no RECEIVE was posted.
    pub(crate) fn drop_unreceived(&mut self, pair: &Shared) {
        self.remove_all(pair, |inbound| inbound.skip().is_err());
    }

    /// Removes the ports of the senders for which `which` is true from all lists of this queue pair: one that stayed in
    /// a list would keep its pages, and a poller would look for the others in the wrong place.
    pub(crate) fn remove_all(&mut self, pair: &Shared, which: impl FnMut(&mut Inbound) -> bool) {
        let removed: Vec<_> = self.inbound.extract_if(.., which).collect();
        let is_removed = |port: &Arc<_>| removed.iter().any(|one| Arc::ptr_eq(&one.port, port));
        if !removed.is_empty() {
            lock(&pair.link).ports.retain(|port| !is_removed(port));
            pair.receive_cq.changed();
        }
    }

    /// Generates completions of what has arrived in one port, for one turn.
    pub(crate) fn drain(&mut self, pair: &Shared, port: usize, out: &mut [Completion]) -> Drained {
        let mut drained = Drained::default();
        if self.broken || port >= self.inbound.len() {
            return drained;
        }
        let (made, mut records) = (&mut drained.made, RECORDS_PER_TURN);
        let stop = loop {
            if *made == out.len() {
                break Stop::Idle;
            }
            match self.step(pair, port, &mut records) {
                Ok(Some(completion)) => {
                    out[*made] = completion;
                    *made += 1;
                    if !completion.is_success() {
                        break Stop::Failed;
                    }
                }
                Ok(None) => break Stop::Idle,
                Err(stop) => break stop,
            }
        };
        match stop {
            Stop::Idle => {}
            Stop::Turn => drained.more = true,
            Stop::Nonsense if pair.transport == Transport::UnreliableDatagram => {
                // Only this sender loses its port.
                let gone = Arc::clone(&self.inbound[port].port);
                self.remove_all(pair, |inbound| Arc::ptr_eq(&inbound.port, &gone));
            }
            Stop::Nonsense => {
                pair.core
                    .push_event(AsyncEvent::QueuePairFatal(pair.number));
                self.broken = true;
                drained.failed = true;
            }
            Stop::Failed => {
                self.broken = true;
                drained.failed = true;
            }
        }
        drained
    }

    /// Generates completions for RECEIVEs that will not be filled any more.
    pub(crate) fn flush(&mut self, pair: &Shared, out: &mut [Completion]) -> usize {
        let mut made = 0;
        while made < out.len() {
            if !self.active {
                let ReceiveSource::Own(ring) = &pair.source else {
                    break;
                };
                // SAFETY: we hold the gate.
                if !unsafe { ring.take(&mut self.current) } {
                    break;
                }
            }
            out[made] = self.complete(pair, CompletionStatus::Flushed, CompletionOpcode::Receive);
            made += 1;
        }
        made
    }

    /// Whether [`ReceiveState::flush`] would find something.
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// Takes a RECEIVE for a message that begins.
    fn begin(&mut self, pair: &Shared) -> bool {
        self.received = 0;
        self.active = match &pair.source {
            // SAFETY: we hold the gate.
            ReceiveSource::Own(ring) => unsafe { ring.take(&mut self.current) },
            ReceiveSource::Shared(queue) => queue.take(&mut self.current),
        };
        self.active
    }

    fn complete(
        &mut self,
        pair: &Shared,
        status: CompletionStatus,
        opcode: CompletionOpcode,
    ) -> Completion {
        self.active = false;
        self.current.segments.clear();
        Completion {
            id: self.current.id,
            status,
            opcode,
            queue_pair: pair.number,
            ..Completion::EMPTY
        }
    }

    /// Takes records, up to the end of the turn, until one completion is generated.
    fn step(
        &mut self,
        pair: &Shared,
        port: usize,
        records: &mut usize,
    ) -> Result<Option<Completion>, Stop> {
        let datagram = pair.transport == Transport::UnreliableDatagram;
        loop {
            let Some(record) = self.inbound[port].peek().map_err(|_| Stop::Nonsense)? else {
                return Ok(None);
            };
            if !self.active && !self.begin(pair) {
                if datagram {
                    self.inbound[port].skip().map_err(|_| Stop::Nonsense)?;
                    return Ok(None);
                }
                return match pair.source {
                    ReceiveSource::Shared(_) => Ok(None),
                    // The sender counts our RECEIVEs, so it sent one message too many.
                    ReceiveSource::Own(_) => Err(Stop::Nonsense),
                };
            }
            *records = records.checked_sub(1).ok_or(Stop::Turn)?;
            if let Some(completion) = self.accept(pair, port, record, datagram)? {
                return Ok(Some(completion));
            }
        }
    }

    /// Stores one record in the current RECEIVE.
    fn accept(
        &mut self,
        pair: &Shared,
        port: usize,
        record: Record,
        datagram: bool,
    ) -> Result<Option<Completion>, Stop> {
        let immediate = (record.kind != RecordKind::Send).then_some(record.immediate);
        let header = if datagram { GRH_BYTES as u64 } else { 0 };
        match (record.first, self.received > 0) {
            (true, false) | (false, true) => {}
            // A sender without acknowledgements gave up the last message. This one uses its RECEIVE.
            (true, true) if pair.transport == Transport::UnreliableConnection => self.received = 0,
            _ => return Err(Stop::Nonsense),
        }
        match record.kind {
            RecordKind::WriteImmediate if !datagram && self.received == 0 => {
                if record.bytes != 0 || record.more {
                    return Err(Stop::Nonsense);
                }
                self.inbound[port].take(&record);
                let mut completion = self.complete(
                    pair,
                    CompletionStatus::Success,
                    CompletionOpcode::ReceiveWriteWithImmediate,
                );
                completion.bytes = record.total as usize;
                completion.immediate = immediate;
                return Ok(Some(completion));
            }
            RecordKind::Send | RecordKind::SendImmediate => {}
            RecordKind::TooLong if !datagram => {
                self.inbound[port].take(&record);
                let status = CompletionStatus::LocalLength;
                return Ok(Some(self.complete(pair, status, CompletionOpcode::Receive)));
            }
            _ => return Err(Stop::Nonsense),
        }
        let end = self.received + u64::from(record.bytes);
        let whole = end == u64::from(record.total);
        if end > u64::from(record.total)
            || whole == record.more
            || (record.more && (record.bytes == 0 || datagram))
        {
            return Err(Stop::Nonsense);
        }
        if u64::from(record.total) + header > self.current.capacity {
            self.inbound[port].take(&record);
            if datagram {
                // A datagram that does not fit is dropped, and its RECEIVE is kept.
                return Ok(None);
            }
            let status = CompletionStatus::LocalLength;
            return Ok(Some(self.complete(pair, status, CompletionOpcode::Receive)));
        }
        let Some(in_use) = InUse::begin(&self.current.segments, pair.domain) else {
            self.inbound[port].take(&record);
            let status = CompletionStatus::LocalProtection;
            return Ok(Some(self.complete(pair, status, CompletionOpcode::Receive)));
        };
        let mut at = (self.received + header) as usize;
        self.inbound[port].read(&record, |pieces| {
            for (start, length) in pieces {
                self.current.scatter(at, start, length);
                at += length;
            }
        });
        drop(in_use);
        self.inbound[port].take(&record);
        self.received = end;
        if !whole {
            return Ok(None);
        }
        let source = self.inbound[port].source;
        let mut completion =
            self.complete(pair, CompletionStatus::Success, CompletionOpcode::Receive);
        completion.bytes = (end + header) as usize;
        completion.immediate = immediate;
        completion.source_queue_pair = datagram.then_some(source);
        Ok(Some(completion))
    }
}
