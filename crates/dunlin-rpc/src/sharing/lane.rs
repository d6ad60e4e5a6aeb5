//! A lane of a connection handle: one queue pair that any of the handle's threads may use, through its combining queue.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_verbs::{thread, AnyRegion, Device, Work};

use super::combining::{Combiner, Members, Node, Outcome, Run};
use super::engine::Engine;
use super::ports::{Held, Mine, Ports};
use super::status::Status;
use super::Discipline;
use crate::admission::Standing;
use crate::channel::buffers::{Body, BufferPool, BytesMut};
use crate::channel::message::DESCRIPTOR_BYTES;
use crate::channel::one_sided::{Attached, Registration};
use crate::channel::ring::RingChannel;
use crate::channel::{Channel, ChannelError};
use crate::effort;
use crate::error::CallError;

/// Number of attempts to lead for something other than a message, before it is deferred.
const TRIES: u32 = 1000;

/// A lane, independent of its device.
pub(crate) trait SharedLane: Send + Sync {
    /// The lane's state and counters.
    fn status(&self) -> &Arc<Status>;
    /// The lane's limits.
    fn limits(&self) -> &LaneLimits;
    /// What the server has granted of a region on this lane.
    fn attached(&self, region: u64) -> Option<Attached>;
    /// Records what the server has granted.
    fn set_attached(&self, region: u64, attached: Attached);
    /// Copies bytes for a long one-sided WRITE into memory that the device can read.
    fn source(&self, bytes: &[u8]) -> Result<Arc<dyn Any + Send + Sync>, CallError>;
    /// Allocates memory of the device for a user of the lane.
    fn allocate(&self, length: usize) -> Result<Arc<dyn AnyRegion>, CallError>;
    /// Registers such memory, for requests of the lane that refer to it.
    fn register(&self, memory: &Arc<dyn AnyRegion>) -> Result<Registration, ChannelError>;
    /// Sends a run, together with those of other threads.
    fn send(&self, node: &Node, run: Run<'_>) -> Outcome;
    /// Sends a run and polls for answers in the same turn, if no other thread uses the lane; otherwise only sends it,
    /// with those of others.
    fn exchange(&self, node: &Node, run: Run<'_>, mine: Option<Mine<'_>>, looks: u32) -> Outcome;
    /// Takes what has arrived, unless another thread leads (`None`). It polls `looks` times, or until another thread
    /// waits for it.
    fn poll(&self, node: &Node, mine: Option<Mine<'_>>, looks: u32) -> Option<usize>;
    /// Takes what has arrived, for a dispatcher that always polls: threads that come meanwhile send for themselves.
    /// `None` if another thread leads.
    fn hear(&self, node: &Node, held: &mut Vec<Held>) -> Option<usize>;
    /// Checks for completions, failures and grants.
    fn check(&self, node: &Node, mine: Option<Mine<'_>>);
    /// Announces sleep to the server. Returns `false` if the server has not been told yet.
    fn prepare_sleep(&self, node: &Node) -> bool;
    /// Allocates a registered buffer to be filled in place.
    fn buffer(&self, length: usize) -> Result<Box<dyn BytesMut>, CallError>;
    /// Puts a long request into this lane's memory, as it is or by copying, and returns it with the descriptor that
    /// represents it in the ring.
    fn export(&self, body: Body<'_>) -> Result<Export, CallError>;
    /// Ends the lane: outstanding calls fail with this error.
    fn close(&self, node: &Node, error: CallError);
}

/// What a lane carries, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneLimits {
    /// Longest payload in the ring, and longest payload in all.
    pub(crate) eager: usize,
    pub(crate) longest: usize,
    /// Longest one-sided operation.
    pub(crate) longest_operation: usize,
    /// Longest payload that a work request carries inline.
    pub(crate) inline: usize,
}

/// A long request in memory that the server may read.
pub(crate) struct Export {
    pub(crate) buffer: Box<dyn BytesMut>,
    pub(crate) descriptor: [u8; DESCRIPTOR_BYTES],
}

/// A lane over a ring channel.
pub(crate) struct RingSharedLane<D: Device> {
    combiner: Combiner<Engine<D>>,
    /// The ports of the handle that it is a lane of.
    ports: Arc<Ports>,
    status: Arc<Status>,
    exports: Arc<BufferPool<D>>,
    limits: LaneLimits,
    /// By the region's number at the client. Read once by each port.
    attached: Mutex<Vec<(u64, Attached)>>,
    spins: bool,
}

impl<D: Device> RingSharedLane<D> {
    /// Makes a lane of the handle with these ports; `credits` are those that the server gave at the start, if it counts
    /// them.
    pub(crate) fn new(
        channel: RingChannel<D>,
        credits: Option<u32>,
        discipline: Discipline,
        ports: &Arc<Ports>,
    ) -> Self {
        let status = Arc::new(Status::new());
        status.figures.credits(credits.unwrap_or(0));
        Self {
            ports: Arc::clone(ports),
            exports: Arc::clone(channel.exports()),
            limits: LaneLimits {
                eager: channel.eager_bytes(),
                longest: channel.longest(),
                longest_operation: channel.longest_operation(),
                inline: channel.inline_bytes(),
            },
            attached: Mutex::new(Vec::new()),
            spins: discipline == Discipline::Spinlock,
            combiner: Combiner::new(Engine::new(
                channel,
                credits,
                discipline.most_members(),
                (ports, &status),
            )),
            status,
        }
    }

    /// The leader's reaction to a failure: what has arrived is handed out, and threads that come later get the error.
    #[cold]
    fn lose(&self, engine: &mut Engine<D>, error: &ChannelError, mine: &mut Option<Mine<'_>>) {
        if !error.is_violation() {
            engine.take_last(mine);
        }
        self.end(engine, error.into());
    }

    #[cold]
    fn end(&self, engine: &mut Engine<D>, error: CallError) {
        if !self.status.is_lost() {
            engine.close();
            self.status.lose(error);
        }
    }

    /// A turn that sends.
    #[inline]
    fn serve(&self, engine: &mut Engine<D>, members: &mut Members<'_>) {
        if self.status.is_lost() {
            return;
        }
        if let Err(error) = engine.send(members) {
            self.lose(engine, &error, &mut None);
        }
    }

    /// A turn of a thread that wants to send. If there is no room or credit and others wait, it takes what has arrived
    /// instead: a server whose answers find no room takes no requests and grants no credits, and while all threads
    /// queue to send, none polls for answers. A thread that is alone polls by itself, and its answers need not go
    /// through its mailbox.
    #[inline]
    fn serve_or_take(&self, engine: &mut Engine<D>, members: &mut Members<'_>) {
        self.serve(engine, members);
        if members.is_own_full() && members.are_waiting() && !self.status.is_lost() {
            if let Err(error) = engine.take(&mut None) {
                self.lose(engine, &error, &mut None);
            }
        }
    }

    /// Polls `looks` times, or until another thread waits for the leader; returns the number of messages taken.
    #[inline]
    fn look(
        &self,
        engine: &mut Engine<D>,
        members: &Members<'_>,
        mine: &mut Option<Mine<'_>>,
        looks: u32,
    ) -> usize {
        for _ in 0..looks {
            match engine.take(mine) {
                Ok(0) => {}
                Ok(taken) => return taken,
                Err(error) => self.lose(engine, &error, mine),
            }
            if members.are_waiting() || self.status.is_lost() {
                break;
            }
            std::hint::spin_loop();
        }
        0
    }

    /// Runs something other than a message as leader; `None` if others led all the time.
    fn insist<T>(&self, node: &Node, action: impl FnOnce(&mut Engine<D>) -> T) -> Option<T> {
        let mut action = Some(action);
        let mut result = None;
        for attempt in 0..TRIES {
            let led = self.combiner.try_lead(node, Run::NONE, |engine, members| {
                result = action.take().map(|action| action(engine));
                self.serve(engine, members);
            });
            if led.is_some() {
                break;
            }
            if attempt % 8 == 7 {
                thread::yield_now();
            }
            thread::relax();
        }
        result
    }
}

impl<D: Device> SharedLane for RingSharedLane<D> {
    fn status(&self) -> &Arc<Status> {
        &self.status
    }

    fn limits(&self) -> &LaneLimits {
        &self.limits
    }

    fn attached(&self, region: u64) -> Option<Attached> {
        let attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        let found = attached.iter().find(|(number, _)| *number == region);
        found.map(|&(_, attached)| attached)
    }

    fn set_attached(&self, region: u64, grant: Attached) {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        attached.retain(|(number, _)| *number != region);
        attached.push((region, grant));
    }

    fn source(&self, bytes: &[u8]) -> Result<Arc<dyn Any + Send + Sync>, CallError> {
        Ok(Arc::new(self.exports.copied(bytes)?))
    }

    fn allocate(&self, length: usize) -> Result<Arc<dyn AnyRegion>, CallError> {
        Ok(Arc::new(self.exports.allocate_own(length)?))
    }

    fn register(&self, memory: &Arc<dyn AnyRegion>) -> Result<Registration, ChannelError> {
        self.exports.register_own(memory)
    }

    #[inline]
    fn send(&self, node: &Node, run: Run<'_>) -> Outcome {
        // Its owner has encoded it.
        D::charge(effort::JOINED);
        D::charge(Work::Copy(run.bytes.len()));
        if !self.spins {
            let mut led = false;
            let outcome = self.combiner.join(node, run, |engine, members| {
                led = true;
                engine.begin_lead(node);
                self.serve_or_take(engine, members);
            });
            if !led {
                // The outcome comes from the leader's core.
                D::charge(Work::SharedLine);
            }
            return outcome;
        }
        // The competitor's spinlock: threads do not queue, each one tries.
        let mut patience = super::sync::Patience::default();
        loop {
            let led = self.combiner.try_lead(node, run, |engine, members| {
                engine.begin_lead(node);
                self.serve_or_take(engine, members);
            });
            match led {
                Some(outcome) => return outcome,
                None => patience.pause(),
            }
        }
    }

    #[inline]
    fn exchange(
        &self,
        node: &Node,
        run: Run<'_>,
        mut mine: Option<Mine<'_>>,
        looks: u32,
    ) -> Outcome {
        if self.spins || self.status.standing().contains(Standing::REJOINED) {
            return self.send(node, run);
        }
        let mut outcome = Outcome::Lost;
        let led = self.combiner.try_lead(node, Run::NONE, |engine, members| {
            if self.status.is_lost() {
                return;
            }
            engine.begin_lead(node);
            // Its owner has encoded it.
            D::charge(effort::SENT_ALONE);
            D::charge(Work::Copy(run.bytes.len()));
            match engine.send_alone(run) {
                Ok(sent) => outcome = sent,
                Err(error) => return self.lose(engine, &error, &mut mine),
            }
            self.look(engine, members, &mut mine, looks);
            if members.are_waiting() {
                self.serve(engine, members);
            }
        });
        match led {
            Some(_) => outcome,
            None => self.send(node, run),
        }
    }

    #[inline]
    fn poll(&self, node: &Node, mut mine: Option<Mine<'_>>, looks: u32) -> Option<usize> {
        let mut taken = 0;
        self.combiner
            .try_lead(node, Run::NONE, |engine, members| {
                if self.status.is_lost() {
                    return;
                }
                engine.begin_lead(node);
                taken = self.look(engine, members, &mut mine, looks);
                // Threads that came meanwhile are served at once, instead of making one of them leader, which may not
                // be running.
                if members.are_waiting() {
                    self.serve(engine, members);
                }
            })
            .map(|_| taken)
    }

    fn hear(&self, node: &Node, held: &mut Vec<Held>) -> Option<usize> {
        let mut taken = 0;
        let mut mine = Some(Mine::Dispatcher(held));
        let led = self.combiner.try_lead(node, Run::NONE, |engine, _| {
            if self.status.is_lost() {
                return;
            }
            engine.begin_lead(node);
            match engine.take(&mut mine) {
                Ok(messages) => taken = messages,
                Err(error) => self.lose(engine, &error, &mut mine),
            }
        });
        for ended in held.drain(..) {
            self.ports.hand_out(ended);
            D::charge(effort::HANDED_OUT);
            D::charge(Work::SharedLine);
        }
        led.map(|_| taken)
    }

    fn check(&self, node: &Node, mut mine: Option<Mine<'_>>) {
        self.insist(node, |engine| {
            if self.status.is_lost() {
                return;
            }
            if let Err(error) = engine.check(&mut mine) {
                self.lose(engine, &error, &mut mine);
            }
        });
    }

    fn prepare_sleep(&self, node: &Node) -> bool {
        let prepared = self.insist(node, |engine| match engine.prepare_sleep() {
            Ok(known) => known,
            Err(error) => {
                self.lose(engine, &error, &mut None);
                true
            }
        });
        prepared.unwrap_or(false)
    }

    fn buffer(&self, length: usize) -> Result<Box<dyn BytesMut>, CallError> {
        let buffer = self.exports.take(length);
        Ok(Box::new(buffer.map_err(ChannelError::memory)?))
    }

    fn export(&self, body: Body<'_>) -> Result<Export, CallError> {
        let buffer = self.exports.export(body)?;
        Ok(Export {
            descriptor: buffer.descriptor().encode(),
            buffer: Box::new(buffer),
        })
    }

    fn close(&self, node: &Node, error: CallError) {
        // Turns are short, so one of these attempts succeeds; others may lead during all of the first ones.
        while !self.status.is_lost() {
            let error = error.clone();
            let ended = self.insist(node, |engine| self.end(engine, error));
            if ended.is_none() {
                thread::sleep(crate::config::UNHEARD_PAUSE);
            }
        }
    }
}

impl<D: Device> Drop for RingSharedLane<D> {
    fn drop(&mut self) {
        self.combiner.engine_mut().close();
    }
}
