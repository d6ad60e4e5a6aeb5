//! Contexts of completion queues that a NIC does not hold are fetched when an entry is written (here for requests over
//! RC), and nowhere else.

mod support;

use dunlin_sim::{Cluster, Counters, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::{
    Access, Completion, CompletionQueue, ConnectAttributes, Device, Operation, Payload, QueuePair,
    Region, Segment, SendFlags, SendRequest,
};

/// Queue pairs of the posting host.
const PAIRS: u64 = 32;
/// WRITEs on each.
const ROUNDS: u64 = 4;

/// Counters of its NIC after WRITEs in turn on all queue pairs, whose completions go to this many queues.
fn counted(completion_sets: f64, queues: u64, flags: SendFlags) -> Counters {
    let mut nic = NicParameters::connectx_5();
    nic.set("completion_sets", completion_sets).expect("known");
    nic.set("completion_ways", 8.0).expect("known");
    let (host, switch) = (HostParameters::epyc_7452(), SwitchParameters::z9264f());
    let cluster = Cluster::star(3, 2, &host, &nic, &switch);
    let ends = [0, 1].map(|number| {
        let device = cluster.device(cluster.hosts()[number]);
        let domain = device.create_protection_domain().expect("a domain");
        let region = device.allocate_region(&domain, 4096, Access::all());
        (device, domain, region.expect("a region"))
    });
    let queue = |end: usize| {
        ends[end]
            .0
            .create_completion_queue(64, None)
            .expect("a queue")
    };
    let mut completions: Vec<_> = (0..queues).map(|_| queue(0)).collect();
    let other = queue(1);
    let connected = |number: u64| {
        let queues = [&completions[(number % queues) as usize], &other];
        let mut pairs = [0, 1].map(|end| {
            let (device, domain, _) = &ends[end];
            support::pair(device, domain, queues[end])
        });
        support::connect(&mut pairs, ConnectAttributes::default());
        pairs
    };
    let mut pairs: Vec<_> = (0..PAIRS).map(connected).collect();
    let segments = [Segment {
        region: &ends[0].2,
        offset: 0,
        length: 8,
    }];
    let mut done = 0;
    for number in 0..PAIRS * ROUNDS {
        let operation = Operation::Write {
            remote: ends[1].2.remote(),
            immediate: None,
        };
        let request = SendRequest::new(number, operation, Payload::Segments(&segments), flags);
        let [pair, _] = &mut pairs[(number % PAIRS) as usize];
        pair.post_send(&[request]).expect("room");
        cluster.run_for(20_000);
        let mut some = [Completion::EMPTY; 4];
        let queue = &mut completions[(number % PAIRS % queues) as usize];
        done += queue.poll(&mut some).expect("no overrun");
    }
    let signaled = flags.contains(SendFlags::SIGNALED);
    assert_eq!(done as u64, if signaled { PAIRS * ROUNDS } else { 0 });
    cluster.counters(cluster.hosts()[0])
}

/// Eight contexts fit and 32 are used in turn: nearly each completion misses, and reads a line of 64 bytes.
#[test]
fn more_completion_queues_than_fit_cost_a_fetch_with_each_completion() {
    let all = counted(0.0, PAIRS, SendFlags::SIGNALED);
    let few = counted(1.0, PAIRS, SendFlags::SIGNALED);
    let missed = few.context_misses - all.context_misses;
    assert!(missed > PAIRS * ROUNDS / 2, "{missed}");
    assert_eq!(few.pcie_read_lines - all.pcie_read_lines, missed);
}

/// One queue for all queue pairs misses once.
#[test]
fn one_completion_queue_stays_in_the_nic() {
    let all = counted(0.0, 1, SendFlags::SIGNALED);
    let few = counted(1.0, 1, SendFlags::SIGNALED);
    assert_eq!(few.context_misses - all.context_misses, 1);
}

/// Unsignaled requests write no entry.
#[test]
fn unsignaled_requests_need_no_context_of_a_completion_queue() {
    let all = counted(0.0, PAIRS, SendFlags::empty());
    let few = counted(1.0, PAIRS, SendFlags::empty());
    assert_eq!(few.context_misses, all.context_misses);
}
