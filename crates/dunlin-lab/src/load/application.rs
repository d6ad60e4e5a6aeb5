//! An application behind an RPC server: threads make the requests of a [`Caller`], and latencies are recorded by kind
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

/// Interval between two requests of a paced thread.
const PACE: Duration = Duration::from_micros(250);
/// Number of kinds of operations distinguished in a window.
pub(super) const KINDS: usize = 2;

/// The requests of a thread.
pub(super) trait Caller: Send + 'static {
    /// Writes the next request; returns its handler and its kind, which is less than [`KINDS`].
    fn next(&mut self, request: &mut Vec<u8>) -> (HandlerId, usize);
    /// Whether this is a valid answer to an operation of this kind.
    fn is_answer(&self, kind: usize, answer: &[u8]) -> bool;
}

/// Settings of an application. Host 0 is the server, the others are client machines with a process each.
#[derive(Clone, Debug)]
pub struct Application {
    /// Preset of the calls.
    pub preset: Preset,
    /// Total number of threads, spread evenly over machines.
    pub threads: usize,
    /// Calls that each thread keeps outstanding.
    pub outstanding: usize,
    /// Cores that the server polls on.
    pub pollers: usize,
    /// Whether each process has a thread that takes all answers.
    pub dispatched: bool,
    /// Whether threads begin at a low rate, so that schedulers see them all.
    pub paced: bool,
    /// Channel configuration of both ends.
    pub channel: ChannelConfig,
}

/// A cluster with a running application and its clients.
#[derive(Debug)]
pub struct ApplicationBench {
    rpc: RpcBench,
    kinds: Arc<Kinds>,
}

/// Results of a window.
#[derive(Clone, Debug, Default)]
pub struct ApplicationResult {
    /// Results over all operations.
    pub rpc: RpcResult,
    /// Median latency and 99th percentile of each kind, in microseconds.
    pub kinds: [(f64, f64); KINDS],
}

/// Latencies of each kind, in nanoseconds.
type Kinds = [Mutex<Vec<u64>>; KINDS];

impl ApplicationBench {
    /// Puts the server and its clients on the hosts of a cluster; the threads begin when its time next advances.
    /// `caller` creates the requests of the thread with this number.
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
        // All clients first, then the threads, one of each client in turn: as clients of the same age arrive.
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

    /// Like [`RpcBench::measure`].
    pub fn measure(&self, paced_ns: u64, warm_ns: u64, measured_ns: u64) -> ApplicationResult {
        let rpc = self.rpc.measure(paced_ns, warm_ns, measured_ns);
        let kinds = std::array::from_fn(|kind| {
            let latencies = Latencies::take(&self.kinds[kind]);
            (latencies.us(0.5), latencies.us(0.99))
        });
        ApplicationResult { rpc, kinds }
    }

    /// Like [`RpcBench::stop`].
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

/// Outstanding operations of a thread.
struct Operations<C> {
    caller: C,
    /// Start and kind of each.
    out: Vec<(Instant, usize)>,
    /// Tags that no outstanding operation has.
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
            // A thread that is answered as fast as it calls never reaches the maximum, and would not notice the end.
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
                    // No room: earlier requests have to be answered first.
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
