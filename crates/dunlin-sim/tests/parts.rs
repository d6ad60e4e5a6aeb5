//! A cluster of several parts, simulated at once, gives the same run as one part: event by event, for any seed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin_sim::{
    Cluster, ClusterBuilder, Counters, Fault, FaultRule, HostParameters, Next, NicParameters,
    Observer, SeenPacket, SimCompletionQueue, SimQueuePair, SimRegion, SwitchCounters, SwitchId,
    SwitchParameters,
};
use dunlin_verbs::{
    thread, Access, Completion, CompletionQueue, ConnectAttributes, Device, Operation, Payload,
    QueuePair, QueuePairConfig, ReceiveQueue, Region, RemoteAddress, Segment, SendFlags,
    SendRequest, Transport,
};

const REGION_BYTES: usize = 1 << 17;
/// Requests that a host keeps outstanding.
const OUT: usize = 12;

/// The network of the machines.
#[derive(Clone, Copy, Debug)]
enum Topology {
    /// One switch.
    Star,
    /// Two switches, with two cables between them.
    Pair,
    /// One switch, whose buffers and those of the NICs pause early.
    Tight,
    /// One switch that drops.
    Lossy,
    /// One switch, with NICs that have few contexts of completion queues.
    Caches,
}

impl Topology {
    /// With `always`, parts run at once even where little happens and they would take turns.
    fn build(
        self,
        seed: u64,
        hosts: usize,
        (parts, always): (usize, bool),
    ) -> (Cluster, Vec<SwitchId>) {
        let (mut nic, mut switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
        match self {
            Self::Tight => {
                switch.pause_bytes = 20_000.0;
                switch.resume_bytes = 10_000.0;
                nic.rx_buffer_bytes = 30_000.0;
                nic.rx_write = 700_000;
            }
            Self::Lossy => {
                switch.lossless = 0.0;
                switch.buffer_bytes = 60_000.0;
            }
            Self::Caches => {
                nic = NicParameters::connectx_3();
                (nic.completion_sets, nic.completion_ways) = (4.0, 1.0);
            }
            Self::Star | Self::Pair => {}
        }
        let mut builder = ClusterBuilder::new(seed).parts(parts);
        if always {
            builder = builder.always_divided();
        }
        let mut switches = vec![builder.switch(switch.clone())];
        if matches!(self, Self::Pair) {
            switches.push(builder.switch(switch));
            for _ in 0..2 {
                builder.link(switches[0], switches[1], 40.0);
            }
        }
        for host in 0..hosts {
            let at = switches[host % switches.len()];
            builder.host(HostParameters::epyc_7452(), nic.clone(), at);
        }
        (builder.build(), switches)
    }
}

/// A host's side of the load.
struct Load {
    /// Queue pairs, with a completion queue each.
    pairs: Vec<(SimQueuePair, RemoteAddress, SimCompletionQueue)>,
    region: SimRegion,
    state: u64,
    out: usize,
    done: Arc<AtomicU64>,
}

impl Load {
    fn draw(&mut self, below: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(1);
        (self.state >> 33) % below
    }

    /// Takes completions, and posts until enough is outstanding.
    fn go_on(&mut self) {
        for (_, _, queue) in &mut self.pairs {
            let mut some = [Completion::EMPTY; 16];
            let came = queue.poll(&mut some).expect("no overrun");
            let failed = some[..came].iter().find(|one| !one.is_success());
            assert!(failed.is_none(), "{failed:?}");
            self.out -= came;
            self.done.fetch_add(came as u64, Ordering::Relaxed);
        }
        while self.out < OUT {
            self.post();
            self.out += 1;
        }
    }

    fn post(&mut self) {
        let peer = self.draw(self.pairs.len() as u64) as usize;
        let kind = self.draw(4);
        let length = [48, 3000, 20_000][self.draw(3) as usize];
        let at = self.draw(REGION_BYTES as u64 / 2) as usize / 8 * 8;
        let (pair, base, _) = &mut self.pairs[peer];
        let remote = base.plus(at as u64);
        let (operation, length) = match kind {
            0 => (Operation::Read { remote }, length),
            1 => (Operation::FetchAndAdd { remote, add: 1 }, 8),
            _ => {
                let immediate = None;
                (Operation::Write { remote, immediate }, length)
            }
        };
        let segments = [Segment {
            region: &self.region,
            offset: at,
            length,
        }];
        let payload = Payload::Segments(&segments);
        let request = SendRequest::new(1, operation, payload, SendFlags::SIGNALED);
        pair.post_send(&[request]).expect("room");
    }
}

/// Every host has a connection to every other.
fn loads(cluster: &Cluster, seed: u64, done: &Arc<AtomicU64>) -> Vec<Load> {
    let hosts = cluster.hosts();
    let devices: Vec<_> = hosts.iter().map(|&host| cluster.device(host)).collect();
    let made = devices.iter().enumerate().map(|(number, device)| {
        let domain = device.create_protection_domain().expect("a domain");
        let region = device.allocate_region(&domain, REGION_BYTES, Access::all());
        let load = Load {
            pairs: Vec::new(),
            region: region.expect("a region"),
            state: seed << 8 | number as u64,
            out: 0,
            done: Arc::clone(done),
        };
        (domain, load)
    });
    let (domains, mut loads): (Vec<_>, Vec<_>) = made.unzip();
    for one in 0..hosts.len() {
        for other in 0..one {
            let queues = [one, other].map(|end| {
                let queue = devices[end].create_completion_queue(256, None);
                queue.expect("a queue")
            });
            let mut ends = [one, other].map(|end| {
                let queue = &queues[usize::from(end == other)];
                let config = QueuePairConfig {
                    transport: Transport::ReliableConnection,
                    send_completions: queue,
                    receive_completions: queue,
                    send_requests: 2 * OUT,
                    receive_queue: ReceiveQueue::Own(1),
                    segments: 1,
                    inline_bytes: 0,
                };
                let pair = devices[end].create_queue_pair(&domains[end], &config);
                let mut pair = pair.expect("a pair");
                pair.to_init(Access::all()).expect("Init");
                pair
            });
            let addresses = ends.each_ref().map(|pair| pair.address());
            let patient = ConnectAttributes {
                timeout_ns: 100_000,
                // Some have another priority, which is paused separately.
                traffic_class: if (one + other) % 3 == 0 { 1 << 5 } else { 0 },
                ..ConnectAttributes::default()
            };
            for (pair, address) in ends.iter_mut().zip([addresses[1], addresses[0]]) {
                pair.to_ready_to_receive(Some(&address), patient)
                    .expect("RTR");
                pair.to_ready_to_send().expect("RTS");
            }
            let ([a, b], [of_a, of_b]) = (ends, queues);
            let remotes = [one, other].map(|end| loads[end].region.remote());
            loads[one].pairs.push((a, remotes[1], of_a));
            loads[other].pairs.push((b, remotes[0], of_b));
        }
    }
    loads
}

/// All observable results of a run.
#[derive(Debug, PartialEq)]
struct Shown {
    digest: u64,
    events: u64,
    done: u64,
    packets: usize,
    now_ns: u64,
    hosts: Vec<Counters>,
    switches: Vec<SwitchCounters>,
    /// Contents of the hosts' memory.
    bytes: Vec<u64>,
}

struct Bench {
    cluster: Cluster,
    switches: Vec<SwitchId>,
    regions: Vec<SimRegion>,
    done: Arc<AtomicU64>,
}

impl Bench {
    /// Steps on hosts of even numbers, threads with stacks on the others.
    fn new(topology: Topology, seed: u64, hosts: usize, parts: (usize, bool)) -> Self {
        let (cluster, switches) = topology.build(seed, hosts, parts);
        let done = Arc::new(AtomicU64::new(0));
        let loads = loads(&cluster, seed, &done);
        let regions = loads.iter().map(|load| load.region.clone()).collect();
        for (mut load, host) in loads.into_iter().zip(cluster.hosts()) {
            if host.number() % 2 == 0 {
                cluster.spawn(host, 1, move |_now: u64| {
                    load.go_on();
                    Next::Poll
                });
            } else {
                cluster.spawn_thread(host, 1, move || loop {
                    load.go_on();
                    thread::idle(Duration::from_micros(50), false);
                });
            }
        }
        Self {
            cluster,
            switches,
            regions,
            done,
        }
    }

    fn show(&self) -> Shown {
        let cluster = &self.cluster;
        let hosts = cluster.hosts().into_iter();
        let switches = self.switches.iter();
        let bytes = self.regions.iter().map(|region| {
            let mut all = vec![0; REGION_BYTES];
            region.memory().read(0, &mut all);
            all.iter().fold(0, |sum: u64, &byte| {
                sum.wrapping_mul(31).wrapping_add(byte.into())
            })
        });
        Shown {
            digest: cluster.digest(),
            events: cluster.events(),
            done: self.done.load(Ordering::Relaxed),
            packets: cluster.packets_in_flight(),
            now_ns: cluster.now_ns(),
            hosts: hosts.map(|host| cluster.counters(host)).collect(),
            switches: switches.map(|&one| cluster.switch_counters(one)).collect(),
            bytes: bytes.collect(),
        }
    }
}

/// Runs some seeds in one part and in several, and returns the results of each seed.
fn same_in_parts(topology: Topology, hosts: usize) -> Vec<Shown> {
    let step_ns = match topology {
        // There, windows are as short as the time of a cable.
        Topology::Tight => 20_000,
        Topology::Caches => 20_000,
        _ => 60_000,
    };
    let run = |seed: u64, parts: (usize, bool)| {
        let bench = Bench::new(topology, seed, hosts, parts);
        assert_eq!(bench.cluster.parts(), parts.0.min(hosts));
        for _ in 0..3 {
            bench.cluster.run_for(step_ns);
        }
        bench.show()
    };
    let of_seed = |seed: u64| {
        let one = run(seed, (1, true));
        assert!(one.done > 50, "{one:?}");
        for parts in [(2, true), (3, true), (2, false)] {
            assert_eq!(
                run(seed, parts),
                one,
                "{topology:?}, seed {seed}, {parts:?}"
            );
        }
        one
    };
    let all: Vec<_> = (1..4).map(of_seed).collect();
    assert_ne!(all[0].digest, all[1].digest);
    all
}

#[test]
fn on_one_switch() {
    same_in_parts(Topology::Star, 6);
    same_in_parts(Topology::Star, 2);
}

#[test]
fn on_two_switches() {
    same_in_parts(Topology::Pair, 5);
}

#[test]
fn where_switches_and_nics_pause() {
    for shown in same_in_parts(Topology::Tight, 5) {
        let sent = |counters: &Counters| counters.pauses_sent;
        assert!(shown.switches[0].pauses > 2, "{shown:?}");
        assert!(shown.hosts.iter().map(sent).sum::<u64>() > 0, "{shown:?}");
    }
}

#[test]
fn where_packets_are_lost() {
    for shown in same_in_parts(Topology::Lossy, 5) {
        assert!(shown.switches[0].drops > 10, "{shown:?}");
    }
}

#[test]
fn where_nics_miss_contexts_of_completion_queues() {
    for shown in same_in_parts(Topology::Caches, 5) {
        let missed = |counters: &Counters| counters.context_misses;
        let all = shown.hosts.iter().map(missed).sum::<u64>();
        assert!(all > 20, "{shown:?}");
    }
}

/// Counts packets.
#[derive(Default)]
struct Packets(Vec<(u64, usize, u64)>);

impl Observer for Packets {
    fn packet(&mut self, packet: &SeenPacket<'_>) {
        self.0
            .push((packet.now_ps, packet.host.number(), packet.psn));
    }
}

/// Whatever has to see all events in order makes parts take turns; without it they run at once again.
#[test]
fn faults_observers_and_looks_from_outside_change_nothing() {
    let run = |parts: usize| {
        let bench = Bench::new(Topology::Star, 4, 4, (parts, true));
        let cluster = &bench.cluster;
        let hosts = cluster.hosts();
        cluster.run_for(20_000);
        let fault = Fault::Delay {
            least_ns: 10,
            most_ns: 9_000,
        };
        let rule = cluster.fault(FaultRule::new(fault, 0.2).at_most(50));
        cluster.run_for(20_000);
        drop(rule);
        cluster.run_for(20_000);
        let seen = Arc::new(Mutex::new(Packets::default()));
        cluster.observe(Some(Box::new(Arc::clone(&seen))));
        cluster.run_for(20_000);
        cluster.observe(None);
        assert!(!cluster.settle(10_000), "it never ends");
        let device = cluster.device(hosts[0]);
        let mut queue = device.create_completion_queue(4, None).expect("a queue");
        for _ in 0..30 {
            let mut none = [Completion::EMPTY; 1];
            assert_eq!(queue.poll(&mut none).expect("no overrun"), 0);
        }
        cluster.pause(hosts[1], 5_000);
        cluster.slow_down(hosts[2], 2.0);
        cluster.run_for(20_000);
        cluster.crash(hosts[3]);
        cluster.run_for(20_000);
        let seen = std::mem::take(&mut seen.lock().expect("no panic").0);
        assert!(seen.len() > 100);
        (bench.show(), seen)
    };
    let one = run(1);
    assert!(one.0.done > 300, "{:?}", one.0);
    for parts in [2, 4] {
        assert!(run(parts) == one, "{parts} parts");
    }
}

/// As on one thread, and the other parts do not wait for it.
#[test]
fn a_panic_of_a_thread_goes_on_where_time_passes() {
    let bench = Bench::new(Topology::Star, 1, 4, (3, true));
    for host in bench.cluster.hosts() {
        if host.number() == 2 {
            bench.cluster.spawn(host, 2, |now_ns: u64| {
                assert!(now_ns < 10_000, "enough");
                Next::PollUntil(now_ns + 1_000)
            });
        }
    }
    let run = std::panic::AssertUnwindSafe(|| bench.cluster.run_for(100_000));
    let panic = std::panic::catch_unwind(run).expect_err("it has panicked");
    assert_eq!(panic.downcast_ref(), Some(&"enough"));
}

/// A panic instead of a wrong result: the other host's world belongs to another real thread.
#[test]
fn a_thread_that_uses_another_hosts_memory_is_told() {
    let bench = Bench::new(Topology::Star, 1, 2, (2, true));
    let region = bench.regions[1].clone();
    let host = bench.cluster.hosts()[0];
    bench.cluster.spawn(host, 2, move |_now: u64| {
        let _ = region.memory();
        Next::Done
    });
    let run = std::panic::AssertUnwindSafe(|| bench.cluster.run_for(1_000));
    let panic = std::panic::catch_unwind(run).expect_err("it has panicked");
    let why = panic.downcast_ref::<String>().expect("with words");
    assert!(why.contains("has to be of one part"), "{why}");
}
