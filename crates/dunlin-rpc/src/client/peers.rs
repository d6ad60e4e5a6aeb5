//! Many servers of one thread (FaSST §4): its sessions share a queue pair, and a batch of requests leaves with one
//! doorbell, whoever they are for.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_verbs::process::Owned;
use dunlin_verbs::thread;

use super::pipeline::{operate, submit_on};
use super::{Client, RemoteRegion};
use crate::call::lane::{Answer, Lane, Sink};
use crate::call::wanted::Wanted;
use crate::error::{CallError, ConnectError};
use crate::fabric::Owner;
use crate::HandlerId;

/// Polls between two that look at every lane: timers of lanes count their looks.
const POLLS_PER_LOOK: u32 = 64;
/// Polls between two that look for failures, which messages do not show.
const POLLS_PER_CHECK: u32 = 4096;

/// Calls of one thread to several servers, each out with a tag of the caller's and answered by callback in any order.
///
/// With the preset `fasst` all sessions stand on one queue pair, and what is submitted between two polls leaves with
/// one doorbell: so also with `auto`, where there are many servers and the network loses no packets. With other presets
/// it is a set of [`super::Pipeline`]s. A server that is lost takes the calls to it along, and calls to the others go
/// on; [`Peers::reconnect`] tries whether it is there again.
pub struct Peers {
    /// None where there has been no connection yet.
    lanes: Owned<Vec<Option<Box<dyn Lane>>>>,
    /// What makes each lane anew.
    clients: Vec<Client>,
    /// What those of them share that can.
    queue: Option<Arc<dyn Any + Send + Sync>>,
    /// At servers that change turns together.
    group: Option<u64>,
    /// All lanes share one queue: a look of one shows what has come for all.
    together: bool,
    /// Lanes with requests that have not left.
    fresh: Vec<usize>,
    deadline: Duration,
    /// Requests with their deadlines behind them.
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

/// Gives answers of one server to the callback of a poll.
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

/// There has been no connection to that server yet.
#[cold]
fn unconnected() -> CallError {
    CallError::ConnectionLost {
        why: "there was none yet".to_owned(),
    }
}

impl Peers {
    /// Connects to the servers of these clients; they are numbered in this order.
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

    /// As [`Peers::new`], but a server to which no connection can be made is lost from the beginning
    /// ([`Peers::reconnect`]).
    ///
    /// # Errors
    /// When a client is closed.
    pub fn reachable<'a>(
        clients: impl IntoIterator<Item = &'a Client>,
    ) -> Result<Self, ConnectError> {
        let mut peers = Self::unconnected(clients)?;
        for peer in 0..peers.clients.len() {
            if let Err(error) = peers.connect(peer) {
                tracing::debug!(%error, peer, "not connected");
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

    /// Makes a lane to a server, in the place of the one that was.
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

    /// Whether the connection to a server is lost: calls to it are refused until it is made anew.
    ///
    /// # Panics
    /// When there is no server of this number.
    pub fn is_lost(&mut self, peer: usize) -> bool {
        let lane = self.lanes.is_here().then(|| self.lanes[peer].as_mut());
        lane.is_some_and(|lane| !lane.is_some_and(|lane| lane.is_usable()))
    }

    /// Connects to a server anew whose connection is lost, and waits for it as long as its client waits for
    /// connections.
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

    /// Calls that are out, to any server.
    pub fn outstanding(&self) -> usize {
        let lanes = self.lanes.iter().flatten();
        lanes.map(|lane| lane.outstanding()).sum()
    }

    /// Puts a call to a server into the batch; it leaves with the next poll, or earlier when the batch is full.
    /// `false`: there is no room, poll first.
    ///
    /// # Errors
    /// When the call cannot be sent at all, as when that server is lost.
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
        )?;
        self.note(peer, submitted);
        Ok(submitted)
    }

    fn note(&mut self, peer: usize, submitted: bool) {
        if submitted && !self.fresh.contains(&peer) {
            self.fresh.push(peer);
        }
    }

    /// Reads `length` bytes of a region of this server's, which its client has attached; as for [`Peers::submit`], and
    /// the answer is the bytes. The first operation on a region waits until it is attached on this connection, which
    /// is when no call to the server is out.
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

    /// Writes into a region; the answer has no bytes. Two WRITEs of one thread happen in the order in which they were
    /// submitted where [`Peers::keeps_order`] says so.
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

    /// Whether the queue pair to this server is this thread's alone, so that its one-sided operations happen in the
    /// order in which they were submitted: RC keeps it. Threads that share queue pairs are moved between them.
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
        wanted: (u64, &Wanted<'_>),
        tag: u64,
    ) -> Result<bool, CallError> {
        self.lanes.check()?;
        let lane = self.lanes[peer].as_mut().ok_or_else(unconnected)?;
        let submitted = operate(lane.as_mut(), region, wanted, tag, self.deadline)?;
        self.note(peer, submitted);
        Ok(submitted)
    }

    /// Sends the batch and takes the answers that have arrived, without waiting; says how many messages that were.
    /// Calls to a server that is lost end with an error. In a process that was forked since nothing is sent or taken.
    #[inline]
    pub fn poll(&mut self, mut answer: impl FnMut(usize, u64, Result<&[u8], CallError>)) -> usize {
        if !self.lanes.is_here() {
            return 0;
        }
        // A lane that fails tells its calls, and refuses more.
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
            // Of a lane that is lost the queue was not looked at.
            looked |= polled.is_ok();
            taken += polled.unwrap_or(0);
            if checks {
                let _ = lane.check(&mut sink);
            }
        }
        taken
    }

    /// After a poll in vain, for who polls by itself: lets the device work, and other threads where the core is theirs
    /// too.
    pub fn rest(&mut self) {
        if let Some(lane) = self.lanes.iter_mut().flatten().next() {
            lane.rest();
        }
    }

    /// Sends the batch and polls until at least one answer has been taken or nothing is out. It never sleeps, whatever
    /// [`crate::WaitMode`] says.
    ///
    /// # Errors
    /// When no answer came within the clients' deadline, the shortest of them.
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
