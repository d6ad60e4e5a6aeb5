//! The state machine of a queue pair.

use crate::{
    Access, ConnectAttributes, Device, Operation, Payload, PostErrorKind, QueuePair,
    QueuePairState as S, ReceiveRequest, Region, SendFlags, Transport, Verbs, VerbsError,
};

use super::{pattern, piece, Endpoint, Link, Options, Outcome, Request, Stage};

const RC: Transport = Transport::ReliableConnection;
const PLAIN: Operation = Operation::Send { immediate: None };

fn fresh<D: Device>(stage: &Stage<D>, transport: Transport) -> Endpoint<D> {
    let options = Options::new(transport);
    Endpoint::reset(&stage.device, &stage.domain, &options, None).expect("an endpoint")
}

fn illegal(result: Result<(), VerbsError>, number: u32, from: S, to: S) {
    match result {
        Err(VerbsError::Transition {
            queue_pair,
            from: was,
            to: wanted,
        }) => assert_eq!((queue_pair, was, wanted), (number, from, to)),
        other => panic!("{from} to {to} gave {other:?}"),
    }
}

/// Tries every explicit transition that `from` does not allow; the state must not change.
fn refuses_others<D: Device>(stage: &mut Stage<D>, end: &mut Endpoint<D>, from: S) {
    let rc = Options::new(RC);
    let (_, address) = stage.peer.endpoint(&rc);
    let qp = &mut end.queue_pair;
    let number = qp.number();
    assert_eq!(qp.state(), from);
    if !from.may_move(S::Init, RC) {
        illegal(qp.to_init(Access::all()), number, from, S::Init);
    }
    if !from.may_move(S::ReadyToReceive, RC) {
        let result = qp.to_ready_to_receive(Some(&address), rc.attributes);
        illegal(result, number, from, S::ReadyToReceive);
    }
    if !from.may_move(S::ReadyToSend, RC) {
        illegal(qp.to_ready_to_send(), number, from, S::ReadyToSend);
    }
    if !from.may_move(S::SendQueueDrained, RC) {
        illegal(
            qp.to_send_queue_drained(),
            number,
            from,
            S::SendQueueDrained,
        );
    }
    assert_eq!(qp.state(), from);
}

/// Each state allows its own transitions and refuses all others with [`VerbsError::Transition`].
pub fn transitions<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut end = fresh(stage, RC);
    refuses_others(stage, &mut end, S::Reset);
    end.queue_pair
        .to_init(Access::all())
        .expect("Reset to Init");
    end.queue_pair.to_init(Access::all()).expect("Init to Init");
    refuses_others(stage, &mut end, S::Init);
    let (_, address) = stage.peer.endpoint(&Options::new(RC));
    let attributes = ConnectAttributes::default();
    (end.queue_pair)
        .to_ready_to_receive(Some(&address), attributes)
        .expect("Init to ReadyToReceive");
    refuses_others(stage, &mut end, S::ReadyToReceive);
    end.queue_pair.to_ready_to_send().expect("to ReadyToSend");
    end.queue_pair.to_ready_to_send().expect("and again");
    refuses_others(stage, &mut end, S::ReadyToSend);
    end.queue_pair.to_send_queue_drained().expect("drains");
    refuses_others(stage, &mut end, S::SendQueueDrained);
    end.queue_pair.to_ready_to_send().expect("goes on");
    end.queue_pair.to_error();
    refuses_others(stage, &mut end, S::Error);
    end.queue_pair.to_error();
    refuses_others(stage, &mut end, S::Error);
    end.queue_pair.to_reset();
    refuses_others(stage, &mut end, S::Reset);
    Ok(())
}

/// A connected transport needs a peer's address.
pub fn connecting_needs_an_address<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::SEND)? {
        let mut end = fresh(stage, transport);
        end.queue_pair.to_init(Access::all()).expect("Init");
        let result = end
            .queue_pair
            .to_ready_to_receive(None, ConnectAttributes::default());
        assert!(
            matches!(
                result,
                Err(VerbsError::Address(_) | VerbsError::Invalid { .. })
            ),
            "{result:?}"
        );
        assert_eq!(end.queue_pair.state(), S::Init);
    }
    Ok(())
}

/// Posts that are too early are refused, and the error names the state: RECEIVEs in Reset, sends until ReadyToSend.
pub fn posts_in_early_states<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut end = fresh(stage, RC);
    let request = Request::<D>::new(1, PLAIN, Payload::Segments(&[]), SendFlags::SIGNALED);
    let receive = ReceiveRequest {
        id: 1,
        segments: &[],
    };
    let refused = |end: &mut Endpoint<D>, state| {
        let error = end.queue_pair.post_send(&[request]).expect_err("too early");
        assert_eq!((error.index, error.kind), (0, PostErrorKind::State(state)));
    };
    refused(&mut end, S::Reset);
    let error = end
        .queue_pair
        .post_receive(&[receive])
        .expect_err("too early");
    assert_eq!(
        (error.index, error.kind),
        (0, PostErrorKind::State(S::Reset))
    );
    end.queue_pair.to_init(Access::all()).expect("Init");
    refused(&mut end, S::Init);
    end.receive(1, &[]);
    let (_, address) = stage.peer.endpoint(&Options::new(RC));
    (end.queue_pair)
        .to_ready_to_receive(Some(&address), ConnectAttributes::default())
        .expect("ReadyToReceive");
    refused(&mut end, S::ReadyToReceive);
    end.receive(2, &[]);
    Ok(())
}

/// In SendQueueDrained, requests are accepted and start when the queue pair is ReadyToSend again.
pub fn drained_queue_holds_back<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE)?;
    let mut link = stage.link(RC);
    let ours = stage.holding(&[1; 8]);
    let theirs = stage.peer.blank(8);
    link.local
        .queue_pair
        .to_send_queue_drained()
        .expect("drains");
    let write = Operation::Write {
        remote: theirs.at(0),
        immediate: None,
    };
    link.local.post(1, write, &[piece(&ours, 0, 8)]);
    for _ in 0..20 {
        stage.step(&link);
        assert_eq!(link.local.poll(), None);
    }
    assert_eq!(
        stage.peer.read(theirs, 0, 8),
        [0; 8],
        "started while drained"
    );
    link.local.queue_pair.to_ready_to_send().expect("goes on");
    stage.done(&mut link, 1);
    assert_eq!(stage.peer.read(theirs, 0, 8), [1; 8]);
    Ok(())
}

fn reconnect<D: Device>(stage: &mut Stage<D>, link: &mut Link<D>) {
    let options = Options::new(link.local.queue_pair.transport());
    link.local.queue_pair.to_reset();
    stage.peer.to_reset(link.remote);
    link.local.queue_pair.to_init(options.access).expect("Init");
    let address = link.local.queue_pair.address();
    // The peer's number does not change, so its address is the same.
    stage
        .peer
        .connect(link.remote, Some(&address), options.attributes);
    let remote = stage.peer.address(link.remote);
    link.remote_address = remote;
    (link.local)
        .connect(Some(&remote), options.attributes)
        .expect("connects again");
}

/// One SEND to the peer.
fn exchange<D: Device>(stage: &mut Stage<D>, link: &mut Link<D>, id: u64) {
    stage.peer.receive(link.remote, id, &[]);
    link.local.post(id, PLAIN, &[]);
    stage.arrived(link, id);
    stage.done(link, id);
}

/// Reset drops what was posted, without completions; connected again, the queue pairs work like new ones.
pub fn reset_forgets<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut link = stage.link(RC);
    exchange(stage, &mut link, 77);
    let inbox = stage.blank(8);
    link.local.receive(1, &[piece(&inbox, 0, 8)]);
    link.local.post(2, PLAIN, &[]);
    link.local.post(3, PLAIN, &[]);
    for round in 10..13 {
        reconnect(stage, &mut link);
        let ours = stage.holding(&pattern(round, 8));
        let target = stage.peer.blank(8);
        stage.peer.receive(link.remote, round, &[(target, 0, 8)]);
        link.local.post(round, PLAIN, &[piece(&ours, 0, 8)]);
        // Anything that was not dropped would arrive first.
        stage.arrived(&mut link, round);
        stage.done(&mut link, round);
        assert_eq!(stage.peer.read(target, 0, 8), pattern(round, 8));
        link.local.receive(round + 100, &[piece(&inbox, 0, 8)]);
        stage
            .peer
            .send(link.remote, round, false, &[(target, 0, 8)]);
        stage.done(&mut link, round + 100);
        stage.arrived(&mut link, round);
        link.local.receive(round + 200, &[piece(&inbox, 0, 8)]);
    }
    let mut bytes = [0; 8];
    inbox.memory().read(0, &mut bytes);
    assert_eq!(bytes.to_vec(), pattern(12, 8));
    Ok(())
}

/// A queue pair that failed works again after a reset of both ends.
pub fn reconnects_after_error<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    let mut link = stage.link(RC);
    exchange(stage, &mut link, 77);
    for round in 0..3 {
        link.local.post(round, PLAIN, &[]);
        link.local.queue_pair.to_error();
        stage.failed(&mut link, round);
        reconnect(stage, &mut link);
        exchange(stage, &mut link, 50 + round);
    }
    Ok(())
}

/// Resets directly after connecting, before anything was sent, leave nothing behind that affects the next connection.
pub fn resets_right_after_connecting<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::SEND)?;
    for round in 0..20 {
        let mut link = stage.link(RC);
        if round % 2 == 0 {
            link.local.post(2, PLAIN, &[]);
        }
        for _ in 0..round % 4 {
            reconnect(stage, &mut link);
        }
        reconnect(stage, &mut link);
        exchange(stage, &mut link, round);
    }
    Ok(())
}
