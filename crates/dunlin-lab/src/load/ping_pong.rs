//! Latencies of single operations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use dunlin_sim::{Cluster, HostParameters, Next, NicParameters, SwitchParameters};
use dunlin_verbs::{
    Access, Completion, CompletionQueue, Device, Operation, Payload, QueuePair, Region, Segment,
    SendFlags, SendRequest, Transport,
};

use super::{connect, Cable, End};

/// Rounds that are measured.
const ROUNDS: u64 = 200;

/// Mean round trip in nanoseconds of a WRITE that is answered by a WRITE, both detected by polling memory.
///
/// # Panics
/// When a device refuses.
pub fn ping_pong(
    bytes: usize,
    host: &HostParameters,
    nic: &NicParameters,
    switch: &SwitchParameters,
) -> f64 {
    let cluster = Cluster::star(1, 2, host, nic, switch);
    let hosts = cluster.hosts();
    let devices = [cluster.device(hosts[0]), cluster.device(hosts[1])];
    let domains = devices
        .each_ref()
        .map(|d| d.create_protection_domain().expect("a domain"));
    let regions = [0, 1].map(|i| {
        devices[i]
            .allocate_region(&domains[i], 8192, Access::all())
            .expect("a region")
    });
    let queues = devices
        .each_ref()
        .map(|d| d.create_completion_queue(4096, None).expect("a queue"));
    let end = |i: usize| End {
        device: &devices[i],
        domain: &domains[i],
        completions: &queues[i],
    };
    let cable = Cable {
        transport: Transport::ReliableConnection,
        sends: 4096,
        receives: 1,
        inline_bytes: 64,
    };
    let (a, b) = connect(&end(0), &end(1), cable);
    let finished = Arc::new(AtomicU64::new(0));
    for (side, mut pair) in [(0, a), (1, b)] {
        let (region, remote) = (regions[side].clone(), regions[1 - side].remote());
        let finished = Arc::clone(&finished);
        let mut round = 0u64;
        let source = vec![0u8; bytes];
        cluster.spawn(hosts[side], 0, move |now_ns: u64| {
            // The side that begins writes round 1; each side answers what it sees.
            let seen = region.memory().atomic_u64(0).load(Ordering::Acquire);
            let due = if side == 0 {
                seen == round
            } else {
                seen == round + 1
            };
            if !due {
                return Next::Poll;
            }
            if side == 0 && round == ROUNDS {
                finished.store(now_ns, Ordering::Relaxed);
                return Next::Done;
            }
            round += 1;
            let mut payload = source.clone();
            payload[..8].copy_from_slice(&round.to_ne_bytes());
            let operation = Operation::Write {
                remote,
                immediate: None,
            };
            let request = SendRequest::new(
                round,
                operation,
                Payload::Inline(&payload),
                SendFlags::empty(),
            );
            pair.post_send(&[request])
                .expect("the send queue holds all rounds");
            Next::Again
        });
    }
    cluster.run_for(10_000_000);
    finished.load(Ordering::Relaxed) as f64 / ROUNDS as f64
}

/// Mean nanoseconds of one READ at a time.
///
/// # Panics
/// When a device refuses.
pub fn one_read(
    bytes: usize,
    host: &HostParameters,
    nic: &NicParameters,
    switch: &SwitchParameters,
) -> f64 {
    let cluster = Cluster::star(1, 2, host, nic, switch);
    let hosts = cluster.hosts();
    let devices = [cluster.device(hosts[0]), cluster.device(hosts[1])];
    let domains = devices
        .each_ref()
        .map(|d| d.create_protection_domain().expect("a domain"));
    let regions = [0, 1].map(|i| {
        devices[i]
            .allocate_region(&domains[i], 8192, Access::all())
            .expect("a region")
    });
    let queues = devices
        .each_ref()
        .map(|d| d.create_completion_queue(64, None).expect("a queue"));
    let end = |i: usize| End {
        device: &devices[i],
        domain: &domains[i],
        completions: &queues[i],
    };
    let cable = Cable {
        transport: Transport::ReliableConnection,
        sends: 64,
        receives: 1,
        inline_bytes: 0,
    };
    let (mut a, _b) = connect(&end(0), &end(1), cable);
    let [mut ours, _theirs] = queues;
    let (local, remote) = (regions[0].clone(), regions[1].remote());
    let finished = Arc::new(AtomicU64::new(0));
    let end_time = Arc::clone(&finished);
    let (mut posted, mut done) = (0, 0);
    cluster.spawn(hosts[0], 0, move |now_ns: u64| {
        let mut one = [Completion::EMPTY];
        if posted > done {
            done += ours.poll(&mut one).expect("no overrun") as u64;
            if posted > done {
                return Next::Poll;
            }
        }
        if done == ROUNDS {
            end_time.store(now_ns, Ordering::Relaxed);
            return Next::Done;
        }
        let segments = [Segment {
            region: &local,
            offset: 0,
            length: bytes,
        }];
        let operation = Operation::Read { remote };
        let request = SendRequest::new(
            posted,
            operation,
            Payload::Segments(&segments),
            SendFlags::SIGNALED,
        );
        a.post_send(&[request]).expect("one at a time");
        posted += 1;
        Next::Again
    });
    cluster.run_for(10_000_000);
    finished.load(Ordering::Relaxed) as f64 / ROUNDS as f64
}
