//! Tests of shared receive queues whose queue pairs end, on a provider that discards their completions (mlx5).

use dunlin_verbs::{
    Access, Completion, CompletionQueue, CompletionStatus, Device, PostErrorKind, QueuePair,
    ReceiveQueue, ReceiveRequest, SharedReceiveQueue,
};

use crate::fake::{complete, live, receives, script};
use crate::fake_tests::{config, connect, open, RC};
use crate::sys::types::Wc;

/// The entries that a queue pair has taken are returned, whether it was destroyed or reset, with what had arrived and
/// when.
#[test]
fn a_queue_pair_that_ends_gives_its_entries_back() {
    for is_extended in [false, true] {
        script(|s| (s.shared, s.cleans, s.extended) = (4, true, is_extended));
        // With a clock, completions are taken by extended calls.
        script(|s| (s.clock, s.ticks) = ((u64::MAX, 500_000), 1000));
        let device = open();
        assert_eq!(device.attributes().timestamps, is_extended);
        let domain = device.create_protection_domain().expect("a domain");
        let mut shared = device
            .create_shared_receive_queue(&domain, 4, 1)
            .expect("a shared queue");
        let mut queue = device.create_completion_queue(8, None).expect("a queue");
        let pair = || {
            let mut config = config(RC, &queue, &queue);
            config.receive_queue = ReceiveQueue::Shared(&shared);
            device.create_queue_pair(&domain, &config).expect("a pair")
        };
        let pairs = [pair(), pair()];
        for (mut pair, is_reset) in pairs.into_iter().zip([false, true]) {
            pair.to_init(Access::all()).expect("Init");
            let four = [1, 2, 3, 4].map(|id| ReceiveRequest { id, segments: &[] });
            shared.post_receive(&four).expect("four are free");
            let full = shared.post_receive(&four[..1]).expect_err("full");
            assert_eq!(full.kind, PostErrorKind::Full { limit: 4 });
            for id in receives() {
                let queue_pair = pair.number();
                complete(Wc {
                    id,
                    queue_pair,
                    bytes: 8,
                    ..Wc::EMPTY
                });
            }
            match is_reset {
                true => pair.to_reset(),
                false => drop(pair),
            }
            // Two at a time, so that saved ones have to wait.
            let mut some = [Completion::EMPTY; 2];
            for ids in [[1, 2], [3, 4]] {
                assert_eq!(queue.poll(&mut some), Ok(2));
                assert_eq!(some.map(|one| (one.id, one.bytes)), ids.map(|id| (id, 8)));
                let came = is_extended.then_some(2000);
                assert_eq!(some.map(|one| one.timestamp_ns), [came; 2]);
            }
            assert_eq!(queue.poll(&mut some), Ok(0));
        }
        drop((shared, queue, domain, device));
        assert_eq!(live(), 0);
    }
}

/// A queue pair that has begun to fill a RECEIVE returns that as well, after a moment.
#[test]
fn a_receive_that_was_half_filled_comes_back() {
    for (is_extended, is_reset) in [(false, false), (true, false), (false, true)] {
        script(|s| (s.shared, s.cleans, s.extended) = (4, true, is_extended));
        let device = open();
        let domain = device.create_protection_domain().expect("a domain");
        let mut shared = device
            .create_shared_receive_queue(&domain, 1, 1)
            .expect("a shared queue");
        let mut queue = device.create_completion_queue(8, None).expect("a queue");
        let mut config = config(RC, &queue, &queue);
        config.receive_queue = ReceiveQueue::Shared(&shared);
        let mut pair = device.create_queue_pair(&domain, &config).expect("a pair");
        let peer = pair.address();
        connect(&mut pair, &peer).expect("connects");
        let one = [ReceiveRequest {
            id: 1,
            segments: &[],
        }];
        shared.post_receive(&one).expect("one is free");
        let (id, queue_pair) = (receives()[0], pair.number());
        script(|s| {
            s.half = Some(Wc {
                id,
                queue_pair,
                // Flushed.
                status: 5,
                ..Wc::EMPTY
            });
        });
        match is_reset {
            true => pair.to_reset(),
            false => drop(pair),
        }
        let mut some = [Completion::EMPTY; 2];
        assert_eq!(queue.poll(&mut some), Ok(1));
        assert_eq!((some[0].id, some[0].status), (1, CompletionStatus::Flushed));
        shared.post_receive(&one).expect("one is free again");
    }
}
