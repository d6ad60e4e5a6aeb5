//! Many RPC clients as coroutines of few threads (ScaleRPC §3.6.1): a thread serves its clients in turn, each of which
//! posts a batch of requests, yields to the next, and posts another batch when all answers to the last one have
//! arrived.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::{ChannelConfig, Client, DatagramBatches, Grouping, Pipeline, Preset, WaitMode};
use dunlin_sim::{Cluster, HostId, SimDevice};
use dunlin_verbs::{thread, Device, Work};

use super::measure::warm_up;
use super::rpc::{echo, payload, take_in, RpcBench, ECHO};
use super::shared::Shared;
use super::{rate, Rate, Window};

/// Longest rest of a thread whose clients all wait.
const REST: Duration = Duration::from_micros(20);

/// Settings of the clients. Host 0 is the server, the others are client machines.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// Preset of the calls.
    pub preset: Preset,
    /// Total number of clients, spread evenly over machines, then over threads.
    pub clients: usize,
    /// Maximum number of threads of a machine.
    pub threads: usize,
    /// Requests of a batch.
    pub batch: usize,
    /// Bytes of a request and of its response.
    pub bytes: usize,
    /// Longest message, for which pools have room.
    pub block_bytes: usize,
    /// Threads of the server.
    pub pollers: usize,
    /// ScaleRPC's groups and turns.
    pub grouping: Grouping,
    /// Batching over datagrams, on both sides.
    pub datagram_batches: DatagramBatches,
    /// Computation of a handler, in nanoseconds.
    pub handler_ns: u64,
    /// Computation of each client between two batches, in nanoseconds, repeated cyclically over clients. None if empty.
    pub pauses_ns: Vec<u64>,
}

/// Results of a window.
#[derive(Clone, Debug)]
pub struct CrowdResult {
    /// Millions of calls per second.
    pub mops: f64,
    /// Times from posting a batch to its last answer, in microseconds, sorted.
    pub latencies_us: Vec<f64>,
    /// Activity of the server's NIC and host.
    pub server: Rate,
    /// Number of changes of turns since the server began.
    pub switches: u64,
    /// WRITEs of the server in the window that only announced turns.
    pub turn_words: u64,
    /// Calls answered correctly in the window.
    pub answered: u64,
    /// Calls so far, also before the window.
    pub calls: u64,
}

impl CrowdResult {
    /// The quantile `share` of the latencies of batches.
    pub fn latency_us(&self, share: f64) -> f64 {
        let most = self.latencies_us.len().saturating_sub(1);
        let place = (self.latencies_us.len() as f64 * share) as usize;
        self.latencies_us
            .get(place.min(most))
            .copied()
            .unwrap_or(f64::NAN)
    }

    /// The most frequent latency: the middle of the fullest bin, where bins are a tenth as wide as their value.
    pub fn mode_us(&self) -> f64 {
        let bin = |latency: f64| (latency.ln() / 1.1f64.ln()).floor() as i64;
        let mut fullest = (0, f64::NAN);
        let mut rest = self.latencies_us.as_slice();
        while let Some(&first) = rest.first() {
            let count = rest.partition_point(|&latency| bin(latency) <= bin(first));
            if count > fullest.0 {
                fullest = (count, rest[count / 2]);
            }
            rest = &rest[count..];
        }
        fullest.1
    }
}

impl RpcBench {
    /// Puts a server and a crowd on the hosts of a cluster; the threads begin when its time next advances.
    ///
    /// # Panics
    /// When a device or the RPC refuses.
    pub fn crowd(cluster: Cluster, plan: &Crowd) -> Self {
        let hosts = cluster.hosts();
        let channel = ChannelConfig {
            ring_bytes: (4 * plan.block_bytes).next_power_of_two().max(16 << 10),
            eager_bytes: plan.block_bytes,
            wait: WaitMode::Spin,
            datagram_batches: plan.datagram_batches,
            ..ChannelConfig::default()
        };
        let server = echo(plan.handler_ns)
            .channel(channel.clone())
            .pollers(plan.pollers)
            .pin_pollers(0)
            .grouping(plan.grouping)
            .serve_on(cluster.device(hosts[0]))
            .expect("a server");
        let shared = Arc::new(Shared::default());
        let acceptor = server.acceptor();
        let machines = &hosts[1..];
        let clients: Vec<Client> = machines
            .iter()
            .map(|&host| {
                Client::builder()
                    .preset(plan.preset)
                    .lanes(plan.threads)
                    .channel(channel.clone())
                    .connect_on(cluster.device(host), &acceptor)
                    .expect("a client")
            })
            .collect();
        let mut first = 0;
        let mut came = clients.len();
        for (machine, (client, &host)) in clients.iter().zip(machines).enumerate() {
            let here = share(plan.clients, machines.len(), machine);
            for number in 0..plan.threads.min(here) {
                let coroutines = share(here, plan.threads.min(here), number);
                take_in(&cluster, plan.preset, &mut came, plan.pollers);
                came += coroutines;
                let thread = Coroutines::new(client, plan, first..first + coroutines, &shared);
                first += coroutines;
                shared.running.fetch_add(1, Ordering::Relaxed);
                spawn(&cluster, host, number, thread);
            }
        }
        Self {
            cluster,
            server: Some(server),
            clients,
            shared,
        }
    }

    /// Lets the load run, in steps of `step_ns`, until the receive queues have been used once and their lines are in
    /// the cache.
    pub fn use_queues(&self, step_ns: u64) {
        warm_up(&self.cluster, &self.shared.calls, step_ns);
    }

    /// Warms up and measures.
    pub fn measure_crowd(&self, window: Window) -> CrowdResult {
        self.cluster.run_for(window.warm_ns);
        self.latencies().clear();
        let calls = || self.shared.calls.load(Ordering::Relaxed);
        let before = calls();
        let words = self.server().statistics().turn_words;
        self.shared.measuring.store(true, Ordering::Relaxed);
        let rest = Window {
            warm_ns: 0,
            ..window
        };
        let server = rate(&self.cluster, &self.cluster.hosts()[..1], rest)[0];
        self.shared.measuring.store(false, Ordering::Relaxed);
        let mut latencies = std::mem::take(&mut *self.latencies());
        latencies.sort_unstable();
        let answered = calls() - before;
        CrowdResult {
            answered,
            mops: answered as f64 * 1e3 / window.measured_ns as f64,
            latencies_us: latencies.iter().map(|&ns| ns as f64 / 1e3).collect(),
            server,
            turn_words: self.server().statistics().turn_words - words,
            switches: self.server().statistics().switches,
            calls: calls(),
        }
    }
}

/// Share of the `number`th of `parts` in `all`.
fn share(all: usize, parts: usize, number: usize) -> usize {
    all / parts + usize::from(number < all % parts)
}

fn spawn(cluster: &Cluster, host: HostId, number: usize, thread: Coroutines) {
    let core = number % cluster.device(host).cores();
    cluster.spawn_thread(host, core, move || thread.run());
}

/// One client.
struct Coroutine {
    /// Index of its lane in the thread.
    lane: usize,
    out: usize,
    /// Whether all answers to its batch so far were correct.
    whole: bool,
    begun: Instant,
    /// Time at which it posts its next batch; it computes until then.
    ready: Instant,
    pause: Duration,
}

/// A client thread.
struct Coroutines {
    lanes: Vec<Pipeline>,
    crowd: Clients,
    batch: usize,
}

/// Its clients, and their requests.
struct Clients {
    clients: Vec<Coroutine>,
    payload: Vec<u8>,
    shared: Arc<Shared>,
    progress: bool,
}

impl Clients {
    /// Handles an answer to a client.
    fn take(&mut self, client: u64, answer: Result<&[u8], dunlin::CallError>) {
        self.progress = true;
        let shared = &self.shared;
        let client = &mut self.clients[client as usize];
        if shared.is_right(answer, |bytes| bytes == self.payload) {
            shared.calls.fetch_add(1, Ordering::Relaxed);
        } else {
            client.whole = false;
        }
        client.out -= 1;
        if client.out > 0 {
            return;
        }
        let now = thread::now();
        client.ready = now + client.pause;
        if client.whole && shared.measuring.load(Ordering::Relaxed) {
            let took = now.duration_since(client.begun).as_nanos();
            let took = took as u64;
            let mut all = shared.latencies_ns.lock().expect("no thread panicked");
            all.push(took);
        }
    }
}

impl Coroutines {
    /// Where threads have a queue pair each or share lanes, the coroutines of a thread are one caller with many calls
    /// outstanding (FaSST §4, FLOCKTX); otherwise each has a connection (ScaleRPC §3.6.1).
    fn new(client: &Client, plan: &Crowd, numbers: Range<usize>, shared: &Arc<Shared>) -> Self {
        let lanes = match plan.preset {
            Preset::Plain
            | Preset::QpPerThread
            | Preset::ScaleRpc
            | Preset::RawWrite
            | Preset::SelfRpc
            | Preset::Herd => numbers.len(),
            _ => 1,
        };
        let now = thread::now();
        let coroutine = |number: usize| {
            let pauses = &plan.pauses_ns;
            let pause = match pauses.len() {
                0 => 0,
                count => pauses[number % count],
            };
            Coroutine {
                lane: number % lanes,
                out: 0,
                whole: true,
                begun: now,
                ready: now,
                pause: Duration::from_nanos(pause),
            }
        };
        Self {
            lanes: (0..lanes)
                .map(|_| client.pipeline().expect("a lane"))
                .collect(),
            crowd: Clients {
                clients: numbers.clone().map(coroutine).collect(),
                payload: payload(plan.bytes, numbers.start as u64),
                shared: Arc::clone(shared),
                progress: false,
            },
            batch: plan.batch,
        }
    }

    fn run(self) {
        let Self {
            mut lanes,
            mut crowd,
            batch,
        } = self;
        let now = thread::now();
        for client in &mut crowd.clients {
            // The creating thread has another clock.
            client.ready = now + client.pause;
        }
        let mut lost = false;
        while !lost {
            let stopping = crowd.shared.stopping.load(Ordering::Relaxed);
            if stopping && crowd.clients.iter().all(|client| client.out == 0) {
                break;
            }
            crowd.progress = false;
            let mut next = None;
            for number in 0..crowd.clients.len() {
                let lane = &mut lanes[crowd.clients[number].lane];
                lost |= lane.poll(|tag, answer| crowd.take(tag, answer)).is_err();
                let client = &mut crowd.clients[number];
                if stopping || lost || client.out > 0 {
                    continue;
                }
                let now = thread::now();
                if now < client.ready {
                    next = Some(next.map_or(client.ready, |next: Instant| next.min(client.ready)));
                    continue;
                }
                client.begun = now;
                client.whole = true;
                while client.out < batch {
                    match lane.submit(ECHO, &crowd.payload, number as u64) {
                        Ok(true) => client.out += 1,
                        Ok(false) => break,
                        Err(_) => {
                            lost = true;
                            break;
                        }
                    }
                }
                lost |= lane.poll(|tag, answer| crowd.take(tag, answer)).is_err();
                crowd.progress = true;
                SimDevice::charge(Work::Switch);
            }
            if !crowd.progress && lanes.len() == 1 && next.is_none() {
                // Other threads may take its answers: the lane knows what to poll.
                lost |= lanes[0]
                    .wait(|tag, answer| crowd.take(tag, answer))
                    .is_err();
            } else if !crowd.progress {
                let rest = next.map_or(REST, |next| next.saturating_duration_since(thread::now()));
                thread::idle(rest.min(REST), false);
            }
        }
        drop(lanes);
        crowd.shared.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};

    /// Nine clients on two machines, measured for half a millisecond.
    fn measured(preset: Preset, bytes: usize) -> (RpcBench, CrowdResult) {
        let (host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connectx_3());
        let cluster = Cluster::star(1, 3, &host, &nic, &SwitchParameters::sx1012());
        let plan = Crowd {
            preset,
            clients: 9,
            threads: 2,
            batch: 3,
            bytes,
            block_bytes: 4096,
            pollers: 2,
            grouping: Grouping {
                clients: 4,
                ..Grouping::default()
            },
            datagram_batches: DatagramBatches::default(),
            handler_ns: 20,
            pauses_ns: vec![0, 0, 5_000],
        };
        let bench = RpcBench::crowd(cluster, &plan);
        let found = bench.measure_crowd(Window {
            warm_ns: 100_000,
            measured_ns: 500_000,
        });
        (bench, found)
    }

    #[test]
    fn wrong_answers_are_no_calls() {
        // The server echoes only the first 64 bytes.
        let (bench, found) = measured(Preset::ScaleRpc, 128);
        assert_eq!((found.mops, found.calls), (0.0, 0));
        assert!(found.latencies_us.is_empty() && found.latency_us(0.5).is_nan());
        let (failed, wrong) = bench.stop();
        assert!(failed == 0 && wrong > 1_000, "{failed}, {wrong}");
    }

    #[test]
    fn a_crowd_calls_by_any_preset() {
        for &preset in Preset::ALL {
            let (bench, found) = measured(preset, 32);
            // Nine clients at a round trip of a few microseconds.
            assert!(found.calls > 1_000, "{preset}: {}", found.calls);
            assert!(found.latency_us(0.5) <= found.latency_us(1.0));
            assert!(found.mode_us() > 1.0, "{preset}: {}", found.mode_us());
            assert_eq!(bench.stop(), (0, 0), "{preset}: failed and wrong");
        }
    }
}
