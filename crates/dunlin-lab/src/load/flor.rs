//! Flor's messages between two simulated hosts: requests of one size, and short answers, over logical connections as
//! they are (`dunlin-flor`), driven by simulated threads that poll.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dunlin_flor::ack::AckTriggers;
use dunlin_flor::chunking::{ChunkingParameters, RttBased};
use dunlin_flor::congestion::{FixedWindow, HardwareControl};
use dunlin_flor::connection::{Counters, Deployment};
use dunlin_flor::logical::{LinkConfig, LinkEvent, LogicalConnection, Source};
use dunlin_flor::round_trip::{ByAcknowledgement, RoundTrip, WorkTimes};
use dunlin_sim::{Cluster, Fault, FaultRule, SimDevice};
use dunlin_verbs::{thread, Device, Work};

use super::measure::{rate, Window};

/// Bytes of an answer.
const ANSWER_BYTES: u32 = 64;
/// Longest rest of a thread that polls.
const REST: Duration = Duration::from_micros(100);
/// Memory that messages are written to: what was repaired rests, and is not to be waited for.
const LANDING_BYTES: usize = 1 << 30;
/// Until all threads have ended.
const END_NS: u64 = 1_000_000;

/// What clients on host 0 ask of host 1.
#[derive(Clone, Copy, Debug)]
pub struct Flor {
    /// Modules and transport.
    pub deployment: Deployment,
    /// A fixed window of so many bytes in place of the deployment's congestion control; zero: none at all.
    pub window_bytes: Option<u64>,
    /// When a receiver acknowledges.
    pub triggers: AckTriggers,
    /// Threads of each host.
    pub threads: usize,
    /// Connections of each thread.
    pub connections: usize,
    /// Requests that each connection keeps out.
    pub depth: usize,
    /// Bytes of a request.
    pub bytes: u32,
    /// Bytes of the longest chunk; the deployment's own when none.
    pub most_chunk_bytes: Option<u32>,
    /// Bytes of a unit: the shortest chunk.
    pub unit_bytes: u32,
    /// Bytes that one receive buffer takes.
    pub fragment_bytes: u32,
    /// What the software takes for a chunk that it sends, beyond verbs and copies, in nanoseconds.
    pub chunk_ns: u64,
    /// Share of the packets to the server that its NIC drops.
    pub lost: f64,
}

impl Flor {
    /// One thread with one connection and eight requests out, by a deployment of Table 1, on a network that loses
    /// nothing.
    pub fn new(deployment: Deployment, bytes: u32) -> Self {
        Self {
            deployment,
            window_bytes: None,
            triggers: AckTriggers::PAPER,
            threads: 1,
            connections: 1,
            depth: 8,
            bytes,
            most_chunk_bytes: None,
            unit_bytes: 4 << 10,
            fragment_bytes: 32 << 10,
            chunk_ns: 0,
            lost: 0.0,
        }
    }
}

/// What a window showed.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlorResult {
    /// Gigabits a second of requests' payload.
    pub gbit_s: f64,
    /// Millions of requests a second that were answered.
    pub mops: f64,
    /// Millions of work requests a second that clients posted.
    pub chunks: f64,
    /// Cores that the client host was busy with.
    pub cores: f64,
    /// SENDs a second that repeat something, in thousands.
    pub repeated: f64,
    /// 99th percentile of how long the server kept acknowledgements back, in microseconds.
    pub ack_delay_us: f64,
    /// 99th percentile of the round trips that clients measured, in microseconds.
    pub rtt_us: f64,
    /// Requests that failed, and connections that were lost.
    pub failed: u64,
}

/// What threads share with who measures them.
#[derive(Debug, Default)]
struct Shared {
    measuring: AtomicBool,
    stopping: AtomicBool,
    running: AtomicUsize,
    calls: AtomicU64,
    failed: AtomicU64,
    posted: AtomicU64,
    repeated: AtomicU64,
    /// Delays of acknowledgements and round trips, in nanoseconds.
    samples: Mutex<Vec<(u64, u64)>>,
}

/// Flor's measurement of round trips, which writes down what it has seen.
#[derive(Debug)]
struct Recorded(Arc<Shared>);

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

type Link = LogicalConnection<SimDevice>;

impl Flor {
    fn end(&self, device: SimDevice, shared: &Arc<Shared>) -> Link {
        let mut config = LinkConfig::new(self.deployment);
        config.network.unit_bytes = self.unit_bytes;
        config.max_landing_bytes = LANDING_BYTES;
        config.connection.ack_triggers = self.triggers;
        config.connection.max_fragment_bytes = self.fragment_bytes;
        let mut modules = self
            .deployment
            .modules(&config.network)
            .expect("a network with units");
        if let Some(most) = self.most_chunk_bytes {
            let parameters = ChunkingParameters {
                unit_bytes: self.unit_bytes,
                max_bytes: most,
                ..ChunkingParameters::PRODUCTION
            };
            modules.chunking = Box::new(RttBased::new(parameters).expect("a chunk of units"));
        }
        match self.window_bytes {
            None => {}
            Some(0) => modules.congestion = Box::new(HardwareControl),
            Some(bytes) => modules.congestion = Box::new(FixedWindow::new(bytes)),
        }
        if self.deployment.transport() == dunlin_verbs::Transport::UnreliableConnection {
            modules.round_trip = Box::new(Recorded(Arc::clone(shared)));
        }
        LogicalConnection::with_modules(device, config, modules).expect("a connection")
    }

    /// Both ends of a connection.
    fn pair(&self, cluster: &Cluster, shared: &Arc<Shared>) -> (Link, Link) {
        let hosts = cluster.hosts();
        let mut client = self.end(cluster.device(hosts[0]), shared);
        let mut server = self.end(cluster.device(hosts[1]), shared);
        let addresses = (client.address(), server.address());
        client.connect(&addresses.1, 0).expect("an address");
        server.connect(&addresses.0, 0).expect("an address");
        (client, server)
    }

    /// Runs it on a cluster of two hosts.
    ///
    /// # Panics
    /// When a device refuses.
    pub fn run(&self, cluster: &Cluster, window: Window) -> FlorResult {
        let hosts = cluster.hosts();
        let shared = Arc::new(Shared::default());
        let mut threads: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
        for _ in 0..self.threads {
            let mut links = Vec::new();
            links.resize_with(self.connections, || self.pair(cluster, &shared));
            let (clients, servers): (Vec<Link>, Vec<Link>) = links.into_iter().unzip();
            let (plan, of_client, of_server) = (*self, Arc::clone(&shared), Arc::clone(&shared));
            threads.push(Box::new(move || ask(&plan, clients, &of_client)));
            threads.push(Box::new(move || answer(servers, &of_server)));
        }
        shared.running.store(threads.len(), Ordering::Relaxed);
        for (index, run) in threads.into_iter().enumerate() {
            cluster.spawn_thread(hosts[index % 2], index / 2, run);
        }
        let rule = FaultRule::new(Fault::Drop, self.lost).between(hosts[0], hosts[1]);
        let weather = (self.lost > 0.0).then(|| cluster.fault(rule));
        cluster.run_for(window.warm_ns);
        let counted = || {
            let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            [of(&shared.calls), of(&shared.posted), of(&shared.repeated)]
        };
        let before = counted();
        shared.measuring.store(true, Ordering::Relaxed);
        let measured = Window {
            warm_ns: 0,
            ..window
        };
        let busy = rate(cluster, &hosts[..1], measured)[0].mops(|c| c.busy_ps / 1_000);
        shared.measuring.store(false, Ordering::Relaxed);
        let after = counted();
        drop(weather);
        shared.stopping.store(true, Ordering::Relaxed);
        while shared.running.load(Ordering::Relaxed) > 0 {
            cluster.run_for(END_NS);
        }
        let mops = |index: usize| {
            (after[index] - before[index]) as f64 * 1_000.0 / window.measured_ns as f64
        };
        let samples = shared.samples.lock();
        let samples = samples.unwrap_or_else(PoisonError::into_inner);
        let percentile = |of: &dyn Fn(&(u64, u64)) -> u64| {
            let mut all: Vec<u64> = samples.iter().map(of).collect();
            all.sort_unstable();
            all.get(all.len() * 99 / 100)
                .map_or(f64::NAN, |&ns| ns as f64 / 1_000.0)
        };
        FlorResult {
            gbit_s: mops(0) * f64::from(self.bytes) * 8.0 / 1_000.0,
            mops: mops(0),
            chunks: mops(1),
            // Nanoseconds of work in a nanosecond.
            cores: busy / 1_000.0,
            repeated: mops(2) * 1_000.0,
            ack_delay_us: percentile(&|sample| sample.0),
            rtt_us: percentile(&|sample| sample.1),
            failed: shared.failed.load(Ordering::Relaxed),
        }
    }
}

fn now_ns() -> u64 {
    let now = thread::simulated_now().unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Rests until there is something for one of these connections.
fn rest<'a>(links: impl Iterator<Item = &'a Link>) {
    let now = now_ns();
    let next = links.filter_map(|link| link.next_deadline(now)).min();
    let left = next.map(|next| Duration::from_nanos(next.saturating_sub(now).max(1_000)));
    thread::idle(left.unwrap_or(REST).min(REST), false);
}

/// A connection of a client.
struct Asking {
    link: Link,
    request: Source<dunlin_sim::SimRegion>,
    out: usize,
    counted: Counters,
}

fn ask(plan: &Flor, links: Vec<Link>, shared: &Shared) {
    let asking = |link: Link| Asking {
        request: Source {
            region: link.allocate(plan.bytes as usize).expect("memory"),
            offset: 0,
            bytes: plan.bytes,
        },
        link,
        out: 0,
        counted: Counters::default(),
    };
    let mut all: Vec<Asking> = links.into_iter().map(asking).collect();
    while !shared.stopping.load(Ordering::Relaxed) {
        let mut found = false;
        for asking in &mut all {
            found |= asking.step(plan, shared);
        }
        if !found {
            rest(all.iter().map(|asking| &asking.link));
        }
    }
    shared.running.fetch_sub(1, Ordering::Relaxed);
}

impl Asking {
    fn step(&mut self, plan: &Flor, shared: &Shared) -> bool {
        while self.out < plan.depth {
            let taken = self.link.submit(now_ns(), self.request.clone());
            if taken.is_err() {
                break;
            }
            self.out += 1;
        }
        let mut found = false;
        // A failure of the device shows as a connection that does nothing more.
        while let Ok(Some(event)) = self.link.poll(now_ns()) {
            found = true;
            match event {
                LinkEvent::Message(_) => {
                    self.out = self.out.saturating_sub(1);
                    shared.calls.fetch_add(1, Ordering::Relaxed);
                }
                LinkEvent::Finished(_, Err(_)) | LinkEvent::Lost => {
                    shared.failed.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
        }
        let counters = self.link.connection().counters();
        let posted = counters.posted - self.counted.posted;
        if posted > 0 {
            SimDevice::charge(Work::Compute(posted * plan.chunk_ns));
            found = true;
        }
        let repeated = counters.repeated - self.counted.repeated;
        shared.posted.fetch_add(posted, Ordering::Relaxed);
        shared.repeated.fetch_add(repeated, Ordering::Relaxed);
        self.counted = counters;
        found
    }
}

fn answer(mut links: Vec<Link>, shared: &Shared) {
    let memory = |link: &Link| link.allocate(ANSWER_BYTES as usize).expect("memory");
    let answers: Vec<_> = links.iter().map(memory).collect();
    while !shared.stopping.load(Ordering::Relaxed) {
        let mut found = false;
        for (link, region) in links.iter_mut().zip(&answers) {
            while let Ok(Some(event)) = link.poll(now_ns()) {
                found = true;
                match event {
                    LinkEvent::Message(_) => {}
                    LinkEvent::Landed { landing, .. } => link.release(landing),
                    _ => continue,
                }
                let answer = Source {
                    region: region.clone(),
                    offset: 0,
                    bytes: ANSWER_BYTES,
                };
                if link.submit(now_ns(), answer).is_err() {
                    shared.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
            if link.flush(now_ns()).is_err() {
                shared.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        if !found {
            rest(links.iter());
        }
    }
    shared.running.fetch_sub(1, Ordering::Relaxed);
}

/// Nanoseconds from the failure of the queue pair in use, under this load, to the next request that is answered whose
/// answer came over a backup.
///
/// # Panics
/// When no backup takes over within 100 ms.
pub fn time_to_switch(plan: &Flor, cluster: &Cluster) -> f64 {
    let hosts = cluster.hosts();
    let shared = Arc::new(Shared::default());
    let (client, server) = plan.pair(cluster, &shared);
    let taken = Arc::new(AtomicU64::new(0));
    let (plan, told) = (*plan, Arc::clone(&taken));
    let (of_client, of_server) = (Arc::clone(&shared), Arc::clone(&shared));
    shared.running.store(2, Ordering::Relaxed);
    cluster.spawn_thread(hosts[0], 0, move || {
        fail_over(&plan, client, &of_client, &told);
    });
    cluster.spawn_thread(hosts[1], 0, move || answer(vec![server], &of_server));
    for _ in 0..100 {
        cluster.run_for(END_NS);
        if taken.load(Ordering::Relaxed) > 0 {
            break;
        }
    }
    shared.stopping.store(true, Ordering::Relaxed);
    while shared.running.load(Ordering::Relaxed) > 0 {
        cluster.run_for(END_NS);
    }
    match taken.load(Ordering::Relaxed) {
        0 => panic!("no backup took over in 100 ms"),
        time => time as f64,
    }
}

/// Requests that are answered before the queue pair fails: by then the backups are known.
const BEFORE_FAILURE: u64 = 200;

fn fail_over(plan: &Flor, link: Link, shared: &Shared, told: &AtomicU64) {
    let request = Source {
        region: link.allocate(plan.bytes as usize).expect("memory"),
        offset: 0,
        bytes: plan.bytes,
    };
    let mut asking = Asking {
        link,
        request,
        out: 0,
        counted: Counters::default(),
    };
    let mut failed_at = None;
    let mut switched_at = None;
    while !shared.stopping.load(Ordering::Relaxed) {
        let found = asking.step(plan, shared);
        let calls = shared.calls.load(Ordering::Relaxed);
        let switches = asking.link.connection().counters().switches;
        match (failed_at, switched_at) {
            (None, _) if calls >= BEFORE_FAILURE => {
                let primary = asking.link.connection().primary();
                asking.link.fail_path(primary);
                failed_at = Some(now_ns());
            }
            (Some(_), None) if switches > 0 => switched_at = Some(calls),
            (Some(at), Some(answered)) if calls > answered => {
                // Once.
                let _ = told.compare_exchange(
                    0,
                    (now_ns() - at).max(1),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
            }
            _ => {}
        }
        if !found {
            rest(std::iter::once(&asking.link));
        }
    }
    shared.running.fetch_sub(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};

    /// By another NIC than those of the figures.
    fn cluster() -> Cluster {
        let (host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connectx_3());
        Cluster::star(1, 2, &host, &nic, &SwitchParameters::sx1012())
    }

    #[test]
    fn requests_are_answered_by_every_deployment_also_when_packets_get_lost() {
        let window = Window {
            warm_ns: 200_000,
            measured_ns: 2_000_000,
        };
        for deployment in [Deployment::IntraPodLossless, Deployment::CrossPod] {
            for (bytes, lost) in [(500, 0.0), (100_000, 0.001)] {
                let plan = Flor {
                    threads: 2,
                    connections: 2,
                    depth: 3,
                    lost,
                    ..Flor::new(deployment, bytes)
                };
                let found = plan.run(&cluster(), window);
                assert_eq!(found.failed, 0, "{plan:?}");
                assert!(found.mops > 0.0 && found.chunks > 0.0, "{found:?}");
            }
        }
    }

    #[test]
    fn a_backup_takes_over() {
        let plan = Flor::new(Deployment::HybridReliable, 10_000);
        assert!(time_to_switch(&plan, &cluster()) > 0.0);
    }
}
