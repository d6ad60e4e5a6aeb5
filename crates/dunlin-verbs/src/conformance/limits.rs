//! Every limit has a name, and an error that states it.

use crate::{
    Access, Device, Operation, Payload, PostErrorKind, QueuePair, SendFlags, Transport, Verbs,
    VerbsError,
};

use super::{piece, Endpoint, Options, Outcome, Piece, Request, Stage};

const RC: Transport = Transport::ReliableConnection;
const PLAIN: Operation = Operation::Send { immediate: None };

fn is_limit<T: std::fmt::Debug>(result: Result<T, VerbsError>, name: &str) {
    match result {
        Err(VerbsError::Limit {
            resource,
            asked,
            available,
            limit,
        }) => {
            assert_eq!(resource, name);
            assert!(asked > available && available <= limit);
        }
        other => panic!("beyond {name}: {other:?}"),
    }
}

/// Registering more bytes than allowed is refused with the limit's name, and has no other effect.
pub fn registered_bytes<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let limit = stage.device.attributes().max_registered_bytes;
    let Some(asked) = limit.checked_add(1).filter(|&n| n < 1 << 62) else {
        return Err(stage.lacks("limit of registered bytes"));
    };
    let access = Access::LOCAL_WRITE;
    let domain = &stage.domain;
    let result = stage.device.allocate_region(domain, asked, access);
    is_limit(result, "max_registered_bytes");
    stage.blank(4096);
    Ok(())
}

/// A region of zero bytes is refused, and so is one larger than the address space.
pub fn impossible_region<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for length in [0, 1 << 63, usize::MAX - (1 << 20), usize::MAX] {
        let result = (stage.device).allocate_region(&stage.domain, length, Access::LOCAL_WRITE);
        assert!(
            matches!(result, Err(VerbsError::Invalid { .. })),
            "{length}: {result:?}"
        );
    }
    Ok(())
}

/// New memory is zeroed, aligned to a page, and as long as requested, even if the memory before it was full of data.
pub fn fresh_memory_is_zeroed<D: Device>(stage: &mut Stage<D>) -> Outcome {
    use crate::Region;
    for length in [1, 8, 4096, 5000, 100_000, 3 << 20] {
        for _ in 0..2 {
            let region = stage.blank(length);
            let memory = region.memory();
            assert_eq!(memory.len(), length);
            assert_eq!(memory.start().as_ptr() as usize % 4096, 0);
            let mut bytes = vec![1; length];
            memory.read(0, &mut bytes);
            assert!(bytes.iter().all(|&byte| byte == 0), "not zeroed");
            memory.fill(0, length, 0xff);
        }
    }
    Ok(())
}

/// Regions are freed when they are dropped: more can be created consecutively than at a time.
pub fn regions_are_given_back<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let most = reachable(stage, stage.device.attributes().max_regions)?;
    for _ in 0..most + 10 {
        stage.blank(64);
    }
    Ok(())
}

/// So are queue pairs.
pub fn queue_pairs_are_given_back<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let most = reachable(stage, stage.device.attributes().max_queue_pairs)?;
    let mut options = Options::new(RC);
    options.completions = 4;
    for _ in 0..most + 10 {
        stage.endpoint(&options);
    }
    Ok(())
}

/// The limit, if a test has the time to exceed it: devices with configurable limits are tested with low ones.
fn reachable<D: Device>(stage: &Stage<D>, most: usize) -> Result<usize, super::Skipped> {
    match most {
        0..=4096 => Ok(most),
        _ => Err(stage.lacks("limit that is reached in the time of a test")),
    }
}

/// A queue pair or completion queue larger than the attributes allow is refused with the limit's name.
pub fn queue_sizes<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let attributes = stage.device.attributes().clone();
    let too_many = attributes.max_completions.saturating_add(1);
    let result = stage.device.create_completion_queue(too_many, None);
    is_limit(result, "max_completions");
    let queue = stage.device.create_completion_queue(4, None);
    let queue = queue.expect("a completion queue");
    let make = |send_requests, receives, segments, inline_bytes| {
        let config = crate::QueuePairConfig {
            transport: RC,
            send_completions: &queue,
            receive_completions: &queue,
            send_requests,
            receive_queue: crate::ReceiveQueue::Own(receives),
            segments,
            inline_bytes,
        };
        stage.device.create_queue_pair(&stage.domain, &config)
    };
    let beyond = |most: usize| most.saturating_add(1);
    is_limit(
        make(beyond(attributes.max_send_requests), 4, 1, 0),
        "max_send_requests",
    );
    is_limit(
        make(4, beyond(attributes.max_receive_requests), 1, 0),
        "max_receive_requests",
    );
    is_limit(
        make(4, 4, beyond(attributes.max_segments), 0),
        "max_segments",
    );
    is_limit(
        make(4, 4, 1, beyond(attributes.max_inline_bytes)),
        "max_inline_bytes",
    );
    make(4, 4, 1, 0).expect("a small queue pair");
    if attributes.max_shared_receive_requests > 0 {
        let too_many = beyond(attributes.max_shared_receive_requests);
        let domain = &stage.domain;
        let result = stage
            .device
            .create_shared_receive_queue(domain, too_many, 1);
        is_limit(result, "max_shared_receive_requests");
    }
    Ok(())
}

/// More segments than the queue pair accepts are refused when posted, in sends and in RECEIVEs.
pub fn segments_of_a_request<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut link = stage.link(RC);
    let ours = stage.blank(8);
    // A queue pair may accept more than was requested, up to the device's maximum.
    let count = stage.device.attributes().max_segments + 1;
    let pieces: Vec<Piece<'_, D>> = (0..count).map(|_| piece(&ours, 0, 1)).collect();
    let payload = Payload::Segments(&pieces);
    let request = Request::<D>::new(1, PLAIN, payload, SendFlags::SIGNALED);
    let error = link
        .local
        .queue_pair
        .post_send(&[request])
        .expect_err("too many");
    let fits = |kind| matches!(kind, PostErrorKind::Segments { count: c, limit } if c == count && limit < c);
    assert!(fits(error.kind), "{error}");
    let request = crate::ReceiveRequest {
        id: 1,
        segments: &pieces,
    };
    let error = link
        .local
        .queue_pair
        .post_receive(&[request])
        .expect_err("too many");
    assert!(fits(error.kind), "{error}");
    Ok(())
}

/// A refused request in the middle of a list: those before it are executed, those behind it are not posted.
pub fn refusal_in_the_middle<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut link = stage.link(RC);
    let ours = stage.blank(8);
    let count = stage.device.attributes().max_segments + 1;
    let pieces: Vec<Piece<'_, D>> = (0..count).map(|_| piece(&ours, 0, 1)).collect();
    let request = |id, payload| Request::<D>::new(id, PLAIN, payload, SendFlags::SIGNALED);
    let list = [
        request(1, Payload::Segments(&pieces[..1])),
        request(2, Payload::Segments(&pieces)),
        request(3, Payload::Segments(&pieces[..1])),
    ];
    for id in 1..=2 {
        let target = stage.peer.blank(8);
        stage.peer.receive(link.remote, id, &[(target, 0, 8)]);
    }
    let error = link
        .local
        .queue_pair
        .post_send(&list)
        .expect_err("the second");
    assert_eq!(error.index, 1);
    stage.arrived(&mut link, 1);
    stage.done(&mut link, 1);
    link.local.post(4, PLAIN, &[]);
    assert_eq!(stage.arrived(&mut link, 2).bytes, 0);
    stage.done(&mut link, 4);
    Ok(())
}

/// Verbs that a transport does not support are refused when posted, and queue pairs of transports that the device lacks
/// when created.
pub fn verbs_of_a_transport<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let transports = stage.device.attributes().transports;
    let remote = stage.peer.blank(8).at(0);
    let ours = stage.blank(8);
    let pieces = [piece(&ours, 0, 8)];
    let add = Operation::FetchAndAdd { remote, add: 1 };
    let all = [
        (Verbs::READ, Operation::Read { remote }),
        (Verbs::ATOMIC, add),
    ];
    for transport in [RC, Transport::UnreliableConnection] {
        let options = Options::new(transport);
        if transports.verbs(transport).is_empty() {
            let made = Endpoint::new(&stage.device, &stage.domain, &options, None);
            assert!(made.is_err(), "a queue pair of an absent transport");
            continue;
        }
        let mut link = stage.link(transport);
        for (verb, operation) in all {
            if !transports.verbs(transport).contains(verb) {
                let payload = Payload::Segments(&pieces);
                let request = Request::<D>::new(1, operation, payload, SendFlags::SIGNALED);
                let error = link.local.queue_pair.post_send(&[request]);
                let error = error.expect_err("not carried");
                assert_eq!(error.kind, PostErrorKind::Verb(transport));
            }
        }
    }
    Ok(())
}

/// An atomic needs exactly 8 bytes in one segment; anything else is refused when posted.
pub fn room_for_an_atomic<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::ATOMIC)?;
    let mut link = stage.link(RC);
    let ours = stage.blank(16);
    let cell = stage.peer.blank(8);
    let add = Operation::FetchAndAdd {
        remote: cell.at(0),
        add: 1,
    };
    for pieces in [
        vec![],
        vec![piece(&ours, 0, 4)],
        vec![piece(&ours, 0, 16)],
        vec![piece(&ours, 0, 4), piece(&ours, 4, 4)],
    ] {
        let payload = Payload::Segments(&pieces);
        let request = Request::<D>::new(1, add, payload, SendFlags::SIGNALED);
        let error = link.local.queue_pair.post_send(&[request]);
        error.expect_err("no room for 8 bytes in one segment");
    }
    assert_eq!(stage.peer.read_u64(cell, 0), 0);
    Ok(())
}

/// A message longer than `max_message_bytes` is refused when posted, or fails as
/// [`crate::CompletionStatus::LocalLength`].
pub fn message_length<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let attributes = stage.device.attributes();
    let (limit, count) = (attributes.max_message_bytes, attributes.max_segments.min(4));
    let length = limit / count + 1;
    if length > 64 << 20 || length > attributes.max_registered_bytes / 2 {
        return Err(stage.lacks("limit of message bytes that memory here can exceed"));
    }
    let mut link = stage.link(RC);
    // The same bytes repeatedly.
    let ours = stage.blank(length);
    let theirs = stage.peer.blank(8);
    let pieces: Vec<Piece<'_, D>> = (0..count).map(|_| piece(&ours, 0, length)).collect();
    let write = Operation::Write {
        remote: theirs.at(0),
        immediate: None,
    };
    let payload = Payload::Segments(&pieces);
    let request = Request::<D>::new(1, write, payload, SendFlags::SIGNALED);
    match link.local.queue_pair.post_send(&[request]) {
        Err(error) => {
            let bytes = count * length;
            assert_eq!(error.kind, PostErrorKind::Length { bytes, limit });
        }
        Ok(()) => {
            let status = stage.failed(&mut link, 1);
            assert_eq!(status, crate::CompletionStatus::LocalLength);
        }
    }
    Ok(())
}
