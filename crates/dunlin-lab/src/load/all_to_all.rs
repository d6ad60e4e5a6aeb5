//! FaSST's benchmark (§4.4, §5): every machine asks every other. A thread's coroutines post batches of requests to
//! servers that are chosen at random, one queue pair for all of them.
//!
//! A thread of FaSST asks and answers (§4.1): so do the server's polling threads where no others are asked for. Else a
//! machine has threads that ask and pollers that answer, each on a core of its own, and a core of FaSST is a share of
//! both. What a core can do is told by calls over the time that cores were busy.

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
/// Virtual milliseconds in which threads end: longer than it takes to find out about lost calls.
const ENDING_MS: usize = 4_000;
/// Longest rest of a thread that finds no room.
const REST: Duration = Duration::from_micros(20);

/// What the machines do.
#[derive(Clone, Copy, Debug)]
pub struct AllToAll {
    /// How they call.
    pub preset: Preset,
    /// Threads of a machine that ask and do not answer. None: those that answer ask.
    pub threads: usize,
    /// Threads of a machine that answer.
    pub pollers: usize,
    /// Coroutines of a thread that asks.
    pub workers: usize,
    /// Requests of a coroutine that are out together, each to another machine as far as there are so many.
    pub batch: usize,
    /// Machines that ask: the first so many, or all.
    pub askers: usize,
    /// Other machines that a machine asks: so many behind it in a ring, or all.
    pub reach: usize,
    /// Sessions of a thread to each other machine: more of them stand for more machines.
    pub sessions: usize,
    /// Bytes of a request.
    pub bytes: usize,
    /// Bytes of a response, 4096 at most.
    pub response_bytes: usize,
    /// What a handler computes, in nanoseconds.
    pub handler_ns: u64,
    /// How many verbs go together, of threads that ask and of pollers.
    pub batches: [DatagramBatches; 2],
}

impl AllToAll {
    /// 32 bytes each way, everything batched, a handler of 20 ns (declared, as in all figures of this testbed).
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

    /// Threads of a machine that ask.
    fn asking(&self) -> usize {
        match self.threads {
            0 => self.pollers,
            threads => threads,
        }
    }
}

/// Where a polling thread finds what it asks for, once there is somebody to ask.
type Place = Arc<Mutex<Option<Thread>>>;

/// What a window showed, of all machines together, and for each of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllToAllResult {
    /// Millions of calls a second of a machine, as many as it answers.
    pub mops: f64,
    /// Cores of a machine that were busy.
    pub busy_cores: f64,
    /// From posting a batch to its last answer, in microseconds.
    pub median_us: f64,
    /// Its 99th percentile.
    pub p99_us: f64,
    /// The longest until a call that failed was told of, since the machines began.
    pub told_us: f64,
    /// Doorbells for each call.
    pub doorbells: f64,
    /// Of these, those of the first machine.
    pub doorbells_of_first: f64,
    /// SENDs and RECEIVEs for each call.
    pub verbs: f64,
    /// Packets for each call.
    pub packets: f64,
    /// Datagrams that found no RECEIVE.
    pub dropped: f64,
    /// Calls of all machines that were answered rightly.
    pub calls: f64,
    /// All calls since the machines began, those that failed too.
    pub all_calls: f64,
    /// Machines that have answered calls.
    pub answering: usize,
    /// Calls that failed since the machines began, those before the window too, and those that brought wrong bytes.
    pub failed: (u64, u64),
}

impl AllToAllResult {
    /// Millions of calls a second of a core that shares its time between asking and answering.
    pub fn mops_of_core(&self) -> f64 {
        self.mops / self.busy_cores.max(f64::MIN_POSITIVE)
    }
}

/// Runs machines that ask each other, and measures.
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
        // One device for all of them, as a process has: what they share stands on it.
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

/// A session holds what the coroutines of a thread may have out to one machine: FaSST's queues of RECEIVEs have room
/// for that from each of the others (§4.1).
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

/// A thread that asks.
struct Thread {
    peers: Peers,
    servers: usize,
    plan: AllToAll,
    request: Vec<u8>,
    dice: Dice,
    workers: Workers,
    posting: Option<Posting>,
    lost: bool,
    /// Told when all that is above has gone.
    _counted: Counted,
}

/// A batch that a coroutine posts.
struct Posting {
    worker: usize,
    /// Who gets its first request.
    first: usize,
    posted: usize,
}

/// What came of an attempt to let a coroutine go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Went,
    /// It stands until requests have left.
    NoRoom,
    /// All wait for answers.
    Nobody,
}

/// One of the threads that run.
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
    /// Whether all answers to its batch so far were right.
    whole: bool,
    begun: Instant,
}

/// The coroutines of a thread and those of them that may go on.
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

    /// On a core of its own, until all is over.
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

    /// Between two passes of a polling thread: all coroutines that can go on do, then the master polls for them.
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

    /// Sends, and takes the answers that are there; says how many messages those were.
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

    /// A coroutine posts its batch, if one can: it goes on with one that found no room.
    fn go_on(&mut self) -> Step {
        if self.posting.is_none() && !self.is_stopping() && !self.lost {
            self.posting = self.begin();
        }
        let Some(mut posting) = self.posting.take() else {
            return Step::Nobody;
        };
        while posting.posted < self.plan.batch {
            // Each to another, as far as there are so many.
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
        // A coroutine's batch leaves with one doorbell, and the next one goes on.
        self.poll();
        Step::Went
    }

    /// The next coroutine that can go on.
    fn begin(&mut self) -> Option<Posting> {
        let worker = self.workers.ready.pop()?;
        SimDevice::charge(Work::Switch);
        // All of them count from the start: answers may come while the last ones find no room yet.
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
