//! Serving over message pools (ScaleRPC §3): pollers that each own two pools, the zones of which are clients' by turns, and zones that are
//! one client's for good.
//!
//! A client stands on one poller for its life; each poller schedules its own. The threads start with the first such client.

mod grouping;
mod long_calls;
mod poller;
mod turns;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dunlin_verbs::thread::{self, Running};
use dunlin_verbs::{Access, Device, EndpointAddress, VerbsError};

use super::connection::{Connection, Context};
use super::mailbox::Mail;
use super::region::ServedRegions;
use super::rounds;
use super::statistics::{Counters, ServerStatistics};
use super::workers;
use crate::channel::pool::{zone_bytes, PoolMemory, UnconnectedServedPool, ENTRY_BYTES};
use crate::channel::Parameters;
use crate::error::ServeError;
use crate::server::datagram::Plan;
pub use grouping::Grouping;
use poller::{Newcomer, Poller, PollerHandle};

/// Set in the ids of connections, so that they are no ring's.
const OF_POOLS: u64 = 1 << 62;
/// Clients of a poller whose turns come and go.
const CLIENTS_MAX: usize = 4096;

/// Where the zones of a poller's memory begin.
const ZONES_AT: usize = CLIENTS_MAX * ENTRY_BYTES;

/// The service over message pools.
pub(super) struct PoolService<D: Device> {
    device: D,
    plan: Plan,
    regions: Arc<ServedRegions<D>>,
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

impl<D: Device> PoolService<D> {
    pub(super) fn new(device: D, plan: Plan, regions: Arc<ServedRegions<D>>) -> Self {
        Self {
            device,
            plan,
            regions,
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
        let pollers = (0..self.plan.pollers)
            .map(|_| {
                let wake = self.device.create_completion_channel()?;
                Ok(PollerHandle::new(wake, CLIENTS_MAX))
            })
            .collect::<Result<Vec<_>, VerbsError>>()?;
        let mut queue = None;
        // Long calls are run apart (§3.5); workers are not for simulated hosts, unless a handler is there for them.
        if self.plan.handlers.needs_workers() || self.device.seed().is_none() {
            let targets = pollers.clone();
            let deliver = move |poller: usize, finished| {
                targets[poller].mailbox.send(Mail::Finished(finished));
            };
            let (jobs, workers) = workers::start(self.plan.workers, deliver)?;
            queue = Some(jobs);
            threads.extend(workers);
        }
        let counters: Vec<_> = pollers.iter().map(|_| Arc::default()).collect();
        // Together the pollers serve as many clients at a time as one alone would.
        let rules = self.plan.grouping.rules(pollers.len());
        for (index, handle) in pollers.iter().enumerate() {
            let context = Context {
                handlers: self.plan.handlers.clone(),
                workers: queue.clone(),
                counters: Arc::clone(&counters[index]),
            };
            let wait = self.plan.channel.wait;
            let core = self.plan.affinity.map(|first| first + index);
            let running = Arc::clone(&self.running);
            running.fetch_add(1, Ordering::Release);
            let handle: Arc<PollerHandle<D>> = Arc::clone(handle);
            let run = move || {
                if let Some(core) = core.filter(|_| !thread::is_simulated()) {
                    super::pin(core);
                }
                let wake = handle.mailbox.wake().clone();
                rounds::run(Poller::new(handle, context, rules), wait, &wake);
                running.fetch_sub(1, Ordering::Release);
            };
            let name = format!("dunlin-pool-{index}");
            let spawned = self.device.spawn(name, core, Box::new(run));
            threads.push(spawned.inspect_err(|_| {
                self.running.fetch_sub(1, Ordering::Release);
            })?);
        }
        Ok(Started { pollers, counters })
    }

    /// The memory that a poller's clients share, made when the first of them comes.
    fn memory<'p>(
        &self,
        poller: &'p PollerHandle<D>,
        places: usize,
    ) -> Result<&'p D::Region, VerbsError> {
        if let Some(memory) = poller.memory.get() {
            return Ok(memory);
        }
        // Nobody but this process reaches it by this registration: each connection has its own.
        let domain = self.device.create_protection_domain()?;
        let bytes = ZONES_AT + 2 * places * zone_bytes(self.plan.channel.eager_bytes);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = self.device.allocate_region(&domain, bytes, access)?;
        Ok(poller.memory.get_or_init(|| memory))
    }

    /// Joins a new client to the poller with the fewest. `fixed`: its zone is its own for good.
    pub(super) fn accept(
        &self,
        fixed: bool,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<(EndpointAddress, Parameters), VerbsError> {
        let started = self.started()?;
        let all = started.pollers.iter().enumerate();
        let least =
            all.min_by_key(|(_, poller)| poller.mailbox.connections.load(Ordering::Relaxed));
        let Some((index, poller)) = least else {
            return Err(VerbsError::Peer("the server has no pollers".into()));
        };
        let mut numbers = poller
            .numbers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some((number, is_new)) = numbers.take() else {
            return Err(VerbsError::Limit {
                resource: "clients of a poller with message pools (more pollers have more)",
                asked: 1,
                available: 0,
                limit: numbers.limit(),
            });
        };
        let joined = self.join((index, started), number, fixed, (peer, parameters));
        let (newcomer, answer) = joined.inspect_err(|_| match is_new {
            true => numbers.undo(),
            false => numbers.give_back(number),
        })?;
        drop(numbers);
        poller.mailbox.connections.fetch_add(1, Ordering::Relaxed);
        started.counters[index].accepted();
        poller.mailbox.send(Mail::Adopt(Box::new(newcomer)));
        Ok(answer)
    }

    fn join(
        &self,
        (index, started): (usize, &Started<D>),
        number: u32,
        fixed: bool,
        (peer, parameters): (&EndpointAddress, &Parameters),
    ) -> Result<(Newcomer<D>, (EndpointAddress, Parameters)), VerbsError> {
        let poller = &started.pollers[index];
        let memory = if fixed {
            PoolMemory::Own
        } else {
            // As many zones in each of two pools as a group has clients.
            let places = self.plan.grouping.rules(started.pollers.len()).most();
            PoolMemory::Shared {
                region: self.memory(poller, places)?,
                entry_at: number as usize * ENTRY_BYTES,
                zones_at: ZONES_AT,
                places: 2 * places,
            }
        };
        let config = &self.plan.channel;
        let pool = UnconnectedServedPool::new(&self.device, poller.mailbox.wake(), config, memory)?;
        let answer = (pool.address(), pool.parameters());
        let channel = pool.join(peer, parameters)?;
        let serial = self.next_id.fetch_add(1, Ordering::Relaxed) & 0x3fff_ffff;
        let id = OF_POOLS | serial << 32 | u64::from(number);
        let regions = Arc::clone(&self.regions);
        let newcomer = Newcomer {
            number,
            fixed,
            connection: Connection::new(id, index, channel, None, regions),
        };
        Ok((newcomer, answer))
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
