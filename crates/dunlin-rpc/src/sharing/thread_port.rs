//! A thread's end of a connection handle: it looks like a lane of its own ([`Lane`]), so calls, batches, pipelines and futures use it
//! as they use a queue pair that nobody shares.
//!
//! Requests are encoded into a private run; the run goes into the coalesced message when it is flushed, copied in place. A thread that
//! waits for answers looks for them itself, and hands to others what is theirs.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use dunlin_verbs::{thread, VerbsError};

use super::calls::{slot_of, Calls};
use super::combining::{Node, Outcome, Run};
use super::handle::{Handle, Placed};
use super::lane::{Exported, SharedLane};
use super::ports::{Mine, Port};
use super::status::Status;
use crate::channel::buffers::BytesMut;
use crate::channel::message::{self, Header, Kind, DESCRIPTOR_BYTES, HEADER_BYTES};
use crate::channel::one_sided::{Attached, OneSided, NAME_BYTES_MAX};
use crate::channel::outbox::copy;
use crate::client::lane::{Body, CallId, Lane, Sink, Sleeper, Submitted, OPERATIONS_STAGED};
use crate::client::region::{RegionKey, Wanted};
use crate::error::CallError;
use crate::HandlerId;

/// Messages of a run: half of a renewal, so that a run never waits for more credits than there can be.
const RUN_MESSAGES: u32 = crate::admission::credits::CREDITS / 2;
/// Bytes of a run beyond which it leaves.
const RUN_BYTES: usize = 1024;
/// Looks of a leader that nobody waits for: leadership is given up seldom, so that looking costs what it costs on a lane of its own.
const LOOKS: u32 = 32;
/// Looks in vain before a thread of a crowded handle gives its core to another.
const LOOKS_PER_YIELD: u32 = 4;

/// See the module.
pub(crate) struct ThreadPort {
    handle: Arc<Handle>,
    port: Arc<Port>,
    node: Node,
    lane: Arc<dyn SharedLane>,
    /// Of `lane`.
    status: Arc<Status>,
    /// The number of `lane` among the handle's.
    index: usize,
    calls: Calls,
    /// The run: `used` bytes of it, room for any message that goes into the ring.
    run: Box<[u8]>,
    used: usize,
    messages: u32,
    requests: u32,
    /// Slots of the calls in the run, and of those that name memory of the lane where in the run they do.
    staged: Vec<u16>,
    longs: Vec<(usize, u16)>,
    /// One-sided operations that go with the run, and regions that are attached on the lane.
    operations: Vec<OneSided>,
    attached: Vec<(u64, Attached)>,
    eager: usize,
    looks: u32,
    /// The last poll looked itself: nobody else led.
    looked: bool,
}

impl ThreadPort {
    pub(super) fn new(handle: Arc<Handle>, port: Arc<Port>, placed: Placed) -> Self {
        let calls = Calls::new(handle.calls());
        let mut this = Self {
            handle,
            port,
            node: Node::new(),
            lane: Arc::clone(&placed.lane),
            status: Arc::clone(placed.lane.status()),
            index: placed.index,
            calls,
            run: Box::default(),
            used: 0,
            messages: 0,
            requests: 0,
            staged: Vec::with_capacity(RUN_MESSAGES as usize),
            longs: Vec::new(),
            operations: Vec::with_capacity(OPERATIONS_STAGED),
            attached: Vec::new(),
            eager: 0,
            looks: 0,
            looked: false,
        };
        this.settle(placed);
        this
    }

    fn settle(&mut self, placed: Placed) {
        self.port.serial.store(placed.serial, Ordering::Relaxed);
        self.attached.clear();
        self.eager = placed.lane.limits().0;
        let longest = RUN_BYTES.max(message::message_bytes(self.eager));
        if self.run.len() < longest {
            let mut run = vec![0; longest];
            run[..self.used].copy_from_slice(&self.run[..self.used]);
            self.run = run.into();
        }
        self.status = Arc::clone(placed.lane.status());
        self.lane = placed.lane;
        self.index = placed.index;
    }

    #[inline]
    fn is_in_place(&self) -> bool {
        self.port.assigned.load(Ordering::Relaxed) == self.index && self.status.is_open()
    }

    /// Goes to the lane that the scheduler wants, when nothing is out on the old one (FLOCK §5.2). `false`: not yet.
    ///
    /// A run that did not leave goes along: calls are named by port, not by lane. It may never leave otherwise, because a lane that was
    /// deactivated gets no credits.
    #[cold]
    fn migrate(&mut self) -> bool {
        if !self.operations.is_empty() {
            self.send_operations();
        }
        if self.calls.outstanding() > self.staged.len() || !self.operations.is_empty() {
            return false;
        }
        if let Some(placed) = self
            .handle
            .placed(self.port.assigned.load(Ordering::Relaxed))
        {
            if !self.export_again(&*placed.lane) {
                return false;
            }
            self.settle(placed);
        }
        self.is_in_place()
    }

    /// One-sided operations name memory that was granted on their lane, and need no credits: they leave before the rest of the run.
    fn send_operations(&mut self) {
        let run = Run {
            operations: &self.operations,
            ..Run::NONE
        };
        if self.lane.send(&self.node, run, self.handle.ports()) == Outcome::Sent {
            let operations = std::mem::take(&mut self.operations);
            let is_one = |slot: &u16| operations.iter().any(|o| slot_of(o.call) == *slot);
            self.staged.retain(|slot| !is_one(slot));
        }
    }

    /// Long requests of the run are copied into memory of another lane. `false`: there was none, and the run stays with this one.
    fn export_again(&mut self, lane: &dyn SharedLane) -> bool {
        let mut exports = Vec::with_capacity(self.longs.len());
        for &(_, slot) in &self.longs {
            let Some(kept) = self.port.take_kept(slot) else {
                return false;
            };
            let export = lane.export_again(&*kept);
            self.port.keep(slot, kept);
            match export {
                Ok(export) => exports.push(export),
                Err(_) => return false,
            }
        }
        for (&(at, slot), export) in self.longs.iter().zip(exports) {
            self.run[at..at + DESCRIPTOR_BYTES].copy_from_slice(&export.descriptor);
            drop(self.port.take_kept(slot));
            self.port.keep(slot, export.buffer);
        }
        true
    }

    /// Puts a message into the run.
    #[inline]
    fn stage(&mut self, header: Header, payload: &[u8]) {
        let place = &mut self.run[self.used..][..message::message_bytes(payload.len())];
        let (head, body) = place.split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header.encode());
        copy(&mut body[..payload.len()], payload);
        self.used += message::message_bytes(payload.len());
        self.messages += 1;
    }

    /// Whether the run takes one more message, if need be after it was sent.
    #[inline]
    fn has_room(&mut self, payload: usize) -> bool {
        // One long message may make a run, whatever its length.
        let fits = |this: &Self| {
            this.messages == 0
                || this.messages < RUN_MESSAGES
                    && this.used + message::message_bytes(payload) <= RUN_BYTES.min(this.eager)
        };
        fits(self) || {
            self.send();
            fits(self)
        }
    }

    /// Sends the run; it stays when there is no room for it yet.
    #[inline]
    fn send(&mut self) {
        if self.is_run_empty() {
            return;
        }
        let run = Run {
            bytes: &self.run[..self.used],
            messages: self.messages,
            requests: self.requests,
            operations: &self.operations,
        };
        let outcome = self.lane.send(&self.node, run, self.handle.ports());
        self.sent(outcome);
    }

    #[inline]
    fn is_run_empty(&self) -> bool {
        self.messages == 0 && self.operations.is_empty()
    }

    /// What the server granted of a region on this lane.
    fn attached(&mut self, region: u64) -> Option<Attached> {
        if let Some((_, attached)) = self.attached.iter().find(|(n, _)| *n == region) {
            return Some(*attached);
        }
        let attached = self.lane.attached(region)?;
        self.attached.push((region, attached));
        Some(attached)
    }

    #[inline]
    fn sent(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Sent => self.clear(),
            // A lost lane is seen by the next poll.
            Outcome::Lost => {}
            Outcome::Full => self.look_around(),
        }
    }

    /// There was no room or no credit.
    #[cold]
    fn look_around(&mut self) {
        if !self.status.is_active() {
            self.handle.reassign(&self.node);
        }
        if self.port.assigned.load(Ordering::Relaxed) != self.index {
            self.migrate();
        }
    }

    #[inline]
    fn clear(&mut self) {
        self.used = 0;
        self.operations.clear();
        self.staged.clear();
        self.messages = 0;
        self.requests = 0;
        self.longs.clear();
    }

    /// The lane is lost: every call that is out ends.
    #[cold]
    fn lose(&mut self, sink: &mut dyn Sink) -> CallError {
        let error = self.status.error();
        // What was handed to us before is still an answer.
        self.take_mail(sink);
        let out: Vec<CallId> = self.calls.out().collect();
        for call in out {
            self.port.end(slot_of(call));
            if let Some(tag) = self.calls.finish(call) {
                sink.complete(tag, Err(error.clone()));
            }
        }
        self.clear();
        error
    }

    #[inline]
    fn take_mail(&mut self, sink: &mut dyn Sink) -> usize {
        match self.port.has_mail() {
            true => self.empty_mailbox(sink),
            false => 0,
        }
    }

    #[inline(never)]
    fn empty_mailbox(&mut self, sink: &mut dyn Sink) -> usize {
        let mut taken = 0;
        while let Ok(delivered) = self.port.mailbox.try_recv() {
            taken += 1;
            if let Some(tag) = self.calls.finish(delivered.call) {
                match delivered.result {
                    Ok(reply) => reply.into_answer(|answer| sink.complete(tag, Ok(answer))),
                    Err(error) => sink.complete(tag, Err(error)),
                }
            }
        }
        taken
    }

    fn refusal(&self) -> Option<CallError> {
        if self.status.is_leaving() {
            return Some(CallError::ShuttingDown);
        }
        self.status.is_lost().then(|| self.status.error())
    }
}

impl Lane for ThreadPort {
    #[inline]
    fn submit_short(&mut self, handler: HandlerId, payload: &[u8], tag: u64) -> Option<CallId> {
        if payload.len() > self.eager || !self.is_in_place() || !self.has_room(payload.len()) {
            return None;
        }
        let call = self.calls.begin(tag, &self.port)?;
        let header = Header {
            length: payload.len() as u32,
            handler,
            kind: Kind::Request,
            call,
        };
        self.stage(header, payload);
        self.staged.push(slot_of(call));
        self.requests += 1;
        self.port.counts.add(payload.len());
        Some(call)
    }

    fn submit(
        &mut self,
        handler: HandlerId,
        body: &mut Body<'_>,
        tag: u64,
    ) -> Result<Option<CallId>, CallError> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        if !self.is_in_place() && !self.migrate() {
            return Ok(None);
        }
        let (eager, longest) = self.lane.limits();
        let length = match body {
            Body::Bytes(bytes) => bytes.len(),
            Body::Buffer(buffer) => buffer.bytes_ref().len(),
        };
        if length > longest {
            return Err(CallError::TooLong {
                bytes: length,
                limit: longest,
            });
        }
        let full = CallError::TooManyOutstanding {
            limit: self.calls.limit(),
        };
        if self.calls.outstanding() == self.calls.limit() {
            self.send();
            return Err(full);
        }
        if length <= eager {
            let bytes = match body {
                Body::Bytes(bytes) => bytes,
                Body::Buffer(buffer) => buffer.bytes_ref(),
            };
            return Ok(self.submit_short(handler, bytes, tag));
        }
        if !self.has_room(DESCRIPTOR_BYTES) {
            return Ok(None);
        }
        // Whatever may fail comes before the call exists.
        let export = self
            .lane
            .export(match std::mem::replace(body, Body::Bytes(&[])) {
                Body::Bytes(bytes) => Exported::Bytes(bytes),
                Body::Buffer(buffer) => Exported::Buffer(buffer),
            })?;
        let call = self.calls.begin(tag, &self.port).ok_or(full)?;
        self.port.keep(slot_of(call), export.buffer);
        let header = Header {
            length: DESCRIPTOR_BYTES as u32,
            handler,
            kind: Kind::LongRequest,
            call,
        };
        self.longs.push((self.used + HEADER_BYTES, slot_of(call)));
        self.stage(header, &export.descriptor);
        self.staged.push(slot_of(call));
        self.requests += 1;
        self.port.counts.add(length);
        Ok(Some(call))
    }

    fn submit_attach(&mut self, name: &str, tag: u64) -> Result<Option<CallId>, CallError> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(CallError::TooLong {
                bytes: name.len(),
                limit: NAME_BYTES_MAX,
            });
        }
        if !self.is_in_place() && !self.migrate() || !self.has_room(name.len()) {
            return Ok(None);
        }
        let limit = self.calls.limit();
        let call = self.calls.begin(tag, &self.port);
        let call = call.ok_or(CallError::TooManyOutstanding { limit })?;
        let header = Header {
            length: name.len() as u32,
            handler: 0,
            kind: Kind::Attach,
            call,
        };
        self.stage(header, name.as_bytes());
        self.staged.push(slot_of(call));
        self.requests += 1;
        Ok(Some(call))
    }

    fn set_attached(&mut self, region: u64, attached: Attached) {
        self.attached.retain(|(number, _)| *number != region);
        self.lane.set_attached(region, attached);
    }

    fn submit_one_sided(
        &mut self,
        region: &RegionKey,
        offset: u64,
        wanted: &Wanted<'_>,
        tag: u64,
    ) -> Result<Submitted, CallError> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        if !self.is_in_place() && !self.migrate() {
            return Ok(Submitted::Full);
        }
        let Some(attached) = self.attached(region.number) else {
            return Ok(Submitted::Unattached);
        };
        let remote = wanted.check(region, &attached, offset)?;
        wanted.check_length(self.lane.limits().1)?;
        if self.operations.len() >= OPERATIONS_STAGED {
            self.send();
            if !self.operations.is_empty() {
                return Ok(Submitted::Full);
            }
        }
        let lane = &self.lane;
        let verb = wanted.verb(lane.inline_bytes(), |bytes| lane.source(bytes))?;
        let limit = self.calls.limit();
        let call = self.calls.begin(tag, &self.port);
        let call = call.ok_or(CallError::TooManyOutstanding { limit })?;
        self.operations.push(OneSided { call, remote, verb });
        self.staged.push(slot_of(call));
        self.port.counts.add(wanted.length());
        Ok(Submitted::Call(call))
    }

    #[inline]
    fn flush(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        self.send();
        if self.status.is_lost() {
            return Err(self.lose(sink));
        }
        Ok(())
    }

    /// One turn for both, when nobody else is at the lane: leading costs atomics that others see.
    #[inline]
    fn turn(&mut self, sink: &mut dyn Sink, waits: bool) -> Result<usize, CallError> {
        if self.is_run_empty() || self.handle.is_crowded() {
            self.flush(sink)?;
            return self.poll(sink);
        }
        let before = self.calls.outstanding();
        let run = Run {
            bytes: &self.run[..self.used],
            messages: self.messages,
            requests: self.requests,
            operations: &self.operations,
        };
        let mine = Mine {
            port: &self.port,
            calls: &mut self.calls,
            sink: &mut *sink,
        };
        let ports = self.handle.ports();
        // Who goes on sending looks once: the next request is not to wait for an answer to this one.
        let looks = if waits { LOOKS } else { 1 };
        let (outcome, _) = self
            .lane
            .exchange(&self.node, run, ports, Some(mine), looks);
        let mut taken = before - self.calls.outstanding();
        self.sent(outcome);
        taken += self.take_mail(sink);
        if self.status.is_lost() {
            return Err(self.lose(sink));
        }
        Ok(taken)
    }

    #[inline]
    fn poll(&mut self, sink: &mut dyn Sink) -> Result<usize, CallError> {
        self.send();
        let mut taken = self.take_mail(sink);
        if taken > 0 {
            self.looks = 0;
            return Ok(taken);
        }
        let before = self.calls.outstanding();
        let mine = Mine {
            port: &self.port,
            calls: &mut self.calls,
            sink,
        };
        let crowded = self.handle.is_crowded();
        let looks = if crowded { 1 } else { LOOKS };
        let led = self
            .lane
            .poll(&self.node, self.handle.ports(), Some(mine), looks);
        self.looked = led.is_some();
        // What was taken for others is theirs to count.
        taken += before - self.calls.outstanding();
        if self.status.is_lost() {
            return Err(self.lose(sink));
        }
        if taken > 0 {
            self.looks = 0;
        } else {
            self.looks += 1;
            if crowded && self.looks % LOOKS_PER_YIELD == 0 {
                thread::yield_now();
            }
        }
        Ok(taken)
    }

    fn abandon(&mut self, call: CallId) {
        if call >> 48 != u64::from(self.port.id) || !self.calls.abandon(call) {
            return;
        }
        // Only a courtesy: when there is no room the server simply answers in vain.
        if self.has_room(0) {
            let header = Header {
                length: 0,
                handler: 0,
                kind: Kind::Cancel,
                call,
            };
            self.stage(header, &[]);
            self.send();
        }
    }

    #[inline]
    fn rest(&mut self) {
        // News wake who has looked for them; who found another at it looks again when that one is done.
        if thread::is_simulated() && self.looked {
            self.port.rest(self.handle.is_crowded());
        } else {
            thread::relax();
        }
    }

    fn buffer(&mut self, length: usize) -> Result<Box<dyn BytesMut>, CallError> {
        self.lane.buffer(length)
    }

    fn outstanding(&self) -> usize {
        self.calls.outstanding()
    }

    #[inline]
    fn is_usable(&self) -> bool {
        // Answers to calls that were given up may never come: they hold up no later call.
        self.status.is_open() && (self.is_in_place() || !self.calls.only_abandoned())
    }

    fn check(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        let before = self.calls.outstanding();
        let mine = Mine {
            port: &self.port,
            calls: &mut self.calls,
            sink,
        };
        self.lane.check(&self.node, self.handle.ports(), Some(mine));
        if self.status.is_lost() {
            return Err(self.lose(sink));
        }
        if self.calls.outstanding() < before {
            // Its next sleep is none: what it waits for may have come.
            self.port.wake();
        }
        if !self.status.is_active() {
            self.handle.reassign(&self.node);
        }
        Ok(())
    }

    /// The thread itself announces nothing: the handle's dispatcher does, for all that sleep. One whose run waits for room or credits, which
    /// no answer tells of, is woken when the server has told of some.
    fn prepare_sleep(&mut self, sink: &mut dyn Sink) -> Result<bool, CallError> {
        self.port.will_sleep();
        if !self.operations.is_empty() {
            // Their room comes with completions, which tell nobody, and soon.
            return Ok(false);
        }
        if self.messages > 0 {
            self.status.want();
        }
        Ok(self.poll(sink)? == 0)
    }

    fn sleeper(&self) -> Box<dyn Sleeper> {
        Box::new(Nap {
            port: Arc::clone(&self.port),
            handle: Arc::clone(&self.handle),
        })
    }
}

impl Drop for ThreadPort {
    fn drop(&mut self) {
        self.send();
        // What was not sent will not be answered, nor what was sent on a lane that is lost.
        for &slot in &self.staged {
            self.port.end(slot);
        }
        if self.status.is_lost() {
            for call in self.calls.out() {
                self.port.end(slot_of(call));
            }
        }
        self.handle.leave(&self.port);
    }
}

/// The sleep of one thread.
struct Nap {
    port: Arc<Port>,
    handle: Arc<Handle>,
}

impl Sleeper for Nap {
    fn sleep(&self, timeout: Duration) -> Result<(), VerbsError> {
        self.handle.while_dispatching(|| self.port.sleep(timeout));
        Ok(())
    }

    fn wake(&self) {
        self.port.wake();
    }
}
