//! What looking at an empty completion queue takes of a core, and what it does for those that nobody looks at, in
//! virtual time.

#[path = "common/end.rs"]
mod end;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use dunlin_flor::connection::Deployment;
use dunlin_flor::device::{FlorCompletionQueue, FlorConfig, FlorDevice, FlorQueuePair};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SimDevice, SwitchParameters};
use dunlin_verbs::{
    thread, Completion, CompletionQueue, ConnectAttributes, Device, Operation, Payload, QueuePair,
    RemoteAddress, RemoteKey, SendFlags, SendRequest,
};

use end::end;

const LOOKS: u64 = 2_000;
const WRITES: u64 = 50;
/// What devices have if nothing is said.
const INTERVAL_NS: u64 = 10_000;
const RARELY_NS: u64 = 100_000;

/// A queue pair and the queue that it alone completes to.
type End = (FlorQueuePair<SimDevice>, FlorCompletionQueue<SimDevice>);

/// The hosts' devices, connected so many times. Who polls looks at all connections after `look_at_all_ns`.
fn connected(connections: usize, look_at_all_ns: u64) -> (Cluster, Vec<[End; 2]>) {
    let (host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connectx_5());
    let cluster = Cluster::star(1, 2, &host, &nic, &SwitchParameters::sx6036());
    let hosts = cluster.hosts();
    let devices = [0, 1].map(|at| {
        let mut config = FlorConfig::new(Deployment::CrossPod);
        config.look_at_all_ns = look_at_all_ns;
        FlorDevice::new(cluster.device(hosts[at]), config).expect("a device")
    });
    let connect = |_| {
        let mut both = devices.each_ref().map(|device| {
            let domain = device.create_protection_domain().expect("a domain");
            end(device, &domain)
        });
        let addresses = both.each_ref().map(|(pair, _)| pair.address());
        for (own, (pair, _)) in both.iter_mut().enumerate() {
            let attributes = ConnectAttributes::default();
            pair.to_ready_to_receive(Some(&addresses[1 - own]), attributes)
                .expect("RTR");
            pair.to_ready_to_send().expect("RTS");
        }
        both
    };
    let ends = (0..connections).map(connect).collect();
    (cluster, ends)
}

fn poll((_, queue): &mut End) -> usize {
    let mut completions = [Completion::EMPTY; 4];
    queue.poll(&mut completions).expect("no overrun")
}

/// Nanoseconds of a look at one empty queue where a device has so many connections, each with a queue of its own.
fn look_ns(connections: usize, look_at_all_ns: u64) -> u64 {
    let (cluster, mut ends) = connected(connections, look_at_all_ns);
    let [mut own, other] = ends.swap_remove(0);
    let took = Arc::new(AtomicU64::new(0));
    let shown = Arc::clone(&took);
    cluster.spawn_thread(cluster.hosts()[0], 1, move || {
        let begun = thread::now();
        for _ in 0..LOOKS {
            assert_eq!(poll(&mut own), 0);
        }
        let passed = thread::now().duration_since(begun).as_nanos();
        shown.store(passed as u64 / LOOKS, Ordering::Relaxed);
        drop(own);
    });
    cluster.run_for(20_000_000);
    drop((other, ends));
    let took = took.load(Ordering::Relaxed);
    assert!(took > 0, "the thread has not ended");
    took
}

/// Nanoseconds of a WRITE whose peer polls the queue of another connection and never rests.
fn write_ns(connections: usize, look_at_all_ns: u64) -> u64 {
    let (cluster, mut ends) = connected(connections, look_at_all_ns);
    let hosts = cluster.hosts();
    let [mut polled, _unused] = ends.swap_remove(0);
    let [_written, mut writing] = ends.swap_remove(0);
    let took = Arc::new(AtomicU64::new(0));
    let (shown, ended) = (Arc::clone(&took), Arc::clone(&took));
    cluster.spawn_thread(hosts[0], 1, move || {
        while ended.load(Ordering::Relaxed) == 0 {
            assert_eq!(poll(&mut polled), 0);
        }
        drop(polled);
    });
    cluster.spawn_thread(hosts[1], 1, move || {
        // Without bytes nobody looks at where they go.
        let remote = RemoteAddress {
            address: 0,
            key: RemoteKey(0),
        };
        let operation = Operation::Write {
            remote,
            immediate: None,
        };
        let mut all = 0;
        for id in 0..=WRITES {
            let payload = Payload::Segments(&[]);
            let request = SendRequest::new(id, operation, payload, SendFlags::SIGNALED);
            let begun = thread::now();
            writing.0.post_send(&[request]).expect("posted");
            while poll(&mut writing) == 0 {}
            // The first one brings the addresses of the backups with it.
            if id > 0 {
                all += thread::now().duration_since(begun).as_nanos() as u64;
            }
            // Not in step with the looks of the other.
            thread::sleep(Duration::from_nanos(50_000 + id * 1_370));
        }
        shown.store(all / WRITES, Ordering::Relaxed);
        drop(writing);
    });
    cluster.run_for(100_000_000);
    drop((_written, _unused, ends));
    let took = took.load(Ordering::Relaxed);
    assert!(took > 0, "the threads have not ended");
    took
}

/// A server has a queue for each of its connections, and looks at one after the other.
#[test]
fn a_look_at_a_queue_is_not_one_at_all_connections() {
    let [few, many] = [2, 32].map(|connections| look_ns(connections, INTERVAL_NS));
    assert!(many < 4 * few, "{few} and {many} ns");
}

/// Rare looks at all connections take less of who polls, and what comes to those that nobody polls does not wait for
/// them: the device's thread sees to it where others look less than ten times between two of its own.
/// `DUNLIN_FLOR_LOOKS=1 cargo test -p dunlin-flor --test polling -- --nocapture` prints the table of `docs/flor.md`.
#[test]
fn rare_looks_at_all_connections_are_cheap_and_keep_nobody_waiting() {
    let [often, rarely] = [1_000, RARELY_NS].map(|interval| look_ns(16, interval));
    assert!(often > rarely, "{often} and {rarely} ns");
    let written = write_ns(16, RARELY_NS);
    assert!(written < RARELY_NS / 2, "{written} ns");
    if std::env::var_os("DUNLIN_FLOR_LOOKS").is_none() {
        return;
    }
    for connections in [4, 32, 128] {
        for interval in [1_000, 3_000, INTERVAL_NS, 30_000, RARELY_NS] {
            let (look, write) = (
                look_ns(connections, interval),
                write_ns(connections, interval),
            );
            println!("| {connections} | {interval} | {look} | {write} |");
        }
    }
}
