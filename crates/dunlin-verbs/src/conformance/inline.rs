//! Inline data.

use crate::{Device, Operation, Payload, PostErrorKind, QueuePair, SendFlags, Transport, Verbs};

use super::{pattern, Options, Outcome, Request, Skipped, Stage};

fn most<D: Device>(stage: &Stage<D>) -> Result<usize, Skipped> {
    match stage.device.attributes().max_inline_bytes {
        0 => Err(stage.lacks("inline payloads")),
        most => Ok(most),
    }
}

/// Inline bytes are copied when posted: the caller's buffer is free immediately, up to the maximum that the device
/// accepts.
pub fn copied_when_posted<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let most = most(stage)?;
    for transport in stage.connected(Verbs::SEND | Verbs::WRITE)? {
        let mut options = Options::new(transport);
        options.inline_bytes = most;
        let mut link = stage.link_with(&options, &options);
        let (target, inbox) = (stage.peer.blank(most), stage.peer.blank(most));
        for (round, length) in (0..).zip([1, most / 2, most, 0]) {
            let (write, send) = (2 * round, 2 * round + 1);
            stage.peer.receive(link.remote, send, &[(inbox, 0, most)]);
            let mut post = |id, operation, seed| {
                let mut bytes = pattern(seed, length);
                let payload = Payload::Inline(&bytes);
                let request = Request::<D>::new(id, operation, payload, SendFlags::SIGNALED);
                link.local.queue_pair.post_send(&[request]).expect("inline");
                bytes.fill(0);
            };
            let remote = target.at(0);
            let immediate = None;
            post(write, Operation::Write { remote, immediate }, 2 * round);
            post(send, Operation::Send { immediate }, 2 * round + 1);
            assert_eq!(stage.arrived(&mut link, send).bytes, length);
            let bytes = stage.peer.read(inbox, 0, length);
            assert_eq!(bytes, pattern(2 * round + 1, length));
            let bytes = stage.peer.read(target, 0, length);
            assert_eq!(bytes, pattern(2 * round, length));
            stage.done(&mut link, write);
            stage.done(&mut link, send);
        }
    }
    Ok(())
}

/// Inline bytes are also preserved while the message waits for a RECEIVE.
pub fn kept_while_waiting<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let most = most(stage)?.min(64);
    let rc = Transport::ReliableConnection;
    stage.needs(rc, Verbs::SEND)?;
    let mut link = stage.link(rc);
    let inbox = stage.peer.blank(4 * most);
    for id in 0..4 {
        let bytes = pattern(id, most);
        let operation = Operation::Send { immediate: None };
        let payload = Payload::Inline(&bytes);
        let request = Request::<D>::new(id, operation, payload, SendFlags::SIGNALED);
        link.local.queue_pair.post_send(&[request]).expect("inline");
    }
    for id in 0..4 {
        let at = id as usize * most;
        stage.peer.receive(link.remote, id, &[(inbox, at, most)]);
        stage.arrived(&mut link, id);
        assert_eq!(stage.peer.read(inbox, at, most), pattern(id, most));
        stage.done(&mut link, id);
    }
    Ok(())
}

/// More inline bytes than the queue pair was created for are refused, and the error contains the limit; so are inline
/// READs and atomics.
pub fn refusals<D: Device>(stage: &mut Stage<D>) -> Outcome {
    most(stage)?;
    let rc = Transport::ReliableConnection;
    stage.needs(rc, Verbs::SEND)?;
    let mut link = stage.link(rc);
    // A queue pair may accept more than was requested, up to the device's maximum.
    let bytes = vec![1; stage.device.attributes().max_inline_bytes + 1];
    let payload = Payload::Inline(&bytes);
    let send = Operation::Send { immediate: None };
    let request = Request::<D>::new(1, send, payload, SendFlags::SIGNALED);
    let error = link
        .local
        .queue_pair
        .post_send(&[request])
        .expect_err("too long");
    assert!(
        matches!(error.kind, PostErrorKind::Inline { bytes: b, limit } if b == bytes.len() && limit < b),
        "{error}"
    );
    let remote = stage.peer.blank(8).at(0);
    let payload = Payload::Inline(&bytes[..1]);
    let read = Operation::Read { remote };
    let add = Operation::FetchAndAdd { remote, add: 1 };
    let verbs = [(Verbs::READ, read), (Verbs::ATOMIC, add)];
    for (verb, operation) in verbs {
        if stage.needs(rc, verb).is_ok() {
            let request = Request::<D>::new(1, operation, payload, SendFlags::SIGNALED);
            let error = link
                .local
                .queue_pair
                .post_send(&[request])
                .expect_err("inline");
            assert_eq!(error.kind, PostErrorKind::Verb(rc));
        }
    }
    Ok(())
}
