//! Running clients and servers, and their results in a window.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_flor::round_trip::{ByAcknowledgement, RoundTrip, WorkTimes};
use dunlin_sim::{Cluster, Fault, FaultRule, HostId, RuleGuard};
use dunlin_verbs::Device;

use super::super::measure::{rate, Window};
use super::ends::{answer, ask};
use super::plan::{Domain, Flor, Link};
use super::END_NS;

/// Results of a window.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlorResult {
    /// Gigabits per second of requests' payload.
    pub gbit_s: f64,
    /// Millions of requests answered per second.
    pub mops: f64,
    /// Millions of work requests per second posted by clients.
    pub chunks: f64,
    /// Number of busy cores of the first client.
    pub cores: f64,
    /// Thousands of retransmitting SENDs per second.
    pub repeated: f64,
    /// Number of changes to a backup in the window.
    pub switches: u64,
    /// 99th percentile of the time for which servers delayed acknowledgements, in microseconds.
    pub ack_delay_us: f64,
    /// 99th percentile of the round trips measured by both ends, in microseconds.
    pub rtt_us: f64,
    /// 99.9th percentile of the round trips.
    pub rtt_tail_us: f64,
    /// Mean time from a request to its answer, in microseconds.
    pub latency_us: f64,
    /// Requests that failed, and connections that were lost.
    pub failed: u64,
}

/// State shared by threads and the measuring code.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) measuring: AtomicBool,
    pub(super) stopping: AtomicBool,
    pub(super) running: AtomicUsize,
    pub(super) calls: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) posted: AtomicU64,
    pub(super) repeated: AtomicU64,
    pub(super) switches: AtomicU64,
    /// Delays of acknowledgements and round trips, in nanoseconds.
    samples: Mutex<Vec<(u64, u64)>>,
    /// Sum of the times from requests to their answers, in nanoseconds.
    pub(super) waited_ns: AtomicU64,
}

/// Flor's measurement of round trips, with a record of the samples.
#[derive(Debug)]
pub(super) struct Recorded(pub(super) Arc<Shared>);

impl RoundTrip for Recorded {
    fn sample_ns(&self, times: &WorkTimes) -> Option<u64> {
        let sample = ByAcknowledgement.sample_ns(times);
        if let (true, Some(delay), Some(rtt)) = (
            self.0.measuring.load(Ordering::Relaxed),
            times.ack_delay_ns,
            sample,
        ) {
            let samples = self.0.samples.lock();
            let mut samples = samples.unwrap_or_else(PoisonError::into_inner);
            samples.push((delay, rtt));
        }
        sample
    }
}

/// Pairs in which each of these hosts calls all others.
pub fn mesh(hosts: &[HostId]) -> Vec<(HostId, HostId)> {
    let others = |&one: &HostId| {
        let others = hosts.iter().filter(move |&&other| other != one);
        others.map(move |&other| (one, other))
    };
    hosts.iter().flat_map(others).collect()
}

/// The connections of a host's threads, and their protection domain.
struct Side<L> {
    domain: Domain,
    threads: Vec<Vec<L>>,
}

/// A client's end of a connection, with its counter of answers.
type Counted = (Link, Arc<AtomicU64>);

impl<L> Side<L> {
    fn new(cluster: &Cluster, host: HostId, threads: usize) -> Self {
        let device = cluster.device(host);
        let mut all = Vec::new();
        all.resize_with(threads, Vec::new);
        Self {
            domain: device.create_protection_domain().expect("a domain"),
            threads: all,
        }
    }
}

/// Hosts with their domains and the connections, thread by thread.
fn threads_of<L>(
    sides: BTreeMap<HostId, Side<L>>,
) -> Vec<(HostId, Domain, std::vec::IntoIter<Vec<L>>)> {
    let threads = |(host, side): (HostId, Side<L>)| (host, side.domain, side.threads.into_iter());
    sides.into_iter().map(threads).collect()
}

/// Running clients and servers on a cluster.
#[derive(Debug)]
pub struct FlorBench {
    plan: Flor,
    cluster: Cluster,
    clients: Vec<HostId>,
    connections: usize,
    shared: Arc<Shared>,
    /// Answers of each pair of client and server.
    answered: Vec<(HostId, Arc<AtomicU64>)>,
    /// Fault rules, in force until dropped.
    weather: Vec<RuleGuard>,
}

impl Flor {
    /// Puts clients and servers on hosts, for each pair of client and server; the threads begin when the cluster's time
    /// next advances.
    ///
    /// # Panics
    /// When a device refuses.
    pub fn start(&self, cluster: &Cluster, pairs: &[(HostId, HostId)]) -> FlorBench {
        let shared = Arc::new(Shared::default());
        let mut clients: BTreeMap<HostId, Side<Counted>> = BTreeMap::new();
        let mut servers: BTreeMap<HostId, Side<Link>> = BTreeMap::new();
        let mut connections = 0;
        let mut counters = Vec::new();
        for (pair, &(from, to)) in pairs.iter().enumerate() {
            let client = clients.entry(from);
            let client = client.or_insert_with(|| Side::new(cluster, from, self.threads));
            let server = servers.entry(to);
            let server = server.or_insert_with(|| Side::new(cluster, to, self.of_servers()));
            let ends = (cluster.device(from), cluster.device(to));
            let answered = Arc::new(AtomicU64::new(0));
            counters.push((from, Arc::clone(&answered)));
            for thread in 0..self.threads {
                for _ in 0..self.connections {
                    let (one, other) = self.pair(
                        (&ends.0, &client.domain),
                        (&ends.1, &server.domain),
                        &shared,
                    );
                    client.threads[thread].push((one, Arc::clone(&answered)));
                    let answering = (pair * self.threads + thread) % self.of_servers();
                    server.threads[answering].push(other);
                    connections += 1;
                }
            }
        }
        let mut bench = FlorBench {
            plan: *self,
            cluster: cluster.clone(),
            clients: clients.keys().copied().collect(),
            connections,
            shared,
            answered: counters,
            weather: Vec::new(),
        };
        bench.begin(clients, servers);
        if self.lost > 0.0 {
            let rule = |&(from, to): &(HostId, HostId)| {
                cluster.fault(FaultRule::new(Fault::Drop, self.lost).between(from, to))
            };
            bench.weather = pairs.iter().map(rule).collect();
        }
        bench
    }

    /// Runs the load on a cluster, whose first host calls the second.
    ///
    /// # Panics
    /// When a device refuses.
    pub fn run(&self, cluster: &Cluster, window: Window) -> FlorResult {
        let hosts = cluster.hosts();
        let bench = self.start(cluster, &[(hosts[0], hosts[1])]);
        let mut found = bench.measure(window);
        // Including failures while the threads ended.
        found.failed = bench.stop();
        found
    }
}

impl FlorBench {
    /// Starts the threads. Client threads are on the first cores of their hosts, server threads on the next if both are
    /// on one host.
    fn begin(
        &mut self,
        clients: BTreeMap<HostId, Side<Counted>>,
        servers: BTreeMap<HostId, Side<Link>>,
    ) {
        let plan = self.plan;
        let asking = (clients.len() * plan.threads) as u64;
        let mut begun = 0;
        let (mut clients, mut servers) = (threads_of(clients), threads_of(servers));
        for number in 0..plan.threads.max(plan.of_servers()) {
            for (host, _, threads) in &mut clients {
                let Some(links) = threads.next() else {
                    continue;
                };
                let shared = Arc::clone(&self.shared);
                let after_ns = plan.starting_ns * begun / asking;
                begun += 1;
                self.spawn(*host, number, move || {
                    ask(&plan, after_ns, links, &shared);
                });
            }
            for (host, domain, threads) in &mut servers {
                let Some(links) = threads.next() else {
                    continue;
                };
                let before = match self.clients.contains(host) {
                    true => plan.threads,
                    false => 0,
                };
                let (device, domain) = (self.cluster.device(*host), domain.clone());
                let shared = Arc::clone(&self.shared);
                self.spawn(*host, before + number, move || {
                    answer(&plan, &device, &domain, links, &shared);
                });
            }
        }
    }

    fn spawn(&self, host: HostId, core: usize, run: impl FnOnce() + Send + 'static) {
        let cores = self.cluster.device(host).cores();
        self.shared.running.fetch_add(1, Ordering::Relaxed);
        self.cluster.spawn_thread(host, core % cores, run);
    }

    /// Number of connections.
    pub fn connections(&self) -> usize {
        self.connections
    }

    /// Requests of each client answered so far, in the order of the hosts.
    pub fn answered(&self) -> Vec<u64> {
        let of = |client: &HostId| {
            let pairs = self.answered.iter().filter(|(from, _)| from == client);
            pairs.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
        };
        self.clients.iter().map(of).collect()
    }

    /// The same for each pair of client and server, in order.
    pub fn answered_in_pairs(&self) -> Vec<u64> {
        let all = self.answered.iter();
        all.map(|(_, count)| count.load(Ordering::Relaxed))
            .collect()
    }

    fn counted(&self) -> [u64; 5] {
        let shared = &self.shared;
        let all = [
            &shared.calls,
            &shared.posted,
            &shared.repeated,
            &shared.switches,
            &shared.waited_ns,
        ];
        all.map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Warms up and measures.
    pub fn measure(&self, window: Window) -> FlorResult {
        let shared = &self.shared;
        self.cluster.run_for(window.warm_ns);
        let before = self.counted();
        shared.measuring.store(true, Ordering::Relaxed);
        let measured = Window {
            warm_ns: 0,
            ..window
        };
        let busy = rate(&self.cluster, &self.clients[..1], measured)[0].mops(|c| c.busy_ps / 1_000);
        shared.measuring.store(false, Ordering::Relaxed);
        let after = self.counted();
        let mops = |index: usize| {
            (after[index] - before[index]) as f64 * 1_000.0 / window.measured_ns as f64
        };
        let samples = shared.samples.lock();
        let samples = std::mem::take(&mut *samples.unwrap_or_else(PoisonError::into_inner));
        let percentile = |of: &dyn Fn(&(u64, u64)) -> u64, of_thousand: usize| {
            let mut all: Vec<u64> = samples.iter().map(of).collect();
            all.sort_unstable();
            all.get(all.len() * of_thousand / 1_000)
                .map_or(f64::NAN, |&ns| ns as f64 / 1_000.0)
        };
        FlorResult {
            gbit_s: mops(0) * f64::from(self.plan.bytes) * 8.0 / 1_000.0,
            mops: mops(0),
            chunks: mops(1),
            // Nanoseconds of work per nanosecond.
            cores: busy / 1_000.0,
            repeated: mops(2) * 1_000.0,
            switches: after[3] - before[3],
            ack_delay_us: percentile(&|sample| sample.0, 990),
            rtt_us: percentile(&|sample| sample.1, 990),
            rtt_tail_us: percentile(&|sample| sample.1, 999),
            latency_us: mops(4) / mops(0) / 1_000.0,
            failed: shared.failed.load(Ordering::Relaxed),
        }
    }

    /// Ends the threads; returns the number of requests that failed and connections that were lost.
    pub fn stop(self) -> u64 {
        drop(self.weather);
        self.shared.stopping.store(true, Ordering::Relaxed);
        while self.shared.running.load(Ordering::Relaxed) > 0 {
            self.cluster.run_for(END_NS);
        }
        self.shared.failed.load(Ordering::Relaxed)
    }
}
