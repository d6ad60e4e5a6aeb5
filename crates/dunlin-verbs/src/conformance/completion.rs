//! Completion queues and the entries of send queues.

use crate::{
    AsyncEvent, Completion, CompletionOpcode, CompletionQueue, CompletionQueueError, Device,
    Operation, Payload, PostErrorKind, QueuePair, QueuePairState, SendFlags, Transport, Verbs,
};

use super::{piece, wait, Link, Options, Outcome, PeerRegion, Request, Stage};

const RC: Transport = Transport::ReliableConnection;

fn write_to(region: PeerRegion) -> Operation {
    Operation::Write {
        remote: region.at(0),
        immediate: None,
    }
}

/// Posts WRITEs without bytes, every `period`-th signaled, until the queue is full; returns their number and the error.
fn fill<D: Device>(
    link: &mut Link<D>,
    region: PeerRegion,
    first: u64,
    period: u64,
) -> (u64, PostErrorKind) {
    let mut id = first;
    loop {
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, id % period == period - 1);
        let payload = Payload::Segments(&[]);
        let request = Request::<D>::new(id, write_to(region), payload, flags);
        match link.local.queue_pair.post_send(&[request]) {
            Ok(()) => id += 1,
            Err(error) => return (id - first, error.kind),
        }
        assert!(id - first < 100_000, "a send queue without end");
    }
}

/// Unsignaled requests generate no completion on success; completions of signaled ones arrive in order.
pub fn selective_signaling<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::WRITE)? {
        let mut link = stage.link(transport);
        let target = stage.peer.blank(8);
        for round in 0..20 {
            for id in 0..4 {
                let mut flags = SendFlags::empty();
                flags.set(SendFlags::SIGNALED, id == 3);
                let id = round * 4 + id;
                link.local.post_flagged(id, write_to(target), &[], flags);
            }
            stage.done(&mut link, round * 4 + 3);
        }
        stage.step(&link);
        assert_eq!(link.local.poll(), None);
    }
    Ok(())
}

/// A full send queue refuses with [`PostErrorKind::Full`]; polling the completion of a signaled request frees its entry
/// and those of the unsignaled ones before it, and without polling none is freed.
pub fn slots_come_back_by_polling<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let mut options = Options::new(RC);
    options.send_requests = 16;
    options.completions = stage.device.attributes().max_completions.min(4096);
    let mut link = stage.link_with(&options, &options);
    let target = stage.peer.blank(8);
    let (count, refusal) = fill(&mut link, target, 0, 4);
    assert!(count >= 16, "room for {count} only");
    assert!(
        matches!(refusal, PostErrorKind::Full { limit } if limit >= 16),
        "{refusal}"
    );
    for _ in 0..20 {
        stage.step(&link);
    }
    let (more, _) = fill(&mut link, target, count, 4);
    assert_eq!(more, 0, "slots came back without a poll");
    // One completion at a time, without the helper that takes many.
    let mut posted = count;
    let mut one = [Completion::EMPTY];
    for expected in 0..20 {
        wait("a completion", || {
            stage.step(&link);
            let count = link.local.completions.poll(&mut one).expect("no overrun");
            (count == 1).then_some(())
        });
        assert!(one[0].is_success(), "{:?}", one[0]);
        assert_eq!(one[0].id, 4 * expected + 3);
        let (more, _) = fill(&mut link, target, posted, 4);
        assert_eq!(
            more, 4,
            "slots given back by one completion of four requests"
        );
        posted += more;
    }
    Ok(())
}

/// A list that does not fit is accepted as far as it fits, and the error says how far.
pub fn list_is_taken_in_part<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let mut options = Options::new(RC);
    options.send_requests = 8;
    options.completions = stage.device.attributes().max_completions.min(4096);
    let mut link = stage.link_with(&options, &options);
    let target = stage.peer.blank(8);
    let list: Vec<_> = (0..3000)
        .map(|id| {
            let payload = Payload::Segments(&[]);
            Request::<D>::new(id, write_to(target), payload, SendFlags::SIGNALED)
        })
        .collect();
    let error = link
        .local
        .queue_pair
        .post_send(&list)
        .expect_err("too many");
    assert!(matches!(error.kind, PostErrorKind::Full { .. }), "{error}");
    assert!(error.index >= 8 && error.index < 3000, "{error}");
    for id in 0..error.index as u64 {
        stage.done(&mut link, id);
    }
    link.local.post(9999, write_to(target), &[]);
    stage.done(&mut link, 9999);
    Ok(())
}

/// A completion queue that receives more than it holds reports that, and its queue pairs go to the error state; others
/// do not.
pub fn overrun<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let most = stage.device.attributes().max_send_requests.min(2048);
    let mut options = Options::new(RC);
    options.send_requests = most;
    options.completions = 2;
    let mut link = stage.link_with(&options, &Options::new(RC));
    let mut other = stage.link(RC);
    let target = stage.peer.blank(8);
    let (count, _) = fill(&mut link, target, 0, 1);
    assert!(count > 2, "the send queue takes {count} only");
    wait("the queue pair's error", || {
        stage.step(&other);
        (link.local.queue_pair.state() == QueuePairState::Error).then_some(())
    });
    let error = wait("the overrun", || {
        let mut some = [Completion::EMPTY; 4];
        link.local.completions.poll(&mut some).err()
    });
    let CompletionQueueError::Overrun { limit } = error else {
        panic!("{error}");
    };
    assert!(limit >= 2, "{error}");
    // Not every device reports the event; if there is one, it must be one of these.
    while let Some(event) = stage.device.poll_async_event() {
        let fits = match event {
            AsyncEvent::QueuePairFatal(number) => number == link.local.queue_pair.number(),
            event => event == AsyncEvent::CompletionQueueOverrun,
        };
        assert!(fits, "{event:?}");
    }
    other.local.post(1, write_to(target), &[]);
    stage.done(&mut other, 1);
    Ok(())
}

/// A full queue contains all its completions, and `poll` returns no more than it has space for.
pub fn full_queue_is_no_overrun<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let mut options = Options::new(RC);
    options.completions = 16;
    let mut link = stage.link_with(&options, &options);
    let target = stage.peer.blank(8);
    for round in 0..50 {
        for id in 0..16 {
            link.local.post(round * 16 + id, write_to(target), &[]);
        }
        let mut taken = 0;
        while taken < 16 {
            let mut some = [Completion::EMPTY; 5];
            let count = wait("completions", || {
                stage.step(&link);
                let count = link.local.completions.poll(&mut some).expect("no overrun");
                (count > 0).then_some(count)
            });
            for completion in &some[..count] {
                assert!(completion.is_success());
                assert_eq!(completion.id, round * 16 + taken);
                taken += 1;
            }
        }
        let none = link.local.completions.poll(&mut []).expect("no overrun");
        assert_eq!(none, 0);
    }
    Ok(())
}

/// Two queue pairs complete into one queue, and sends and RECEIVEs into different ones, each under its own number.
pub fn queues_are_freely_assigned<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let device = stage.device.clone();
    let queue = || device.create_completion_queue(32, None).expect("a queue");
    let (mut sends, mut receives) = (queue(), queue());
    let mut pairs = Vec::new();
    for _ in 0..2 {
        pairs.push(connected(stage, &sends, &receives));
    }
    let theirs = stage.peer.blank(8);
    let ours = stage.blank(8);
    let pieces = [piece(&ours, 0, 8)];
    for (pair, remote) in &mut pairs {
        stage.peer.receive(*remote, 1, &[]);
        let receive = crate::ReceiveRequest {
            id: 2,
            segments: &pieces,
        };
        pair.post_receive(&[receive]).expect("a RECEIVE");
        let plain = Operation::Send { immediate: None };
        let payload = Payload::Segments(&[]);
        let send = Request::<D>::new(1, plain, payload, SendFlags::SIGNALED);
        pair.post_send(&[send]).expect("a SEND");
        stage.peer.send(*remote, 2, false, &[(theirs, 0, 8)]);
    }
    for (queue, id) in [(&mut sends, 1), (&mut receives, 2)] {
        let mut numbers = [0; 2];
        for number in &mut numbers {
            let mut one = [Completion::EMPTY];
            wait("a completion", || {
                pairs
                    .iter()
                    .for_each(|(_, remote)| stage.peer.pump(*remote));
                (queue.poll(&mut one).expect("no overrun") == 1).then_some(())
            });
            assert!(one[0].is_success() && one[0].id == id, "{:?}", one[0]);
            *number = one[0].queue_pair;
        }
        numbers.sort_unstable();
        let mut expected = [pairs[0].0.number(), pairs[1].0.number()];
        expected.sort_unstable();
        assert_eq!(numbers, expected);
    }
    Ok(())
}

/// Consecutive queue pairs on one completion queue: each gets only its own completions, whichever was there before, and
/// they free its entries.
pub fn queue_pair_after_queue_pair<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let device = stage.device.clone();
    let mut queue = device.create_completion_queue(32, None).expect("a queue");
    let (theirs, ours) = (stage.peer.blank(8), stage.blank(8));
    let pieces = [piece(&ours, 0, 8)];
    for turn in 0..4 {
        let (mut pair, remote) = connected(stage, &queue, &queue);
        // More often than a queue pair has entries.
        for round in 0..12 {
            let [sent, received] = [0, 1].map(|kind| turn * 100 + round * 2 + kind);
            stage.peer.receive(remote, 1, &[]);
            let receive = crate::ReceiveRequest {
                id: received,
                segments: &pieces,
            };
            pair.post_receive(&[receive]).expect("a RECEIVE");
            let plain = Operation::Send { immediate: None };
            let payload = Payload::Segments(&[]);
            let send = Request::<D>::new(sent, plain, payload, SendFlags::SIGNALED);
            pair.post_send(&[send]).expect("a SEND");
            stage.peer.send(remote, 2, false, &[(theirs, 0, 8)]);
            let mut seen = [0; 2].map(|_| {
                let mut one = [Completion::EMPTY];
                wait("a completion", || {
                    stage.peer.pump(remote);
                    (queue.poll(&mut one).expect("no overrun") == 1).then_some(())
                });
                assert!(one[0].is_success(), "{:?}", one[0]);
                assert_eq!(one[0].queue_pair, pair.number());
                (one[0].id, one[0].opcode, one[0].bytes)
            });
            seen.sort_unstable_by_key(|&(id, ..)| id);
            let expected = [
                (sent, CompletionOpcode::Send, 0),
                (received, CompletionOpcode::Receive, 8),
            ];
            assert_eq!(seen, expected, "queue pair {turn}");
        }
    }
    Ok(())
}

/// A small, connected queue pair that completes into these queues, and the number of the peer's.
fn connected<D: Device>(
    stage: &mut Stage<D>,
    sends: &D::CompletionQueue,
    receives: &D::CompletionQueue,
) -> (D::QueuePair, u32) {
    let options = Options::new(RC);
    let config = crate::QueuePairConfig {
        transport: RC,
        send_completions: sends,
        receive_completions: receives,
        send_requests: 8,
        receive_queue: crate::ReceiveQueue::Own(8),
        segments: 1,
        inline_bytes: 0,
    };
    let mut pair = stage
        .device
        .create_queue_pair(&stage.domain, &config)
        .expect("a pair");
    pair.to_init(options.access).expect("Init");
    let (remote, address) = stage.peer.endpoint(&options);
    stage
        .peer
        .connect(remote, Some(&pair.address()), options.attributes);
    pair.to_ready_to_receive(Some(&address), options.attributes)
        .expect("RTR");
    pair.to_ready_to_send().expect("RTS");
    (pair, remote)
}

/// Completion timestamps, where supported, do not run backwards; elsewhere there are none.
pub fn timestamps<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let mut link = stage.link(RC);
    let target = stage.peer.blank(8);
    let mut before = 0;
    for id in 0..20 {
        link.local.post(id, write_to(target), &[]);
        let stamp = stage.done(&mut link, id).timestamp_ns;
        if stage.device.attributes().timestamps {
            let stamp = stamp.expect("a timestamp");
            assert!(stamp >= before, "{stamp} after {before}");
            before = stamp;
        } else {
            assert_eq!(stamp, None);
        }
    }
    if !stage.device.attributes().timestamps {
        return Err(stage.lacks("timestamps"));
    }
    Ok(())
}
