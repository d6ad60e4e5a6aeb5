//! One thread's calls to many servers (FaSST §4): its sessions share a queue pair, and a batch of requests, also for
//! different servers, is posted with one doorbell.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_verbs::process::Owned;
use dunlin_verbs::thread;

use super::pipeline::{submit_attached, submit_on, NEVER_CLOSED};
use super::wait::Waiter;
use super::{Client, RemoteRegion};
use crate::call::lane::{Answer, Lane, Sink};
use crate::call::wanted::Wanted;
use crate::config::WaitMode;
use crate::error::{CallError, ConnectError};
use crate::lanes::Owner;
use crate::HandlerId;

/// Number of polls between two that poll every lane: timers of lanes count their polls.
const POLLS_PER_LOOK: u32 = 64;
/// Number of polls between two checks for failures, which messages do not show.
const POLLS_PER_CHECK: u32 = 4096;

/// Calls of one thread to several servers, each with a tag chosen by the caller and answered by callback in any order.
///
/// With the preset `fasst` all sessions use one queue pair, and all calls submitted between two polls are posted with
/// one doorbell; also with `auto`, where there are many servers and the network is lossless. With other presets this is
/// a set of [`super::Pipeline`]s. When a server is lost, the calls to it fail and calls to the others continue;
/// [`Peers::reconnect`] tries to reach it again.
pub struct Peers {
    /// `None` where there has been no connection yet.
    lanes: Owned<Vec<Option<Box<dyn Lane>>>>,
    /// Make the lanes anew.
    clients: Vec<Client>,
    /// The queue shared by those lanes that can share one.
    queue: Option<Arc<dyn Any + Send + Sync>>,
    /// The group at servers that switch groups together.
    group: Option<u64>,
    /// All lanes share one queue: polling one shows what has arrived for all.
    together: bool,
    /// Lanes with requests that have not been sent.
    fresh: Vec<usize>,
    deadline: Duration,
    /// Requests with their deadlines appended.
    copy: Vec<u8>,
    polls: u32,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers")
            .field("servers", &self.lanes.len())
            .field("outstanding", &self.outstanding())
            .finish_non_exhaustive()
    }
}

/// Passes responses of one server to the callback of a poll.
struct OfPeer<'a, F> {
    answer: &'a mut F,
    peer: usize,
}

impl<F: FnMut(usize, u64, Result<&[u8], CallError>)> Sink for OfPeer<'_, F> {
    #[inline]
    fn calls_back(&self) -> bool {
        true
    }

    #[inline]
    fn answer(&mut self, tag: u64, response: &[u8]) {
        (self.answer)(self.peer, tag, Ok(response));
    }

    fn complete(&mut self, tag: u64, result: Result<Answer<'_>, CallError>) {
        match result {
            Ok(Answer::Short(bytes)) => (self.answer)(self.peer, tag, Ok(bytes)),
            Ok(Answer::Long(landed)) => (self.answer)(self.peer, tag, Ok(landed.bytes())),
            Err(error) => (self.answer)(self.peer, tag, Err(error)),
        }
    }
}

/// The error of a server to which there has been no connection yet.
#[cold]
fn unconnected() -> CallError {
    CallError::ConnectionLost {
        why: "it was never established".to_owned(),
    }
}

impl Peers {
    /// Connects to the servers of these clients, which are numbered in this order.
    ///
    /// # Errors
    /// When a client is closed or no connection can be made.
    pub fn new<'a>(clients: impl IntoIterator<Item = &'a Client>) -> Result<Self, ConnectError> {
        let mut peers = Self::unconnected(clients)?;
        for peer in 0..peers.clients.len() {
            peers.connect(peer)?;
        }
        Ok(peers)
    }

    /// As [`Peers::new`], but a server to which no connection can be made counts as lost ([`Peers::reconnect`]).
    ///
    /// # Errors
    /// When a client is closed.
    pub fn reachable<'a>(
        clients: impl IntoIterator<Item = &'a Client>,
    ) -> Result<Self, ConnectError> {
        let mut peers = Self::unconnected(clients)?;
        for peer in 0..peers.clients.len() {
            if let Err(error) = peers.connect(peer) {
                tracing::debug!(%error, peer, "cannot connect");
            }
        }
        Ok(peers)
    }

    fn unconnected<'a>(
        clients: impl IntoIterator<Item = &'a Client>,
    ) -> Result<Self, ConnectError> {
        let clients: Vec<Client> = clients.into_iter().cloned().collect();
        for client in &clients {
            client.core.check()?;
            if client.is_closed() {
                return Err(ConnectError::Setting("the client is closed".into()));
            }
        }
        let deadlines = clients.iter().map(|client| client.deadline);
        Ok(Self {
            fresh: Vec::with_capacity(clients.len()),
            lanes: Owned::new(clients.iter().map(|_| None).collect()),
            deadline: deadlines.min().unwrap_or(Duration::MAX),
            clients,
            queue: None,
            group: None,
            together: false,
            copy: Vec::new(),
            polls: 0,
        })
    }

    /// Makes a lane to a server, replacing the former one.
    fn connect(&mut self, peer: usize) -> Result<(), ConnectError> {
        let owner = self.queue.clone().map_or(Owner::Alone, Owner::Beside);
        let (count, recipe) = (self.clients.len(), self.clients[peer].core.recipe());
        let lane = recipe
            .open_among(count, (owner, 1), &mut self.group, None)?
            .0;
        if self.queue.is_none() {
            self.queue = lane.queue();
        }
        self.lanes[peer] = Some(lane);
        let queue = &self.queue;
        let mut queues = self.lanes.iter().flatten().map(|lane| lane.queue());
        self.together = queues.all(|own| match (queue, own) {
            (Some(first), Some(own)) => Arc::ptr_eq(first, &own),
            _ => false,
        });
        Ok(())
    }

    /// Whether the connection to a server is lost: calls to it are refused until there is a new one.
    ///
    /// # Panics
    /// When there is no server of this number.
    pub fn is_lost(&mut self, peer: usize) -> bool {
        let lane = self.lanes.is_here().then(|| self.lanes[peer].as_mut());
        lane.is_some_and(|lane| !lane.is_some_and(|lane| lane.is_usable()))
    }

    /// Connects again to a server whose connection is lost, within the connect timeout of its client.
    ///
    /// # Errors
    /// When the client is closed or no connection can be made.
    ///
    /// # Panics
    /// When there is no server of this number.
    pub fn reconnect(&mut self, peer: usize) -> Result<(), ConnectError> {
        let client = &self.clients[peer];
        client.core.check()?;
        if client.is_closed() {
            return Err(ConnectError::Setting("the client is closed".into()));
        }
        match self.is_lost(peer) {
            true => self.connect(peer),
            false => Ok(()),
        }
    }

    /// Number of outstanding calls, to any server.
    pub fn outstanding(&self) -> usize {
        let lanes = self.lanes.iter().flatten();
        lanes.map(|lane| lane.outstanding()).sum()
    }

    /// Adds a call to a server to the batch; it is sent with the next poll, or earlier when the batch is full. `false`:
    /// there is no room, poll first.
    ///
    /// # Errors
    /// When the call cannot be sent at all, for example because that server is lost.
    ///
    /// # Panics
    /// When there is no server of this number.
    #[inline]
    pub fn submit(
        &mut self,
        peer: usize,
        handler: HandlerId,
        payload: &[u8],
        tag: u64,
    ) -> Result<bool, CallError> {
        self.lanes.check()?;
        let said = self.clients[peer]
            .core
            .settings
            .told
            .says(self.deadline, None);
        let lane = self.lanes[peer].as_mut().ok_or_else(unconnected)?;
        let submitted = submit_on(
            lane.as_mut(),
            (handler, payload),
            tag,
            (said, &mut self.copy),
        )?
        .is_some();
        self.note(peer, submitted);
        Ok(submitted)
    }

    fn note(&mut self, peer: usize, submitted: bool) {
        if submitted && !self.fresh.contains(&peer) {
            self.fresh.push(peer);
        }
    }

    /// Reads `length` bytes of a region of this server that its client has attached, as [`Peers::submit`]; the response
    /// consists of the bytes. The first operation on a region waits until it is attached on this connection, which
    /// happens when no call to the server is outstanding.
    ///
    /// # Errors
    /// When it cannot be sent at all: see [`RemoteRegion::read`].
    ///
    /// # Panics
    /// When there is no server of this number.
    pub fn read(
        &mut self,
        peer: usize,
        region: &RemoteRegion,
        (offset, length): (u64, usize),
        tag: u64,
    ) -> Result<bool, CallError> {
        self.operate(peer, region, (offset, &Wanted::Read(length)), tag)
    }

    /// Writes into a region; the response is empty. Two WRITEs of one thread happen in the order in which they were
    /// submitted where [`Peers::keeps_order`] returns `true`.
    ///
    /// # Errors
    /// As for [`Peers::read`].
    ///
    /// # Panics
    /// When there is no server of this number.
    pub fn write(
        &mut self,
        peer: usize,
        region: &RemoteRegion,
        (offset, bytes): (u64, &[u8]),
        tag: u64,
    ) -> Result<bool, CallError> {
        self.operate(peer, region, (offset, &Wanted::Write(bytes)), tag)
    }

    /// Whether only this thread uses the queue pair to this server, so that its one-sided operations happen in the
    /// order in which they were submitted, as RC guarantees. Threads that share queue pairs are moved between them.
    ///
    /// # Panics
    /// When there is no server of this number.
    pub fn keeps_order(&self, peer: usize) -> bool {
        let lane = self.lanes[peer].as_ref();
        lane.is_none_or(|lane| !lane.is_shared())
    }

    fn operate(
        &mut self,
        peer: usize,
        region: &RemoteRegion,
        (offset, wanted): (u64, &Wanted<'_>),
        tag: u64,
    ) -> Result<bool, CallError> {
        self.lanes.check()?;
        let lane = self.lanes[peer].as_mut().ok_or_else(unconnected)?;
        // As in [`Peers::wait`], the thread does not sleep.
        let waiter = || Waiter::new(WaitMode::Spin, self.deadline, &NEVER_CLOSED);
        let submitted = submit_attached(lane.as_mut(), region, waiter, |lane, key| {
            lane.submit_one_sided(key, offset, wanted, tag)
        })?;
        self.note(peer, submitted);
        Ok(submitted)
    }

    /// Sends the batch and takes the responses that have arrived, without waiting; returns the number of messages.
    /// Calls to a lost server end with an error. In a process that was forked since, nothing is sent or taken.
    #[inline]
    pub fn poll(&mut self, mut answer: impl FnMut(usize, u64, Result<&[u8], CallError>)) -> usize {
        if !self.lanes.is_here() {
            return 0;
        }
        // A lane that fails ends its calls with the error, and refuses further ones.
        for &peer in &self.fresh {
            let mut sink = OfPeer {
                answer: &mut answer,
                peer,
            };
            if let Some(lane) = &mut self.lanes[peer] {
                let _ = lane.gather(&mut sink);
            }
        }
        for peer in self.fresh.drain(..) {
            let mut sink = OfPeer {
                answer: &mut answer,
                peer,
            };
            if let Some(lane) = &mut self.lanes[peer] {
                let _ = lane.send_gathered(&mut sink);
            }
        }
        self.polls = self.polls.wrapping_add(1);
        let every = self.polls % POLLS_PER_LOOK == 0;
        let checks = self.polls % POLLS_PER_CHECK == 0;
        let mut taken = 0;
        let mut looked = false;
        let lanes = self.lanes.iter_mut().enumerate();
        for (peer, lane) in lanes.filter_map(|(peer, lane)| Some((peer, lane.as_mut()?))) {
            let idle = match self.together {
                true => looked && lane.is_quiet(),
                false => lane.outstanding() == 0,
            };
            if idle && !every {
                continue;
            }
            let mut sink = OfPeer {
                answer: &mut answer,
                peer,
            };
            let polled = match self.together {
                true => lane.poll(&mut sink),
                false => lane.turn(&mut sink, false),
            };
            // If a lane is lost, its poll did not reach the queue.
            looked |= polled.is_ok();
            taken += polled.unwrap_or(0);
            if checks {
                let _ = lane.check(&mut sink);
            }
        }
        taken
    }

    /// For callers with a polling loop of their own, after a poll without success: lets the device work, and other
    /// threads that share the core.
    pub fn rest(&mut self) {
        if let Some(lane) = self.lanes.iter_mut().flatten().next() {
            lane.rest();
        }
    }

    /// Sends the batch and polls until at least one response has been taken or no call is outstanding. Never sleeps,
    /// whatever the [`crate::WaitMode`].
    ///
    /// # Errors
    /// When no response arrived within the shortest of the clients' deadlines.
    pub fn wait(
        &mut self,
        mut answer: impl FnMut(usize, u64, Result<&[u8], CallError>),
    ) -> Result<usize, CallError> {
        let mut started: Option<Instant> = None;
        self.lanes.check()?;
        loop {
            let before = self.outstanding();
            let taken = self.poll(&mut answer);
            if taken > 0 || self.outstanding() < before || before == 0 {
                return Ok(taken);
            }
            if self.polls % POLLS_PER_LOOK == 0 {
                let now = thread::now();
                let started = *started.get_or_insert(now);
                if now.duration_since(started) >= self.deadline {
                    return Err(CallError::DeadlineExceeded {
                        after: self.deadline,
                    });
                }
            }
            self.rest();
        }
    }
}
