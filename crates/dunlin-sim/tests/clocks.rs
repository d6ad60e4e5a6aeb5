//! Clocks of NICs: each NIC has its own, it timestamps completions, and a query has a cost.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::{
    thread, Completion, CompletionQueue, Device, Operation, Payload, QueuePair, Region, Segment,
    SendFlags, SendRequest,
};

const DRIFT_PPM: f64 = 50.0;
const OFFSET_NS: f64 = 1_000_000.0;
const QUERY_NS: f64 = 1_000.0;
const SECOND_NS: u64 = 1_000_000_000;

fn cluster(seed: u64, change: impl FnOnce(&mut NicParameters)) -> Cluster {
    let mut nic = NicParameters::connectx_4_lx();
    change(&mut nic);
    let (host, switch) = (HostParameters::xeon_gold_5118(), SwitchParameters::z9264f());
    Cluster::star(seed, 2, &host, &nic, &switch)
}

fn drifting(nic: &mut NicParameters) {
    (nic.clock_drift_ppm, nic.clock_offset_ns) = (DRIFT_PPM, OFFSET_NS);
}

/// The timestamps of a WRITE by each host at the beginning and of one a second later, minus the simulation's time then.
/// A completion that is not awaited is stamped within the microseconds that it takes.
fn ahead(cluster: &Cluster) -> [Vec<i64>; 2] {
    let (regions, mut queues, mut pairs) = support::connected(cluster);
    let mut ahead = [Vec::new(), Vec::new()];
    for _ in 0..2 {
        for (host, ahead) in ahead.iter_mut().enumerate() {
            let segments = [Segment {
                region: &regions[host],
                offset: 0,
                length: 8,
            }];
            let operation = Operation::Write {
                remote: regions[1 - host].remote(),
                immediate: None,
            };
            let payload = Payload::Segments(&segments);
            let request = SendRequest::new(1, operation, payload, SendFlags::SIGNALED);
            pairs[host].post_send(&[request]).expect("room");
            let now = cluster.now_ns();
            cluster.run_for(20_000);
            let mut some = [Completion::EMPTY];
            assert_eq!(queues[host].poll(&mut some).expect("no overrun"), 1);
            let stamp = some[0].timestamp_ns.expect("a stamp");
            ahead.push(stamp as i64 - now as i64);
        }
        cluster.run_for(SECOND_NS);
    }
    ahead
}

/// Maximum time from a WRITE to its completion here.
const WRITE_NS: i64 = 20_000;

#[test]
fn without_parameters_all_show_the_time_of_the_simulation() {
    let cluster = cluster(1, |_| {});
    let device = cluster.device(cluster.hosts()[0]);
    assert_eq!(device.query_clock_ns(), None);
    for of_host in ahead(&cluster) {
        assert!(of_host.iter().all(|ns| (0..WRITE_NS).contains(ns)));
    }
}

#[test]
fn each_begins_and_runs_as_the_seed_says() {
    let found = ahead(&cluster(1, drifting));
    assert_eq!(found, ahead(&cluster(1, drifting)));
    assert_ne!(found, ahead(&cluster(2, drifting)));
    let [one, other] = &found;
    assert!((one[0] - other[0]).abs() > WRITE_NS, "{found:?}");
    assert!((one[1] - one[0]) != (other[1] - other[0]), "{found:?}");
    let most = (SECOND_NS as f64 * DRIFT_PPM / 1e6) as i64 + WRITE_NS;
    for of_host in &found {
        assert!((0..OFFSET_NS as i64 + WRITE_NS).contains(&of_host[0]));
        assert!((of_host[1] - of_host[0]).abs() <= most, "{found:?}");
    }
}

/// Clocks are only read by programs: they change no event.
#[test]
fn they_change_nothing_else() {
    let (same, drifts) = (cluster(1, |_| {}), cluster(1, drifting));
    ahead(&same);
    ahead(&drifts);
    assert_eq!(same.digest(), drifts.digest());
}

#[test]
fn asking_takes_its_time_and_shows_the_clock_halfway() {
    let cluster = cluster(1, |nic| nic.clock_query_ns = QUERY_NS);
    let device = cluster.device(cluster.hosts()[0]);
    let seen = Arc::new([const { AtomicU64::new(0) }; 3]);
    let told = Arc::clone(&seen);
    cluster.spawn_thread(cluster.hosts()[0], 0, move || {
        thread::sleep(std::time::Duration::from_micros(5));
        let now = || thread::simulated_now().expect("simulated").as_nanos() as u64;
        let before = now();
        let shown = device.query_clock_ns().expect("it can be asked");
        for (place, value) in told.iter().zip([before, shown, now()]) {
            place.store(value, Ordering::Relaxed);
        }
    });
    cluster.run_for(100_000);
    let [before, shown, after] = [0, 1, 2].map(|place: usize| seen[place].load(Ordering::Relaxed));
    assert!(before >= 5_000);
    assert_eq!((shown - before, after - before), (500, 1_000));
}
