//! What looking at an empty completion queue takes of a core, in virtual time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use dunlin_flor::connection::Deployment;
use dunlin_flor::device::{FlorCompletionQueue, FlorConfig, FlorDevice, FlorQueuePair};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SimDevice, SwitchParameters};
use dunlin_verbs::{
    thread, Access, Completion, CompletionQueue, ConnectAttributes, Device, QueuePair,
    QueuePairConfig, ReceiveQueue, Transport,
};

const LOOKS: u64 = 200;

/// A queue pair and the queue that it alone completes to.
type End = (FlorQueuePair<SimDevice>, FlorCompletionQueue<SimDevice>);

fn end(device: &FlorDevice<SimDevice>) -> End {
    let domain = device.create_protection_domain().expect("a domain");
    let queue = device.create_completion_queue(16, None).expect("a queue");
    let config = QueuePairConfig {
        transport: Transport::ReliableConnection,
        send_completions: &queue,
        receive_completions: &queue,
        send_requests: 4,
        receive_queue: ReceiveQueue::Own(4),
        segments: 1,
        inline_bytes: 0,
    };
    let pair = device.create_queue_pair(&domain, &config);
    let mut pair = pair.expect("a queue pair");
    pair.to_init(Access::all()).expect("Init");
    (pair, queue)
}

/// Nanoseconds of a look at one empty queue where a device has so many connections, each with a queue of its own.
fn look_ns(connections: usize) -> u64 {
    let (host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connectx_5());
    let cluster = Cluster::star(1, 2, &host, &nic, &SwitchParameters::sx6036());
    let hosts = cluster.hosts();
    let devices = [0, 1].map(|at| {
        let below = cluster.device(hosts[at]);
        FlorDevice::new(below, FlorConfig::new(Deployment::CrossPod)).expect("a device")
    });
    let mut ends = Vec::new();
    for _ in 0..connections {
        let mut both = devices.each_ref().map(end);
        let addresses = both.each_ref().map(|(pair, _)| pair.address());
        for (own, (pair, _)) in both.iter_mut().enumerate() {
            let attributes = ConnectAttributes::default();
            pair.to_ready_to_receive(Some(&addresses[1 - own]), attributes)
                .expect("RTR");
            pair.to_ready_to_send().expect("RTS");
        }
        ends.push(both);
    }
    let [(pair, mut queue), other] = ends.swap_remove(0);
    let took = Arc::new(AtomicU64::new(0));
    let shown = Arc::clone(&took);
    cluster.spawn_thread(hosts[0], 1, move || {
        let begun = thread::now();
        let mut completions = [Completion::EMPTY; 4];
        for _ in 0..LOOKS {
            assert_eq!(queue.poll(&mut completions).expect("no overrun"), 0);
        }
        let passed = thread::now().duration_since(begun).as_nanos();
        shown.store(passed as u64 / LOOKS, Ordering::Relaxed);
        drop((pair, queue));
    });
    cluster.run_for(1_000_000);
    drop((other, ends));
    let took = took.load(Ordering::Relaxed);
    assert!(took > 0, "the thread has not ended");
    took
}

/// A server has a queue for each of its connections, and looks at one after the other.
#[test]
fn a_look_at_a_queue_is_not_one_at_all_connections() {
    let (few, many) = (look_ns(2), look_ns(32));
    assert!(many < 4 * few, "{few} and {many} ns");
}
