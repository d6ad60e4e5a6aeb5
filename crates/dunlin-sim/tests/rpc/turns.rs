//! The preset `scalerpc` with turns as short as a round trip, on a network that delays, duplicates and loses packets:
//! whatever is late, each request is executed once, and each answer reaches its caller (ScaleRPC §3.3, and what it does
//! not say).
//!
//! `DUNLIN_SEEDS=1000` runs that many seeds instead of 30, `DUNLIN_SEED=17` only that one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin_rpc::{Client, Grouping, Pace, Preset, Server, ServerStatistics};
use dunlin_sim::{Cluster, Fault, FaultRule, HostParameters, NicParameters, SwitchParameters};

const COUNTED: u16 = 1;
const CLIENTS: u64 = 6;
const CALLS: u64 = 50;

/// Seeds that found faults: a poller whose polls always fell into the slot of one group of four.
const FAILED_ONCE: [u64; 1] = [449];

/// The parameters of a run, drawn from its seed.
struct Plan {
    clients_in_group: usize,
    slice: Duration,
    out: usize,
    late: f64,
    late_ns_max: u64,
    lost: f64,
    in_order: bool,
    /// Number of groups in a rotation by the clock (ScaleRPC §4.2), instead of turns by need.
    rotation: Option<usize>,
}

impl Plan {
    fn of(seed: u64) -> Self {
        let draw =
            |turn: u64, among: u64| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> turn) % among;
        Self {
            clients_in_group: 1 + draw(7, 2) as usize,
            slice: Duration::from_micros([2, 5, 10, 30][draw(13, 4) as usize]),
            out: [1, 3, 10, 24][draw(19, 4) as usize],
            late: [0.0, 0.02, 0.2][draw(23, 3) as usize],
            late_ns_max: [5_000, 40_000, 200_000][draw(29, 3) as usize],
            lost: [0.0, 0.002][draw(31, 2) as usize],
            in_order: draw(37, 2) == 0,
            rotation: [None, None, Some(2), Some(4)][draw(41, 4) as usize],
        }
    }
}

/// Runs one seed to its end.
///
/// # Panics
/// When a promise is broken.
fn run(seed: u64) -> ServerStatistics {
    let plan = Plan::of(seed);
    let host = HostParameters::epyc_7452();
    let mut nic = NicParameters::connectx_5();
    nic.in_order_placement = f64::from(u8::from(plan.in_order));
    let switch = SwitchParameters::z9264f();
    let cluster = Cluster::star(seed, 3, &host, &nic, &switch);
    let executions: Arc<Mutex<BTreeMap<u64, u32>>> = Arc::default();
    let counted = Arc::clone(&executions);
    let mut server = Server::unbound();
    if let Some(groups) = plan.rotation {
        server = server.pace(&Pace::new(groups, plan.slice));
    }
    let server = server
        .pollers(1)
        .pin_pollers(0)
        .grouping(Grouping {
            clients: plan.clients_in_group,
            slice: plan.slice,
            by_priority: seed % 2 == 0,
            warm_up_beside: seed % 4 >= 2,
        })
        .handle(COUNTED, move |request, reply| {
            let number = request.payload().first_chunk().expect("each has a number");
            let mut counted = counted.lock().expect("no panic");
            *counted.entry(u64::from_le_bytes(*number)).or_default() += 1;
            reply.write(request.payload())
        })
        .serve_on(cluster.device(cluster.hosts()[0]))
        .expect("a server");
    let running = Arc::new(AtomicUsize::new(CLIENTS as usize));
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<Client> = (0..2)
        .map(|host| {
            let device = cluster.device(cluster.hosts()[1 + host]);
            let builder = Client::builder().preset(Preset::ScaleRpc);
            builder
                .connect_on(device, &server.acceptor())
                .expect("a client")
        })
        .collect();
    for thread in 0..CLIENTS {
        let at = thread as usize % 2;
        let mut pipeline = clients[at].pipeline().expect("a lane");
        let (running, answered) = (Arc::clone(&running), Arc::clone(&answered));
        let out = plan.out;
        cluster.spawn_thread(cluster.hosts()[1 + at], thread as usize / 2, move || {
            let (mut sent, mut ended) = (0, 0);
            while ended < CALLS {
                while sent < CALLS && pipeline.outstanding() < out {
                    let number = thread << 32 | sent;
                    let mut payload = vec![number as u8; [8, 40, 300, 9000][sent as usize % 4]];
                    payload[..8].copy_from_slice(&number.to_le_bytes());
                    if !pipeline.submit(COUNTED, &payload, number).expect("a lane") {
                        break;
                    }
                    sent += 1;
                }
                pipeline
                    .wait(|number, answer| {
                        let answer = answer.expect("an answer");
                        let (name, rest) = answer.split_first_chunk().expect("its number");
                        assert_eq!(u64::from_le_bytes(*name), number, "another call's answer");
                        assert!(rest.iter().all(|&byte| byte == number as u8));
                        ended += 1;
                    })
                    .expect("a lane");
            }
            answered.fetch_add(ended as usize, Ordering::Relaxed);
            drop(pipeline);
            running.fetch_sub(1, Ordering::Release);
        });
    }
    let late = Fault::Delay {
        least_ns: 500,
        most_ns: plan.late_ns_max,
    };
    let mut rules = Vec::new();
    for (fault, share) in [(late, plan.late), (Fault::Drop, plan.lost)] {
        if share > 0.0 {
            rules.push(cluster.fault(FaultRule::new(fault, share)));
        }
    }
    // A minute of virtual time.
    for _ in 0..60_000 {
        if running.load(Ordering::Acquire) == 0 {
            break;
        }
        cluster.run_for(1_000_000);
    }
    assert_eq!(running.load(Ordering::Acquire), 0, "a thread has not ended");
    assert_eq!(answered.load(Ordering::Relaxed) as u64, CLIENTS * CALLS);
    let executions = executions.lock().expect("no panic");
    assert_eq!(executions.len() as u64, CLIENTS * CALLS);
    for (number, times) in executions.iter() {
        assert_eq!(*times, 1, "{number:#x}");
    }
    server.statistics()
}

#[test]
fn each_request_is_executed_once_whatever_comes_late() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let mut seeds: Vec<u64> = match number("DUNLIN_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("DUNLIN_SEEDS").unwrap_or(30)).collect(),
    };
    let count = seeds.len() as u64;
    if count == 30 {
        seeds.extend(FAILED_ONCE);
    }
    let mut sum = ServerStatistics::default();
    for seed in seeds {
        let ran = std::panic::catch_unwind(|| run(seed));
        let Ok(statistics) = ran else {
            panic!("seed {seed}: DUNLIN_SEED={seed} runs it alone");
        };
        assert_eq!(statistics.requests, CLIENTS * CALLS, "seed {seed}");
        assert_eq!(statistics.violations, 0, "seed {seed}");
        sum.switches += statistics.switches;
        sum.late += statistics.late;
    }
    println!(
        "{} changes of turns, {} late requests that were seen",
        sum.switches, sum.late
    );
    if count >= 30 {
        // Otherwise nothing was tested.
        assert!(sum.switches >= count * 10);
        assert!(sum.late > 0);
    }
}
