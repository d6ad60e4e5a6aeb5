//! Latencies of single operations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use dunlin_sim::{
    Cluster, HostParameters, Next, NicParameters, SimCompletionQueue, SimQueuePair, SimRegion,
    SwitchParameters,
};
use dunlin_verbs::{
    Access, Completion, CompletionQueue, Device, Operation, Payload, QueuePair, Region, Segment,
    SendFlags, SendRequest, Transport,
};

use super::{connect, Cable, End};

/// Number of rounds measured.
const ROUNDS: u64 = 200;

/// Largest WRITE that carries its bytes inline.
const INLINE_BYTES: usize = 64;

/// One end of a connection, with its memory.
pub(super) struct Side {
    pub(super) pair: SimQueuePair,
    pub(super) completions: SimCompletionQueue,
    pub(super) region: SimRegion,
}

/// Connects both hosts of a cluster; each end has a region of `bytes`.
pub(super) fn two_ends(cluster: &Cluster, cable: Cable, bytes: usize) -> [Side; 2] {
    let hosts = cluster.hosts();
    let devices = [cluster.device(hosts[0]), cluster.device(hosts[1])];
    let domains = devices
        .each_ref()
        .map(|d| d.create_protection_domain().expect("a domain"));
    let regions = [0, 1].map(|i| {
        devices[i]
            .allocate_region(&domains[i], bytes, Access::all())
            .expect("a region")
    });
    let queues = devices.each_ref().map(|d| {
        d.create_completion_queue(cable.sends, None)
            .expect("a queue")
    });
    let end = |i: usize| End {
        device: &devices[i],
        domain: &domains[i],
        completions: &queues[i],
    };
    let (a, b) = connect(&end(0), &end(1), cable);
    let ([one, other], [to_one, to_other]) = (regions, queues);
    let side = |pair, completions, region| Side {
        pair,
        completions,
        region,
    };
    [side(a, to_one, one), side(b, to_other, other)]
}

/// Mean round trip in nanoseconds of a WRITE that is answered by a WRITE, both detected by polling the last word that
/// they write.
///
/// # Panics
/// When a device refuses, or `bytes` is less than a word or not a multiple of one.
pub fn ping_pong(
    seed: u64,
    bytes: usize,
    host: &HostParameters,
    nic: &NicParameters,
    switch: &SwitchParameters,
) -> f64 {
    assert!(bytes >= 8 && bytes % 8 == 0, "words");
    // Incoming bytes are placed before outgoing ones.
    let half = bytes.next_multiple_of(4096);
    let cable = Cable {
        transport: Transport::ReliableConnection,
        sends: 4096,
        receives: 1,
        inline_bytes: INLINE_BYTES,
    };
    let cluster = Cluster::star(seed, 2, host, nic, switch);
    let hosts = cluster.hosts();
    let [one, other] = two_ends(&cluster, cable, 2 * half);
    let remotes = [other.region.remote(), one.region.remote()];
    let rounds = if bytes > 65_536 { ROUNDS / 10 } else { ROUNDS };
    let last = bytes - 8;
    let finished = Arc::new(AtomicU64::new(0));
    for (
        side,
        Side {
            mut pair, region, ..
        },
    ) in [one, other].into_iter().enumerate()
    {
        let remote = remotes[side];
        let finished = Arc::clone(&finished);
        let mut round = 0u64;
        let mut source = vec![0u8; bytes.min(INLINE_BYTES)];
        cluster.spawn(hosts[side], 0, move |now_ns: u64| {
            // The side that begins writes round 1; each side answers the round that it sees.
            let seen = region.memory().atomic_u64(last).load(Ordering::Acquire);
            let due = if side == 0 {
                seen == round
            } else {
                seen == round + 1
            };
            if !due {
                return Next::Poll;
            }
            if side == 0 && round == rounds {
                finished.store(now_ns, Ordering::Relaxed);
                return Next::Done;
            }
            round += 1;
            let segments = [Segment {
                region: &region,
                offset: half,
                length: bytes,
            }];
            let payload = if bytes <= INLINE_BYTES {
                source[last..].copy_from_slice(&round.to_ne_bytes());
                Payload::Inline(&source)
            } else {
                let memory = region.memory();
                memory
                    .atomic_u64(half + last)
                    .store(round, Ordering::Release);
                Payload::Segments(&segments)
            };
            let operation = Operation::Write {
                remote,
                immediate: None,
            };
            let request = SendRequest::new(round, operation, payload, SendFlags::empty());
            pair.post_send(&[request])
                .expect("the send queue holds all rounds");
            Next::Again
        });
    }
    cluster.run_for(20_000_000);
    finished.load(Ordering::Relaxed) as f64 / rounds as f64
}

/// Mean nanoseconds of one READ at a time.
///
/// # Panics
/// When a device refuses.
pub fn one_read(
    seed: u64,
    bytes: usize,
    host: &HostParameters,
    nic: &NicParameters,
    switch: &SwitchParameters,
) -> f64 {
    let cable = Cable {
        transport: Transport::ReliableConnection,
        sends: 64,
        receives: 1,
        inline_bytes: 0,
    };
    let cluster = Cluster::star(seed, 2, host, nic, switch);
    let hosts = cluster.hosts();
    // The other end is kept until the measurement is over.
    let [one, other] = two_ends(&cluster, cable, 8192);
    let Side {
        mut pair,
        mut completions,
        region: local,
    } = one;
    let remote = other.region.remote();
    let finished = Arc::new(AtomicU64::new(0));
    let end_time = Arc::clone(&finished);
    let (mut posted, mut done) = (0, 0);
    cluster.spawn(hosts[0], 0, move |now_ns: u64| {
        let mut one = [Completion::EMPTY];
        if posted > done {
            done += completions.poll(&mut one).expect("no overrun") as u64;
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
        pair.post_send(&[request]).expect("one at a time");
        posted += 1;
        Next::Again
    });
    cluster.run_for(10_000_000);
    finished.load(Ordering::Relaxed) as f64 / ROUNDS as f64
}
