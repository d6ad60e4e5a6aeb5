//! Tests of the extended calls that soft-RoCE does not allow: timestamps, and refusals of whole batches.

use dunlin_verbs::{
    Access, Completion, CompletionQueue, CompletionStatus, Device, Operation, Payload,
    PostErrorKind, QueuePair, RemoteAddress, RemoteKey, Segment, SendFlags, SendRequest,
};

use crate::fake::{calls, complete, live, posted, script};
use crate::fake_tests::{connect, open, open_with, pair, says, write};
use crate::sys::constants as c;
use crate::sys::types::Wc;

const TO: RemoteAddress = RemoteAddress {
    address: 64,
    key: RemoteKey(5),
};

#[test]
fn completions_carry_timestamps() {
    script(|s| (s.extended, s.clock) = (true, (u64::MAX, 500_000)));
    let device = open();
    assert!(device.attributes().timestamps);
    let (mut pair, mut queue) = pair(&device).expect("a queue pair");
    let peer = pair.address();
    connect(&mut pair, &peer).expect("connects");
    pair.post_send(&[write(1), write(2)]).expect("posted");
    script(|s| s.ticks = 1000);
    let ids: Vec<u64> = posted().iter().map(|&(id, _)| id).collect();
    for (id, status) in [(ids[0], 0), (ids[1], 12)] {
        let wc = Wc {
            id,
            status,
            ..Wc::EMPTY
        };
        complete(wc);
    }
    let mut some = [Completion::EMPTY; 4];
    assert_eq!(queue.poll(&mut some), Ok(2));
    assert_eq!((some[0].id, some[0].timestamp_ns), (1, Some(2000)));
    // For a failed request only the status counts.
    assert_eq!((some[1].id, some[1].timestamp_ns), (2, None));
    assert_eq!(some[1].status, CompletionStatus::RetryExceeded);
    assert_eq!(queue.poll(&mut some), Ok(0));
    drop((pair, queue, device));
    assert_eq!(live(), 0);
}

#[test]
fn no_clock_no_timestamps() {
    script(|s| s.extended = true);
    let device = open();
    assert!(!device.attributes().timestamps);
    let words = device.core().extended_words();
    says(&words, &["posted by calls", "no timestamps"]);
    // Polled by calls when that is asked for.
    let device = open_with(&["RoCE v2"], |config| config.extended = Some(true)).expect("a device");
    let (_pair, mut queue) = pair(&device).expect("a queue pair");
    assert_eq!(queue.poll(&mut [Completion::EMPTY; 2]), Ok(0));
    says(&device.core().extended_words(), &["taken by calls"]);
}

#[test]
fn its_owner_may_do_without() {
    script(|s| (s.extended, s.clock) = (true, (u64::MAX, 1_000_000)));
    let device = open_with(&["RoCE v2"], |config| config.extended = Some(false)).expect("a device");
    assert!(!device.attributes().timestamps);
    let (mut pair, _queue) = pair(&device).expect("a queue pair");
    let peer = pair.address();
    connect(&mut pair, &peer).expect("connects");
    pair.post_send(&[write(1)]).expect("posted");
    assert_eq!(calls(), Vec::<String>::new());
    assert_eq!(posted().len(), 1);
}

#[test]
fn requests_become_calls() {
    script(|s| s.extended = true);
    let device = open();
    let domain = device.create_protection_domain().expect("a domain");
    let (mut pair, _queue) = crate::fake_tests::pair_in(&device, &domain).expect("a queue pair");
    let peer = pair.address();
    connect(&mut pair, &peer).expect("connects");
    let region = device
        .allocate_region(&domain, 4096, Access::LOCAL_WRITE)
        .expect("a region");
    let segment = |length| {
        [Segment {
            region: &region,
            offset: 8,
            length,
        }]
    };
    let (eight, more) = (segment(8), segment(100));
    let request = |id, operation, payload, flags| SendRequest::new(id, operation, payload, flags);
    let signaled = SendFlags::SIGNALED;
    pair.post_send(&[
        request(
            1,
            Operation::Write {
                remote: TO,
                immediate: Some(77),
            },
            Payload::Segments(&more),
            SendFlags::empty(),
        ),
        request(
            2,
            Operation::Read { remote: TO },
            Payload::Segments(&more),
            signaled | SendFlags::FENCE,
        ),
        request(
            3,
            Operation::CompareAndSwap {
                remote: TO,
                compare: 1,
                swap: 2,
            },
            Payload::Segments(&eight),
            signaled,
        ),
        request(
            4,
            Operation::Send { immediate: Some(3) },
            Payload::Inline(&[]),
            signaled | SendFlags::SOLICITED,
        ),
    ])
    .expect("posted");
    assert_eq!(
        calls(),
        [
            "start",
            "write_with_immediate 5 64 77",
            "segments 1 100",
            "read 5 64",
            "segments 1 100",
            "compare_and_swap 5 64 1 2",
            "segments 1 8",
            "send_with_immediate 3",
            "segments 0 0",
            "complete",
        ]
    );
    let flags: Vec<u32> = posted().iter().map(|&(_, flags)| flags).collect();
    let s = c::SEND_SIGNALED;
    assert_eq!(flags, [0, s | c::SEND_FENCE, s, s | c::SEND_SOLICITED]);
}

/// If the provider refuses a batch, none of it is accepted, and no entry of the queue is lost.
#[test]
fn a_batch_is_refused_whole() {
    script(|s| s.extended = true);
    let device = open();
    let (mut pair, _queue) = pair(&device).expect("a queue pair");
    let peer = pair.address();
    connect(&mut pair, &peer).expect("connects");
    pair.post_send(&[write(1)]).expect("posted");
    script(|s| s.refuses = 12);
    let error = pair.post_send(&[write(2), write(3)]).expect_err("refused");
    assert_eq!(
        (error.index, error.kind),
        (0, PostErrorKind::Full { limit: 4 })
    );
    script(|s| s.refuses = 0);
    pair.post_send(&[write(4), write(5), write(6)])
        .expect("three are free");
    let error = pair.post_send(&[write(7)]).expect_err("full");
    assert_eq!(error.kind, PostErrorKind::Full { limit: 4 });
}
