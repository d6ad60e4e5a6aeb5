//! Serving over datagrams: pollers that each own one UD queue pair, and the sessions of clients on them (FaSST §4).
//!
//! A client's session stands on one poller for its life (FaSST's peer threads). The threads start with the first such client.

mod outgoing;
mod places;
mod poller;
mod session;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dunlin_verbs::thread::{self, Running};
use dunlin_verbs::{CompletionChannel, Device, EndpointAddress, VerbsError};

use super::connection::Context;
use super::handler::HandlerTable;
use super::mailbox::Mail;
use super::rounds;
use super::statistics::{Counters, ServerStatistics};
use super::workers;
use crate::channel::datagram::connect::{provision, route_in};
use crate::channel::datagram::endpoint::{receives_of_session, FIRST_RECEIVES};
use crate::channel::datagram::packet::Head;
use crate::channel::datagram::{Greeting, CALLS};
use crate::channel::ring::Parameters;
use crate::config::ChannelConfig;
use crate::error::ServeError;
use poller::{Newcomer, Poller, PollerHandle};

/// What the threads are made of, when the first client comes.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) handlers: HandlerTable,
    pub(super) channel: ChannelConfig,
    pub(super) pollers: usize,
    pub(super) workers: usize,
    pub(super) affinity: Option<usize>,
}

/// Set in the ids of sessions, so that they are no ring's.
const OF_SESSIONS: u64 = 1 << 63;

/// The service over datagrams.
pub(super) struct DatagramService<D: Device> {
    device: D,
    plan: Plan,
    started: OnceLock<Started<D>>,
    /// Held while the threads are started.
    starting: Mutex<Vec<Running>>,
    running: Arc<AtomicUsize>,
    next_id: AtomicU64,
}

struct Started<D: Device> {
    pollers: Vec<Arc<PollerHandle<D>>>,
    counters: Vec<Arc<Counters>>,
}

impl<D: Device> DatagramService<D> {
    pub(super) fn new(device: D, plan: Plan) -> Self {
        Self {
            device,
            plan,
            started: OnceLock::new(),
            starting: Mutex::new(Vec::new()),
            running: Arc::default(),
            next_id: AtomicU64::new(0),
        }
    }

    fn started(&self) -> Result<&Started<D>, VerbsError> {
        if let Some(started) = self.started.get() {
            return Ok(started);
        }
        let mut threads = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(started) = self.started.get() {
            return Ok(started);
        }
        let started = self.start(&mut threads).map_err(|error| match error {
            ServeError::Device(error) => error,
            other => VerbsError::Peer(other.to_string()),
        })?;
        Ok(self.started.get_or_init(|| started))
    }

    fn start(&self, threads: &mut Vec<Running>) -> Result<Started<D>, ServeError> {
        let endpoints = (0..self.plan.pollers)
            .map(|_| {
                let wake = self.device.create_completion_channel()?;
                Poller::endpoint(&self.device, &wake)
            })
            .collect::<Result<Vec<_>, VerbsError>>()?;
        let pollers: Vec<_> = endpoints.iter().map(PollerHandle::new).collect();
        let mut queue = None;
        if self.plan.handlers.needs_workers() {
            let targets = pollers.clone();
            let deliver = move |poller: usize, finished| {
                targets[poller].mailbox.send(Mail::Finished(finished));
            };
            let (jobs, workers) = workers::start(self.plan.workers, deliver)?;
            queue = Some(jobs);
            threads.extend(workers);
        }
        let counters: Vec<_> = pollers.iter().map(|_| Arc::default()).collect();
        for (index, endpoint) in endpoints.into_iter().enumerate() {
            let handle = Arc::clone(&pollers[index]);
            let context = Context {
                handlers: self.plan.handlers.clone(),
                workers: queue.clone(),
                counters: Arc::clone(&counters[index]),
            };
            let ChannelConfig {
                wait,
                max_message_bytes,
                ..
            } = self.plan.channel;
            let core = self.plan.affinity.map(|first| first + index);
            let running = Arc::clone(&self.running);
            running.fetch_add(1, Ordering::Release);
            let run = move || {
                if let Some(core) = core.filter(|_| !thread::is_simulated()) {
                    super::pin(core);
                }
                let wake = handle.mailbox.wake().clone();
                let poller = Poller::new(handle, index, context, endpoint, max_message_bytes);
                rounds::run(poller, wait, &wake);
                running.fetch_sub(1, Ordering::Release);
            };
            let name = format!("dunlin-datagram-{index}");
            let spawned = self.device.spawn(name, core, Box::new(run));
            threads.push(spawned.inspect_err(|_| {
                self.running.fetch_sub(1, Ordering::Release);
            })?);
        }
        Ok(Started { pollers, counters })
    }

    /// Joins a new client to the poller with the fewest.
    pub(super) fn accept(
        &self,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<(EndpointAddress, Parameters), VerbsError> {
        let theirs = Greeting::read(parameters)?;
        let started = self.started()?;
        let all = started.pollers.iter().enumerate();
        let least =
            all.min_by_key(|(_, poller)| poller.mailbox.connections.load(Ordering::Relaxed));
        let Some((index, poller)) = least else {
            return Err(VerbsError::Peer("the server has no pollers".into()));
        };
        // Each of them may send one datagram before its own RECEIVEs are posted.
        let waiting = poller.waiting.fetch_add(1, Ordering::Relaxed);
        let newcomer = match waiting < FIRST_RECEIVES / 2 {
            true => self.newcomer(poller, peer, theirs),
            false => Err(VerbsError::Limit {
                resource: "sessions that a poller has not adopted yet",
                asked: 1,
                available: 0,
                limit: FIRST_RECEIVES / 2,
            }),
        };
        let newcomer = newcomer.inspect_err(|_| {
            poller.waiting.fetch_sub(1, Ordering::Relaxed);
        })?;
        let ours = Greeting {
            to: Head {
                cookie: newcomer.cookie,
                session: newcomer.number,
                messages: 0,
            },
            packet_bytes: poller.packet_bytes,
            longest: self.plan.channel.max_message_bytes,
            calls: theirs.calls.min(CALLS),
        };
        let told = newcomer.told;
        poller.mailbox.connections.fetch_add(1, Ordering::Relaxed);
        started.counters[index].accepted();
        poller.mailbox.send(Mail::Adopt(Box::new(newcomer)));
        Ok((told, ours.parameters()))
    }

    fn newcomer(
        &self,
        poller: &PollerHandle<D>,
        peer: &EndpointAddress,
        theirs: Greeting,
    ) -> Result<Newcomer<D>, VerbsError> {
        let cookie = crate::fabric::random(&self.device)?;
        let told = poller.address().ok_or_else(|| {
            VerbsError::Peer(
                "the server's datagram queue pair failed and is made anew: connect again".into(),
            )
        })?;
        let route = route_in(&self.device, &poller.domain, peer)?;
        let mut places = poller.places.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((number, is_new)) = places.take() else {
            poller.crowded.store(true, Ordering::Relaxed);
            poller.mailbox.wake().wake();
            return Err(VerbsError::Limit {
                resource: "sessions of a datagram queue pair (more pollers have more)",
                asked: 1,
                available: 0,
                limit: places.limit(),
            });
        };
        let block = is_new.then(|| {
            let places = receives_of_session();
            provision(&self.device, &poller.domain, places, poller.packet_bytes)
        });
        let block = block.transpose().inspect_err(|_| places.undo())?;
        drop(places);
        let serial = self.next_id.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff;
        Ok(Newcomer {
            id: OF_SESSIONS | serial << 32 | u64::from(number),
            number,
            cookie,
            told,
            theirs,
            route,
            block,
        })
    }

    fn pollers(&self) -> impl Iterator<Item = &Arc<PollerHandle<D>>> {
        self.started.get().into_iter().flat_map(|s| &s.pollers)
    }

    pub(super) fn connections(&self) -> usize {
        let counts = self
            .pollers()
            .map(|p| p.mailbox.connections.load(Ordering::Relaxed));
        counts.sum()
    }

    pub(super) fn count(&self, sum: &mut ServerStatistics) {
        for counters in self.started.get().into_iter().flat_map(|s| &s.counters) {
            counters.add_to(sum);
        }
    }

    pub(super) fn drain(&self) {
        for poller in self.pollers() {
            poller.mailbox.drain();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0
    }

    pub(super) fn end(&self) {
        for poller in self.pollers() {
            poller.mailbox.end();
        }
        let threads = {
            let mut held = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *held)
        };
        // Pollers first in effect: workers end when the pollers' queues are gone.
        for thread in threads.into_iter().rev() {
            if thread.join().is_err() {
                tracing::error!("a server thread panicked");
            }
        }
    }
}
