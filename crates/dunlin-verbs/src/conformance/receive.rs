//! Receivers that are not ready, and messages that do not fit.

use crate::{
    CompletionStatus, ConnectAttributes, Device, Operation, PostErrorKind, QueuePair,
    QueuePairState, Transport, Verbs,
};

use super::{pattern, piece, Options, Outcome, Stage};

const RC: Transport = Transport::ReliableConnection;
const UC: Transport = Transport::UnreliableConnection;
const PLAIN: Operation = Operation::Send { immediate: None };

/// With unlimited retries, messages without a RECEIVE wait for one, and arrive in order.
pub fn waits_for_a_receive<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut link = stage.link(RC);
    let ours = stage.holding(&pattern(1, 30));
    let target = stage.peer.blank(30);
    for id in 0..3 {
        link.local
            .post(id, PLAIN, &[piece(&ours, id as usize * 10, 10)]);
    }
    for _ in 0..20 {
        stage.step(&link);
        assert_eq!(link.local.poll(), None, "completed without a RECEIVE");
    }
    for id in 0..3 {
        let place = [(target, id as usize * 10, 10)];
        stage.peer.receive(link.remote, id, &place);
        stage.arrived(&mut link, id);
        stage.done(&mut link, id);
    }
    assert_eq!(stage.peer.read(target, 0, 30), pattern(1, 30));
    Ok(())
}

/// A WRITE with immediate data also waits for a RECEIVE.
pub fn immediate_waits_for_a_receive<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE_WITH_IMMEDIATE)?;
    let mut link = stage.link(RC);
    let target = stage.peer.blank(8);
    let ours = stage.holding(&[4; 8]);
    let write = Operation::Write {
        remote: target.at(0),
        immediate: Some(1),
    };
    link.local.post(1, write, &[piece(&ours, 0, 8)]);
    for _ in 0..20 {
        stage.step(&link);
        assert_eq!(link.local.poll(), None, "completed without a RECEIVE");
    }
    stage.peer.receive(link.remote, 1, &[]);
    stage.arrived(&mut link, 1);
    assert_eq!(stage.peer.read(target, 0, 8), [4; 8]);
    stage.done(&mut link, 1);
    Ok(())
}

/// With limited retries, a message without a RECEIVE fails, and requests behind it are flushed.
pub fn gives_up_without_a_receive<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    for retries in [0, 2] {
        let mut options = Options::new(RC);
        options.attributes = ConnectAttributes {
            receiver_not_ready_retries: retries,
            ..ConnectAttributes::default()
        };
        let mut link = stage.link_with(&options, &options);
        link.local.post(1, PLAIN, &[]);
        link.local.post(2, PLAIN, &[]);
        let status = stage.failed(&mut link, 1);
        assert_eq!(status, CompletionStatus::ReceiverNotReadyRetryExceeded);
        assert_eq!(stage.failed(&mut link, 2), CompletionStatus::Flushed);
        assert_eq!(link.local.queue_pair.state(), QueuePairState::Error);
    }
    Ok(())
}

/// A message longer than its RECEIVE fails at both ends and writes nothing beyond the RECEIVE.
pub fn message_too_long<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut link = stage.link(RC);
    let ours = stage.holding(&[6; 101]);
    let target = stage.peer.blank(200);
    stage.peer.receive(link.remote, 1, &[(target, 0, 100)]);
    stage.peer.receive(link.remote, 2, &[(target, 0, 100)]);
    link.local.post(1, PLAIN, &[piece(&ours, 0, 101)]);
    let status = stage.failed(&mut link, 1);
    assert_eq!(status, CompletionStatus::RemoteInvalidRequest);
    let theirs = stage.theirs(&mut link);
    assert_eq!(
        (theirs.id, theirs.status),
        (1, CompletionStatus::LocalLength)
    );
    let theirs = stage.theirs(&mut link);
    assert_eq!((theirs.id, theirs.status), (2, CompletionStatus::Flushed));
    assert_eq!(stage.peer.state(link.remote), QueuePairState::Error);
    assert_eq!(stage.peer.read(target, 100, 100), vec![0; 100]);
    Ok(())
}

/// A message exactly as long as its RECEIVE fits.
pub fn message_fits_exactly<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut link = stage.link(RC);
    let ours = stage.holding(&pattern(2, 100));
    let target = stage.peer.blank(100);
    stage
        .peer
        .receive(link.remote, 1, &[(target, 0, 60), (target, 60, 40)]);
    link.local.post(1, PLAIN, &[piece(&ours, 0, 100)]);
    assert_eq!(stage.arrived(&mut link, 1).bytes, 100);
    assert_eq!(stage.peer.read(target, 0, 100), pattern(2, 100));
    Ok(())
}

/// RECEIVEs posted before the connection is established serve it.
pub fn receives_posted_in_init<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let options = Options::new(RC);
    let mut local = stage.endpoint(&options);
    let (remote, remote_address) = stage.peer.endpoint(&options);
    let target = stage.peer.blank(8);
    stage.peer.receive(remote, 1, &[(target, 0, 8)]);
    let address = local.queue_pair.address();
    stage
        .peer
        .connect(remote, Some(&address), options.attributes);
    local
        .connect(Some(&remote_address), options.attributes)
        .expect("connects");
    let mut link = super::Link {
        local,
        remote,
        remote_address,
    };
    let ours = stage.holding(&[8; 8]);
    link.local.post(1, PLAIN, &[piece(&ours, 0, 8)]);
    stage.arrived(&mut link, 1);
    assert_eq!(stage.peer.read(target, 0, 8), [8; 8]);
    Ok(())
}

/// On UC a message without a RECEIVE is lost silently: the sender succeeds, and a later message is the first to arrive.
pub fn uc_drops_without_a_receive<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(UC, Verbs::SEND.union(Verbs::WRITE))?;
    let mut link = stage.link(UC);
    let (first, second) = (stage.holding(&[1; 8]), stage.holding(&[2; 8]));
    let target = stage.peer.blank(8);
    for id in 0..3 {
        link.local.post(id, PLAIN, &[piece(&first, 0, 8)]);
        stage.done(&mut link, id);
    }
    // A WRITE needs no RECEIVE: once it has arrived, what was sent before it has been dropped.
    let behind = stage.peer.blank(8);
    let write = Operation::Write {
        remote: behind.at(0),
        immediate: None,
    };
    link.local.post(3, write, &[piece(&second, 0, 8)]);
    stage.done(&mut link, 3);
    stage.landed(&link, behind, 7, 2);
    stage.peer.receive(link.remote, 9, &[(target, 0, 8)]);
    link.local.post(9, PLAIN, &[piece(&second, 0, 8)]);
    stage.arrived(&mut link, 9);
    assert_eq!(stage.peer.read(target, 0, 8), [2; 8]);
    stage.done(&mut link, 9);
    assert_eq!(link.local.queue_pair.state(), QueuePairState::ReadyToSend);
    Ok(())
}

/// On UC the sender does not learn that its WRITE was refused; nothing is written.
pub fn uc_write_is_refused_in_silence<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(UC, Verbs::WRITE)?;
    let mut link = stage.link(UC);
    let ours = stage.holding(&[1; 8]);
    let constant = stage.peer.region(8, crate::Access::LOCAL_WRITE, 0);
    let write = Operation::Write {
        remote: constant.at(0),
        immediate: None,
    };
    link.local.post(1, write, &[piece(&ours, 0, 8)]);
    stage.done(&mut link, 1);
    for _ in 0..20 {
        stage.step(&link);
    }
    assert_eq!(stage.peer.read(constant, 0, 8), [0; 8]);
    Ok(())
}

/// A full receive queue refuses, and the error contains its size; each message frees one entry.
pub fn full_receive_queue<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut link = stage.link(RC);
    let ours = stage.blank(8);
    let theirs = stage.peer.blank(8);
    let mut count = 0;
    let refusal = loop {
        let pieces = [piece(&ours, 0, 8)];
        let request = crate::ReceiveRequest {
            id: count,
            segments: &pieces,
        };
        match link.local.queue_pair.post_receive(&[request]) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 100_000, "a queue without end");
    };
    assert!(count >= 32, "room for {count} only");
    assert!(
        matches!(refusal.kind, PostErrorKind::Full { .. }),
        "{refusal}"
    );
    stage.peer.send(link.remote, 1, false, &[(theirs, 0, 8)]);
    stage.done(&mut link, 0);
    link.local.receive(count, &[piece(&ours, 0, 8)]);
    Ok(())
}
