//! RC requests an acknowledgement for signaled requests and once in 256 packets; a loss after the last of these is
//! found by the timer.

mod support;

use dunlin_sim::{
    Cluster, Fault, FaultRule, HostParameters, NicParameters, SimQueuePair, SimRegion,
    SwitchParameters,
};
use dunlin_verbs::{
    Completion, CompletionQueue, CompletionStatus, Operation, Payload, QueuePair, Region, Segment,
    SendFlags, SendRequest,
};

fn two_hosts() -> Cluster {
    let nic = NicParameters::connectx_5();
    assert_eq!(nic.ack_request_packets, 256.0);
    let (host, switch) = (HostParameters::epyc_7452(), SwitchParameters::z9264f());
    Cluster::star(3, 2, &host, &nic, &switch)
}

/// WRITEs eight bytes to the place of `number`.
fn write(pair: &mut SimQueuePair, regions: &[SimRegion; 2], number: u64, flags: SendFlags) {
    let at = 8 * number as usize;
    regions[0].memory().write(at, &(number + 1).to_le_bytes());
    let segments = [Segment {
        region: &regions[0],
        offset: at,
        length: 8,
    }];
    let operation = Operation::Write {
        remote: regions[1].remote().plus(at as u64),
        immediate: None,
    };
    let request = SendRequest::new(number, operation, Payload::Segments(&segments), flags);
    pair.post_send(&[request]).expect("room");
}

fn arrived(regions: &[SimRegion; 2], number: u64) -> bool {
    let mut word = [0; 8];
    regions[1].memory().read(8 * number as usize, &mut word);
    u64::from_le_bytes(word) == number + 1
}

#[test]
fn one_packet_in_256_and_each_completion_are_acknowledged() {
    let cluster = two_hosts();
    let (regions, mut queues, mut pairs) = support::connected(&cluster);
    let receiver = cluster.hosts()[1];
    let mut done = 0;
    let mut some = [Completion::EMPTY; 4];
    for number in 0..1200 {
        // Every tenth of the first 600 is signaled, then every three hundredth, and a 256th is before each of these.
        let signaled = number < 600 && number % 10 == 9 || number % 300 == 299;
        let flags = match signaled {
            true => SendFlags::SIGNALED,
            false => SendFlags::empty(),
        };
        write(&mut pairs[0], &regions, number, flags);
        // All before the timer of 65 us fires. A poll without a completion would let time pass until then.
        cluster.run_for(if signaled { 5_000 } else { 100 });
        if signaled {
            done += queues[0].poll(&mut some).expect("no overrun");
        }
    }
    assert_eq!(done, 60 + 2);
    assert!((0..1200).all(|number| arrived(&regions, number)));
    assert_eq!(cluster.counters(receiver).packets_sent, 60 + 2 * 2);
}

#[test]
fn a_silent_tail_that_is_lost_is_found_by_the_timer() {
    let cluster = two_hosts();
    let (regions, _queues, mut pairs) = support::connected(&cluster);
    let [sender, receiver] = [cluster.hosts()[0], cluster.hosts()[1]];
    let loss = FaultRule::new(Fault::Drop, 1.0).between(sender, receiver);
    let _loss = cluster.fault(loss.at_most(3));
    for number in 0..5 {
        if number == 3 {
            // A later packet makes a gap known at once; the second time nothing follows.
            cluster.run_for(10_000);
            assert!((0..3).all(|number| !arrived(&regions, number)));
        }
        write(&mut pairs[0], &regions, number, SendFlags::empty());
    }
    assert!(cluster.settle(10_000_000));
    assert!((0..5).all(|number| arrived(&regions, number)));
    let counters = cluster.counters(sender);
    assert_eq!((counters.timeouts, counters.retransmissions), (0, 1));
    // Only the last, with nothing after it that could reveal the loss.
    let loss = FaultRule::new(Fault::Drop, 1.0).between(sender, receiver);
    let _loss = cluster.fault(loss.at_most(1));
    write(&mut pairs[0], &regions, 5, SendFlags::empty());
    assert!(cluster.settle(10_000_000));
    assert!(arrived(&regions, 5));
    assert_eq!(cluster.counters(sender).timeouts, 0);
}

#[test]
fn a_silent_peer_is_noticed_without_any_completion() {
    let cluster = two_hosts();
    let (regions, mut queues, mut pairs) = support::connected(&cluster);
    cluster.crash(cluster.hosts()[1]);
    write(&mut pairs[0], &regions, 0, SendFlags::empty());
    cluster.run_for(100_000_000);
    let mut some = [Completion::EMPTY; 4];
    assert_eq!(queues[0].poll(&mut some).expect("no overrun"), 1);
    assert_eq!(some[0].status, CompletionStatus::RetryExceeded);
}
