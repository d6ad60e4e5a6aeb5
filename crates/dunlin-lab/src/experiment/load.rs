//! The server and the clients of an experiment: the RPC of `dunlin-rpc`, unchanged, on simulated hosts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use dunlin::{
    ChannelConfig, Client, ConnectError, DatagramBatches, LocalServer, ServeError, Server, WaitMode,
};
use dunlin_sim::{Cluster, SimDevice};
use dunlin_verbs::{Device, VerbsError, Work};

use super::caller::{self, Seen, Signals, Start};
use super::model::{Clients, Point, Server as Settings};
use crate::dice::Dice;
use crate::load::DATAGRAMS;

/// The first handler. The handler of a group of clients has the group's number added to this one, and answers with as
/// many bytes as the group wants.
const FIRST_HANDLER: u16 = 1;
/// Number of sessions of a poller that arrive together over datagrams, and the time it has to adopt them: it posts 64
/// RECEIVEs for each, at half a microsecond.
const NEWCOMERS: usize = 16;
const TAKING_IN_NS: u64 = 1_000_000;
/// Time within which threads end after they were told to, in steps.
const ENDING_STEPS: usize = 200;
const ENDING_STEP_NS: u64 = 1_000_000;
/// Time within which clients and the server end.
const CLOSING_NS: u64 = 5_000_000;

/// Why a point could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The server did not start.
    #[error("the server cannot start: {0}")]
    Serve(#[from] ServeError),
    /// A client, or one of its threads, could not connect.
    #[error("clients `{group}` cannot connect: {source}")]
    Connect {
        /// Name of its group.
        group: String,
        /// The error.
        #[source]
        source: Box<ConnectError>,
    },
    /// A simulated device refused an object that flows need.
    #[error("flows cannot be set up: {0}")]
    Flows(#[from] VerbsError),
}

/// A running server and its clients.
#[derive(Debug)]
pub(super) struct Load {
    server: (LocalServer, usize),
    /// Clients with the numbers of their hosts, group after group.
    clients: Vec<(Client, usize)>,
    /// End of each group in `clients`.
    ends: Vec<usize>,
    pub(super) seen: Vec<Arc<Seen>>,
    signals: Arc<Signals>,
    /// Number of threads that have not ended, by host.
    running: Arc<[AtomicUsize]>,
}

impl Load {
    /// Puts server and clients on the hosts of a cluster. They do nothing until [`Load::begin`].
    pub(super) fn new(
        cluster: &Cluster,
        point: &Point,
        settings: &Settings,
        seed: u64,
    ) -> Result<Self, RunError> {
        let hosts = cluster.hosts();
        let mut load = Self {
            server: (serve(cluster, point, settings)?, settings.host),
            clients: Vec::new(),
            ends: Vec::new(),
            seen: point.clients.iter().map(|_| Arc::default()).collect(),
            signals: Arc::default(),
            running: hosts.iter().map(|_| AtomicUsize::new(0)).collect(),
        };
        if point.run.paced_ns.is_some() {
            load.signals.paced.store(true, Ordering::Relaxed);
            load.signals.begun.store(true, Ordering::Relaxed);
        }
        // Threads of groups that share a host are placed behind those of the group before. The server's pollers are on
        // the first cores of its host.
        let mut cores = vec![0; hosts.len()];
        cores[settings.host] = settings.pollers;
        let mut came = 0;
        for number in 0..point.clients.len() {
            let group = &point.clients[number];
            let first = load.clients.len();
            let joined = load.connect(cluster, point, group).and_then(|()| {
                came += load.clients.len() - first;
                load.start(
                    cluster,
                    (point, number, first),
                    (settings.pollers, seed),
                    (&mut cores, &mut came),
                )
            });
            if let Err(source) = joined {
                load.end(cluster, &[]);
                return Err(RunError::Connect {
                    group: group.name.clone(),
                    source: Box::new(source),
                });
            }
            load.ends.push(load.clients.len());
        }
        Ok(load)
    }

    /// Connects the processes of a group.
    fn connect(
        &mut self,
        cluster: &Cluster,
        point: &Point,
        group: &Clients,
    ) -> Result<(), ConnectError> {
        let (hosts, acceptor) = (cluster.hosts(), self.server.0.acceptor());
        for _ in 0..group.processes {
            for &host in &group.hosts {
                let client = Client::builder()
                    .preset(group.preset)
                    .lanes(group.lanes)
                    .dispatched(group.dispatcher)
                    .channel(ChannelConfig {
                        loss_timeout: group.loss_timeout,
                        ..channel(point, group.datagram_messages)
                    })
                    .deadline(group.deadline)
                    .connect_on(cluster.device(hosts[host]), &acceptor)?;
                self.clients.push((client, host));
            }
        }
        Ok(())
    }

    /// Starts the threads of a group, one of each process in turn, as when processes start together.
    fn start(
        &self,
        cluster: &Cluster,
        (point, number, first): (&Point, usize, usize),
        (pollers, seed): (usize, u64),
        (cores, came): (&mut [usize], &mut usize),
    ) -> Result<(), ConnectError> {
        let (hosts, group) = (cluster.hosts(), &point.clients[number]);
        for thread in 0..group.threads {
            for (place, (client, host)) in self.clients.iter().enumerate().skip(first) {
                if DATAGRAMS.contains(&group.preset) && *came >= NEWCOMERS * pollers {
                    cluster.run_for(TAKING_IN_NS);
                    *came = 0;
                }
                *came += 1;
                let unique = (place * group.threads + thread) as u64;
                let start = Start {
                    pipeline: client.pipeline()?,
                    handler: FIRST_HANDLER + number as u16,
                    request: bytes(group.request_of(thread), unique),
                    dice: Dice::new(seed ^ unique.wrapping_mul(0x9e37_79b9)),
                    seen: Arc::clone(&self.seen[number]),
                    signals: Arc::clone(&self.signals),
                };
                let host = *host;
                // Threads of a process are next to each other.
                let process = (place - first) / group.hosts.len();
                let core = cores[host] + process * group.threads + thread;
                let core = core % cluster.device(hosts[host]).cores();
                self.running[host].fetch_add(1, Ordering::Relaxed);
                let (group, running) = (group.clone(), Arc::clone(&self.running));
                let name = format!("client {unique} of {}", group.name);
                let thread = cluster.spawn_thread(hosts[host], core, move || {
                    caller::run(start, &group);
                    running[host].fetch_sub(1, Ordering::Relaxed);
                });
                cluster.name_thread(thread, name);
            }
        }
        for &host in &group.hosts {
            cores[host] += group.processes * group.threads;
        }
        Ok(())
    }

    /// Lets all threads call without limit.
    pub(super) fn begin(&self) {
        self.signals.paced.store(false, Ordering::Relaxed);
        self.signals.begun.store(true, Ordering::Relaxed);
    }

    /// Messages written so far by the clients of each group, and requests in them.
    pub(super) fn sent(&self) -> Vec<(u64, u64)> {
        let begins = [0].into_iter().chain(self.ends.iter().copied());
        let groups = begins.zip(&self.ends);
        let sent = |clients: &[(Client, usize)]| {
            let figures = clients.iter().filter_map(|(client, _)| client.figures());
            let lanes = figures.flat_map(|figures| figures.lanes);
            lanes.fold((0, 0), |sum, lane| {
                (sum.0 + lane.messages, sum.1 + lane.requests)
            })
        };
        groups
            .map(|(begin, &end)| sent(&self.clients[begin..end]))
            .collect()
    }

    /// Number of queue pairs active in the server's scheduler.
    pub(super) fn active(&self) -> usize {
        let senders = self.server.0.senders();
        let lanes = senders.iter().flat_map(|sender| &sender.lanes);
        lanes.filter(|lane| lane.active).count()
    }

    /// Ends the threads, the clients and the server. Those on crashed hosts are left as they are: nobody ends a process
    /// that was killed.
    pub(super) fn end(self, cluster: &Cluster, crashed: &[usize]) {
        self.signals.stopping.store(true, Ordering::Relaxed);
        self.begin();
        let live = |host: &usize| !crashed.contains(host);
        let running = |host: usize| self.running[host].load(Ordering::Relaxed) > 0;
        for _ in 0..ENDING_STEPS {
            if !(0..self.running.len()).any(|host| live(&host) && running(host)) {
                break;
            }
            cluster.run_for(ENDING_STEP_NS);
        }
        let hosts = cluster.hosts();
        for (client, host) in self.clients {
            // Ending a client with a thread that still waits would wait for that thread.
            let ends = live(&host) && self.running[host].load(Ordering::Relaxed) == 0;
            match ends {
                true => drop(cluster.spawn_thread(hosts[host], 0, move || drop(client))),
                false => std::mem::forget(client),
            }
        }
        cluster.run_for(CLOSING_NS);
        let (server, host) = self.server;
        match live(&host) {
            true => drop(cluster.spawn_thread(hosts[host], 0, move || drop(server))),
            false => std::mem::forget(server),
        }
        cluster.run_for(CLOSING_NS);
    }
}

fn serve(cluster: &Cluster, point: &Point, settings: &Settings) -> Result<LocalServer, ServeError> {
    let handler_ns = settings.handler_ns;
    let mut server = Server::unbound();
    for (number, group) in point.clients.iter().enumerate() {
        let response = bytes(group.response_bytes, 0);
        server = server.handle(FIRST_HANDLER + number as u16, move |_, reply| {
            SimDevice::charge(Work::Compute(handler_ns));
            reply.write(&response)
        });
    }
    server
        .channel(ChannelConfig {
            // Like FLOCK's server, and like the figures.
            answer_each_message: true,
            ..channel(point, settings.datagram_messages)
        })
        .pollers(settings.pollers)
        .pin_pollers(0)
        .max_active_queue_pairs(settings.most_active)
        .grouping(settings.grouping)
        .serve_on(cluster.device(cluster.hosts()[settings.host]))
}

/// Both sides agree on the maximum outstanding; each has its own number of messages per datagram.
fn channel(point: &Point, datagram_messages: usize) -> ChannelConfig {
    let most = point.clients.iter().map(|group| group.outstanding).max();
    ChannelConfig {
        max_outstanding: most.unwrap_or(1).max(64),
        wait: WaitMode::Spin,
        datagram_batches: DatagramBatches {
            messages: datagram_messages,
            ..DatagramBatches::default()
        },
        ..ChannelConfig::default()
    }
}

/// Bytes that distinguish threads.
fn bytes(count: usize, thread: u64) -> Vec<u8> {
    let byte = |i: usize| (thread >> (8 * (i % 8))) as u8 ^ i as u8;
    (0..count).map(byte).collect()
}
