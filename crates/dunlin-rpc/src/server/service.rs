//! The service of one device: its pollers and workers, for rings, datagrams, message pools and SENDs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_bootstrap::Refusal;
use dunlin_verbs::{
    CompletionChannel, Device, EndpointAddress, PeerConfirmation, Placement, Verbs, VerbsError,
};

use super::answering::Executor;
use super::caller::Caller;
use super::connection::Connection;
use super::connection_ids::ConnectionIds;
use super::datagram::DatagramService;
use super::deadlines::Deadlines;
use super::handler::HandlerTable;
use super::poller::{Poller, PollerHandle};
use super::polling::PollingThreads;
use super::pool::{Grouping, PoolService};
use super::region::{Region, ServedRegions};
use super::sent::SentService;
use super::statistics::ServerStatistics;
use super::thread_task::ThreadTasks;
use super::threads::{NewPoller, Plan, ThreadGroup, Threads};
use crate::admission::credits::{CREDITS, CREDITS_OF_FEW, CREDITS_OF_MEMORY};
use crate::admission::grouping::pace::Pace;
use crate::admission::lane::Admitted;
use crate::admission::redistribution::{Admission, SenderReport};
use crate::admission::{
    active_for, CREDITS_PARAMETER, FEW_PARAMETER, LANE_PARAMETER, SENDER_PARAMETER,
};
use crate::channel::ring::{RingChannel, UnconnectedRing};
use crate::channel::Parameters;
use crate::config::{ChannelConfig, Datagrams};
use crate::error::ServeError;
use crate::identity::Identity;
use crate::preset::ChannelKind;

/// How long threads that are told to end are waited for: they sleep for a tenth of that at most, and who is longer away
/// is in a handler. One that was only late ends by itself all the same.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// How long a client's device may take to say that the client's queue pair is its own.
const CONFIRMING: Duration = Duration::from_secs(1);

/// Why a service does not take a client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcceptError {
    /// As many clients were accepted as a poller may have before it looks at them: the next one is to come again.
    #[error("{limit} clients wait for a poller to look at them")]
    Busy { limit: usize },
    #[error(transparent)]
    Verbs(#[from] VerbsError),
}

impl From<AcceptError> for Refusal {
    fn from(error: AcceptError) -> Self {
        let words = Refusal::rejected(error.to_string());
        match error {
            AcceptError::Busy { limit } => Refusal::Busy {
                limit: limit.try_into().unwrap_or(u32::MAX),
            },
            AcceptError::Verbs(VerbsError::System { source, .. }) => {
                Refusal::exhausted(&source).unwrap_or(words)
            }
            AcceptError::Verbs(_) => words,
        }
    }
}

/// What a service is made of.
#[derive(Clone)]
pub(crate) struct ServiceSetup {
    pub(super) identity: Identity,
    pub(super) ids: ConnectionIds,
    pub(super) handlers: HandlerTable,
    pub(super) channel: ChannelConfig,
    pub(super) pollers: usize,
    pub(crate) workers: usize,
    pub(super) executor: Option<Executor>,
    pub(super) tasks: Option<ThreadTasks>,
    pub(crate) max_connections: usize,
    pub(crate) affinity: Option<usize>,
    pub(super) most_active: usize,
    pub(super) datagrams: Datagrams,
    pub(super) grouping: Grouping,
    pub(super) pace: Option<Pace>,
    pub(super) regions: Vec<Region>,
}

/// A running service, whatever its device.
pub(crate) trait Service: Send + Sync {
    /// Whether a client's device says that the client's queue pair is its own: nothing is made for a client, or
    /// counted, on its word alone.
    fn confirm(&self, peer: &EndpointAddress) -> Result<PeerConfirmation, VerbsError>;
    /// Joins a new client to one of the pollers.
    fn accept(
        &self,
        channel: ChannelKind,
        peer: &EndpointAddress,
        parameters: &Parameters,
        caller: Caller,
    ) -> Result<(EndpointAddress, Parameters), AcceptError>;
    /// What the queue-pair scheduler sees.
    fn senders(&self) -> Vec<SenderReport>;
    /// Connections now.
    fn connections(&self) -> usize;
    /// Adds this service's counters.
    fn count(&self, sum: &mut ServerStatistics);
    /// What the device counted of packets ([`Device::packet_counts`]).
    fn packet_counts(&self) -> Vec<(&'static str, u64)>;
    /// Takes no new requests; the threads end when what was taken is answered.
    fn drain(&self);
    /// Whether all pollers have ended.
    fn is_over(&self) -> bool;
    /// Tells the threads to end without waiting for answers.
    fn stop(&self);
    /// As [`Service::stop`], and waits for the threads until `deadline`; those that are stuck in a handler are left
    /// behind.
    fn end(&self, deadline: Instant);
}

/// All that serves over one device.
pub(crate) struct DeviceService<D: Device> {
    rings: RingService<D>,
    datagrams: DatagramService<D>,
    pools: PoolService<D>,
    sent: SentService<D>,
    polling: Arc<PollingThreads<D>>,
    max_connections: usize,
}

impl<D: Device> DeviceService<D> {
    pub(crate) fn start(device: D, setup: ServiceSetup) -> Result<Self, ServeError> {
        let plan = Plan {
            tasks: setup.tasks,
            identity: setup.identity,
            ids: setup.ids,
            handlers: setup.handlers.clone(),
            channel: setup.channel.clone(),
            pollers: setup.pollers,
            workers: setup.workers,
            executor: setup.executor.clone(),
            grouping: setup.grouping,
            pace: setup.pace.clone(),
            affinity: setup.affinity,
        };
        let polling = Arc::new(PollingThreads::new(device.clone(), plan)?);
        let of = || Arc::clone(&polling);
        let asked = (setup.most_active, setup.datagrams);
        let rings = RingService::start(device.clone(), of(), asked, &setup.regions)?;
        let regions = || Arc::clone(&rings.regions);
        Ok(Self {
            max_connections: setup.max_connections,
            sent: SentService::new(device.clone(), of(), regions()),
            pools: PoolService::new(device.clone(), of(), regions()),
            datagrams: DatagramService::new(device, of(), Arc::clone(&rings.few)),
            rings,
            polling,
        })
    }

    fn threads(&self) -> impl Iterator<Item = &dyn Threads> {
        let rings: &dyn Threads = &self.rings.threads;
        let others = [
            self.datagrams.threads(),
            self.pools.threads(),
            self.sent.threads(),
        ];
        std::iter::once(rings).chain(others)
    }
}

impl<D: Device> Service for DeviceService<D> {
    fn packet_counts(&self) -> Vec<(&'static str, u64)> {
        self.rings.device.packet_counts()
    }

    fn confirm(&self, peer: &EndpointAddress) -> Result<PeerConfirmation, VerbsError> {
        self.rings.device.confirm_peer(peer, CONFIRMING)
    }

    fn accept(
        &self,
        channel: ChannelKind,
        peer: &EndpointAddress,
        parameters: &Parameters,
        caller: Caller,
    ) -> Result<(EndpointAddress, Parameters), AcceptError> {
        let arrivals = self.polling.arrivals();
        let there = || self.connections();
        let Some(arrival) = arrivals.begin(self.max_connections, there) else {
            return Err(AcceptError::Verbs(VerbsError::Limit {
                resource: "max_connections",
                asked: 1,
                available: 0,
                limit: self.max_connections,
            }));
        };
        crate::memory::room_for_client()?;
        let (own, answer) = match channel {
            ChannelKind::Ring => self.rings.accept(peer, parameters, caller)?,
            ChannelKind::Sent => self.sent.accept(peer, parameters, caller)?,
            ChannelKind::Datagram(protocol) => {
                self.datagrams.accept(protocol, peer, parameters, caller)?
            }
            ChannelKind::Pool(mapping) => self.pools.accept(mapping, peer, parameters, caller)?,
        };
        arrival.was_adopted();
        Ok((self.rings.device.address_for(own, peer), answer))
    }

    fn senders(&self) -> Vec<SenderReport> {
        let mut senders = self.rings.admission.report();
        senders.extend(self.rings.few.report());
        senders
    }

    fn connections(&self) -> usize {
        self.threads().map(|threads| threads.connections()).sum()
    }

    fn count(&self, sum: &mut ServerStatistics) {
        self.threads().for_each(|threads| threads.count(sum));
    }

    fn drain(&self) {
        self.threads().for_each(Threads::drain);
    }

    fn is_over(&self) -> bool {
        self.threads().all(Threads::is_over)
    }

    fn stop(&self) {
        self.polling.close();
        self.threads().for_each(Threads::stop);
    }

    fn end(&self, deadline: Instant) {
        self.stop();
        self.rings.admission.end();
        self.rings.few.end();
        self.polling.end(deadline, |index| {
            self.threads().for_each(|threads| threads.abandon(index));
        });
        self.threads()
            .for_each(|threads| threads.end_workers(deadline));
    }
}

impl<D: Device> Drop for DeviceService<D> {
    fn drop(&mut self) {
        // For whoever has not done so before.
        self.end(Instant::now() + PATIENCE);
    }
}

/// The service over ring channels.
struct RingService<D: Device> {
    device: D,
    threads: ThreadGroup<PollerHandle<RingChannel<D>>, D>,
    admission: Arc<Admission>,
    /// Of the senders that want few active queue pairs.
    few: Arc<Admission>,
    regions: Arc<ServedRegions<D>>,
}

impl<D: Device> RingService<D> {
    fn start(
        device: D,
        polling: Arc<PollingThreads<D>>,
        (most_active, datagrams): (usize, Datagrams),
        regions: &[Region],
    ) -> Result<Self, ServeError> {
        let regions = Arc::new(ServedRegions::allocate(&device, regions)?);
        let threads = ThreadGroup::new(polling);
        let new_poller = |_, wake| -> Result<NewPoller<PollerHandle<_>, Poller<_>>, VerbsError> {
            let handle = Arc::new(PollerHandle::new(wake));
            let outside = Arc::clone(&handle);
            let inside = move |context| Poller::new(outside, context);
            Ok((handle, Box::new(inside)))
        };
        let works = threads
            .plan
            .handlers
            .needs_workers(threads.plan.executor.is_some());
        let started = threads.started(works, new_poller)?;
        let attributes = device.attributes();
        let has_datagrams = attributes.transports.ud.contains(Verbs::SEND) && attributes.lossless;
        let datagrams = match has_datagrams {
            true => datagrams,
            false => Datagrams::Never,
        };
        let admission = |most_active, credits, messages_per_second| {
            let woken = started.pollers.clone();
            let wake = move || {
                for poller in &woken {
                    poller.wake().wake();
                }
            };
            let spawner = device.clone();
            let spawn = move |name: &str, run: Box<dyn FnOnce() + Send>| {
                spawner.spawn(name.to_owned(), None, run)
            };
            let (spawn, wake) = (Box::new(spawn), Box::new(wake));
            let takes = (messages_per_second, datagrams);
            Admission::new(most_active, credits, takes, spawn, wake)
        };
        // A batch takes a WRITE more where only a second one tells that the first has arrived.
        let writes = match attributes.placement {
            Placement::InOrder => 1,
            Placement::Unordered => 2,
        };
        let takes = attributes.messages_per_second.map(|most| most / writes);
        let credits = |most| match attributes.queue_pairs_by_software() {
            true => (CREDITS_OF_MEMORY, CREDITS_OF_MEMORY),
            false => (CREDITS, most),
        };
        let few_active = most_active.min(active_for(takes));
        Ok(Self {
            admission: admission(most_active, credits(CREDITS), None),
            few: admission(few_active, credits(CREDITS_OF_FEW), takes),
            regions,
            device,
            threads,
        })
    }

    fn accept(
        &self,
        peer: &EndpointAddress,
        parameters: &Parameters,
        caller: Caller,
    ) -> Result<(EndpointAddress, Parameters), VerbsError> {
        let started = self.threads.get()?;
        let few = parameters.get(FEW_PARAMETER) == Some(&1);
        let admission = if few { &self.few } else { &self.admission };
        let against = match parameters.get(SENDER_PARAMETER) {
            Some(&sender) => admission.against(sender, started.pollers.len()),
            None => Vec::new(),
        };
        let (index, poller) = started.least_by(|index| against.get(index).copied())?;
        let channel = &self.threads.plan.channel;
        let config = match parameters.contains_key(SENDER_PARAMETER) {
            true => channel.shared_by_many(few),
            false => channel.of_one_thread(self.device.attributes()),
        };
        let ring = UnconnectedRing::new(&self.device, poller.wake(), &config)?;
        let mut answer = (ring.address(), ring.parameters());
        let channel = ring.join(peer, parameters)?;
        let id = self.threads.plan.ids.next(0);
        let admitted = parameters.get(SENDER_PARAMETER).map(|&sender| {
            let credits = u64::from(admission.credits().0);
            answer.1.insert(CREDITS_PARAMETER.to_string(), credits);
            // A client that counts its lanes wrongly harms itself alone.
            let number = parameters.get(LANE_PARAMETER).copied().unwrap_or(id);
            Admitted::new(admission, sender, number, index)
        });
        let said = (admitted, Deadlines::new(parameters), caller);
        let connection = Connection::new(id, index, channel, said, Arc::clone(&self.regions));
        let aborter = connection.channel.aborter();
        started.adopt(index, id, connection, aborter);
        Ok(answer)
    }
}
