//! The server and the clients of an experiment: the RPC of `dunlin-rpc`, as it is, on simulated hosts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin::{
    CallError, ChannelConfig, Client, ConnectError, Grouping, LocalServer, Pipeline, ServeError,
    Server, WaitMode,
};
use dunlin_sim::{Cluster, SimDevice};
use dunlin_verbs::{thread, Device, Work};

use super::model::{Arrivals, Clients, Point};
use crate::dice::Dice;
use crate::load::DATAGRAMS;

/// Handlers have the number of their group of clients, from this one: each answers with as much as its group wants.
const FIRST_HANDLER: u16 = 1;
/// Longest rest of a thread that has answers to take which others may take for it, or calls that will be due.
const REST: Duration = Duration::from_micros(1);
/// How often a thread looks whether all may begin.
const STANDING_BY: Duration = Duration::from_micros(5);
/// Sessions of a poller that come together over datagrams, and how long it has to adopt them: it posts 64 RECEIVEs for
/// each, at half a microsecond.
const NEWCOMERS: usize = 16;
const TAKING_IN_NS: u64 = 1_000_000;
/// By when threads have ended after they were told to, in steps.
const ENDING_STEPS: usize = 200;
const ENDING_STEP_NS: u64 = 1_000_000;
/// By when clients and the server have ended.
const CLOSING_NS: u64 = 5_000_000;

/// Why a point could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The server did not start.
    #[error("the server cannot start: {0}")]
    Serve(#[from] ServeError),
    /// A client, or one of its threads, got no connection.
    #[error("clients `{group}` cannot connect: {source}")]
    Connect {
        /// Their name.
        group: String,
        /// Why.
        #[source]
        source: ConnectError,
    },
}

/// What threads of a group and who measures them share.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) calls: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) latencies_ns: Mutex<Vec<u32>>,
}

impl Seen {
    /// The latencies since it was last asked.
    pub(super) fn take(&self) -> Vec<u32> {
        let latencies = self.latencies_ns.lock();
        std::mem::take(&mut *latencies.unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug, Default)]
struct Flags {
    begun: AtomicBool,
    stopping: AtomicBool,
    /// Threads that have not ended, by host.
    running: Vec<AtomicUsize>,
}

/// A server and clients at work.
#[derive(Debug)]
pub(super) struct Load {
    server: (LocalServer, usize),
    /// With their hosts.
    clients: Vec<(Client, usize)>,
    pub(super) seen: Vec<Arc<Seen>>,
    flags: Arc<Flags>,
}

impl Load {
    /// Puts them on the hosts of a cluster. They do nothing until [`Load::begin`].
    pub(super) fn new(cluster: &Cluster, point: &Point, seed: u64) -> Result<Self, RunError> {
        let hosts = cluster.hosts();
        let server = serve(cluster, point)?;
        let acceptor = server.acceptor();
        let flags = Arc::new(Flags {
            running: hosts.iter().map(|_| AtomicUsize::new(0)).collect(),
            ..Flags::default()
        });
        let mut load = Self {
            server: (server, point.server.host),
            clients: Vec::new(),
            seen: Vec::new(),
            flags,
        };
        // Threads of groups that share a host go on where those of the group before ended. The server's pollers are on
        // the first cores of its host.
        let mut cores = vec![0; hosts.len()];
        cores[point.server.host] = point.server.pollers;
        let mut came = 0;
        for (number, group) in point.clients.iter().enumerate() {
            let refused = |source| RunError::Connect {
                group: group.name.clone(),
                source,
            };
            let seen = Arc::new(Seen::default());
            load.seen.push(Arc::clone(&seen));
            let first = load.clients.len();
            for &host in &group.hosts {
                for _ in 0..group.processes {
                    let client = Client::builder()
                        .preset(group.preset)
                        .lanes(group.lanes)
                        .dispatched(group.dispatcher)
                        .channel(ChannelConfig {
                            loss_timeout: group.loss_timeout,
                            ..channel(point)
                        })
                        .deadline(group.deadline)
                        .connect_on(cluster.device(hosts[host]), &acceptor);
                    let client = client.map_err(refused)?;
                    load.clients.push((client, host));
                    came += 1;
                }
            }
            // Thread after thread of each process, as they come when processes start together.
            for thread in 0..group.threads {
                for place in first..load.clients.len() {
                    if DATAGRAMS.contains(&group.preset) && came >= NEWCOMERS * point.server.pollers
                    {
                        cluster.run_for(TAKING_IN_NS);
                        came = 0;
                    }
                    let (client, host) = &load.clients[place];
                    let pipeline = client.pipeline().map_err(refused)?;
                    came += 1;
                    let unique = (place * group.threads + thread) as u64;
                    let caller = Caller {
                        pipeline,
                        handler: FIRST_HANDLER + number as u16,
                        request: request(group.request_bytes, unique),
                        group: group.clone(),
                        dice: Dice::new(seed ^ unique.wrapping_mul(0x9e37_79b9)),
                        seen: Arc::clone(&seen),
                        flags: Arc::clone(&load.flags),
                    };
                    let host = *host;
                    let core = cores[host] % cluster.device(hosts[host]).cores();
                    cores[host] += 1;
                    load.flags.running[host].fetch_add(1, Ordering::Relaxed);
                    let flags = Arc::clone(&load.flags);
                    cluster.spawn_thread(hosts[host], core, move || {
                        caller.run();
                        flags.running[host].fetch_sub(1, Ordering::Relaxed);
                    });
                }
            }
        }
        Ok(load)
    }

    /// Lets all threads call.
    pub(super) fn begin(&self) {
        self.flags.begun.store(true, Ordering::Relaxed);
    }

    /// Queue pairs that the server's scheduler has active.
    pub(super) fn active(&self) -> usize {
        let senders = self.server.0.senders();
        let lanes = senders.iter().flat_map(|sender| &sender.lanes);
        lanes.filter(|lane| lane.active).count()
    }

    /// Ends the threads, the clients and the server. Those of hosts that have crashed are left as they are: nobody ends
    /// a process that was killed.
    pub(super) fn end(self, cluster: &Cluster, crashed: &[usize]) {
        self.flags.stopping.store(true, Ordering::Relaxed);
        self.begin();
        let live = |host: &usize| !crashed.contains(host);
        let running = |host: usize| self.flags.running[host].load(Ordering::Relaxed) > 0;
        for _ in 0..ENDING_STEPS {
            if !(0..self.flags.running.len()).any(|host| live(&host) && running(host)) {
                break;
            }
            cluster.run_for(ENDING_STEP_NS);
        }
        let hosts = cluster.hosts();
        for (client, host) in self.clients {
            // One with a thread that still waits would wait for it.
            let ends = live(&host) && self.flags.running[host].load(Ordering::Relaxed) == 0;
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

fn serve(cluster: &Cluster, point: &Point) -> Result<LocalServer, ServeError> {
    let settings = &point.server;
    let handler_ns = settings.handler_ns;
    let mut server = Server::unbound();
    for (number, group) in point.clients.iter().enumerate() {
        let response = request(group.response_bytes, 0);
        server = server.handle(FIRST_HANDLER + number as u16, move |_, reply| {
            SimDevice::charge(Work::Compute(handler_ns));
            reply.write(&response)
        });
    }
    server
        .channel(ChannelConfig {
            // As FLOCK's server does, and the figures with it.
            answer_each_message: true,
            ..channel(point)
        })
        .pollers(settings.pollers)
        .pin_pollers(0)
        .max_active_queue_pairs(settings.most_active)
        .grouping(Grouping {
            clients: settings.group,
            slice: settings.slice,
            by_priority: false,
        })
        .serve_on(cluster.device(cluster.hosts()[settings.host]))
}

/// Both sides agree on what is out at most.
fn channel(point: &Point) -> ChannelConfig {
    let most = point.clients.iter().map(|group| group.outstanding).max();
    ChannelConfig {
        max_outstanding: most.unwrap_or(1).max(64),
        wait: WaitMode::Spin,
        ..ChannelConfig::default()
    }
}

/// Bytes that tell threads apart.
fn request(bytes: usize, thread: u64) -> Vec<u8> {
    let byte = |i: usize| (thread >> (8 * (i % 8))) as u8 ^ i as u8;
    (0..bytes).map(byte).collect()
}

/// One client thread.
struct Caller {
    pipeline: Pipeline,
    handler: u16,
    request: Vec<u8>,
    group: Clients,
    dice: Dice,
    seen: Arc<Seen>,
    flags: Arc<Flags>,
}

/// Which calls are out, and which may be made.
struct Slots {
    begun: Vec<Instant>,
    /// Those that are free, with the time from which on they may be used, in that order.
    free: VecDeque<(u64, Instant)>,
    think: Duration,
    response_bytes: usize,
    seen: Arc<Seen>,
}

impl Slots {
    fn take(&mut self, tag: u64, answer: Result<&[u8], CallError>) {
        let now = thread::now();
        self.free.push_back((tag, now + self.think));
        let seen = &self.seen;
        if !answer.is_ok_and(|bytes| bytes.len() == self.response_bytes) {
            seen.failed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        seen.calls.fetch_add(1, Ordering::Relaxed);
        let took = now
            .saturating_duration_since(self.begun[tag as usize])
            .as_nanos();
        let mut all = seen
            .latencies_ns
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.push(took.min(u128::from(u32::MAX)) as u32);
    }
}

/// When the calls of an open loop are due.
struct Schedule {
    arrivals: Arrivals,
    dice: Dice,
    next: Instant,
}

impl Schedule {
    fn advance(&mut self) {
        let gap = match self.arrivals.random {
            // The inverse of the exponential distribution; the share is above zero.
            true => {
                let share = (self.dice.between(1, 1 << 40) as f64) / (1u64 << 40) as f64;
                -share.ln() * self.arrivals.gap_ns
            }
            false => self.arrivals.gap_ns,
        };
        self.next += Duration::from_nanos(gap.round() as u64);
    }
}

impl Caller {
    fn run(self) {
        let Self {
            mut pipeline,
            handler,
            request,
            group,
            mut dice,
            seen,
            flags,
        } = self;
        while !flags.begun.load(Ordering::Relaxed) {
            thread::sleep(STANDING_BY);
        }
        let begin = thread::now();
        let mut slots = Slots {
            begun: vec![begin; group.outstanding],
            free: (0..group.outstanding as u64)
                .map(|tag| (tag, begin))
                .collect(),
            think: group.think,
            response_bytes: group.response_bytes,
            seen: Arc::clone(&seen),
        };
        let mut schedule = group.arrivals.map(|arrivals| {
            // Threads are not in step with each other.
            let first = dice.between(0, arrivals.gap_ns as u64);
            Schedule {
                arrivals,
                next: begin + Duration::from_nanos(first),
                dice,
            }
        });
        let result = loop {
            let stopping = flags.stopping.load(Ordering::Relaxed);
            if stopping && pipeline.outstanding() == 0 {
                break Ok(());
            }
            let mut due = None;
            let (mut full, mut lost) = (false, None);
            while !stopping {
                let now = thread::now();
                let (Some(&(tag, ready)), schedule) = (slots.free.front(), &mut schedule) else {
                    break;
                };
                let when = schedule.as_ref().map_or(ready, |schedule| schedule.next);
                if when > now {
                    due = Some(when - now);
                    break;
                }
                // In a closed loop a call begins when it is made, in an open one when it was due.
                slots.begun[tag as usize] = schedule.as_ref().map_or(now, |schedule| schedule.next);
                match pipeline.submit(handler, &request, tag) {
                    Ok(true) => {
                        slots.free.pop_front();
                        if let Some(schedule) = schedule {
                            schedule.advance();
                        }
                    }
                    Ok(false) => {
                        full = true;
                        break;
                    }
                    Err(error) => {
                        lost = Some(error);
                        break;
                    }
                }
            }
            if let Some(error) = lost {
                break Err(error);
            }
            // With everything out there is nothing to do but wait for an answer.
            let taken = match due.is_none() && !full && pipeline.outstanding() > 0 {
                true => pipeline.wait(|tag, answer| slots.take(tag, answer)),
                false => pipeline.poll(|tag, answer| slots.take(tag, answer)),
            };
            match taken {
                Err(error) => break Err(error),
                Ok(0) => thread::idle(due.unwrap_or(REST).min(REST), false),
                Ok(_) => {}
            }
        };
        if result.is_err() {
            // What is out will not be answered.
            let out = group.outstanding.saturating_sub(slots.free.len());
            seen.failed.fetch_add(out as u64, Ordering::Relaxed);
        }
        drop(pipeline);
    }
}
