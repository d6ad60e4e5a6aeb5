//! Serving over message pools (ScaleRPC §3): each poller owns two pools, whose zones are used by clients in turn, and
//! zones that belong to one client permanently.
//!
//! A client stays at one poller for its lifetime; each poller schedules its own clients. The threads start with the
//! first such client.

mod grouping;
mod long_calls;
mod poller;
mod turns;

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use dunlin_verbs::{thread, Access, Device, EndpointAddress, VerbsError};

use super::caller::Caller;
use super::connection::Connection;
use super::connection_ids::PLACES_MAX;
use super::deadlines::Deadlines;
use super::polling::PollingThreads;
use super::region::ServedRegions;
use super::threads::{self, NewPoller, Started, ThreadGroup, Threads};
use crate::admission::grouping::groups::Rules;
use crate::admission::grouping::pace::Pace;
use crate::admission::{GROUP_PARAMETER, GROUP_WISH_PARAMETER};
use crate::channel::pool::{
    zone_bytes, Mapping, Notifications, PoolMemory, ServedPool, ENTRY_BYTES, NOTIFICATIONS,
};
use crate::channel::Parameters;
pub use grouping::Grouping;
use poller::{Newcomer, Poller, PollerHandle};

/// Maximum number of a poller's clients that take turns.
const CLIENTS_MAX: usize = 4096;
const _: () = assert!(CLIENTS_MAX <= PLACES_MAX);

/// Maximum number of a poller's clients that notify it by completions, and entries of the completion queue for each:
/// twice as many as it has RECEIVEs, because entries of a client that has left may still be there when the next comes.
const RUNG_MAX: usize = 512;
const NOTIFICATIONS_EACH: usize = 2 * NOTIFICATIONS;

/// Offset of the zones in a poller's memory.
const ZONES_AT: usize = CLIENTS_MAX * ENTRY_BYTES;

/// The service over message pools.
pub(super) struct PoolService<D: Device> {
    regions: Arc<ServedRegions<D>>,
    threads: ThreadGroup<PollerHandle<D>, D>,
}

impl<D: Device> PoolService<D> {
    pub(super) fn new(polling: Arc<PollingThreads<D>>, regions: Arc<ServedRegions<D>>) -> Self {
        Self {
            regions,
            threads: ThreadGroup::new(polling),
        }
    }

    /// The threads of the service.
    pub(super) fn threads(&self) -> &dyn Threads {
        &self.threads
    }

    fn started(&self) -> Result<&Started<PollerHandle<D>>, VerbsError> {
        let setup = self.threads.setup();
        // Together the pollers serve as many clients at a time as a single one would.
        let pace = setup.pace.as_ref();
        let rules = self.rules(setup.pollers);
        let groups = pace.map_or(0, Pace::groups);
        let new_poller = |_, wake| -> Result<NewPoller<_, Poller<D>>, VerbsError> {
            let handle = PollerHandle::new(wake, CLIENTS_MAX, groups);
            let outside = Arc::clone(&handle);
            let pace = pace.cloned();
            let inside = move |context| Poller::new(outside, context, rules, pace);
            Ok((handle, Box::new(inside)))
        };
        // Long calls run on workers (§3.5); on simulated hosts, whose cores experiments count, only if there are
        // workers for a handler anyway.
        let runs_apart = self.threads.device().seed().is_none();
        let started = self.threads.started(runs_apart, new_poller);
        started.map_err(threads::to_client)
    }

    /// The memory shared by a poller's clients, allocated when the first of them comes.
    fn memory<'p>(
        &self,
        poller: &'p PollerHandle<D>,
        places: usize,
    ) -> Result<&'p D::Region, VerbsError> {
        if let Some(memory) = poller.memory.get() {
            return Ok(memory);
        }
        // Only this process uses this registration: each connection has its own.
        let device = self.threads.device();
        let domain = device.create_protection_domain()?;
        let bytes = ZONES_AT + 2 * places * zone_bytes(self.threads.setup().channel.eager_bytes);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = device.allocate_region(&domain, bytes, access)?;
        Ok(poller.memory.get_or_init(|| memory))
    }

    /// The completion queue that notifies a poller of messages, made when the first client that needs it comes, and the
    /// number of clients that it is for.
    fn notifications(
        &self,
        notifications: &mut Option<D::CompletionQueue>,
        wake: &D::CompletionChannel,
    ) -> Result<usize, VerbsError> {
        let device = self.threads.device();
        let most = (device.attributes().max_completions / NOTIFICATIONS_EACH).min(RUNG_MAX);
        if notifications.is_none() {
            let entries = most * NOTIFICATIONS_EACH;
            *notifications = Some(device.create_completion_queue(entries, Some(wake))?);
        }
        Ok(most)
    }

    /// Assigns a new client to the poller with the fewest clients, or, if servers change turns in step, with the fewest
    /// of its group.
    pub(super) fn accept(
        &self,
        mapping: Mapping,
        peer: &EndpointAddress,
        parameters: &Parameters,
        caller: Caller,
    ) -> Result<(EndpointAddress, Parameters), VerbsError> {
        let started = self.started()?;
        // Other clients that come now wait for the numbers, and pollers for the notifications.
        thread::hold(|| self.accept_held(started, mapping, peer, (parameters, caller)))
    }

    fn accept_held(
        &self,
        started: &Started<PollerHandle<D>>,
        mapping: Mapping,
        peer: &EndpointAddress,
        (parameters, caller): (&Parameters, Caller),
    ) -> Result<(EndpointAddress, Parameters), VerbsError> {
        let (index, group) = match &self.threads.setup().pace {
            Some(pace) if mapping == Mapping::ByTurns => {
                let groups = pace.groups() as u64;
                let wish = parameters.get(GROUP_WISH_PARAMETER);
                let asked = parameters.get(GROUP_PARAMETER).copied();
                let (index, group) =
                    group_for(started, asked.or(wish.map(|group| group % groups)))?;
                (index, Some(group))
            }
            _ => (started.least()?.0, None),
        };
        let poller = &started.pollers[index];
        let mut numbers = poller
            .numbers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some((number, is_new)) = numbers.take() else {
            return Err(VerbsError::Limit {
                resource: "clients of a poller with message pools (more pollers raise the limit)",
                asked: 1,
                available: 0,
                limit: numbers.limit(),
            });
        };
        let joined = self.join(
            (index, started),
            (number, group),
            mapping,
            (peer, parameters, caller),
        );
        let (newcomer, mut answer) = joined.inspect_err(|_| match is_new {
            true => numbers.undo(),
            false => numbers.give_back(number),
        })?;
        drop(numbers);
        if let Some(group) = group {
            answer.1.insert(GROUP_PARAMETER.to_owned(), group as u64);
            poller.in_groups[group].fetch_add(1, Ordering::Relaxed);
        }
        let aborter = newcomer.connection.channel.aborter();
        started.adopt(index, newcomer.connection.id, newcomer, aborter);
        Ok(answer)
    }

    fn rules(&self, pollers: usize) -> Rules {
        let setup = self.threads.setup();
        setup.grouping.rules(pollers, setup.pace.as_ref())
    }

    fn join(
        &self,
        (index, started): (usize, &Started<PollerHandle<D>>),
        (number, group): (u32, Option<usize>),
        mapping: Mapping,
        (peer, parameters, caller): (&EndpointAddress, &Parameters, Caller),
    ) -> Result<(Newcomer<D>, (EndpointAddress, Parameters)), VerbsError> {
        let (device, setup) = (self.threads.device(), self.threads.setup());
        let poller = &started.pollers[index];
        let id = setup.ids.next(number);
        let mut notifications = poller
            .notifications
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let memory = match mapping {
            Mapping::Polled => PoolMemory::Own(None),
            Mapping::Notified => {
                let most = self.notifications(&mut notifications, poller.mailbox.wake())?;
                if poller.notified.load(Ordering::Relaxed) >= most {
                    return Err(VerbsError::Limit {
                        resource: "clients of a poller that are heard by completions (more pollers raise the limit)",
                        asked: 1,
                        available: 0,
                        limit: most,
                    });
                }
                let rings = notifications.as_ref().map(|queue| Notifications {
                    queue,
                    id,
                    client: number,
                });
                PoolMemory::Own(rings)
            }
            // A client that may write a pool must not be able to read it.
            Mapping::ByTurns if device.attributes().grants_are_mappings => PoolMemory::OwnByTurns,
            Mapping::ByTurns => {
                // Each of the two pools has as many zones as a group has clients.
                let places = self.rules(started.pollers.len()).most();
                PoolMemory::Shared {
                    region: self.memory(poller, places)?,
                    entry_at: number as usize * ENTRY_BYTES,
                    zones_at: ZONES_AT,
                    places: 2 * places,
                }
            }
        };
        let wake = poller.mailbox.wake();
        let opening = ServedPool::open(device, wake, &setup.channel, memory)?;
        let channel = (opening.join)(peer, parameters)?;
        if mapping == Mapping::Notified {
            poller.notified.fetch_add(1, Ordering::Relaxed);
        }
        let regions = Arc::clone(&self.regions);
        let said = (None, Deadlines::new(parameters), caller);
        let newcomer = Newcomer {
            number,
            group,
            connection: Connection::new(id, index, channel, said, regions),
        };
        Ok((newcomer, (opening.address, opening.parameters)))
    }
}

/// The poller and the group of a client at a server that changes turns in step with others: the group that it asks for,
/// or the one with the fewest clients.
fn group_for<D: Device>(
    started: &Started<PollerHandle<D>>,
    asked: Option<u64>,
) -> Result<(usize, usize), VerbsError> {
    let count = |poller: &PollerHandle<D>, group: usize| {
        let count = poller.in_groups.get(group);
        count.map(|count| (count.load(Ordering::Relaxed), group))
    };
    let best = |poller: &PollerHandle<D>| match asked {
        Some(group) => usize::try_from(group).ok().and_then(|g| count(poller, g)),
        None => (0..poller.in_groups.len())
            .filter_map(|g| count(poller, g))
            .min(),
    };
    let all = started.pollers.iter().enumerate();
    let best = all.filter_map(|(index, poller)| Some((best(poller)?, index)));
    let Some(((_, group), index)) = best.min() else {
        let why = format!("no such group: asked for {asked:?}");
        let argument = "group";
        return Err(VerbsError::Invalid { argument, why });
    };
    Ok((index, group))
}
