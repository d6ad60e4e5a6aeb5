//! Round trips that a connection measures on an empty network, in virtual time: they are the network's, however late
//! the two threads look at their completions and whatever the NICs' clocks show, and so the window stays wide (Flor
//! §4.1, A.2.1).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin_flor::connection::Deployment;
use dunlin_flor::logical::{LinkConfig, LinkEvent, LogicalConnection, Source};
use dunlin_flor::round_trip::{ByAcknowledgement, ClockCounts, RoundTrip, WorkTimes, ASK_NS};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SimDevice, SwitchParameters};
use dunlin_verbs::{thread, Device, Work};

/// Bytes of a request, and how many are out.
const BYTES: u32 = 256 << 10;
const DEPTH: usize = 8;
/// Bytes of an answer.
const ANSWER: u32 = 64;
/// What a chunk costs its sender: a thread that looks late.
const CHUNK_NS: u64 = 1_160;
const RUN_NS: u64 = 5_000_000;
/// A longer round trip makes the window smaller (`SwiftParameters::DEFAULT`).
const SWIFT_TARGET_NS: u64 = 50_000;

type Link = LogicalConnection<SimDevice>;

/// Flor's measurement, which writes down what it has seen.
#[derive(Debug, Default)]
struct Recorded(Arc<Mutex<Vec<u64>>>);

impl RoundTrip for Recorded {
    fn sample_ns(&self, times: &WorkTimes) -> Option<u64> {
        let sample = ByAcknowledgement.sample_ns(times);
        self.0.lock().unwrap().extend(sample);
        sample
    }
}

fn now_ns() -> u64 {
    thread::simulated_now().unwrap_or_default().as_nanos() as u64
}

fn end(device: SimDevice, samples: &Arc<Mutex<Vec<u64>>>) -> Link {
    let deployment = Deployment::IntraPodUnreliable;
    let config = LinkConfig::new(deployment);
    let mut modules = deployment.modules(&config.network).unwrap();
    modules.round_trip = Box::new(Recorded(Arc::clone(samples)));
    LogicalConnection::with_modules(device, config, modules).unwrap()
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    running: AtomicU64,
    answered: AtomicU64,
    /// Bytes of the client's window at its end.
    window: AtomicU64,
    /// What the client asked of its NIC's clock.
    clock: Mutex<ClockCounts>,
}

fn rest(link: &Link) {
    let left = link
        .next_deadline(now_ns())
        .map_or(100_000, |next| next.saturating_sub(now_ns()));
    thread::idle(Duration::from_nanos(left.clamp(1_000, 100_000)), false);
}

fn ask(mut link: Link, shared: &Shared) {
    let region = link.allocate(BYTES as usize).unwrap();
    let (mut out, mut posted) = (0, 0);
    while !shared.stop.load(Ordering::Relaxed) {
        let source = || Source {
            region: region.clone(),
            offset: 0,
            bytes: BYTES,
        };
        while out < DEPTH && link.submit(now_ns(), source()).is_ok() {
            out += 1;
        }
        let mut found = false;
        while let Some(event) = link.poll(now_ns()).unwrap() {
            found = true;
            if matches!(event, LinkEvent::Message(_)) {
                out -= 1;
                shared.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
        let now_posted = link.connection().counters().posted;
        SimDevice::charge(Work::Compute((now_posted - posted) * CHUNK_NS));
        found |= now_posted > posted;
        posted = now_posted;
        if !found {
            rest(&link);
        }
    }
    let window = link.connection().modules().congestion.window_bytes();
    shared.window.store(window, Ordering::Relaxed);
    *shared.clock.lock().unwrap() = link.clock_counts();
    shared.running.fetch_sub(1, Ordering::Relaxed);
}

fn answer(mut link: Link, shared: &Shared) {
    let region = link.allocate(ANSWER as usize).unwrap();
    while !shared.stop.load(Ordering::Relaxed) {
        let mut found = false;
        while let Some(event) = link.poll(now_ns()).unwrap() {
            found = true;
            match event {
                LinkEvent::Message(_) => {}
                LinkEvent::Landed { landing, .. } => link.release(landing),
                _ => continue,
            }
            let source = Source {
                region: region.clone(),
                offset: 0,
                bytes: ANSWER,
            };
            link.submit(now_ns(), source).unwrap();
        }
        link.flush(now_ns()).unwrap();
        if !found {
            rest(&link);
        }
    }
    shared.running.fetch_sub(1, Ordering::Relaxed);
}

/// Two NICs for so long.
fn keeps_the_window_wide(nic: NicParameters, run_ns: u64) -> ClockCounts {
    let nic = NicParameters {
        mtu_bytes: 1024.0,
        ..nic
    };
    let host = HostParameters::xeon_gold_5118();
    let cluster = Cluster::star(1, 2, &host, &nic, &SwitchParameters::z9264f());
    let hosts = cluster.hosts();
    let samples = Arc::default();
    let mut client = end(cluster.device(hosts[0]), &samples);
    let mut server = end(cluster.device(hosts[1]), &Arc::default());
    let addresses = (client.address(), server.address());
    client.connect(&addresses.1, 0, 0).unwrap();
    server.connect(&addresses.0, 0, 0).unwrap();
    let widest = client.connection().modules().congestion.window_bytes();
    let shared = Arc::new(Shared {
        running: AtomicU64::new(2),
        ..Shared::default()
    });
    let (of_client, of_server) = (Arc::clone(&shared), Arc::clone(&shared));
    cluster.spawn_thread(hosts[0], 0, move || ask(client, &of_client));
    cluster.spawn_thread(hosts[1], 0, move || answer(server, &of_server));
    cluster.run_for(run_ns);
    shared.stop.store(true, Ordering::Relaxed);
    while shared.running.load(Ordering::Relaxed) > 0 {
        cluster.run_for(1_000_000);
    }
    let answered = shared.answered.load(Ordering::Relaxed);
    assert!(answered > 100, "only {answered} answers");
    let longest = samples.lock().unwrap().iter().max().copied();
    assert!(
        longest.is_some_and(|ns| ns < SWIFT_TARGET_NS),
        "round trips up to {longest:?} ns on an empty network"
    );
    assert_eq!(
        shared.window.load(Ordering::Relaxed),
        widest,
        "the window shrank"
    );
    let counts = *shared.clock.lock().unwrap();
    counts
}

#[test]
fn an_empty_network_keeps_the_window_wide() {
    let counts = keeps_the_window_wide(NicParameters::connectx_6_dx(), RUN_NS);
    assert_eq!(counts, ClockCounts::default());
}

/// Clocks that begin anywhere and drift: known by completions alone, and by asking for the time every 100 us, with
/// which a clock may drift faster.
#[test]
fn clocks_that_drift_do_not_change_that() {
    let nic = NicParameters {
        clock_offset_ns: 3e9,
        clock_drift_ppm: 1_000.0,
        ..NicParameters::connectx_6_dx()
    };
    let counts = keeps_the_window_wide(nic.clone(), RUN_NS);
    assert_eq!(counts, ClockCounts::default());
    let asked = NicParameters {
        clock_query_ns: 1_000.0,
        clock_drift_ppm: 4_000.0,
        ..nic
    };
    let run_ns = 6 * RUN_NS;
    let counts = keeps_the_window_wide(asked, run_ns);
    let most = run_ns / ASK_NS + 10;
    assert!((most / 2..=most).contains(&counts.asked), "{counts:?}");
    // The client's gains 97 ns in 100 us with this seed, and 10 us are let go.
    assert!((1..=4).contains(&counts.corrected), "{counts:?}");
}
