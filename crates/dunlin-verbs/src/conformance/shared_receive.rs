//! Receive queues that are shared by several queue pairs.

use crate::{
    Device, Operation, PostErrorKind, ReceiveRequest, SharedReceiveQueue, Transport, Verbs,
};

use super::{pattern, piece, Link, Options, Outcome, Stage};

const RC: Transport = Transport::ReliableConnection;
const PLAIN: Operation = Operation::Send { immediate: None };

/// Two links whose ends at the peer share queue 0 of 8 requests.
fn sharing<D: Device>(stage: &mut Stage<D>) -> Result<(u32, [Link<D>; 2]), super::Skipped> {
    if stage.device.attributes().max_shared_receive_requests < 8 {
        return Err(stage.lacks("shared receive queues"));
    }
    stage.needs(RC, Verbs::SEND | Verbs::SHARED_RECEIVE)?;
    let queue = stage.peer.shared_queue(8, 2);
    let ours = Options::new(RC);
    let mut theirs = ours;
    theirs.shared = Some(queue);
    let links = [(); 2].map(|()| stage.link_with(&ours, &theirs));
    Ok((queue, links))
}

/// Messages of two queue pairs consume the shared RECEIVEs in the order of arrival; each completes at its own queue
/// pair.
pub fn drained_in_order_of_arrival<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let (queue, mut links) = sharing(stage)?;
    let target = stage.peer.blank(80);
    let ours = stage.holding(&pattern(1, 80));
    for id in 0..8 {
        let place = [(target, id as usize * 10, 10)];
        stage.peer.shared_receive(queue, id, &place);
    }
    for (id, which) in (0..8).zip([0, 1, 1, 0, 0, 0, 1, 1]) {
        let link = &mut links[which];
        link.local
            .post(id, PLAIN, &[piece(&ours, id as usize * 10, 10)]);
        stage.arrived(link, id);
        stage.done(link, id);
    }
    assert_eq!(stage.peer.read(target, 0, 80), pattern(1, 80));
    Ok(())
}

/// An empty shared queue makes senders wait; RECEIVEs posted later serve all of them.
pub fn empty_queue_makes_wait<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let (queue, mut links) = sharing(stage)?;
    for link in &mut links {
        link.local.post(1, PLAIN, &[]);
        link.local.post(2, PLAIN, &[]);
    }
    for link in &links {
        stage.step(link);
    }
    for id in 0..4 {
        stage.peer.shared_receive(queue, id, &[]);
    }
    let mut taken = Vec::new();
    for link in &mut links {
        for id in [1, 2] {
            let arrived = stage.theirs(link);
            assert!(arrived.is_success(), "{arrived:?}");
            taken.push(arrived.id);
            stage.done(link, id);
        }
    }
    assert!(taken[0] < taken[1] && taken[2] < taken[3], "{taken:?}");
    taken.sort_unstable();
    assert_eq!(taken, [0, 1, 2, 3]);
    Ok(())
}

/// When one of the queue pairs fails, the shared RECEIVEs remain for the other.
pub fn outlives_one_of_its_queue_pairs<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let (queue, mut links) = sharing(stage)?;
    let target = stage.peer.blank(8);
    for id in 0..2 {
        stage.peer.shared_receive(queue, id, &[(target, 0, 8)]);
    }
    stage.peer.to_error(links[0].remote);
    let link = &mut links[1];
    for id in 0..2 {
        link.local.post(id, PLAIN, &[]);
        stage.arrived(link, id);
        stage.done(link, id);
    }
    stage.peer.drop_endpoint(links[0].remote);
    stage.peer.shared_receive(queue, 5, &[]);
    let link = &mut links[1];
    link.local.post(5, PLAIN, &[]);
    stage.arrived(link, 5);
    Ok(())
}

/// A full shared queue refuses; so does a queue pair that has no receive queue of its own.
pub fn refusals<D: Device>(stage: &mut Stage<D>) -> Outcome {
    sharing(stage)?;
    let mut queue = stage
        .device
        .create_shared_receive_queue(&stage.domain, 8, 1)
        .expect("a shared receive queue");
    let mut count = 0;
    let refusal = loop {
        let request = ReceiveRequest {
            id: count,
            segments: &[],
        };
        match queue.post_receive(&[request]) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 100_000, "a queue without end");
    };
    assert!(count >= 8, "room for {count} only");
    assert!(
        matches!(refusal.kind, PostErrorKind::Full { .. }),
        "{refusal}"
    );
    let options = Options::new(RC);
    let mut endpoint = super::Endpoint::new(&stage.device, &stage.domain, &options, Some(&queue))
        .expect("an endpoint");
    let request = ReceiveRequest {
        id: 1,
        segments: &[],
    };
    let refusal = crate::QueuePair::post_receive(&mut endpoint.queue_pair, &[request]);
    assert!(refusal.is_err(), "posted past the shared queue");
    Ok(())
}
