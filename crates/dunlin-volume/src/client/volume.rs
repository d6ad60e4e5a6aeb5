//! An open volume: the engine, a lane to each server, and the thread that brings servers back.
//!
//! Its user polls it: reads and writes are processed on the user's thread. [`Volume::begin`] and [`Volume::poll`] keep
//! many requests outstanding; [`Volume::read_at`] and the other blocking calls wait.

mod blocking;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dunlin::{CallError, Pipeline};
use rustix::event::PollFlags;

use super::calls::Calls;
use super::engine::{Action, Engine, Wanted};
use super::event::Event as Wakes;
use super::keeper::{self, Event, Keeper, Orders, Told};
use super::open::{self, Mine};
use super::{VolumeError, VolumeOptions};
use crate::types::{Shape, BLOCK_BYTES};

/// Interval between two checks for copies that do not answer.
const TICK: Duration = Duration::from_millis(10);
/// Longest sleep: copies are checked meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);
/// Interval between two attempts to open.
const TRY_EVERY: Duration = Duration::from_millis(100);
/// Maximum length of a request, which is held in memory as a whole.
pub const LONGEST_REQUEST: u64 = 32 << 20;
/// Maximum length of a trim, which is split at chunk boundaries.
pub const LONGEST_TRIM: u64 = 4 << 30;
/// Polls of the lanes between two polls of other descriptors, while it is not asleep.
const LOOKS_PER_DESCRIPTORS: u32 = 8;

/// An operation on bytes of a volume. Offsets and lengths are multiples of [`BLOCK_BYTES`].
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Read this many bytes.
    Read(u64),
    /// Write these bytes.
    Write(&'a [u8]),
    /// Turn this many bytes into zeros, which take no space.
    Trim(u64),
}

/// A completed request.
#[derive(Debug)]
pub struct Done {
    /// The caller's tag.
    pub tag: u64,
    /// The data read; empty for other operations.
    pub result: Result<Vec<u8>, VolumeError>,
}

struct Lane {
    pipeline: Pipeline,
    /// Parts that wait for space.
    waiting: VecDeque<usize>,
}

/// An open volume; see the module's documentation.
pub struct Volume {
    engine: Engine,
    lanes: Vec<Option<Lane>>,
    done: VecDeque<Done>,
    event: Arc<Wakes>,
    events: Receiver<Event>,
    keeper: Sender<Told>,
    /// The keeper's calls.
    calls: Calls,
    thread: Option<JoinHandle<()>>,
    ticked: Instant,
    next_tag: u64,
    /// Number of damaged blocks of copies that were written again.
    rewritten: u64,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

/// Tags of requests for which the volume itself waits.
const OWN_TAGS: u64 = 1 << 63;

impl Volume {
    /// Opens a volume; any client that had it open is replaced. The servers are given in the order in which it was
    /// created.
    ///
    /// # Errors
    /// When it does not exist, or too few copies are available within the patience.
    pub fn open(
        name: &str,
        addresses: &[String],
        options: &VolumeOptions,
    ) -> Result<Self, VolumeError> {
        let until = Instant::now() + options.patience;
        let calls = Calls::default();
        let (opened, pipelines) = loop {
            let opened = open::open(name, addresses, (options, &calls), None, &mut || Ok(()));
            let opened = opened.and_then(|opened| {
                let pipelines = keeper::pipelines(&opened)?;
                Ok((opened, pipelines))
            });
            match opened {
                Ok(opened) => break opened,
                Err(error @ (VolumeError::TooFew { .. } | VolumeError::Server { .. }))
                    if Instant::now() < until =>
                {
                    tracing::debug!(%error, "cannot open the volume yet");
                    std::thread::sleep(TRY_EVERY);
                }
                Err(error) => return Err(error),
            }
        };
        let shape = opened.shape.clone();
        let mut engine = Engine::new(shape.clone(), options.replace_after, options.patience);
        let there = pipelines
            .iter()
            .enumerate()
            .filter(|(_, lane)| lane.is_some());
        let there = there.fold(0, |set, (server, _)| set | 1 << server);
        engine.opened(opened.epoch, there, 0, Instant::now());
        let event = Wakes::new().map_err(|error| VolumeError::system(&error))?;
        let ((tell, events), (tell_keeper, told)) = (channel(), channel());
        let waker = Waker::from(Arc::clone(&event));
        let keeper = Keeper {
            name: name.to_owned(),
            addresses: addresses.to_vec(),
            options: options.clone(),
            calls: calls.clone(),
            shape,
            mine: Mine {
                epoch: opened.epoch,
                owner: opened.owner,
            },
            links: opened.links,
            orders: Orders::new(told),
            tell,
            wake: Box::new(move || waker.wake_by_ref()),
            session: 0,
        };
        let thread = std::thread::Builder::new().name("dunlin-volume".into());
        let thread = thread.spawn(move || keeper.run());
        Ok(Self {
            engine,
            lanes: lanes(pipelines),
            done: VecDeque::new(),
            event,
            events,
            keeper: tell_keeper,
            calls,
            thread: Some(thread.map_err(|error| VolumeError::system(&error))?),
            ticked: Instant::now(),
            next_tag: OWN_TAGS,
            rewritten: 0,
        })
    }

    /// The shape with which it was created.
    pub fn shape(&self) -> &Shape {
        self.engine.shape()
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.shape().bytes()
    }

    /// Number of servers that are up to date.
    pub fn servers_in_sync(&self) -> u32 {
        self.engine.in_sync().count_ones()
    }

    /// Whether all servers are up to date.
    pub fn is_in_sync(&self) -> bool {
        self.servers_in_sync() == u32::from(self.shape().servers)
    }

    /// Number of blocks that a copy could not deliver, and that have been written to it again as another copy has them.
    pub fn rewritten_blocks(&self) -> u64 {
        self.rewritten
    }

    /// Number of requests that have not ended.
    pub fn outstanding(&self) -> usize {
        self.engine.outstanding()
    }

    /// Whether there is space for another request.
    pub fn has_room(&self) -> bool {
        self.engine.has_room()
    }

    fn blocks(&self, offset: u64, length: u64) -> Result<(u64, u64), VolumeError> {
        let (block, bytes) = (BLOCK_BYTES as u64, self.bytes());
        if let Some(wrong) = [offset, length]
            .into_iter()
            .find(|bytes| bytes % block != 0)
        {
            return Err(VolumeError::Unaligned(wrong));
        }
        let end = offset.checked_add(length).filter(|end| *end <= bytes);
        match end.filter(|_| length > 0) {
            Some(_) => Ok((offset / block, length / block)),
            None => Err(VolumeError::Range {
                offset,
                length,
                bytes,
            }),
        }
    }

    /// Begins a request, which [`Volume::poll`] returns when it has ended; the tag must be below 2^63. Returns `false`
    /// if the maximum number is outstanding: poll first.
    ///
    /// # Errors
    /// When the range is not within the volume, or is not a multiple of blocks. Later errors are in the request's
    /// result.
    pub fn begin(
        &mut self,
        operation: Operation<'_>,
        offset: u64,
        tag: u64,
    ) -> Result<bool, VolumeError> {
        let length = match operation {
            Operation::Write(bytes) => bytes.len() as u64,
            Operation::Read(length) | Operation::Trim(length) => length,
        };
        let (first, blocks) = self.blocks(offset, length)?;
        let longest = match operation {
            Operation::Trim(_) => LONGEST_TRIM,
            _ => LONGEST_REQUEST,
        };
        if length > longest {
            return Err(VolumeError::TooLong { length, longest });
        }
        if !self.has_room() {
            return Ok(false);
        }
        let wanted = match operation {
            Operation::Read(_) => Wanted::Read(blocks),
            Operation::Write(bytes) => Wanted::Write(bytes),
            Operation::Trim(_) => Wanted::Zeros(blocks),
        };
        self.engine.begin(wanted, first, tag, Instant::now());
        self.act();
        Ok(true)
    }

    /// Makes progress, and returns a request that has ended.
    pub fn poll(&mut self) -> Option<Done> {
        if self.done.is_empty() {
            self.turn();
        }
        self.done.pop_front()
    }

    /// Waits until a request may have ended, or one of the descriptors is ready.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn wait(
        &mut self,
        others: &[(BorrowedFd<'_>, PollFlags)],
        most: Duration,
    ) -> io::Result<()> {
        if !self.done.is_empty() {
            return Ok(());
        }
        self.turn();
        match self.done.is_empty() {
            true => self.rest(others, most),
            false => Ok(()),
        }
    }

    /// Polls everything once.
    fn turn(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.take(event);
        }
        let now = Instant::now();
        self.act();
        for server in 0..self.lanes.len() {
            let Some(lane) = &mut self.lanes[server] else {
                continue;
            };
            let engine = &mut self.engine;
            let polled = lane.pipeline.poll(|part, result| {
                engine.answer(server, part as usize, result, now);
            });
            if polled.is_err() {
                self.engine.lose(server, now);
            }
        }
        // After the lanes: what was answered while nobody polled is not late.
        if now.duration_since(self.ticked) >= TICK {
            self.ticked = now;
            self.engine.tick(now);
        }
        self.act();
    }

    fn take(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Connected {
                server,
                session,
                pipeline,
                whole,
            } => {
                // An earlier attempt may not have ended.
                self.engine.lose(server, now);
                self.act();
                self.lanes[server] = lane(*pipeline);
                self.engine.connected(server, whole, session, now);
                // The keeper notices the end when it sends something.
                let _ = self.keeper.send(Told::Started(session));
            }
            Event::Joined { server, session } => self.engine.joined(server, session),
            Event::Rewritten(blocks) => self.rewritten += blocks,
            Event::Reopened {
                epoch,
                session,
                pipelines,
            } => {
                self.act();
                self.lanes = lanes(pipelines);
                let there = self
                    .lanes
                    .iter()
                    .enumerate()
                    .filter(|(_, lane)| lane.is_some());
                let there = there.fold(0, |set, (server, _)| set | 1 << server);
                self.engine.opened(epoch, there, session, now);
            }
            Event::Replaced => self.engine.over(VolumeError::Replaced),
        }
    }

    /// Executes the engine's actions.
    fn act(&mut self) {
        loop {
            while let Some(action) = self.engine.actions.pop_front() {
                match action {
                    Action::Send { server, part } => {
                        if let Some(lane) = &mut self.lanes[server] {
                            lane.waiting.push_back(part);
                        }
                    }
                    Action::Disconnect { server } => {
                        self.lanes[server] = None;
                        let _ = self.keeper.send(Told::Out(server));
                    }
                    Action::Rewrite { server, blocks } => {
                        let _ = self.keeper.send(Told::Damaged(server, blocks));
                    }
                    Action::Reopen => {
                        let _ = self.keeper.send(Told::Reopen);
                    }
                    Action::Done { tag, result } => self.done.push_back(Done { tag, result }),
                }
            }
            for server in 0..self.lanes.len() {
                self.submit(server);
            }
            if self.engine.actions.is_empty() {
                return;
            }
        }
    }

    /// Submits requests that wait for a lane, as far as there is space.
    fn submit(&mut self, server: usize) {
        let Some(lane) = &mut self.lanes[server] else {
            return;
        };
        while let Some(part) = lane.waiting.pop_front() {
            let Some((handler, payload)) = self.engine.payload(part) else {
                continue;
            };
            match lane.pipeline.submit(handler, payload, part as u64) {
                Ok(true) => {}
                Ok(false) => {
                    lane.waiting.push_front(part);
                    return;
                }
                Err(error) => {
                    tracing::warn!(server, %error, "lost a copy of the volume");
                    return self.engine.lose(server, Instant::now());
                }
            }
        }
    }

    /// Sleeps until something arrives, after polling for as long as threads usually do.
    fn rest(&mut self, others: &[(BorrowedFd<'_>, PollFlags)], most: Duration) -> io::Result<()> {
        let most = most.min(LONGEST_SLEEP);
        let (waker, event) = (Waker::from(Arc::clone(&self.event)), &self.event);
        let mut context = Context::from_waker(&waker);
        let (engine, came) = (RefCell::new(&mut self.engine), Cell::new(false));
        type Waiting<'a> = Pin<Box<dyn Future<Output = Result<usize, CallError>> + 'a>>;
        let mut waiting: Vec<Waiting<'_>> = Vec::new();
        for (server, lane) in self.lanes.iter_mut().enumerate() {
            let Some(lane) = lane.as_mut().filter(|lane| lane.pipeline.outstanding() > 0) else {
                continue;
            };
            let (engine, came) = (&engine, &came);
            waiting.push(Box::pin(lane.pipeline.wait_async(move |part, result| {
                came.set(true);
                engine
                    .borrow_mut()
                    .answer(server, part as usize, result, Instant::now());
            })));
        }
        let began = Instant::now();
        for looks in 1.. {
            event.take();
            // An error has been reported to each outstanding call; a lost lane is noticed by the next poll.
            let ready = waiting
                .iter_mut()
                .any(|one| one.as_mut().poll(&mut context).is_ready());
            if ready || came.get() {
                return Ok(());
            }
            let is_awake = event.take();
            if is_awake && looks % LOOKS_PER_DESCRIPTORS != 0 {
                continue;
            }
            let left = most.saturating_sub(began.elapsed());
            let pause = if is_awake { Duration::ZERO } else { left };
            if event.sleep(others, pause)? || left.is_zero() || waiting.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = self.keeper.send(Told::End);
        // A server that does not answer is not waited for; a connection that is being made has a time limit.
        self.calls.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lane(pipeline: Pipeline) -> Option<Lane> {
    Some(Lane {
        pipeline,
        waiting: VecDeque::new(),
    })
}

fn lanes(pipelines: Vec<Option<Pipeline>>) -> Vec<Option<Lane>> {
    pipelines
        .into_iter()
        .map(|pipeline| pipeline.and_then(lane))
        .collect()
}
