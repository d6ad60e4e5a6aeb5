//! READs of several threads over one queue pair behind a lock (FaSST's one-sided sharing).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use dunlin_sim::{
    Cluster, HostParameters, Next, NicParameters, SimDevice, SimQueuePair, SwitchParameters,
};
use dunlin_verbs::{
    Access, Completion, CompletionQueue, Device, Operation, Payload, QueuePair, Region, Segment,
    SendFlags, SendRequest, Transport, Work,
};

use super::{connect, Cable, End};

/// The shared queue pair, and the time until which its lock is held, in virtual nanoseconds.
struct Shared {
    pair: SimQueuePair,
    free_at_ns: u64,
    waiting: VecDeque<usize>,
}

/// Rate of one thread, in millions per second, when `threads` of a host share a queue pair.
///
/// # Panics
/// When a device refuses.
pub fn shared_reads(
    seed: u64,
    threads: usize,
    host: &HostParameters,
    nic: &NicParameters,
    switch: &SwitchParameters,
) -> f64 {
    const MEASURED_NS: u64 = 200_000;
    let post_ns = (host.post_send + host.post_element + host.doorbell) / 1_000;
    let line_ns = host.shared_line / 1_000;
    let cluster = Cluster::star(seed, 2, host, nic, switch);
    let hosts = cluster.hosts();
    let devices: Vec<SimDevice> = hosts.iter().map(|&host| cluster.device(host)).collect();
    let domains: Vec<_> = devices
        .iter()
        .map(|d| d.create_protection_domain().expect("a domain"))
        .collect();
    let region = |i: usize| {
        devices[i]
            .allocate_region(&domains[i], 1 << 16, Access::all())
            .expect("a region")
    };
    let (local, remote) = (region(0), region(1));
    let queue = |i: usize| {
        devices[i]
            .create_completion_queue(4096, None)
            .expect("a queue")
    };
    let (ours, theirs) = (queue(0), queue(1));
    let end = |i: usize| End {
        device: &devices[i],
        domain: &domains[i],
        completions: if i == 0 { &ours } else { &theirs },
    };
    let cable = Cable {
        transport: Transport::ReliableConnection,
        sends: 4096,
        receives: 1,
        inline_bytes: 0,
    };
    let (pair, peer) = connect(&end(0), &end(1), cable);
    let shared = Arc::new(Mutex::new(Shared {
        pair,
        free_at_ns: 0,
        waiting: VecDeque::new(),
    }));
    let ours = Arc::new(Mutex::new(ours));
    let done = Arc::new(Mutex::new(vec![0u64; threads]));
    let to = remote.remote();
    for thread in 0..threads {
        let (shared, ours, done, local) = (
            Arc::clone(&shared),
            Arc::clone(&ours),
            Arc::clone(&done),
            local.clone(),
        );
        cluster.spawn(hosts[0], thread, move |now_ns: u64| {
            let mut shared = shared.lock().expect("steps do not panic");
            // Virtual mutual exclusion: a thread that arrives while the lock is held spins until it is free, in order
            // of arrival.
            let first = shared.waiting.front().is_none_or(|&next| next == thread);
            if shared.free_at_ns > now_ns || !first {
                if !shared.waiting.contains(&thread) {
                    shared.waiting.push_back(thread);
                }
                return Next::PollUntil(shared.free_at_ns.max(now_ns + 1));
            }
            shared.waiting.retain(|&other| other != thread);
            let mut held_ns = post_ns;
            if threads > 1 {
                // The line of the lock comes from the core that had it.
                SimDevice::charge(Work::SharedLine);
                held_ns += line_ns;
            }
            let segments = [Segment {
                region: &local,
                offset: 0,
                length: 32,
            }];
            let operation = Operation::Read { remote: to };
            let request = SendRequest::new(
                thread as u64,
                operation,
                Payload::Segments(&segments),
                SendFlags::SIGNALED,
            );
            // A full queue only means that completions must be taken first.
            let _ = shared.pair.post_send(&[request]);
            shared.free_at_ns = now_ns + held_ns;
            drop(shared);
            let mut some = [Completion::EMPTY; 1];
            let count = ours
                .lock()
                .expect("steps do not panic")
                .poll(&mut some)
                .expect("no overrun");
            let mut done = done.lock().expect("steps do not panic");
            for completion in &some[..count] {
                done[completion.id as usize] += 1;
            }
            Next::Again
        });
    }
    cluster.run_for(MEASURED_NS);
    let done = done.lock().expect("steps do not panic");
    let _keep = (&peer, &remote);
    done.iter().sum::<u64>() as f64 * 1_000.0 / MEASURED_NS as f64 / threads as f64
}
