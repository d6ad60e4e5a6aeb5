//! The presets over datagrams on networks that lose, duplicate and delay packets, far more of them than real networks
//! do: each request is executed at most once, and each call ends; with `erpc` all of them successfully. And `erpc` on a
//! congested network.
//!
//! `DUNLIN_SEEDS=1000` runs that many seeds instead of 20, `DUNLIN_SEED=17` only that one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin_rpc::{CallError, ChannelConfig, Client, LocalServer, Pipeline, Preset, Server};
use dunlin_sim::{
    Cluster, Fault, FaultRule, HostParameters, NicParameters, RuleGuard, SwitchParameters,
};

const COUNTED: u16 = 1;
const ECHO: u16 = 2;
/// A handler that does not exist: the server refuses, and the refusal may be lost like any answer.
const ABSENT: u16 = 3;
const THREADS: u64 = 4;
const CALLS: u64 = 60;

/// The parameters of a run, drawn from its seed.
struct Plan {
    out: usize,
    credits: usize,
    lost: f64,
    twice: f64,
    late: f64,
    late_ns_max: u64,
}

impl Plan {
    fn of(seed: u64) -> Self {
        let draw =
            |turn: u64, among: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> turn) % among;
        Self {
            out: [1, 3, 10, 32][draw(7, 4) as usize],
            credits: [1, 3, 8, 32][draw(13, 4) as usize],
            lost: [0.0, 0.003, 0.02, 0.08][draw(19, 4) as usize],
            twice: [0.0, 0.1][draw(23, 2) as usize],
            late: [0.0, 0.02, 0.2][draw(29, 3) as usize],
            late_ns_max: [5_000, 200_000, 20_000_000][draw(31, 3) as usize],
        }
    }

    fn faults(&self, cluster: &Cluster) -> Vec<RuleGuard> {
        let late = Fault::Delay {
            least_ns: 500,
            most_ns: self.late_ns_max,
        };
        let twice = Fault::Duplicate { after_ns: 30_000 };
        [
            (Fault::Drop, self.lost),
            (twice, self.twice),
            (late, self.late),
        ]
        .into_iter()
        .filter(|&(_, share)| share > 0.0)
        .map(|(fault, share)| cluster.fault(FaultRule::new(fault, share)))
        .collect()
    }
}

fn cluster(seed: u64, hosts: usize) -> Cluster {
    let host = HostParameters::epyc_7452();
    let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
    Cluster::star(seed, hosts, &host, &nic, &switch)
}

fn connect(
    cluster: &Cluster,
    host: usize,
    server: &LocalServer,
    preset: Preset,
    config: &ChannelConfig,
) -> Client {
    Client::builder()
        .preset(preset)
        .channel(config.clone())
        .connect_on(cluster.device(cluster.hosts()[host]), &server.acceptor())
        .expect("a client")
}

/// Lets time pass until `running` threads have ended.
fn run_to_the_end(cluster: &Cluster, running: &AtomicUsize) {
    // Two minutes of virtual time.
    for _ in 0..120_000 {
        if running.load(Ordering::Acquire) == 0 {
            return;
        }
        cluster.run_for(1_000_000);
    }
    panic!("a thread has not ended");
}

/// Outcomes of calls, by number.
type Ends = Arc<Mutex<BTreeMap<u64, Result<(), CallError>>>>;

fn is_refused(number: u64) -> bool {
    number as u32 % 7 == 3
}

fn call_and_note(pipeline: &mut Pipeline, thread: u64, out: usize, ends: &Ends) {
    let (mut sent, mut ended) = (0, 0);
    while ended < CALLS {
        while sent < CALLS && pipeline.outstanding() < out {
            let number = thread << 32 | sent;
            let length = [8, 40, 300, 4000, 30_000][sent as usize % 5];
            let mut payload = vec![number as u8; length];
            payload[..8].copy_from_slice(&number.to_le_bytes());
            let handler = if is_refused(number) { ABSENT } else { COUNTED };
            if !pipeline.submit(handler, &payload, number).expect("a lane") {
                break;
            }
            sent += 1;
        }
        let waited = pipeline.wait(|number, answer| {
            let end = answer.map(|answer| {
                let (name, rest) = answer.split_first_chunk().expect("its number");
                assert_eq!(u64::from_le_bytes(*name), number, "another call's answer");
                assert!(rest.iter().all(|&byte| byte == number as u8));
            });
            let before = ends.lock().expect("no panic").insert(number, end);
            assert!(before.is_none(), "a call ended twice");
            ended += 1;
        });
        waited.expect("a lane");
    }
}

/// Runs one seed to its end; returns the number of calls that were lost.
fn run(preset: Preset, seed: u64) -> usize {
    let plan = Plan::of(seed);
    let cluster = cluster(seed, 3);
    let executions: Arc<Mutex<BTreeMap<u64, u32>>> = Arc::default();
    let counted = Arc::clone(&executions);
    let server = Server::unbound()
        .pollers(1)
        .pin_pollers(0)
        .handle(COUNTED, move |request, reply| {
            let number = request.payload().first_chunk().expect("each has a number");
            let mut counted = counted.lock().expect("no panic");
            *counted.entry(u64::from_le_bytes(*number)).or_default() += 1;
            reply.write(request.payload())
        })
        .serve_on(cluster.device(cluster.hosts()[0]))
        .expect("a server");
    let config = ChannelConfig {
        // Simulating threads that poll is expensive. No session is given up by bad luck.
        loss_timeout: Duration::from_millis(if preset == Preset::Erpc { 1000 } else { 50 }),
        session_credits: Some(plan.credits),
        ..ChannelConfig::default()
    };
    let running = Arc::new(AtomicUsize::new(THREADS as usize));
    let ends = Ends::default();
    let clients: Vec<Client> = (1..3)
        .map(|host| connect(&cluster, host, &server, preset, &config))
        .collect();
    for thread in 0..THREADS {
        let at = thread as usize % 2;
        let mut pipeline = clients[at].pipeline().expect("a lane");
        let (running, ends, out) = (Arc::clone(&running), Arc::clone(&ends), plan.out);
        cluster.spawn_thread(cluster.hosts()[1 + at], thread as usize / 2, move || {
            call_and_note(&mut pipeline, thread, out, &ends);
            drop(pipeline);
            running.fetch_sub(1, Ordering::Release);
        });
    }
    let faults = plan.faults(&cluster);
    run_to_the_end(&cluster, &running);
    drop(faults);
    let (executions, ends) = (executions.lock().unwrap(), ends.lock().unwrap());
    assert_eq!(ends.len() as u64, THREADS * CALLS);
    let mut lost = 0;
    for (number, end) in ends.iter() {
        let times = executions.get(number).copied().unwrap_or(0);
        match end {
            Ok(()) => assert_eq!(times, 1, "{number:#x}"),
            Err(CallError::UnknownHandler(ABSENT)) if is_refused(*number) => assert_eq!(times, 0),
            Err(CallError::PacketLost { executed }) if preset != Preset::Erpc => {
                lost += 1;
                assert_eq!(times, u32::from(*executed), "{number:#x}");
            }
            Err(error) => panic!("{number:#x}: {error}"),
        }
    }
    assert_eq!(server.statistics().violations, 0);
    lost
}

fn run_seeds(preset: Preset) -> (u64, usize) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seeds = match number("DUNLIN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("DUNLIN_SEEDS").unwrap_or(20),
    };
    let count = seeds.end - seeds.start;
    let mut lost = 0;
    for seed in seeds {
        match std::panic::catch_unwind(|| run(preset, seed)) {
            Ok(more) => lost += more,
            Err(_) => panic!("{preset}, seed {seed}: DUNLIN_SEED={seed} runs it alone"),
        }
    }
    println!(
        "{preset}: {lost} of {} calls were lost",
        count * THREADS * CALLS
    );
    (count, lost)
}

#[test]
fn erpc_loses_no_call() {
    let (_, lost) = run_seeds(Preset::Erpc);
    assert_eq!(lost, 0);
}

#[test]
fn herd_and_fasst_say_truly_what_was_lost() {
    for preset in [Preset::Herd, Preset::Fasst] {
        let (seeds, lost) = run_seeds(preset);
        // Otherwise nothing was tested.
        assert!(lost > 0 || seeds < 20);
    }
}

fn wait(pipeline: &mut Pipeline) {
    let waited = pipeline.wait(|_, answer| {
        answer.expect("an answer");
    });
    waited.expect("a lane");
}

/// The slowest of a few short calls, in nanoseconds of virtual time, while seven hosts send long requests to the same
/// host.
fn slowest_short_call(congestion_control: bool) -> u64 {
    const SENDERS: usize = 7;
    const EACH: usize = 3;
    let cluster = cluster(5, SENDERS + 2);
    let server = Server::unbound()
        .pollers(8)
        .pin_pollers(0)
        .handle(ECHO, |request, reply| reply.write(&request.payload()[..8]))
        .serve_on(cluster.device(cluster.hosts()[0]))
        .expect("a server");
    let config = ChannelConfig {
        session_credits: Some(32),
        congestion_control,
        ..ChannelConfig::default()
    };
    let enough = Arc::new(AtomicBool::new(false));
    let running = Arc::new(AtomicUsize::new(EACH * SENDERS + 1));
    let mut clients = Vec::new();
    for sender in 1..=SENDERS {
        let client = connect(&cluster, sender, &server, Preset::Erpc, &config);
        for core in 0..EACH {
            let mut pipeline = client.pipeline().expect("a lane");
            let (enough, running) = (Arc::clone(&enough), Arc::clone(&running));
            cluster.spawn_thread(cluster.hosts()[sender], core, move || {
                let payload = vec![7; 100_000];
                while !enough.load(Ordering::Acquire) {
                    while pipeline.outstanding() < 4 {
                        assert!(pipeline.submit(ECHO, &payload, 0).expect("a lane"));
                    }
                    wait(&mut pipeline);
                }
                while pipeline.outstanding() > 0 {
                    wait(&mut pipeline);
                }
                drop(pipeline);
                running.fetch_sub(1, Ordering::Release);
            });
        }
        clients.push(client);
    }
    let client = connect(&cluster, SENDERS + 1, &server, Preset::Erpc, &config);
    let mut pipeline = client.pipeline().expect("a lane");
    clients.push(client);
    let slowest = Arc::new(AtomicUsize::new(0));
    let (log, ended) = (Arc::clone(&slowest), Arc::clone(&running));
    cluster.spawn_thread(cluster.hosts()[SENDERS + 1], 0, move || {
        // Rates need a few hundred round trips to converge.
        dunlin_verbs::thread::sleep(Duration::from_millis(20));
        for _ in 0..200 {
            let began = dunlin_verbs::thread::now();
            assert!(pipeline.submit(ECHO, &[1; 8], 0).expect("a lane"));
            while pipeline.outstanding() > 0 {
                wait(&mut pipeline);
            }
            let took = dunlin_verbs::thread::now().duration_since(began);
            log.fetch_max(took.as_nanos() as usize, Ordering::Relaxed);
        }
        enough.store(true, Ordering::Release);
        drop(pipeline);
        ended.fetch_sub(1, Ordering::Release);
    });
    run_to_the_end(&cluster, &running);
    slowest.load(Ordering::Relaxed) as u64
}

/// Timely keeps the queue before a host that many send to shorter than the senders' credits alone would.
#[test]
fn a_rate_that_follows_round_trips_keeps_queues_short() {
    let (with, without) = (slowest_short_call(true), slowest_short_call(false));
    println!("slowest short call: {with} ns with congestion control, {without} ns without");
    assert!(with < without);
}
