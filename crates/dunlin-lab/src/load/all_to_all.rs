//! FaSST's benchmark (§4.4, §5): every machine calls every other. A thread's coroutines post batches of requests to
//! servers chosen at random, over one queue pair for all of them.
//!
//! A thread of FaSST calls and answers (§4.1): so do the server's polling threads unless separate threads are
//! requested. Otherwise a machine has threads that call and pollers that answer, each on a core of its own, and a core
//! of FaSST is a share of both. The rate of a core is calls divided by the time that cores were busy.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin::{
    ChannelConfig, Client, DatagramBatches, LocalServer, Peers, PollingThread, Preset, Server,
    ThreadProgress, WaitMode,
};
use dunlin_sim::{Cluster, HostId, SimDevice};
use dunlin_verbs::{thread, Device, Work};

use super::measure::{warm_up, Counting, Latencies};
use super::rpc::{end_in, payload, take_in, ECHO};
use super::shared::Shared;
use super::Window;
use crate::dice::Dice;

/// Longest response.
const RESPONSE_BYTES: usize = 4096;
/// Virtual milliseconds within which threads end: longer than the detection of lost calls takes.
const ENDING_MS: usize = 4_000;
/// Longest rest of a thread that finds no room.
const REST: Duration = Duration::from_micros(20);

/// Settings of the machines.
#[derive(Clone, Copy, Debug)]
pub struct AllToAll {
    /// Preset of the calls.
    pub preset: Preset,
    /// Threads of a machine that call and do not answer. If zero, those that answer also call.
    pub threads: usize,
    /// Threads of a machine that answer.
    pub pollers: usize,
    /// Coroutines of a thread that calls.
    pub workers: usize,
    /// Requests of a coroutine that are outstanding together, each to another machine if there are enough.
    pub batch: usize,
    /// Number of machines that call, the first ones; all if there are not more.
    pub askers: usize,
    /// Number of other machines that a machine calls, those behind it in a ring; all if there are not more.
    pub reach: usize,
    /// Sessions of a thread to each other machine: additional ones represent further machines.
    pub sessions: usize,
    /// Bytes of a request.
    pub bytes: usize,
    /// Bytes of a response, at most 4096.
    pub response_bytes: usize,
    /// Computation of a handler, in nanoseconds.
    pub handler_ns: u64,
    /// Batching of verbs, by threads that call and by pollers.
    pub batches: [DatagramBatches; 2],
}

impl AllToAll {
    /// Settings with 32 bytes each way, everything batched, a handler of 20 ns (declared, as in all figures of this
    /// testbed).
    pub fn new(preset: Preset, threads: usize, pollers: usize) -> Self {
        Self {
            preset,
            threads,
            pollers,
            workers: 20,
            batch: 1,
            askers: usize::MAX,
            reach: usize::MAX,
            sessions: 1,
            bytes: 32,
            response_bytes: 32,
            handler_ns: 20,
            batches: [DatagramBatches::default(); 2],
        }
    }

    /// Number of threads of a machine that call.
    fn asking(&self) -> usize {
        match self.threads {
            0 => self.pollers,
            threads => threads,
        }
    }
}

/// Holds a polling thread's client state, once there are machines to call.
type Place = Arc<Mutex<Option<Thread>>>;

/// Results of a window, over all machines and for each of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllToAllResult {
    /// Millions of calls per second of a machine, which answers as many.
    pub mops: f64,
    /// Number of busy cores of a machine.
    pub busy_cores: f64,
    /// Median time from posting a batch to its last answer, in microseconds.
    pub median_us: f64,
    /// 99th percentile of this time.
    pub p99_us: f64,
    /// Longest time until a failed call was reported, since the machines began.
    pub told_us: f64,
    /// Doorbells per call.
    pub doorbells: f64,
    /// Of these, those of the first machine.
    pub doorbells_of_first: f64,
    /// SENDs and RECEIVEs per call.
    pub verbs: f64,
    /// Packets per call.
    pub packets: f64,
    /// Datagrams that found no RECEIVE.
    pub dropped: f64,
    /// Calls of all machines that were answered correctly.
    pub calls: f64,
    /// All calls since the machines began, including failed ones.
    pub all_calls: f64,
    /// Number of machines that have answered calls.
    pub answering: usize,
    /// Calls that failed since the machines began, also before the window, and calls with wrong answers.
    pub failed: (u64, u64),
}

impl AllToAllResult {
    /// Millions of calls per second of a core that divides its time between calling and answering.
    pub fn mops_of_core(&self) -> f64 {
        self.mops / self.busy_cores.max(f64::MIN_POSITIVE)
    }
}

/// Runs machines that call each other, and measures.
///
/// # Panics
/// When a device or the RPC refuses, or a thread does not end.
pub fn all_to_all(cluster: &Cluster, plan: &AllToAll, window: Window) -> AllToAllResult {
    let shared = Arc::new(Shared::default());
    let hosts = cluster.hosts();
    let places: Vec<Vec<Place>> = hosts
        .iter()
        .map(|_| (0..plan.pollers).map(|_| Place::default()).collect())
        .collect();
    let servers: Vec<LocalServer> = hosts
        .iter()
        .zip(&places)
        .map(|(&host, places)| serve(cluster, host, plan, places))
        .collect();
    let acceptors: Vec<_> = servers.iter().map(LocalServer::acceptor).collect();
    let reach = plan.reach.min(hosts.len() - 1);
    let connect = |(from, &host): (usize, &HostId)| -> Vec<Client> {
        let others = (1..=reach).map(|step| (from + step) % hosts.len());
        // One device for all of them, as in a process: it holds what they share.
        let device = cluster.device(host);
        let connect = |to: usize| {
            Client::builder()
                .preset(plan.preset)
                .lanes(plan.asking() * plan.sessions)
                .servers(reach)
                .channel(channel(plan, hosts.len(), plan.batches[0]))
                .connect_on(device.clone(), &acceptors[to])
                .expect("a client")
        };
        others.map(connect).collect()
    };
    let clients: Vec<Vec<Client>> = hosts
        .iter()
        .enumerate()
        .take(plan.askers)
        .map(connect)
        .collect();
    // What `auto` has chosen.
    let preset = clients[0][0].info().preset;
    let mut came = reach;
    for number in 0..plan.asking() {
        for ((machine, clients), &host) in clients.iter().enumerate().zip(&hosts) {
            let all = (0..plan.sessions).flat_map(|_| clients);
            let seed = (machine * plan.asking() + number) as u64 + 1;
            let peers = Peers::new(all).expect("lanes");
            let load = Thread::new(peers, clients.len() * plan.sessions, plan, (&shared, seed));
            match plan.threads {
                0 => *lock(&places[machine][number]) = Some(load),
                _ => drop(cluster.spawn_thread(host, plan.pollers + number, move || load.run())),
            }
        }
        came += reach * plan.sessions;
        take_in(cluster, preset, &mut came, plan.pollers);
    }
    let result = measure(cluster, &shared, window);
    shared.stop(cluster, ENDING_MS);
    let answered = |server: &&LocalServer| server.statistics().requests > 0;
    let answering = servers.iter().filter(answered).count();
    end_in(cluster, clients.into_iter().zip(hosts.iter().copied()));
    end_in(cluster, servers.into_iter().zip(hosts.iter().copied()));
    let failed = shared.failed();
    AllToAllResult {
        all_calls: (shared.calls.load(Ordering::Relaxed) + failed.0 + failed.1) as f64,
        told_us: shared.told_ns.load(Ordering::Relaxed) as f64 / 1e3,
        answering,
        failed,
        ..result
    }
}

fn measure(cluster: &Cluster, shared: &Shared, window: Window) -> AllToAllResult {
    warm_up(cluster, &shared.calls, window.warm_ns);
    let hosts = cluster.hosts();
    let before = shared.calls.load(Ordering::Relaxed);
    let counting = Counting::begin(cluster, &hosts);
    shared.measuring.store(true, Ordering::Relaxed);
    cluster.run_for(window.measured_ns);
    shared.measuring.store(false, Ordering::Relaxed);
    let calls = (shared.calls.load(Ordering::Relaxed) - before) as f64;
    let counted = counting.end();
    let latencies = Latencies::take(&shared.latencies_ns);
    let (machines, measured_ns) = (hosts.len() as f64, window.measured_ns as f64);
    AllToAllResult {
        mops: calls * 1e3 / measured_ns / machines,
        busy_cores: counted.all(|c| c.busy_ps) / (measured_ns * 1e3) / machines,
        median_us: latencies.us(0.5),
        p99_us: latencies.us(0.99),
        told_us: 0.0,
        doorbells: counted.all(|c| c.doorbells) / calls.max(1.0),
        doorbells_of_first: counted.first(|c| c.doorbells) / calls.max(1.0),
        verbs: counted.all(|c| c.requests_started + c.messages_received) / calls.max(1.0),
        packets: counted.all(|c| c.packets_sent) / calls.max(1.0),
        dropped: counted.all(|c| c.receiver_drops),
        calls,
        all_calls: 0.0,
        answering: 0,
        failed: (0, 0),
    }
}

/// A session has room for everything that the coroutines of a thread may have outstanding to one machine: FaSST's
/// receive queues have room for that from each of the others (§4.1).
fn channel(plan: &AllToAll, machines: usize, datagram_batches: DatagramBatches) -> ChannelConfig {
    let sessions = plan.reach.min(machines - 1) * plan.sessions;
    ChannelConfig {
        ring_bytes: 16 << 10,
        max_outstanding: plan.workers * plan.batch.div_ceil(sessions),
        wait: WaitMode::Spin,
        datagram_batches,
        ..ChannelConfig::default()
    }
}

fn lock(place: &Place) -> std::sync::MutexGuard<'_, Option<Thread>> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(cluster: &Cluster, host: HostId, plan: &AllToAll, places: &[Place]) -> LocalServer {
    let (bytes, handler_ns) = (plan.response_bytes.min(RESPONSE_BYTES), plan.handler_ns);
    let answer = payload(RESPONSE_BYTES, 0);
    let server = Server::unbound().handle(ECHO, move |_request, reply| {
        SimDevice::charge(Work::Compute(handler_ns));
        reply.write(&answer[..bytes])
    });
    let places = places.to_vec();
    let task = move |polling: PollingThread| {
        let place = Arc::clone(&places[polling.index()]);
        let mut asking = None;
        move || {
            let Some(thread) = &mut asking else {
                asking = lock(&place).take();
                return ThreadProgress::Waiting;
            };
            let progress = thread.turn();
            if progress == ThreadProgress::Idle {
                asking = None;
            }
            progress
        }
    };
    let server = match plan.threads {
        0 => server.on_polling_threads(task),
        _ => server,
    };
    server
        .channel(channel(plan, cluster.hosts().len(), plan.batches[1]))
        .pollers(plan.pollers)
        .pin_pollers(0)
        .serve_on(cluster.device(host))
        .expect("a server")
}

/// A thread that calls.
struct Thread {
    peers: Peers,
    servers: usize,
    plan: AllToAll,
    request: Vec<u8>,
    dice: Dice,
    workers: Workers,
    posting: Option<Posting>,
    lost: bool,
    /// Dropped last, after everything above.
    _counted: Counted,
}

/// A batch that a coroutine is posting.
struct Posting {
    worker: usize,
    /// The peer of its first request.
    first: usize,
    posted: usize,
}

/// Result of an attempt to run a coroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Went,
    /// The coroutine has to wait until requests have left.
    NoRoom,
    /// All coroutines wait for answers.
    Nobody,
}

/// Counts a running thread.
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.running.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A coroutine.
#[derive(Clone, Copy)]
struct Worker {
    out: usize,
    /// Whether all answers to its batch so far were correct.
    whole: bool,
    begun: Instant,
}

/// The coroutines of a thread, and those of them that are ready.
struct Workers {
    all: Vec<Worker>,
    ready: Vec<usize>,
    response_bytes: usize,
    shared: Arc<Shared>,
}

impl Workers {
    fn take(&mut self, tag: u64, answer: Result<&[u8], dunlin::CallError>) {
        let shared = &self.shared;
        let number = tag as usize;
        let worker = &mut self.all[number];
        let begun = worker.begun;
        let took = || thread::now().duration_since(begun).as_nanos();
        if shared.is_right(answer, |bytes| bytes.len() == self.response_bytes) {
            shared.calls.fetch_add(1, Ordering::Relaxed);
        } else {
            worker.whole = false;
            shared.told_ns.fetch_max(took() as u64, Ordering::Relaxed);
        }
        worker.out -= 1;
        if worker.out > 0 {
            return;
        }
        self.ready.push(number);
        if worker.whole && shared.measuring.load(Ordering::Relaxed) {
            let mut all = shared.latencies_ns.lock().expect("no thread panicked");
            all.push(took() as u64);
        }
    }
}

impl Thread {
    fn new(peers: Peers, servers: usize, plan: &AllToAll, of: (&Arc<Shared>, u64)) -> Self {
        let (shared, seed) = of;
        let idle = Worker {
            out: 0,
            whole: true,
            begun: thread::now(),
        };
        Self {
            peers,
            servers,
            plan: *plan,
            request: payload(plan.bytes, seed),
            dice: Dice::new(seed),
            workers: Workers {
                all: vec![idle; plan.workers],
                ready: (0..plan.workers).collect(),
                response_bytes: plan.response_bytes.min(RESPONSE_BYTES),
                shared: Arc::clone(shared),
            },
            posting: None,
            lost: false,
            _counted: Counted::new(shared),
        }
    }

    /// Runs on a core of its own until the end.
    fn run(mut self) {
        while !self.is_over() {
            match self.go_on() {
                Step::Went => {}
                Step::NoRoom => {
                    self.poll();
                    thread::idle(REST, false);
                }
                Step::Nobody => {
                    let Self { peers, workers, .. } = &mut self;
                    let waited = peers.wait(|_, tag, answer| workers.take(tag, answer));
                    self.lost |= waited.is_err();
                }
            }
        }
    }

    /// Called between two passes of a polling thread: runs all coroutines that are ready, then polls for them as the
    /// master.
    fn turn(&mut self) -> ThreadProgress {
        if self.is_over() {
            return ThreadProgress::Idle;
        }
        let ready = 1 + self.workers.ready.len();
        let went = (0..ready).take_while(|_| self.go_on() == Step::Went);
        let went = went.count();
        match self.poll() + went {
            0 => ThreadProgress::Waiting,
            _ => ThreadProgress::Worked,
        }
    }

    /// Sends, and takes the answers that have arrived; returns the number of messages taken.
    fn poll(&mut self) -> usize {
        let Self { peers, workers, .. } = self;
        peers.poll(|_, tag, answer| workers.take(tag, answer))
    }

    fn is_stopping(&self) -> bool {
        self.workers.shared.stopping.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.lost || self.is_stopping() && self.posting.is_none() && self.peers.outstanding() == 0
    }

    /// Lets a coroutine post its batch, if one is ready; continues with the one that found no room.
    fn go_on(&mut self) -> Step {
        if self.posting.is_none() && !self.is_stopping() && !self.lost {
            self.posting = self.begin();
        }
        let Some(mut posting) = self.posting.take() else {
            return Step::Nobody;
        };
        while posting.posted < self.plan.batch {
            // Each request to another machine, as far as there are so many.
            let peer = (posting.first + posting.posted) % self.servers;
            let tag = posting.worker as u64;
            match self.peers.submit(peer, ECHO, &self.request, tag) {
                Ok(true) => posting.posted += 1,
                Ok(false) => {
                    self.posting = Some(posting);
                    return Step::NoRoom;
                }
                Err(_) => {
                    self.lost = true;
                    return Step::Went;
                }
            }
        }
        // A coroutine's batch leaves with one doorbell, then the next coroutine runs.
        self.poll();
        Step::Went
    }

    /// Takes the next coroutine that is ready.
    fn begin(&mut self) -> Option<Posting> {
        let worker = self.workers.ready.pop()?;
        SimDevice::charge(Work::Switch);
        // All requests count from the start: answers may arrive while the last ones find no room yet.
        self.workers.all[worker] = Worker {
            out: self.plan.batch,
            whole: true,
            begun: thread::now(),
        };
        Some(Posting {
            worker,
            first: self.dice.between(0, self.servers as u64 - 1) as usize,
            posted: 0,
        })
    }
}
