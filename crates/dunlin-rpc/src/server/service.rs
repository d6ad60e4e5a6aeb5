//! The service of one device: its pollers and workers, for rings, datagrams, message pools and SENDs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_bootstrap::Refusal;
use dunlin_verbs::{Device, EndpointAddress, PeerConfirmation, VerbsError};

use super::admissions::{wants_few, Admissions};
use super::answering::Executor;
use super::caller::Caller;
use super::connection_ids::ConnectionIds;
use super::connections::ConnectionService;
use super::datagram::DatagramService;
use super::handler::HandlerTable;
use super::polling::PollingThreads;
use super::pool::{Grouping, PoolService};
use super::region::{Region, ServedRegions};
use super::statistics::ServerStatistics;
use super::thread_task::ThreadTasks;
use super::threads::Threads;
use crate::admission::grouping::pace::Pace;
use crate::admission::redistribution::SenderReport;
use crate::admission::SENDER_PARAMETER;
use crate::channel::rb2::Rb2Channel;
use crate::channel::ring::RingChannel;
use crate::channel::sent::SentChannel;
use crate::channel::Parameters;
use crate::config::{ChannelConfig, Datagrams};
use crate::error::ServeError;
use crate::identity::Identity;
use crate::preset::ChannelKind;

/// How long threads that were told to end are waited for: they sleep for at most a tenth of that, so one that takes
/// longer is in a handler. A thread that was merely late still ends by itself.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// Time limit for a client's device to confirm that the client's queue pair is its own.
const CONFIRMING: Duration = Duration::from_secs(1);

/// Why a service does not take a client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcceptError {
    /// A poller has as many accepted clients as it may have before it adopts them: the next one should retry.
    #[error("{limit} accepted clients are already waiting for a poller")]
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

/// The configuration shared by the services of a server, each of which is over one device.
pub(crate) struct ServiceSetup {
    pub(super) identity: Identity,
    pub(super) ids: ConnectionIds,
    pub(super) handlers: HandlerTable,
    pub(super) channel: ChannelConfig,
    pub(super) pollers: usize,
    pub(super) workers: usize,
    pub(super) executor: Option<Executor>,
    pub(super) tasks: Option<ThreadTasks>,
    pub(super) max_connections: usize,
    pub(super) affinity: Option<usize>,
    pub(super) most_active: usize,
    pub(super) datagrams: Datagrams,
    pub(super) grouping: Grouping,
    pub(super) pace: Option<Pace>,
    pub(super) regions: Vec<Region>,
}

/// A running service, independent of its device.
pub(crate) trait Service: Send + Sync {
    /// Asks a client's device whether the client's queue pair is its own: nothing is made or counted for a client
    /// without this confirmation.
    fn confirm(&self, peer: &EndpointAddress) -> Result<PeerConfirmation, VerbsError>;
    /// Assigns a new client to one of the pollers.
    fn accept(
        &self,
        channel: ChannelKind,
        peer: &EndpointAddress,
        parameters: &Parameters,
        caller: Caller,
    ) -> Result<(EndpointAddress, Parameters), AcceptError>;
    /// Reports of the queue-pair scheduler.
    fn senders(&self) -> Vec<SenderReport>;
    /// Number of connections at present.
    fn connections(&self) -> usize;
    /// Adds this service's counters.
    fn count(&self, sum: &mut ServerStatistics);
    /// The device's packet counters ([`Device::packet_counts`]).
    fn packet_counts(&self) -> Vec<(&'static str, u64)>;
    /// Stops taking requests; the threads end when what was taken is answered.
    fn drain(&self);
    /// Whether all pollers have ended.
    fn is_over(&self) -> bool;
    /// Tells the threads to end without waiting for answers.
    fn stop(&self);
    /// As [`Service::stop`], and waits for the threads until `deadline`; those that are stuck in a handler are
    /// abandoned.
    fn end(&self, deadline: Instant);
}

/// The service over one device.
pub(crate) struct DeviceService<D: Device> {
    rings: ConnectionService<RingChannel<D>>,
    datagrams: DatagramService<D>,
    pools: PoolService<D>,
    sent: ConnectionService<SentChannel<D>>,
    rb2: ConnectionService<Rb2Channel<D>>,
    admissions: Admissions,
    polling: Arc<PollingThreads<D>>,
}

impl<D: Device> DeviceService<D> {
    pub(crate) fn start(device: D, setup: Arc<ServiceSetup>) -> Result<Self, ServeError> {
        let polling = Arc::new(PollingThreads::new(device, setup)?);
        let (device, setup) = (&polling.device, &polling.setup);
        let regions = Arc::new(ServedRegions::allocate(device, &setup.regions)?);
        let (threads, regions) = (|| Arc::clone(&polling), || Arc::clone(&regions));
        let rings = ConnectionService::new(threads(), regions());
        rings.started()?;
        let admissions = Admissions::new(&polling);
        Ok(Self {
            datagrams: DatagramService::new(threads(), Arc::clone(admissions.few())),
            pools: PoolService::new(threads(), regions()),
            sent: ConnectionService::new(threads(), regions()),
            rb2: ConnectionService::new(threads(), regions()),
            admissions,
            rings,
            polling: threads(),
        })
    }

    fn threads(&self) -> impl Iterator<Item = &dyn Threads> {
        let all = [
            self.rings.threads(),
            self.datagrams.threads(),
            self.pools.threads(),
            self.sent.threads(),
            self.rb2.threads(),
        ];
        all.into_iter()
    }
}

impl<D: Device> Service for DeviceService<D> {
    fn packet_counts(&self) -> Vec<(&'static str, u64)> {
        self.polling.device.packet_counts()
    }

    fn confirm(&self, peer: &EndpointAddress) -> Result<PeerConfirmation, VerbsError> {
        self.polling.device.confirm_peer(peer, CONFIRMING)
    }

    fn accept(
        &self,
        channel: ChannelKind,
        peer: &EndpointAddress,
        parameters: &Parameters,
        caller: Caller,
    ) -> Result<(EndpointAddress, Parameters), AcceptError> {
        let most = self.polling.setup.max_connections;
        let arrivals = self.polling.arrivals();
        let there = || self.connections();
        let Some(arrival) = arrivals.begin(most, there) else {
            return Err(AcceptError::Verbs(VerbsError::Limit {
                resource: "max_connections",
                asked: 1,
                available: 0,
                limit: most,
            }));
        };
        crate::memory::room_for_client()?;
        let (device, config) = (&self.polling.device, &self.polling.setup.channel);
        let client = (peer, parameters);
        let (own, answer) = match channel {
            ChannelKind::Ring => {
                let sender = parameters.get(SENDER_PARAMETER);
                let sender = sender.map(|&sender| (self.admissions.of(parameters), sender));
                let config = match sender {
                    Some(_) => config.shared_by_many(wants_few(parameters)),
                    None => config.of_one_thread(device.attributes()),
                };
                let open = |wake: &_| RingChannel::open(device, wake, &config);
                self.rings.accept(sender, client, caller, open)?
            }
            ChannelKind::Sent => {
                let open = |wake: &_| SentChannel::open(device, wake, config);
                self.sent.accept(None, client, caller, open)?
            }
            ChannelKind::Rb2 => {
                let open = |wake: &_| Rb2Channel::open_for_peer(device, wake, config, parameters);
                self.rb2.accept(None, client, caller, open)?
            }
            ChannelKind::Datagram(protocol) => {
                self.datagrams.accept(protocol, peer, parameters, caller)?
            }
            ChannelKind::Pool(mapping) => self.pools.accept(mapping, peer, parameters, caller)?,
        };
        arrival.was_adopted();
        Ok((device.address_for(own, peer), answer))
    }

    fn senders(&self) -> Vec<SenderReport> {
        self.admissions.report()
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
        self.admissions.end();
        self.polling.end(deadline, |index| {
            self.threads().for_each(|threads| threads.abandon(index));
        });
        self.threads()
            .for_each(|threads| threads.end_workers(deadline));
    }
}

impl<D: Device> Drop for DeviceService<D> {
    fn drop(&mut self) {
        // In case it was not done before.
        self.end(Instant::now() + PATIENCE);
    }
}
