//! A thread's end of a connection handle. It has the interface of a lane ([`Lane`]), so calls, batches, pipelines and
//! futures use it like a queue pair that is not shared.
//!
//! Requests are encoded into a private run, which is copied into the coalesced message when it is flushed
//! ([`sending`]). A thread that waits for answers polls for them itself, and hands out those of other threads
//! ([`looking`]). Its calls end with its lane ([`ending`]).

mod answers;
mod ending;
mod looking;
mod sending;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_verbs::thread::Looks;
use dunlin_verbs::{thread, AnyRegion, RemoteAddress, VerbsError};

use answers::Answers;
use looking::{LOOKS, RESTS_FOR_MAIL};

use super::calls::{port_of, slot_of, Calls};
use super::combining::{Node, Outcome};
use super::handle::Handle;
use super::lane::{LaneLimits, SharedLane};
use super::lane_table::Placed;
use super::port::Port;
use super::ports::Mine;
use super::staging::Staging;
use super::status::Status;
use crate::admission::Standing;
use crate::call::lane::{check_length, Body, CallId, Lane, Sink, Sleeper, Submitted};
use crate::call::own::{Own, Registered};
use crate::call::wanted::{RegionKey, Wanted};
use crate::channel::buffers::BytesMut;
use crate::channel::message::{Header, Kind, DESCRIPTOR_BYTES};
use crate::channel::one_sided::{Attached, OneSided, Verb, NAME_BYTES_MAX};
use crate::config::REST;
use crate::error::CallError;
use crate::HandlerId;

/// Maximum number of remembered regions that a lane was asked for and whose grants were not taken yet. It is never
/// reported that a grant will not be taken.
const ASKED_MAX: usize = 64;

/// See the module.
pub(crate) struct ThreadPort {
    handle: Arc<Handle>,
    port: Arc<Port>,
    node: Node,
    lane: Arc<dyn SharedLane>,
    /// Of `lane`.
    status: Arc<Status>,
    /// The index of `lane` among the handle's.
    index: usize,
    calls: Calls,
    staging: Staging,
    answers: Answers,
    /// Regions that are attached on the lane.
    registered: Registered,
    attached: Vec<(u64, Attached)>,
    /// Regions that the lane was asked for since the thread came to it, the latest last.
    asked: VecDeque<u64>,
    /// Checks in vain since the last answer or yield.
    looks: Looks,
    /// Whether the last poll was of the lane itself: no other thread led.
    looked: bool,
    /// When the run began to wait for more, because the server's NIC is at its limit.
    held: Option<Instant>,
    /// When the thread began to want to move to another lane, and whether it stays for now.
    going: Option<Instant>,
    is_stuck: bool,
}

impl ThreadPort {
    pub(super) fn new(handle: Arc<Handle>, port: Arc<Port>, placed: Placed) -> Self {
        let calls = Calls::new(handle.calls());
        let most = handle.run();
        let mut this = Self {
            handle,
            port,
            node: Node::new(),
            lane: Arc::clone(&placed.lane),
            status: Arc::clone(placed.lane.status()),
            index: placed.index,
            calls,
            staging: Staging::new(most),
            answers: Answers::default(),
            attached: Vec::new(),
            registered: Registered::default(),
            asked: VecDeque::new(),
            looks: Looks::simulated(),
            looked: false,
            held: None,
            going: None,
            is_stuck: false,
        };
        this.settle(placed);
        this
    }

    fn settle(&mut self, placed: Placed) {
        self.port.serial.store(placed.serial, Ordering::Relaxed);
        self.attached.clear();
        self.registered.clear();
        self.asked.clear();
        self.going = None;
        self.is_stuck = false;
        self.staging.settle(placed.lane.limits().eager);
        self.status = Arc::clone(placed.lane.status());
        self.lane = placed.lane;
        self.index = placed.index;
    }

    /// Whether the thread is on the lane that the scheduler wants, or on one where calls hold it for long.
    #[inline]
    fn is_in_place(&self) -> bool {
        let wanted = self.port.assigned.load(Ordering::Relaxed) == self.index;
        (wanted || self.is_stuck && self.calls.outstanding() > 0) && self.status.is_open()
    }

    /// What the server has granted of a region on this lane.
    fn attached(&mut self, region: u64) -> Option<Attached> {
        if let Some((_, attached)) = self.attached.iter().find(|(n, _)| *n == region) {
            return Some(*attached);
        }
        let attached = self.lane.attached(region)?;
        self.attached.push((region, attached));
        Some(attached)
    }

    /// The target of an operation on the lane that the port should be on, or why it cannot be sent now.
    fn place_of_operation(
        &mut self,
        region: &RegionKey,
        check: impl FnOnce(&Attached) -> Result<RemoteAddress, CallError>,
    ) -> Result<Result<RemoteAddress, Submitted>, CallError> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        if !self.is_in_place() && !self.migrate() {
            return Ok(Err(Submitted::Full));
        }
        match self.attached(region.number) {
            Some(attached) => Ok(Ok(check(&attached)?)),
            None => Ok(Err(Submitted::Unattached)),
        }
    }

    /// Whether there is room for another operation.
    fn takes_operation(&mut self) -> bool {
        if self.staging.takes_operation() {
            return true;
        }
        self.send();
        !self.staging.has_operations()
    }

    /// Stages an operation, which is sent with the next flush.
    fn stage_operation(
        &mut self,
        remote: RemoteAddress,
        verb: Verb,
        bytes: usize,
        tag: u64,
    ) -> Submitted {
        let Some(call) = self.calls.begin_operation(tag, &self.port) else {
            return Submitted::Full;
        };
        self.staging.push_operation(OneSided { call, remote, verb });
        self.port.counts.add(bytes);
        Submitted::Call(call)
    }
}

impl Lane for ThreadPort {
    #[inline]
    fn submit_short(&mut self, handler: HandlerId, payload: &[u8], tag: u64) -> Option<CallId> {
        if payload.len() > self.staging.eager()
            || !self.is_in_place()
            || !self.has_room(payload.len())
        {
            return None;
        }
        let call = self.calls.begin(tag, &self.port)?;
        let header = Header::new(Kind::Request, handler, call, payload.len());
        self.staging.push_call(header, payload);
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
        let &LaneLimits { eager, longest, .. } = self.lane.limits();
        let length = body.bytes().len();
        check_length(length, longest)?;
        if self.calls.outstanding() == self.calls.limit() {
            self.send();
            return Ok(None);
        }
        if length <= eager {
            return Ok(self.submit_short(handler, body.bytes(), tag));
        }
        if !self.has_room(DESCRIPTOR_BYTES) {
            return Ok(None);
        }
        // Everything that may fail comes before the call exists.
        let export = self.lane.export(body.take())?;
        let Some(call) = self.calls.begin(tag, &self.port) else {
            return Ok(None);
        };
        self.port.keep(slot_of(call), export.buffer);
        let header = Header::new(Kind::LongRequest, handler, call, DESCRIPTOR_BYTES);
        self.staging.push_long_call(header, &export.descriptor);
        // Only what the lane carries counts: the server READs the rest, which delays no other request.
        self.port.counts.add(DESCRIPTOR_BYTES);
        Ok(Some(call))
    }

    fn submit_attach(&mut self, region: &RegionKey, tag: u64) -> Result<Option<CallId>, CallError> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let name = &region.name;
        check_length(name.len(), NAME_BYTES_MAX)?;
        if !self.is_in_place() && !self.migrate() || !self.has_room(name.len()) {
            return Ok(None);
        }
        let Some(call) = self.calls.begin(tag, &self.port) else {
            return Ok(None);
        };
        let header = Header::new(Kind::Attach, 0, call, name.len());
        self.staging.push_call(header, name.as_bytes());
        if self.asked.len() == ASKED_MAX {
            self.asked.pop_front();
        }
        self.asked.push_back(region.number);
        Ok(Some(call))
    }

    fn set_attached(&mut self, region: u64, attached: Attached) {
        // An answer may be taken long after it came, when the thread has moved to another lane, where the grant is not
        // valid: operations find no grant there, and ask again.
        let Some(asked) = self.asked.iter().position(|number| *number == region) else {
            return;
        };
        self.asked.remove(asked);
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
        let check = |attached: &Attached| wanted.check(region, attached, offset);
        let remote = match self.place_of_operation(region, check)? {
            Ok(remote) => remote,
            Err(submitted) => return Ok(submitted),
        };
        wanted.check_length(self.lane.limits().longest_operation)?;
        if !self.takes_operation() {
            return Ok(Submitted::Full);
        }
        let lane = &self.lane;
        let verb = wanted.verb(lane.limits().inline, |bytes| lane.source(bytes))?;
        Ok(self.stage_operation(remote, verb, wanted.length(), tag))
    }

    fn submit_own(
        &mut self,
        region: &RegionKey,
        offset: u64,
        own: &Own<'_>,
        tag: u64,
    ) -> Result<Option<Submitted>, CallError> {
        let remote = match self.place_of_operation(region, |attached| {
            attached.check(region, (offset, own.range.len()), own.direction.access())
        })? {
            Ok(remote) => remote,
            Err(submitted) => return Ok(Some(submitted)),
        };
        check_length(own.range.len(), self.lane.limits().longest_operation)?;
        let lane = &self.lane;
        let part = self.registered.part(own, |memory| lane.register(memory))?;
        let Some(part) = part else { return Ok(None) };
        if !self.takes_operation() {
            return Ok(Some(Submitted::Full));
        }
        let verb = Verb::Own(part, own.direction);
        Ok(Some(self.stage_operation(
            remote,
            verb,
            own.range.len(),
            tag,
        )))
    }

    fn allocate(&mut self, length: usize) -> Result<Arc<dyn AnyRegion>, CallError> {
        self.lane.allocate(length)
    }

    #[inline]
    fn flush(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        self.send();
        self.look_at_end(sink)
    }

    /// One turn for both, if no other thread uses the lane: leading costs atomics on shared cache lines.
    #[inline]
    fn turn(&mut self, sink: &mut dyn Sink, waits: bool) -> Result<usize, CallError> {
        if self.staging.is_empty() || self.handle.is_apart() || self.holds_back() {
            return self.poll(sink);
        }
        let before = self.calls.outstanding();
        let mine = Mine::Thread {
            port: &self.port,
            calls: &mut self.calls,
            sink: self.answers.or(&mut *sink),
        };
        // A thread that goes on sending polls once: its next request must not wait for an answer to this one.
        let looks = if waits { LOOKS } else { 1 };
        let run = self.staging.run();
        let outcome = self.lane.exchange(&self.node, run, Some(mine), looks);
        let mut taken = before - self.calls.outstanding();
        self.sent(outcome);
        self.answers.give(sink);
        taken += self.take_mail(sink);
        self.look_at_end(sink)?;
        Ok(taken)
    }

    #[inline]
    fn poll(&mut self, sink: &mut dyn Sink) -> Result<usize, CallError> {
        if !self.holds_back() {
            self.send();
        }
        self.look(sink)
    }

    fn abandon(&mut self, call: CallId) {
        if port_of(call) != usize::from(self.port.id) || !self.calls.abandon(call) {
            return;
        }
        // This is optional: if there is no room, the server simply answers in vain.
        if self.has_room(0) {
            self.staging
                .push(Header::new(Kind::Cancel, 0, call, 0), &[]);
            self.send();
        }
    }

    #[inline]
    fn rest(&mut self) {
        if !thread::is_simulated() {
            thread::idle(REST, false);
        } else if self.looked {
            // A thread that polled the lane itself is woken by what arrives.
            let apart = self.handle.is_dispatched() && self.looks.count() > RESTS_FOR_MAIL;
            self.port.rest(self.handle.is_crowded() || apart);
        } else {
            // A thread that found another leading polls again once that one is done: nothing will wake it.
            thread::relax();
        }
    }

    fn longest(&self) -> usize {
        self.lane.limits().longest
    }

    fn buffer(&mut self, length: usize) -> Result<Box<dyn BytesMut>, CallError> {
        check_length(length, self.longest())?;
        self.lane.buffer(length)
    }

    fn outstanding(&self) -> usize {
        self.calls.outstanding()
    }

    #[inline]
    fn wants_datagrams(&self) -> bool {
        self.status.standing().contains(Standing::DATAGRAMS)
    }

    #[inline]
    fn is_shared(&self) -> bool {
        true
    }

    #[inline]
    fn is_usable(&mut self) -> bool {
        // Answers to abandoned calls may never come: they do not hold up later calls.
        self.status.is_open() && (self.is_in_place() || !self.calls.only_abandoned())
    }

    fn check(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        let before = self.calls.outstanding();
        let mine = Mine::Thread {
            port: &self.port,
            calls: &mut self.calls,
            sink: self.answers.or(&mut *sink),
        };
        self.lane.check(&self.node, Some(mine));
        self.answers.give(sink);
        self.look_at_end(sink)?;
        if self.calls.outstanding() < before {
            // Its next sleep returns at once: what it waits for may have come.
            self.port.wake();
        }
        if !self.status.is_active() {
            self.handle.reassign(&self.node);
        }
        Ok(())
    }

    /// The thread itself announces nothing: the handle's dispatcher does, for all sleeping threads. A thread whose run
    /// waits for room or credits, which no answer announces, is woken when the server has given some.
    fn prepare_sleep(&mut self, sink: &mut dyn Sink) -> Result<bool, CallError> {
        self.port.will_sleep();
        if self.staging.has_operations() {
            // Their room comes with completions, which wake no thread but come soon.
            return Ok(false);
        }
        if self.staging.has_messages() {
            self.status.want();
        }
        // A sleeping thread holds nothing back.
        self.send();
        Ok(self.look(sink)? == 0)
    }

    fn sleeper(&self) -> Box<dyn Sleeper> {
        Box::new(PortSleeper {
            port: Arc::clone(&self.port),
            handle: Arc::clone(&self.handle),
        })
    }
}

impl Drop for ThreadPort {
    fn drop(&mut self) {
        self.send();
        // Calls that were not sent will not be answered, nor those sent on a lost lane.
        for &slot in self.staging.slots() {
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

/// Puts one thread to sleep.
struct PortSleeper {
    port: Arc<Port>,
    handle: Arc<Handle>,
}

impl Sleeper for PortSleeper {
    fn sleep(&self, timeout: Duration) -> Result<(), VerbsError> {
        self.handle.while_dispatching(|| self.port.sleep(timeout));
        Ok(())
    }

    fn wake(&self) {
        self.port.wake();
    }
}
