//! Behaviour after a failure.

use crate::{
    CompletionStatus, ConnectAttributes, Device, Operation, QueuePair, QueuePairState, RemoteKey,
    SendFlags, Transport, Verbs,
};

use super::{piece, wait, Link, Options, Outcome, Stage};

const RC: Transport = Transport::ReliableConnection;
const PLAIN: Operation = Operation::Send { immediate: None };

/// Attributes with which a connection gives up soon.
fn impatient() -> ConnectAttributes {
    ConnectAttributes {
        timeout_ns: 1_000_000,
        retry_count: 1,
        ..ConnectAttributes::default()
    }
}

/// A WRITE that must fail at the peer.
fn bad_write<D: Device>(stage: &mut Stage<D>) -> Operation {
    let mut remote = stage.peer.blank(8).at(0);
    remote.key = RemoteKey(!remote.key.0);
    Operation::Write {
        remote,
        immediate: None,
    }
}

fn flushed<D: Device>(stage: &mut Stage<D>, link: &mut Link<D>, id: u64) {
    assert_eq!(stage.failed(link, id), CompletionStatus::Flushed);
}

/// After a failure the queue pair is in the error state; later sends are flushed in order, signaled or not, and so are
/// RECEIVEs.
pub fn failure_flushes_all<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND | Verbs::WRITE)?;
    let mut link = stage.link(RC);
    let ours = stage.blank(64);
    for id in 100..104 {
        link.local.receive(id, &[piece(&ours, 0, 8)]);
    }
    // The first waits for a RECEIVE and gets one that is too short, when all the others are outstanding.
    link.local.post(1, PLAIN, &[piece(&ours, 0, 8)]);
    link.local.post(2, PLAIN, &[piece(&ours, 0, 8)]);
    link.local.post(3, PLAIN, &[]);
    link.local.post_flagged(4, PLAIN, &[], SendFlags::empty());
    link.local.post(5, PLAIN, &[]);
    stage.peer.receive(link.remote, 1, &[]);
    let mut sends = Vec::new();
    let mut receives = Vec::new();
    // Verbs define the order of completions within each queue, not between the two.
    let mut too_long = stage.ours(&mut link);
    while too_long.id >= 100 && receives.len() < 4 {
        assert_eq!(too_long.status, CompletionStatus::Flushed);
        receives.push(too_long.id);
        too_long = stage.ours(&mut link);
    }
    assert_eq!(too_long.id, 1);
    assert_eq!(too_long.status, CompletionStatus::RemoteInvalidRequest);
    while sends.len() + receives.len() < 8 {
        let completion = stage.ours(&mut link);
        assert_eq!(
            completion.status,
            CompletionStatus::Flushed,
            "{completion:?}"
        );
        match completion.id {
            100.. => receives.push(completion.id),
            _ => sends.push(completion.id),
        }
    }
    assert_eq!(sends, [2, 3, 4, 5]);
    assert_eq!(receives, [100, 101, 102, 103]);
    assert_eq!(link.local.queue_pair.state(), QueuePairState::Error);
    Ok(())
}

/// Requests posted to a queue pair in error are flushed in order.
pub fn posts_in_error_are_flushed<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut link = stage.link(RC);
    link.local.queue_pair.to_error();
    assert_eq!(link.local.queue_pair.state(), QueuePairState::Error);
    for round in 0..50 {
        link.local.post(2 * round, PLAIN, &[]);
        flushed(stage, &mut link, 2 * round);
        link.local.receive(2 * round + 1, &[]);
        flushed(stage, &mut link, 2 * round + 1);
    }
    Ok(())
}

/// Moving a queue pair to error explicitly flushes what is outstanding.
pub fn to_error_flushes<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut link = stage.link(RC);
    link.local.receive(1, &[]);
    link.local.queue_pair.to_error();
    flushed(stage, &mut link, 1);
    let mut link = stage.link(RC);
    // The peer has no RECEIVE, so these wait.
    link.local.post(2, PLAIN, &[]);
    link.local.post(3, PLAIN, &[]);
    link.local.queue_pair.to_error();
    flushed(stage, &mut link, 2);
    flushed(stage, &mut link, 3);
    // Packets sent before may still arrive. After a round trip behind them on the same path there are none left.
    let mut behind = stage.link(RC);
    stage.peer.receive(behind.remote, 8, &[]);
    behind.local.post(4, PLAIN, &[]);
    stage.done(&mut behind, 4);
    stage.arrived(&mut behind, 8);
    // A RECEIVE posted now must not be consumed by what was flushed: it must be found by the peer's own flush.
    stage.peer.receive(link.remote, 9, &[]);
    stage.peer.to_error(link.remote);
    let theirs = stage.theirs(&mut link);
    assert_eq!((theirs.id, theirs.status), (9, CompletionStatus::Flushed));
    Ok(())
}

/// An unsignaled request generates a completion if it fails.
pub fn unsignaled_failures_complete<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let mut link = stage.link(RC);
    let ours = stage.blank(8);
    let bad = bad_write(stage);
    link.local
        .post_flagged(1, bad, &[piece(&ours, 0, 8)], SendFlags::empty());
    assert_eq!(stage.failed(&mut link, 1), CompletionStatus::RemoteAccess);
    Ok(())
}

/// Requests before the failing one are executed and succeed; later ones are not executed.
pub fn failure_in_the_middle<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let mut link = stage.link(RC);
    let ours = stage.holding(&[1; 8]);
    let theirs = stage.peer.blank(16);
    let to = |offset| Operation::Write {
        remote: theirs.at(offset),
        immediate: None,
    };
    let bad = bad_write(stage);
    link.local.post(1, to(0), &[piece(&ours, 0, 8)]);
    link.local.post(2, bad, &[piece(&ours, 0, 8)]);
    link.local.post(3, to(8), &[piece(&ours, 0, 8)]);
    stage.done(&mut link, 1);
    assert_eq!(stage.failed(&mut link, 2), CompletionStatus::RemoteAccess);
    flushed(stage, &mut link, 3);
    assert_eq!(stage.peer.read(theirs, 0, 8), [1; 8]);
    assert_eq!(stage.peer.read(theirs, 8, 8), [0; 8]);
    Ok(())
}

/// The failure of one queue pair does not affect others between the same devices.
pub fn failures_do_not_spread<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND | Verbs::WRITE)?;
    let (mut bad, mut good) = (stage.link(RC), stage.link(RC));
    let ours = stage.blank(8);
    let operation = bad_write(stage);
    bad.local.post(1, operation, &[piece(&ours, 0, 8)]);
    stage.failed(&mut bad, 1);
    stage.peer.receive(good.remote, 1, &[]);
    good.local.post(1, PLAIN, &[]);
    stage.arrived(&mut good, 1);
    stage.done(&mut good, 1);
    Ok(())
}

/// When the peer's queue pair is gone, requests fail instead of hanging: the one that was waiting and the next.
pub fn dropped_peer_is_noticed<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND | Verbs::WRITE)?;
    let mut options = Options::new(RC);
    options.attributes = impatient();
    for waiting in [true, false] {
        let mut link = stage.link_with(&options, &options);
        let mut spare = stage.link(RC);
        let ours = stage.blank(8);
        if waiting {
            link.local.post(1, PLAIN, &[]);
        }
        stage.peer.drop_endpoint(link.remote);
        // The completion is polled for beside another endpoint of the peer, because its own is gone.
        let mut next = || {
            wait("a failure", || {
                stage.step(&spare);
                link.local.poll()
            })
        };
        if waiting {
            let first = next();
            assert_eq!(first.id, 1);
            assert!(!first.is_success(), "{first:?}");
        }
        let operation = bad_write(stage);
        link.local.post(2, operation, &[piece(&ours, 0, 8)]);
        let second = wait("another failure", || {
            stage.step(&spare);
            link.local.poll()
        });
        assert_eq!(second.id, 2);
        // A device that learns of the peer's end immediately has moved the queue pair to error before the post.
        let fits = match second.status {
            CompletionStatus::Flushed => true,
            CompletionStatus::RetryExceeded => !waiting,
            _ => false,
        };
        assert!(fits, "{second:?}");
        assert_eq!(link.local.queue_pair.state(), QueuePairState::Error);
        stage.peer.receive(spare.remote, 1, &[]);
        spare.local.post(1, PLAIN, &[]);
        stage.done(&mut spare, 1);
    }
    Ok(())
}

/// A peer in the error state does not answer: requests fail.
pub fn peer_in_error_is_noticed<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut options = Options::new(RC);
    options.attributes = impatient();
    let mut link = stage.link_with(&options, &options);
    stage.peer.receive(link.remote, 1, &[]);
    stage.peer.to_error(link.remote);
    assert_eq!(stage.peer.state(link.remote), QueuePairState::Error);
    let theirs = stage.theirs(&mut link);
    assert_eq!((theirs.id, theirs.status), (1, CompletionStatus::Flushed));
    link.local.post(1, PLAIN, &[]);
    let status = stage.failed(&mut link, 1);
    assert_eq!(status, CompletionStatus::RetryExceeded);
    Ok(())
}

/// When the peer dies (by SIGKILL between processes), everything outstanding completes, in order: RECEIVEs once the
/// device or the next request has detected it, sends by themselves.
pub fn killed_peer_is_noticed<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut options = Options::new(RC);
    options.attributes = impatient();
    let mut link = stage.link_with(&options, &options);
    link.local.receive(100, &[]);
    link.local.post(1, PLAIN, &[]);
    link.local.post(2, PLAIN, &[]);
    stage.peer.kill();
    let mut sends = Vec::new();
    let mut receives = 0;
    while sends.len() + receives < 3 {
        let completion = wait("the end of what was posted", || {
            stage.pump();
            link.local.poll()
        });
        assert!(!completion.is_success(), "{completion:?}");
        match completion.id {
            100 => receives += 1,
            id => sends.push(id),
        }
    }
    assert_eq!(sends, [1, 2]);
    assert_eq!(link.local.queue_pair.state(), QueuePairState::Error);
    Ok(())
}
