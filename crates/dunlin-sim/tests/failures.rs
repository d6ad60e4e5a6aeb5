//! The effects of failed requests and RECEIVEs.

mod support;

use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::{
    Completion, CompletionQueue, CompletionStatus, Operation, Payload, QueuePair, ReceiveRequest,
    Region, Segment, SendFlags, SendRequest,
};

const BYTES: usize = 1 << 16;

fn cluster() -> Cluster {
    let mut nic = NicParameters::connectx_5();
    nic.mtu_bytes = 1024.0;
    let host = HostParameters::epyc_7452();
    Cluster::star(1, 2, &host, &nic, &SwitchParameters::z9264f())
}

fn bytes_of(region: &impl Region) -> Vec<u8> {
    let mut all = vec![0; BYTES];
    region.memory().read(0, &mut all);
    all
}

/// Fails an end of a connection when the first bytes are in its memory and others on their way. A program that has
/// taken the flushed completions may reuse that memory.
fn nothing_comes_behind_a_flush(cluster: &Cluster, ends: &mut support::Ends, end: usize) {
    let (regions, queues, pairs) = ends;
    while bytes_of(&regions[end]).iter().all(|&byte| byte == 0) {
        cluster.run_for(20);
        assert!(cluster.now_ns() < 1_000_000, "nothing comes");
    }
    pairs[end].to_error();
    let mut one = [Completion::EMPTY];
    while queues[end].poll(&mut one).expect("no overrun") == 0 {
        cluster.run_for(1);
        assert!(cluster.now_ns() < 2_000_000, "nothing is flushed");
    }
    assert_eq!(one[0].status, CompletionStatus::Flushed);
    let taken = bytes_of(&regions[end]);
    assert!(taken.contains(&0), "all of it had come");
    cluster.run_for(1_000_000);
    assert!(bytes_of(&regions[end]) == taken, "more has come");
}

#[test]
fn a_flushed_read_leaves_its_memory_alone() {
    let cluster = cluster();
    let mut ends = support::connected(&cluster);
    ends.0[1].memory().write(0, &[7; BYTES]);
    support::read(&mut ends, BYTES, 1);
    nothing_comes_behind_a_flush(&cluster, &mut ends, 0);
}

#[test]
fn a_flushed_receive_leaves_its_memory_alone() {
    let cluster = cluster();
    let mut ends = support::connected(&cluster);
    let (regions, _, pairs) = &mut ends;
    regions[0].memory().write(0, &[7; BYTES]);
    let [from, into] = [&regions[0], &regions[1]].map(|region| {
        let (offset, length) = (0, BYTES);
        [Segment {
            region,
            offset,
            length,
        }]
    });
    let segments = &into;
    let receive = ReceiveRequest { id: 1, segments };
    pairs[1].post_receive(&[receive]).expect("room");
    let operation = Operation::Send { immediate: None };
    let payload = Payload::Segments(&from);
    let request = SendRequest::new(1, operation, payload, SendFlags::SIGNALED);
    pairs[0].post_send(&[request]).expect("room");
    nothing_comes_behind_a_flush(&cluster, &mut ends, 1);
}
