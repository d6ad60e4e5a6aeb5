//! The unchanged RPC of `dunlin-rpc` between simulated hosts: its presets, repeatability, and lanes that fail.

mod scheduling;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::{
    ChannelConfig, Client, DatagramBatches, LocalServer, Pipeline, Preset, Server, WaitMode,
};
use dunlin_lab::load::{all_to_all, AllToAll, RpcBench, RpcPlan, Window};
use dunlin_sim::{Cluster, ClusterBuilder, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::thread;

const ECHO: u16 = 1;
/// Returns the request's bytes in reverse order, and so many of them that they do not fit in the ring.
const LONG: u16 = 2;
const LONG_BYTES: usize = 20_000;

fn cluster(seed: u64, hosts: usize) -> Cluster {
    let mut nic = NicParameters::connectx_5();
    nic.set("in_order_placement", 1.0).unwrap();
    let (host, switch) = (HostParameters::epyc_7452(), SwitchParameters::z9264f());
    Cluster::star(seed, hosts, &host, &nic, &switch)
}

fn channel(wait: WaitMode) -> ChannelConfig {
    ChannelConfig {
        ring_bytes: 32 << 10,
        max_outstanding: 16,
        wait,
        ..ChannelConfig::default()
    }
}

fn serve(
    cluster: &Cluster,
    pollers: usize,
    wait: WaitMode,
    counts: &Arc<AtomicU64>,
) -> LocalServer {
    let counts = Arc::clone(counts);
    Server::unbound()
        .handle(ECHO, move |request, reply| {
            counts.fetch_add(1, Ordering::Relaxed);
            reply.write(request.payload())
        })
        .handle(LONG, |request, reply| {
            let mut bytes = request.payload().to_vec();
            bytes.reverse();
            reply.write(&bytes)
        })
        .channel(channel(wait))
        .pollers(pollers)
        .pin_pollers(0)
        .serve_on(cluster.device(cluster.hosts()[0]))
        .unwrap()
}

fn connect(
    cluster: &Cluster,
    host: usize,
    server: &LocalServer,
    preset: Preset,
    wait: WaitMode,
) -> Client {
    connect_as(cluster, host, server, preset, wait, false)
}

fn connect_as(
    cluster: &Cluster,
    host: usize,
    server: &LocalServer,
    preset: Preset,
    wait: WaitMode,
    dispatched: bool,
) -> Client {
    Client::builder()
        .preset(preset)
        .lanes(4)
        .dispatched(dispatched)
        .channel(channel(wait))
        .connect_on(cluster.device(cluster.hosts()[host]), &server.acceptor())
        .unwrap()
}

/// Drops clients in a simulated thread, where their lanes' leaders can run.
fn close(cluster: &Cluster, host: usize, client: Client) {
    cluster.spawn_thread(cluster.hosts()[host], 0, move || drop(client));
    cluster.run_for(5_000_000);
}

/// Calls one after the other, each answered with its own bytes.
fn call(pipeline: &mut Pipeline, handler: u16, payload: &[u8]) -> Vec<u8> {
    while !pipeline.submit(handler, payload, 7).unwrap() {
        pipeline.poll(|_, _| panic!("no call is out")).unwrap();
    }
    let mut answered = None;
    // A long answer is two messages: its place, and its bytes.
    while pipeline.outstanding() > 0 {
        pipeline
            .wait(|tag, answer| {
                assert_eq!(tag, 7);
                assert!(answered.replace(answer.unwrap().to_vec()).is_none());
            })
            .unwrap();
    }
    answered.expect("an answer")
}

/// Threads of one client that call, and rest between calls for longer than a `Doze` polls.
fn calls_of(preset: Preset, wait: WaitMode) -> u64 {
    const THREADS: u64 = 8;
    const CALLS: u64 = 30;
    let cluster = cluster(1, 2);
    let counts = Arc::new(AtomicU64::new(0));
    let server = serve(&cluster, 2, wait, &counts);
    let client = connect(&cluster, 1, &server, preset, wait);
    let done = Arc::new(AtomicU64::new(0));
    for number in 0..THREADS {
        let mut pipeline = client.pipeline().unwrap();
        let done = Arc::clone(&done);
        cluster.spawn_thread(cluster.hosts()[1], number as usize, move || {
            for round in 0..CALLS {
                let payload = (number << 32 | round).to_le_bytes();
                assert_eq!(call(&mut pipeline, ECHO, &payload), payload);
                if round % 8 == 0 {
                    thread::sleep(Duration::from_micros(150 * number));
                }
            }
            let long: Vec<u8> = (0..LONG_BYTES).map(|i| (i as u64 * number) as u8).collect();
            let mut answer = call(&mut pipeline, LONG, &long);
            answer.reverse();
            assert_eq!(answer, long);
            done.fetch_add(1, Ordering::Relaxed);
        });
    }
    cluster.run_for(50_000_000);
    assert_eq!(done.load(Ordering::Relaxed), THREADS, "{preset} {wait:?}");
    assert_eq!(counts.load(Ordering::Relaxed), THREADS * CALLS);
    close(&cluster, 1, client);
    drop(server);
    cluster.digest()
}

#[test]
fn every_preset_runs_polling_and_sleeping() {
    for &preset in Preset::ALL {
        for wait in [WaitMode::Spin, WaitMode::default()] {
            calls_of(preset, wait);
        }
    }
}

#[test]
fn a_lane_is_made_by_a_simulated_thread() {
    let cluster = cluster(1, 2);
    let counts = Arc::new(AtomicU64::new(0));
    let server = serve(&cluster, 1, WaitMode::Spin, &counts);
    let client = connect(&cluster, 1, &server, Preset::Flock, WaitMode::Spin);
    for number in 0..6 {
        let client = client.clone();
        cluster.spawn_thread(cluster.hosts()[1], number, move || {
            thread::sleep(Duration::from_micros(3 * number as u64));
            let mut pipeline = client.pipeline().unwrap();
            for round in 0..50u64 {
                let payload = round.to_le_bytes();
                assert_eq!(call(&mut pipeline, ECHO, &payload), payload);
            }
        });
    }
    cluster.run_for(2_000_000);
    assert_eq!(counts.load(Ordering::Relaxed), 300);
    assert_eq!(client.figures().unwrap().lanes.len(), 4);
    assert_eq!(server.connections(), 4);
    close(&cluster, 1, client);
}

/// 320 threads of ten clients, on 60 queue pairs at most.
fn many(seed: u64) -> (u64, f64, u64) {
    let plan = RpcPlan {
        most_active: 60,
        ..RpcPlan::flock(Preset::Flock, 32, 2)
    };
    let bench = RpcBench::new(cluster(seed, 11), plan);
    let result = bench.measure(400_000, 100_000, 200_000);
    assert_eq!(
        bench.stop(),
        (0, 0),
        "calls that failed, answers that were wrong"
    );
    let active: usize = bench
        .server()
        .senders()
        .iter()
        .map(|sender| sender.lanes.iter().filter(|lane| lane.active).count())
        .sum();
    assert!((10..=60).contains(&active), "{active} active");
    assert!(
        result.mops > 1.0 && result.p99_us >= result.median_us,
        "{result:?}"
    );
    (
        bench.cluster().digest(),
        result.degree,
        bench.cluster().events(),
    )
}

#[test]
fn hundreds_of_threads_share_lanes_and_the_same_seed_gives_the_same_run() {
    let first = many(1);
    assert!(first.1 > 1.0, "threads coalesce: {first:?}");
    assert_eq!(many(1), first);
    assert_ne!(many(2).0, first.0);
}

/// Fails a queue pair of the client now and then while its threads call: each call ends once, with its answer or with
/// the loss.
#[test]
fn every_call_ends_once_when_lanes_fail() {
    for dispatched in [false, true] {
        lanes_fail(dispatched);
    }
}

fn lanes_fail(dispatched: bool) {
    const THREADS: usize = 12;
    let cluster = cluster(3, 2);
    let host = cluster.hosts()[1];
    let counts = Arc::new(AtomicU64::new(0));
    let server = serve(&cluster, 2, WaitMode::Spin, &counts);
    let client = connect_as(
        &cluster,
        1,
        &server,
        Preset::Flock,
        WaitMode::Spin,
        dispatched,
    );
    let stopping = Arc::new(AtomicBool::new(false));
    let ended = Arc::new(Mutex::new((0u64, 0u64, 0u64)));
    let left = Arc::new(AtomicU64::new(THREADS as u64));
    for number in 0..THREADS as u64 {
        let (client, stopping, ended) = (client.clone(), Arc::clone(&stopping), Arc::clone(&ended));
        let left = Arc::clone(&left);
        let mut pipeline = client.pipeline().unwrap();
        cluster.spawn_thread(host, number as usize, move || {
            let (mut made, mut answered, mut lost) = (0u64, 0u64, 0u64);
            let mut out = std::collections::BTreeSet::new();
            loop {
                let mut ends = |tag: u64, answer: Result<&[u8], dunlin::CallError>| {
                    assert!(out.remove(&tag), "a call ends once");
                    match answer {
                        Ok(bytes) => {
                            assert_eq!(bytes, (number << 32 | tag).to_le_bytes());
                            answered += 1;
                        }
                        Err(dunlin::CallError::ConnectionLost { .. }) => lost += 1,
                        Err(error) => panic!("{error}"),
                    }
                };
                let polled = pipeline.wait(&mut ends);
                if polled.is_err() {
                    assert!(out.is_empty(), "a pipeline that ends has ended its calls");
                    pipeline = client.pipeline().unwrap();
                }
                if stopping.load(Ordering::Relaxed) {
                    if out.is_empty() {
                        break;
                    }
                    continue;
                }
                while out.len() < 4 {
                    match pipeline.submit(ECHO, &(number << 32 | made).to_le_bytes(), made) {
                        Ok(true) => {
                            out.insert(made);
                            made += 1;
                        }
                        Ok(false) | Err(_) => break,
                    }
                }
            }
            let mut sum = ended.lock().unwrap();
            *sum = (sum.0 + made, sum.1 + answered, sum.2 + lost);
            left.fetch_sub(1, Ordering::Relaxed);
        });
    }
    // Numbers of the client's queue pairs: the first use of each index.
    for index in 0..4u32 {
        cluster.run_for(2_000_000);
        cluster.fail_queue_pair(host, 1 << 16 | index);
    }
    cluster.run_for(5_000_000);
    stopping.store(true, Ordering::Relaxed);
    for _ in 0..200 {
        cluster.run_for(1_000_000);
        if left.load(Ordering::Relaxed) == 0 {
            break;
        }
    }
    assert_eq!(left.load(Ordering::Relaxed), 0, "every call ends");
    let (made, answered, lost) = *ended.lock().unwrap();
    assert_eq!(answered + lost, made);
    assert!(
        lost > 0 && answered > 10_000,
        "{answered} answered, {lost} lost"
    );
    assert!(counts.load(Ordering::Relaxed) >= answered);
    let lanes = client.figures().unwrap().lanes;
    assert!(lanes.iter().filter(|lane| lane.open).count() >= 1);
    close(&cluster, 1, client);
}

/// FLOCK §8.3.1: as many responses are sent together as requests arrived together, so eight calls of one thread take
/// eight messages each way. One in 64 is acknowledged.
#[test]
fn each_message_is_answered_by_one() {
    let plan = RpcPlan::flock(Preset::QpPerThread, 1, 8);
    let bench = RpcBench::new(cluster(5, 3), plan);
    let result = bench.measure(0, 400_000, 200_000);
    assert!((1.0..1.05).contains(&result.server_packets), "{result:?}");
    assert_eq!(bench.stop(), (0, 0));
}

/// Threads that share the queue pairs of a card poll for each other's answers themselves with `auto`, and are not
/// slower than with `flock`, which has a dispatcher for that: a thread that found another one polling polls again as
/// soon as that one is done.
#[test]
fn threads_without_a_dispatcher_lose_nothing_by_it() {
    let rate = |preset, dispatched| {
        let plan = RpcPlan {
            dispatched,
            ..RpcPlan::flock(preset, 16, 1)
        };
        let bench = RpcBench::new(cluster(9, 3), plan);
        let result = bench.measure(100_000, 300_000, 200_000);
        assert_eq!(bench.stop(), (0, 0));
        result.mops
    };
    let (auto, flock) = (rate(Preset::Auto, false), rate(Preset::Flock, true));
    assert!(auto > 0.9 * flock, "auto makes {auto} M/s, flock {flock}");
}

/// A thread that waits for a dispatcher which waits for the same core yields to it, long before its slice of 3 ms is
/// over.
#[test]
fn a_dispatcher_may_share_the_core_of_its_threads() {
    let mut host = HostParameters::epyc_7452();
    host.set("cores", 4.0).unwrap();
    let mut nic = NicParameters::connectx_5();
    nic.set("in_order_placement", 1.0).unwrap();
    let cluster = Cluster::star(4, 2, &host, &nic, &SwitchParameters::z9264f());
    // Two threads and a dispatcher for each process: 12 on 4 cores.
    let plan = RpcPlan {
        processes: 4,
        lanes: 1,
        pollers: 4,
        ..RpcPlan::flock(Preset::Flock, 2, 4)
    };
    let bench = RpcBench::new(cluster, plan);
    let result = bench.measure(100_000, 300_000, 500_000);
    assert!(result.mops > 0.05, "{result:?}");
    assert_eq!(bench.stop(), (0, 0));
}

/// Requests of one side neither leave nor fail, while it still acknowledges what the other side writes: the call ends
/// with the loss of the connection long before its deadline, and the next connection works.
#[test]
fn a_connection_whose_requests_stay_out_is_given_up() {
    const DEADLINE: Duration = Duration::from_secs(60);
    for stalled in [0, 1] {
        for wait in [WaitMode::Spin, WaitMode::default()] {
            let cluster = cluster(4, 2);
            let counts = Arc::new(AtomicU64::new(0));
            let server = serve(&cluster, 1, wait, &counts);
            let client = Client::builder()
                .preset(Preset::Plain)
                .channel(channel(wait))
                .deadline(DEADLINE)
                .connect_on(cluster.device(cluster.hosts()[1]), &server.acceptor())
                .unwrap();
            let mut pipeline = client.pipeline().unwrap();
            let (seen, answered) = (Arc::new(Mutex::new(None)), Arc::new(AtomicU64::new(0)));
            let (ended, done) = (Arc::clone(&seen), Arc::clone(&answered));
            let again = client.clone();
            cluster.spawn_thread(cluster.hosts()[1], 0, move || {
                assert_eq!(call(&mut pipeline, ECHO, b"before"), b"before");
                done.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(5));
                assert!(pipeline.submit(ECHO, b"stalled", 7).unwrap());
                let mut outcome = None;
                let waited = pipeline.wait(|_, answer| outcome = Some(answer.map(<[u8]>::to_vec)));
                *ended.lock().unwrap() = Some((outcome, waited));
                let mut pipeline = again.pipeline().unwrap();
                assert_eq!(call(&mut pipeline, ECHO, b"after"), b"after");
                done.fetch_add(1, Ordering::Relaxed);
            });
            cluster.run_for(2_000_000);
            assert_eq!(answered.load(Ordering::Relaxed), 1);
            cluster.stall_requests(cluster.hosts()[stalled]);
            // Half of its deadline.
            for _ in 0..30 {
                cluster.run_for(1_000_000_000);
                if answered.load(Ordering::Relaxed) == 2 {
                    break;
                }
            }
            let seen = seen.lock().unwrap().take();
            let (outcome, waited) = seen.unwrap_or_else(|| panic!("no end: {stalled} {wait:?}"));
            assert!(
                matches!(outcome, Some(Err(dunlin::CallError::ConnectionLost { .. }))),
                "{stalled} {wait:?}: {outcome:?}"
            );
            assert!(waited.is_err(), "{stalled} {wait:?}");
            assert_eq!(answered.load(Ordering::Relaxed), 2, "{stalled} {wait:?}");
            close(&cluster, 1, client);
        }
    }
}

/// Hosts, alternating between two switches, which are joined by several cables.
fn divided(seed: u64, hosts: usize, parts: usize) -> Cluster {
    let mut nic = NicParameters::connectx_5();
    nic.in_order_placement = 1.0;
    let mut builder = ClusterBuilder::new(seed).parts(parts).always_divided();
    let switches = [0, 1].map(|_| builder.switch(SwitchParameters::z9264f()));
    for _ in 0..2 {
        builder.link(switches[0], switches[1], 100.0);
    }
    for host in 0..hosts {
        builder.host(HostParameters::epyc_7452(), nic.clone(), switches[host % 2]);
    }
    builder.build()
}

/// Threads with stacks, pollers, schedulers, and the ends of clients and servers: each part has those of its hosts.
#[test]
fn a_run_on_several_cores_is_the_run_on_one() {
    let run = |preset: Preset, parts: usize| {
        let plan = RpcPlan {
            pollers: 2,
            ..RpcPlan::flock(preset, 2, 4)
        };
        let bench = RpcBench::new(divided(3, 4, parts), plan);
        let result = bench.measure(20_000, 300_000, 50_000);
        let failed = bench.stop();
        let cluster = bench.cluster().clone();
        drop(bench);
        assert!(result.mops > 0.05, "{preset:?}: {result:?}");
        let shown = (cluster.digest(), cluster.events(), cluster.now_ns());
        (shown, failed, format!("{result:?}"))
    };
    let presets = [
        Preset::Flock,
        Preset::ScaleRpc,
        Preset::Fasst,
        Preset::Herd,
        Preset::Flor,
    ];
    for preset in presets {
        let one = run(preset, 1);
        assert_eq!(run(preset, 2), one, "{preset:?}, two parts");
        assert_eq!(run(preset, 3), one, "{preset:?}, three parts");
    }
}

#[test]
fn machines_that_all_ask_each_other_may_be_divided() {
    let run = |seed: u64, parts: usize| {
        let cluster = divided(seed, 6, parts);
        let window = Window {
            warm_ns: 10_000,
            measured_ns: 20_000,
        };
        let result = all_to_all(&cluster, &AllToAll::new(Preset::Fasst, 1, 1), window);
        assert!(result.calls > 100.0, "{result:?}");
        (cluster.digest(), cluster.events(), format!("{result:?}"))
    };
    for seed in 1..3 {
        let one = run(seed, 1);
        for parts in [2, 3] {
            assert_eq!(run(seed, parts), one, "seed {seed}, {parts} parts");
        }
    }
}

/// A thread of FaSST calls while it answers (§4.1), and in its benchmarks each message has a datagram of its own.
#[test]
fn polling_threads_ask_and_send_as_many_messages_in_a_datagram_as_they_are_told() {
    let verbs = |messages: usize| {
        let batches = DatagramBatches {
            messages,
            ..DatagramBatches::default()
        };
        let plan = AllToAll {
            batches: [batches; 2],
            ..AllToAll::new(Preset::Fasst, 0, 2)
        };
        let (host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connect_ib());
        let cluster = Cluster::star(1, 3, &host, &nic, &SwitchParameters::sx6036());
        let window = Window {
            warm_ns: 100_000,
            measured_ns: 200_000,
        };
        let result = all_to_all(&cluster, &plan, window);
        assert_eq!(result.failed, (0, 0), "{messages} messages: {result:?}");
        assert_eq!(result.answering, 3, "{messages} messages: {result:?}");
        result.verbs
    };
    let alone = verbs(1);
    assert!((3.9..4.1).contains(&alone), "{alone} verbs for each call");
    let together = verbs(255);
    assert!(together < 3.0, "{together} verbs for each call");
}
