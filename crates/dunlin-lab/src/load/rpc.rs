//! RPC load: the unchanged clients and server of `dunlin-rpc`, on simulated hosts.
//!
//! A client's threads are simulated threads that block in [`Pipeline::wait`] like any thread; the server's pollers, the
//! dispatchers of connection handles and both schedulers are those that run on real devices.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::{
    CallError, ChannelConfig, Client, LocalServer, Pipeline, Preset, Server, ServerBuilder,
    WaitMode,
};
use dunlin_sim::{Cluster, Counters, HostId, SimDevice};
use dunlin_verbs::{thread, Device, Work};

use super::shared::Shared;

pub(super) const ECHO: u16 = 1;
/// Presets that answer by datagrams.
pub(crate) const DATAGRAMS: [Preset; 3] = [Preset::Fasst, Preset::Erpc, Preset::Herd];
/// Longest response.
const RESPONSE_BYTES: usize = 64;
/// Number of sessions of a poller that arrive together, and the time it has to adopt them: 64 RECEIVEs for each, at
/// half a microsecond on an EPYC.
const NEWCOMERS: usize = 16;
const TAKING_IN_NS: u64 = 1_000_000;
/// Interval between two calls of a paced thread.
const PACE: Duration = Duration::from_micros(250);

/// Settings of the clients. Host 0 is the server, the others are client machines.
#[derive(Clone, Copy, Debug)]
pub struct RpcPlan {
    /// Preset, which determines how threads share queue pairs.
    pub preset: Preset,
    /// Client processes of each machine, each with a connection handle.
    pub processes: usize,
    /// Maximum number of processes in all.
    pub most_processes: usize,
    /// Threads of each process.
    pub threads: usize,
    /// Maximum number of queue pairs of a process, for presets that share them.
    pub lanes: usize,
    /// Calls that each thread keeps outstanding.
    pub outstanding: usize,
    /// Bytes of a request; the response has as many, at most 64.
    pub bytes: usize,
    /// One thread in this many sends requests of another size.
    pub large: Option<(usize, usize)>,
    /// Maximum number of active queue pairs (FLOCK's MAX_AQP).
    pub most_active: usize,
    /// Computation of a handler, in nanoseconds.
    pub handler_ns: u64,
    /// Cores that the server polls on.
    pub pollers: usize,
    /// Whether pollers of the server are pinned to its first cores, one each.
    pub pinned: bool,
    /// Whether each process has a thread that takes all answers.
    pub dispatched: bool,
    /// Traffic class of both directions.
    pub traffic_class: u8,
    /// Whether a paced thread calls once in each interval, regardless of its answers, with all threads evenly spaced;
    /// otherwise it waits for an interval after each answer.
    pub keeps_time: bool,
}

impl RpcPlan {
    /// FLOCK's settings (§8.1), with its response dispatcher (§4.3): 64 bytes each way, 256 active queue pairs, a
    /// handler of 10 ns (declared).
    pub fn flock(preset: Preset, threads: usize, outstanding: usize) -> Self {
        Self {
            preset,
            processes: 1,
            most_processes: usize::MAX,
            threads,
            lanes: threads,
            outstanding,
            bytes: 64,
            large: None,
            most_active: 256,
            handler_ns: 10,
            pollers: 32,
            pinned: true,
            dispatched: matches!(
                preset,
                Preset::Flock
                    | Preset::FlockNoCoalescing
                    | Preset::FlockNoScheduling
                    | Preset::QpPerThread
                    | Preset::Spinlock2
                    | Preset::Spinlock4
            ),
            traffic_class: 0,
            keeps_time: false,
        }
    }
}

/// A cluster with a running server and clients.
#[derive(Debug)]
pub struct RpcBench {
    pub(super) cluster: Cluster,
    /// Present until the bench is dropped.
    pub(super) server: Option<LocalServer>,
    pub(super) clients: Vec<Client>,
    pub(super) shared: Arc<Shared>,
}

/// Results of a window.
#[derive(Clone, Debug, Default)]
pub struct RpcResult {
    /// Millions of calls per second.
    pub mops: f64,
    /// Mean latency of a call in microseconds.
    pub mean_us: f64,
    /// Median latency of a call in microseconds.
    pub median_us: f64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: f64,
    /// Requests per message written by clients; 1 for presets without a connection handle.
    pub degree: f64,
    /// Packets sent by the server's NIC per call, including acknowledgements.
    pub server_packets: f64,
    /// Bytes on the wire sent by the server's NIC per call.
    pub server_wire_bytes: f64,
    /// Number of queue pairs active in the server's scheduler.
    pub active: usize,
    /// Share of the time in which the server's cores were busy.
    pub server_busy: f64,
}

impl RpcBench {
    /// Puts server and clients on the hosts of a cluster; the threads begin when its time next advances, paced.
    ///
    /// # Panics
    /// When a device or the RPC refuses.
    pub fn new(cluster: Cluster, plan: RpcPlan) -> Self {
        let hosts = cluster.hosts();
        let device = cluster.device(hosts[0]);
        let mut server = echo(plan.handler_ns);
        if plan.pinned {
            server = server.pin_pollers(0);
        }
        let server = server
            .channel(ChannelConfig {
                answer_each_message: true,
                ..channel()
            })
            .pollers(plan.pollers.min(device.cores()))
            .max_active_queue_pairs(plan.most_active)
            .serve_on(device)
            .expect("a server");
        let shared = Arc::new(Shared::default());
        shared.paced.store(true, Ordering::Relaxed);
        let acceptor = server.acceptor();
        let connect = |&host: &HostId| {
            Client::builder()
                .preset(plan.preset)
                .lanes(plan.lanes.clamp(1, 256))
                .dispatched(plan.dispatched)
                .channel(ChannelConfig {
                    traffic_class: plan.traffic_class,
                    ..channel()
                })
                .connect_on(cluster.device(host), &acceptor)
                .expect("a client")
        };
        let machines = hosts.len() - 1;
        let count = (machines * plan.processes).min(plan.most_processes);
        let places: Vec<HostId> = (0..count).map(|i| hosts[1 + i % machines]).collect();
        // All clients first, then the threads, one of each client in turn: as clients of the same age arrive.
        let clients: Vec<Client> = places.iter().map(connect).collect();
        let mut came = clients.len();
        let mut begun = 0;
        for number in 0..plan.threads {
            for (process, (client, &host)) in clients.iter().zip(&places).enumerate() {
                take_in(&cluster, plan.preset, &mut came, plan.pollers);
                let pipeline = client.pipeline().expect("a lane");
                came += 1;
                let bytes = match plan.large {
                    Some((one_in, bytes)) if number % one_in == one_in - 1 => bytes,
                    _ => plan.bytes,
                };
                let core = process / machines * plan.threads + number;
                let core = core % cluster.device(host).cores();
                let load = Thread {
                    pipeline,
                    shared: Arc::clone(&shared),
                    outstanding: plan.outstanding,
                    payload: payload(bytes, (process * plan.threads + number) as u64),
                    phase: (plan.keeps_time).then(|| PACE * begun / (plan.threads * count) as u32),
                };
                begun += 1;
                shared.running.fetch_add(1, Ordering::Relaxed);
                cluster.spawn_thread(host, core, move || load.run());
            }
        }
        Self {
            cluster,
            server: Some(server),
            clients,
            shared,
        }
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The server.
    pub fn server(&self) -> &LocalServer {
        self.server.as_ref().expect("a bench that is not dropped")
    }

    /// The clients.
    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// Lets schedulers see all threads at a low rate for `paced_ns`, then lets all threads call without limit: warms up
    /// and measures.
    pub fn measure(&self, paced_ns: u64, warm_ns: u64, measured_ns: u64) -> RpcResult {
        if paced_ns > 0 {
            // Not for zero time: threads that begin would sleep for a whole pace.
            self.cluster.run_for(paced_ns);
        }
        self.shared.paced.store(false, Ordering::Relaxed);
        self.cluster.run_for(warm_ns);
        self.window(measured_ns)
    }

    /// Measures the threads at their present pace.
    pub fn window(&self, measured_ns: u64) -> RpcResult {
        let host = self.cluster.hosts()[0];
        let before = (self.sent(), self.cluster.counters(host));
        self.shared.calls.store(0, Ordering::Relaxed);
        self.shared.measuring.store(true, Ordering::Relaxed);
        self.cluster.run_for(measured_ns);
        self.shared.measuring.store(false, Ordering::Relaxed);
        let after = (self.sent(), self.cluster.counters(host));
        let calls = self.shared.calls.load(Ordering::Relaxed) as f64;
        let mut latencies = std::mem::take(&mut *self.latencies());
        latencies.sort_unstable();
        let at = |share: f64| {
            let place = (latencies.len() as f64 * share) as usize;
            latencies.get(place).map_or(0.0, |&ns| ns as f64 / 1e3)
        };
        let counted = |of: fn(&Counters) -> u64| (of(&after.1) - of(&before.1)) as f64;
        let messages = after.0 .0 - before.0 .0;
        let cores = self.cluster.device(host).cores() as f64;
        RpcResult {
            mops: calls * 1e3 / measured_ns as f64,
            mean_us: latencies.iter().map(|&ns| ns as f64).sum::<f64>()
                / latencies.len().max(1) as f64
                / 1e3,
            median_us: at(0.5),
            p99_us: at(0.99),
            degree: match messages {
                0 => 1.0,
                _ => (after.0 .1 - before.0 .1) as f64 / messages as f64,
            },
            server_packets: counted(|c| c.packets_sent) / calls.max(1.0),
            server_wire_bytes: counted(|c| c.wire_bytes) / calls.max(1.0),
            active: self.active(),
            server_busy: counted(|c| c.busy_ps) / (measured_ns as f64 * 1e3 * cores),
        }
    }

    pub(super) fn latencies(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.shared.latencies_ns.lock().expect("no thread panicked")
    }

    fn active(&self) -> usize {
        let senders = self.server().senders();
        let lanes = senders.iter().flat_map(|sender| &sender.lanes);
        lanes.filter(|lane| lane.active).count()
    }

    /// Number of messages and requests written by clients so far.
    fn sent(&self) -> (u64, u64) {
        let figures = self.clients.iter().filter_map(Client::figures);
        let lanes = figures.flat_map(|figures| figures.lanes);
        lanes.fold((0, 0), |sum, lane| {
            (sum.0 + lane.messages, sum.1 + lane.requests)
        })
    }

    /// Ends the threads: each takes the answers to its outstanding calls. Returns the number of calls that failed, and
    /// of those with wrong answers.
    ///
    /// # Panics
    /// When a thread does not end within a second.
    pub fn stop(&self) -> (u64, u64) {
        self.shared.stop(&self.cluster, 1_000);
        self.shared.failed()
    }
}

/// Time within which the threads of clients and servers have ended.
const ENDING_NS: u64 = 5_000_000;

impl Drop for RpcBench {
    fn drop(&mut self) {
        let clients = std::mem::take(&mut self.clients);
        if std::thread::panicking() {
            // Waiting for a thread that panicked would never end.
            clients.into_iter().for_each(std::mem::forget);
            return;
        }
        self.stop();
        let machines = self.cluster.hosts().into_iter().skip(1).cycle();
        end_in(&self.cluster, clients.into_iter().zip(machines));
        let first = self.cluster.hosts()[0];
        end_in(
            &self.cluster,
            self.server.take().map(|server| (server, first)),
        );
    }
}

/// Drops clients or servers, each in a thread of its host: their ends wait for threads, which only run in virtual time,
/// and what those hold would never be released if they were dropped here.
pub(super) fn end_in<T: Send + 'static>(
    cluster: &Cluster,
    ends: impl IntoIterator<Item = (T, HostId)>,
) {
    for (end, host) in ends {
        cluster.spawn_thread(host, 0, move || drop(end));
    }
    cluster.run_for(ENDING_NS);
}

/// Lets the server adopt new sessions: a poller has room for a limited number of unadopted ones. `came` is the number
/// of new sessions since the last time.
pub(super) fn take_in(cluster: &Cluster, preset: Preset, came: &mut usize, pollers: usize) {
    if DATAGRAMS.contains(&preset) && *came >= NEWCOMERS * pollers {
        cluster.run_for(TAKING_IN_NS);
        *came = 0;
    }
}

/// A server that echoes the first bytes of a request.
pub(super) fn echo(handler_ns: u64) -> ServerBuilder {
    Server::unbound().handle(ECHO, move |request, reply| {
        SimDevice::charge(Work::Compute(handler_ns));
        let payload = request.payload();
        reply.write(&payload[..payload.len().min(RESPONSE_BYTES)])
    })
}

fn channel() -> ChannelConfig {
    ChannelConfig {
        ring_bytes: 64 << 10,
        max_outstanding: 64,
        wait: WaitMode::Spin,
        ..ChannelConfig::default()
    }
}

/// Bytes that distinguish threads.
pub(super) fn payload(bytes: usize, thread: u64) -> Vec<u8> {
    let byte = |i: usize| (thread >> (8 * (i % 8))) as u8 ^ i as u8;
    (0..bytes).map(byte).collect()
}

/// One client thread.
struct Thread {
    pipeline: Pipeline,
    shared: Arc<Shared>,
    outstanding: usize,
    payload: Vec<u8>,
    /// Offset of its call within each interval, if it calls at fixed times.
    phase: Option<Duration>,
}

impl Thread {
    fn run(self) {
        let Self {
            mut pipeline,
            shared,
            outstanding,
            payload,
            phase,
        } = self;
        let mut calls_at = phase.map(|phase| {
            thread::sleep(phase);
            thread::now()
        });
        let expected = &payload[..payload.len().min(RESPONSE_BYTES)];
        let mut begun: Vec<Instant> = vec![thread::now(); outstanding];
        let mut free: Vec<u64> = (0..outstanding as u64).collect();
        let answer =
            |begun: &[Instant], free: &mut Vec<u64>, tag: u64, answer: Result<&[u8], CallError>| {
                free.push(tag);
                let right = shared.is_right(answer, |bytes| bytes == expected);
                if right && shared.measuring.load(Ordering::Relaxed) {
                    shared.calls.fetch_add(1, Ordering::Relaxed);
                    let took = thread::now().duration_since(begun[tag as usize]);
                    let mut all = shared.latencies_ns.lock().expect("no thread panicked");
                    all.push(took.as_nanos() as u64);
                }
            };
        let mut lost = false;
        loop {
            let (paced, stopping) = (
                shared.paced.load(Ordering::Relaxed),
                shared.stopping.load(Ordering::Relaxed),
            );
            if lost || stopping && pipeline.outstanding() == 0 {
                break;
            }
            // Each request is sent on its own, as by FLOCK's interface: only requests of different threads coalesce.
            let most = if stopping { 0 } else { outstanding };
            let most = if paced { most.min(1) } else { most };
            // A thread that is answered as fast as it calls never reaches the maximum, and would not notice the end.
            let asks = || !shared.stopping.load(Ordering::Relaxed);
            while pipeline.outstanding() < most && asks() {
                let Some(tag) = free.pop() else { break };
                begun[tag as usize] = thread::now();
                match pipeline.submit(ECHO, &payload, tag) {
                    Ok(true) => {}
                    Ok(false) => {
                        free.push(tag);
                        break;
                    }
                    Err(_) => {
                        lost = true;
                        break;
                    }
                }
                lost |= pipeline
                    .poll(|tag, result| answer(&begun, &mut free, tag, result))
                    .is_err();
            }
            lost |= pipeline
                .wait(|tag, result| answer(&begun, &mut free, tag, result))
                .is_err();
            if paced && !stopping {
                let left = match &mut calls_at {
                    None => PACE,
                    Some(at) => {
                        *at += PACE;
                        at.saturating_duration_since(thread::now())
                    }
                };
                thread::sleep(left);
            }
        }
        drop(pipeline);
        shared.running.fetch_sub(1, Ordering::Relaxed);
    }
}
