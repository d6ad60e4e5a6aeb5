//! An application behind an RPC server: threads ask by what a [`Caller`] says, and latencies are told apart by the kind
//! of operation.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin::{ChannelConfig, Client, HandlerId, Pipeline, Preset, ServerBuilder};
use dunlin_sim::{Cluster, HostId};
use dunlin_verbs::{thread, Device};

use super::measure::Latencies;
use super::rpc::{take_in, RpcBench, RpcResult};
use super::shared::Shared;

/// How a paced thread waits between two requests.
const PACE: Duration = Duration::from_micros(250);
/// Kinds of operations that a window tells apart.
pub(super) const KINDS: usize = 2;

/// What a thread asks for.
pub(super) trait Caller: Send + 'static {
    /// Writes the next request: for which handler, and of which kind it is, less than [`KINDS`].
    fn next(&mut self, request: &mut Vec<u8>) -> (HandlerId, usize);
    /// Whether an operation of this kind may be answered so.
    fn is_answer(&self, kind: usize, answer: &[u8]) -> bool;
}

/// Who asks whom. Host 0 is the server, the others are client machines, a process each.
#[derive(Clone, Debug)]
pub struct Application {
    /// How threads call.
    pub preset: Preset,
    /// Threads in all, spread evenly over machines.
    pub threads: usize,
    /// Calls that each thread keeps out.
    pub outstanding: usize,
    /// Cores that the server polls on.
    pub pollers: usize,
    /// Each process has a thread that takes all answers.
    pub dispatched: bool,
    /// Threads begin at a low rate, so that schedulers see them all.
    pub paced: bool,
    /// Channels of both ends.
    pub channel: ChannelConfig,
}

/// A cluster with an application and its clients at work.
#[derive(Debug)]
pub struct ApplicationBench {
    rpc: RpcBench,
    kinds: Arc<Kinds>,
}

/// What a window showed.
#[derive(Clone, Debug, Default)]
pub struct ApplicationResult {
    /// Of all operations.
    pub rpc: RpcResult,
    /// Median latency and 99th percentile of each kind, in microseconds.
    pub kinds: [(f64, f64); KINDS],
}

/// Latencies of each kind, in nanoseconds.
type Kinds = [Mutex<Vec<u64>>; KINDS];

impl ApplicationBench {
    /// Puts the server and its clients on the hosts of a cluster; the threads begin at its next time. `caller`: what
    /// the thread of this number asks for.
    ///
    /// # Panics
    /// When a device or the RPC refuses.
    pub(super) fn new<C: Caller>(
        cluster: Cluster,
        plan: &Application,
        server: ServerBuilder,
        mut caller: impl FnMut(usize) -> C,
    ) -> Self {
        let hosts = cluster.hosts();
        let server = server
            .pollers(plan.pollers)
            .pin_pollers(0)
            .serve_on(cluster.device(hosts[0]))
            .expect("a server");
        let shared = Arc::new(Shared::default());
        shared.paced.store(plan.paced, Ordering::Relaxed);
        let kinds = Arc::new(Kinds::default());
        let acceptor = server.acceptor();
        let machines = &hosts[1..];
        let most = plan.threads.div_ceil(machines.len());
        let connect = |&host: &HostId| {
            Client::builder()
                .preset(plan.preset)
                .lanes(most)
                .dispatched(plan.dispatched)
                .channel(plan.channel.clone())
                .connect_on(cluster.device(host), &acceptor)
                .expect("a client")
        };
        // All clients first, then thread after thread of each: as clients of one age come.
        let clients: Vec<Client> = machines.iter().map(connect).collect();
        let mut came = clients.len();
        for number in 0..plan.threads {
            let (machine, core) = (number % machines.len(), number / machines.len());
            take_in(&cluster, plan.preset, &mut came, plan.pollers);
            came += 1;
            let host = machines[machine];
            let load = Thread {
                pipeline: clients[machine].pipeline().expect("a lane"),
                caller: caller(number),
                outstanding: plan.outstanding,
                shared: Arc::clone(&shared),
                kinds: Arc::clone(&kinds),
            };
            shared.running.fetch_add(1, Ordering::Relaxed);
            let core = core % cluster.device(host).cores();
            cluster.spawn_thread(host, core, move || load.run());
        }
        let rpc = RpcBench {
            cluster,
            server: Some(server),
            clients,
            shared,
        };
        Self { rpc, kinds }
    }

    /// As [`RpcBench::measure`].
    pub fn measure(&self, paced_ns: u64, warm_ns: u64, measured_ns: u64) -> ApplicationResult {
        let rpc = self.rpc.measure(paced_ns, warm_ns, measured_ns);
        let kinds = std::array::from_fn(|kind| {
            let latencies = Latencies::take(&self.kinds[kind]);
            (latencies.us(0.5), latencies.us(0.99))
        });
        ApplicationResult { rpc, kinds }
    }

    /// As [`RpcBench::stop`].
    ///
    /// # Panics
    /// When a thread does not end within a second.
    pub fn stop(&self) -> (u64, u64) {
        self.rpc.stop()
    }
}

/// One client thread.
struct Thread<C> {
    pipeline: Pipeline,
    caller: C,
    outstanding: usize,
    shared: Arc<Shared>,
    kinds: Arc<Kinds>,
}

/// Operations of a thread.
struct Operations<C> {
    caller: C,
    /// When each began, and of which kind it is.
    out: Vec<(Instant, usize)>,
    /// Names of operations that none that is out has.
    free: Vec<u64>,
    shared: Arc<Shared>,
    kinds: Arc<Kinds>,
}

impl<C: Caller> Operations<C> {
    fn take(&mut self, tag: u64, answer: Result<&[u8], dunlin::CallError>) {
        let (begun, kind) = self.out[tag as usize];
        self.free.push(tag);
        let is_answer = |answer: &[u8]| self.caller.is_answer(kind, answer);
        let right = self.shared.is_right(answer, is_answer);
        if !right || !self.shared.measuring.load(Ordering::Relaxed) {
            return;
        }
        self.shared.calls.fetch_add(1, Ordering::Relaxed);
        let took = thread::now().duration_since(begun).as_nanos();
        let took = took as u64;
        for all in [&self.shared.latencies_ns, &self.kinds[kind]] {
            all.lock().expect("no thread panicked").push(took);
        }
    }
}

impl<C: Caller> Thread<C> {
    fn run(self) {
        let Self {
            mut pipeline,
            caller,
            outstanding,
            shared,
            kinds,
        } = self;
        let mut operations = Operations {
            caller,
            out: vec![(thread::now(), 0); outstanding],
            free: (0..outstanding as u64).collect(),
            shared: Arc::clone(&shared),
            kinds,
        };
        let mut request = Vec::new();
        let mut lost = false;
        loop {
            let paced = shared.paced.load(Ordering::Relaxed);
            let stopping = || shared.stopping.load(Ordering::Relaxed);
            if lost || stopping() && pipeline.outstanding() == 0 {
                break;
            }
            let most = if paced { 1 } else { outstanding };
            // Who is answered as fast as it asks never has so many out, and would not see the end.
            while pipeline.outstanding() < most && !stopping() {
                let Some(tag) = operations.free.pop() else {
                    break;
                };
                request.clear();
                let (handler, kind) = operations.caller.next(&mut request);
                operations.out[tag as usize] = (thread::now(), kind);
                // Each request is sent on its own.
                let sent = loop {
                    match pipeline.submit(handler, &request, tag) {
                        Ok(false) => {}
                        sent => break sent,
                    }
                    // No room: what was asked for before has to come back first.
                    if let Err(error) = pipeline.wait(|tag, answer| operations.take(tag, answer)) {
                        break Err(error);
                    }
                };
                lost |= sent.is_err();
                lost |= pipeline
                    .poll(|tag, answer| operations.take(tag, answer))
                    .is_err();
                if lost {
                    break;
                }
            }
            lost |= pipeline
                .wait(|tag, answer| operations.take(tag, answer))
                .is_err();
            if paced && !stopping() {
                thread::sleep(PACE);
            }
        }
        drop(pipeline);
        shared.running.fetch_sub(1, Ordering::Relaxed);
    }
}
