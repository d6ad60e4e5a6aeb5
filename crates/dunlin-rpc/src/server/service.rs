//! The service of one device: its pollers and workers, for rings and for datagrams.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_verbs::thread::{self, Running};
use dunlin_verbs::{CompletionChannel, Device, EndpointAddress, VerbsError};

use super::connection::{Connection, Context};
use super::datagram::{DatagramService, Plan};
use super::handler::HandlerTable;
use super::mailbox::Mail;
use super::poller::{Poller, PollerHandle};
use super::region::{Region, ServedRegions};
use super::statistics::{Counters, ServerStatistics};
use super::workers;
use crate::admission::credits::CREDITS;
use crate::admission::lane::Admitted;
use crate::admission::redistribution::{Admission, SenderReport};
use crate::admission::{CREDITS_PARAMETER, LANE_PARAMETER, SENDER_PARAMETER};
use crate::channel::ring::{Parameters, UnconnectedRing};
use crate::config::ChannelConfig;
use crate::error::ServeError;
use crate::preset::ChannelKind;

/// What a service is made of.
#[derive(Clone)]
pub(crate) struct ServiceSetup {
    pub(super) handlers: HandlerTable,
    pub(super) channel: ChannelConfig,
    pub(super) pollers: usize,
    pub(crate) workers: usize,
    pub(crate) max_connections: usize,
    pub(crate) affinity: Option<usize>,
    pub(super) most_active: usize,
    pub(super) regions: Vec<Region>,
}

/// A running service, whatever its device.
pub(crate) trait Service: Send + Sync {
    /// Joins a new client to one of the pollers.
    fn accept(
        &self,
        channel: ChannelKind,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<(EndpointAddress, Parameters), VerbsError>;
    /// What the queue-pair scheduler sees.
    fn senders(&self) -> Vec<SenderReport>;
    /// Connections now.
    fn connections(&self) -> usize;
    /// Adds this service's counters.
    fn count(&self, sum: &mut ServerStatistics);
    /// Takes no new requests; the threads end when what was taken is answered.
    fn drain(&self);
    /// Whether all pollers have ended.
    fn is_over(&self) -> bool;
    /// Ends the threads without waiting for answers, and waits for the threads.
    fn end(&self);
}

/// All that serves over one device.
pub(crate) struct DeviceService<D: Device> {
    rings: RingService<D>,
    datagrams: DatagramService<D>,
    max_connections: usize,
}

impl<D: Device> DeviceService<D> {
    pub(crate) fn start(device: D, setup: ServiceSetup) -> Result<Self, ServeError> {
        let plan = Plan {
            handlers: setup.handlers.clone(),
            channel: setup.channel.clone(),
            pollers: setup.pollers,
            workers: setup.workers,
            affinity: setup.affinity,
        };
        Ok(Self {
            max_connections: setup.max_connections,
            rings: RingService::start(device.clone(), setup)?,
            datagrams: DatagramService::new(device, plan),
        })
    }
}

impl<D: Device> Service for DeviceService<D> {
    fn accept(
        &self,
        channel: ChannelKind,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<(EndpointAddress, Parameters), VerbsError> {
        if self.connections() >= self.max_connections {
            return Err(VerbsError::Limit {
                resource: "max_connections",
                asked: 1,
                available: 0,
                limit: self.max_connections,
            });
        }
        match channel {
            ChannelKind::Ring => self.rings.accept(peer, parameters),
            ChannelKind::Datagram => self.datagrams.accept(peer, parameters),
        }
    }

    fn senders(&self) -> Vec<SenderReport> {
        self.rings.admission.report()
    }

    fn connections(&self) -> usize {
        self.rings.connections() + self.datagrams.connections()
    }

    fn count(&self, sum: &mut ServerStatistics) {
        self.rings.count(sum);
        self.datagrams.count(sum);
    }

    fn drain(&self) {
        self.rings.drain();
        self.datagrams.drain();
    }

    fn is_over(&self) -> bool {
        self.rings.is_over() && self.datagrams.is_over()
    }

    fn end(&self) {
        self.rings.end();
        self.datagrams.end();
    }
}

impl<D: Device> Drop for DeviceService<D> {
    fn drop(&mut self) {
        self.end();
    }
}

/// The service over ring channels.
struct RingService<D: Device> {
    device: D,
    channel: ChannelConfig,
    pollers: Vec<Arc<PollerHandle<D>>>,
    counters: Vec<Arc<Counters>>,
    threads: Mutex<Vec<Running>>,
    running: Arc<AtomicUsize>,
    next_id: AtomicU64,
    admission: Arc<Admission>,
    regions: Arc<ServedRegions<D>>,
}

impl<D: Device> RingService<D> {
    fn start(device: D, setup: ServiceSetup) -> Result<Self, ServeError> {
        let ServiceSetup {
            handlers,
            channel,
            pollers,
            workers,
            affinity,
            most_active,
            regions,
            ..
        } = setup;
        let regions = Arc::new(ServedRegions::allocate(&device, &regions)?);
        let handles = (0..pollers)
            .map(|_| {
                Ok(Arc::new(PollerHandle::new(
                    device.create_completion_channel()?,
                )))
            })
            .collect::<Result<Vec<_>, VerbsError>>()?;
        let mut threads = Vec::new();
        let mut queue = None;
        if handlers.needs_workers() {
            let targets = handles.clone();
            let (jobs, workers) = workers::start(workers, move |poller: usize, finished| {
                targets[poller].send(Mail::Finished(finished));
            })?;
            queue = Some(jobs);
            threads.extend(workers);
        }
        let running = Arc::new(AtomicUsize::new(pollers));
        let counters: Vec<_> = (0..pollers)
            .map(|_| Arc::new(Counters::default()))
            .collect();
        for (i, handle) in handles.iter().enumerate() {
            let context = Context {
                handlers: handlers.clone(),
                workers: queue.clone(),
                counters: Arc::clone(&counters[i]),
            };
            let poller = Poller::new(Arc::clone(handle), context, channel.wait);
            let running = Arc::clone(&running);
            let core = affinity.map(|first| first + i);
            let run = move || {
                if let Some(core) = core.filter(|_| !thread::is_simulated()) {
                    super::pin(core);
                }
                poller.run();
                running.fetch_sub(1, Ordering::Release);
            };
            let name = format!("dunlin-poller-{i}");
            threads.push(device.spawn(name, core, Box::new(run))?);
        }
        let woken: Vec<Arc<PollerHandle<D>>> = handles.clone();
        let wake = move || {
            for poller in &woken {
                poller.wake().wake();
            }
        };
        let spawner = device.clone();
        let spawn = move |name: &str, run: Box<dyn FnOnce() + Send>| {
            spawner.spawn(name.to_owned(), None, run)
        };
        Ok(Self {
            admission: Admission::new(most_active, Box::new(spawn), Box::new(wake)),
            regions,
            device,
            channel,
            pollers: handles,
            counters,
            threads: Mutex::new(threads),
            running,
            next_id: AtomicU64::new(1),
        })
    }
}

impl<D: Device> RingService<D> {
    fn accept(
        &self,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<(EndpointAddress, Parameters), VerbsError> {
        let least = self
            .pollers
            .iter()
            .enumerate()
            .min_by_key(|(_, poller)| poller.connections.load(Ordering::Relaxed));
        let Some((index, poller)) = least else {
            return Err(VerbsError::Peer("the server has no pollers".into()));
        };
        let ring = UnconnectedRing::new(&self.device, poller.wake(), &self.channel)?;
        let mut answer = (ring.address(), ring.parameters());
        let channel = ring.join(peer, parameters)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let admitted = parameters.get(SENDER_PARAMETER).map(|&sender| {
            let credits = u64::from(CREDITS);
            answer.1.insert(CREDITS_PARAMETER.to_string(), credits);
            // A client that counts its lanes wrongly harms itself alone.
            let number = parameters.get(LANE_PARAMETER).copied().unwrap_or(id);
            Admitted::new(&self.admission, sender, number)
        });
        poller.connections.fetch_add(1, Ordering::Relaxed);
        self.counters[index].accepted();
        let connection = Connection::new(id, index, channel, admitted, Arc::clone(&self.regions));
        poller.send(Mail::Adopt(Box::new(connection)));
        Ok(answer)
    }

    fn connections(&self) -> usize {
        self.pollers
            .iter()
            .map(|poller| poller.connections.load(Ordering::Relaxed))
            .sum()
    }

    fn count(&self, sum: &mut ServerStatistics) {
        for counters in &self.counters {
            counters.add_to(sum);
        }
    }

    fn drain(&self) {
        for poller in &self.pollers {
            poller.drain();
        }
    }

    fn is_over(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0
    }

    fn end(&self) {
        self.admission.end();
        for poller in &self.pollers {
            poller.end();
        }
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        // Pollers first in effect: workers end when the pollers' queues are gone.
        for thread in threads.into_iter().rev() {
            if thread.join().is_err() {
                tracing::error!("a server thread panicked");
            }
        }
    }
}
