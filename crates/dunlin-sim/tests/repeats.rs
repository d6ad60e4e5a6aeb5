//! Requests repeated because their answers were lost, and repeated requests for memory that is gone.

mod support;

use dunlin_sim::{
    Cluster, Fault, FaultRule, HostParameters, NicParameters, SimQueuePair, SimRegion,
    SwitchParameters, Traffic,
};
use dunlin_verbs::{
    Completion, CompletionQueue, CompletionStatus, Operation, Payload, QueuePair, Region, Segment,
    SendFlags, SendRequest,
};

/// READs and atomics that may be outstanding at once.
const OUT: usize = 48;

fn cluster() -> Cluster {
    let mut nic = NicParameters::connectx_5();
    nic.max_rd_atomic = OUT as f64;
    let host = HostParameters::epyc_7452();
    Cluster::star(1, 2, &host, &nic, &SwitchParameters::z9264f())
}

fn lost_answers() -> FaultRule {
    FaultRule {
        traffic: Traffic::Answers,
        ..FaultRule::new(Fault::Drop, 1.0)
    }
}

/// Adds one, and puts the old value into the place of this number.
fn add(pair: &mut SimQueuePair, [own, other]: [&SimRegion; 2], number: usize) {
    let segments = [Segment {
        region: own,
        offset: 8 * number,
        length: 8,
    }];
    let (remote, add) = (other.remote(), 1);
    let operation = Operation::FetchAndAdd { remote, add };
    let payload = Payload::Segments(&segments);
    let request = SendRequest::new(number as u64, operation, payload, SendFlags::SIGNALED);
    pair.post_send(&[request]).expect("room");
}

#[test]
fn a_repeated_read_of_a_region_that_has_ended_is_refused() {
    let cluster = cluster();
    let mut ends = support::connected(&cluster);
    let lost = cluster.fault(lost_answers().at_most(1));
    support::read(&mut ends, 64, 1);
    cluster.run_for(20_000);
    drop(lost);
    let ([_own, other], [mut queue, _], _pairs) = ends;
    drop(other);
    cluster.run_for(5_000_000);
    let mut one = [Completion::EMPTY];
    assert_eq!(queue.poll(&mut one).expect("no overrun"), 1);
    assert_eq!(one[0].status, CompletionStatus::RemoteAccess);
}

#[test]
fn an_atomic_whose_region_ends_before_its_turn_is_refused() {
    let cluster = cluster();
    let ([own, other], [mut queue, _], [mut pair, _peer]) = support::connected(&cluster);
    add(&mut pair, [&own, &other], 0);
    let peer = cluster.hosts()[1];
    while cluster.counters(peer).requests_answered == 0 {
        cluster.run_for(1);
        assert!(cluster.now_ns() < 1_000_000, "it never comes");
    }
    drop(other);
    cluster.run_for(5_000_000);
    let mut one = [Completion::EMPTY];
    assert_eq!(queue.poll(&mut one).expect("no overrun"), 1);
    assert_eq!(one[0].status, CompletionStatus::RemoteAccess);
}

#[test]
fn as_many_results_of_atomics_are_kept_as_may_be_out() {
    let cluster = cluster();
    let mut ends = support::connected(&cluster);
    let (regions, _, pairs) = &mut ends;
    let lost = cluster.fault(lost_answers());
    for number in 0..OUT {
        add(&mut pairs[0], [&regions[0], &regions[1]], number);
    }
    cluster.run_for(40_000);
    drop(lost);
    cluster.run_for(5_000_000);
    assert_eq!(support::done(&mut ends), OUT);
    let word = |region: &SimRegion, place: usize| {
        let mut bytes = [0; 8];
        region.memory().read(8 * place, &mut bytes);
        u64::from_ne_bytes(bytes)
    };
    assert_eq!(word(&ends.0[1], 0), OUT as u64);
    for number in 0..OUT {
        assert_eq!(word(&ends.0[0], number), number as u64);
    }
}
