//! SEND and RECEIVE on connected transports.

use crate::{
    CompletionOpcode, Device, Operation, Payload, QueuePair, Region, SendFlags, Transport, Verbs,
};

use super::{pattern, piece, Outcome, Piece, Request, Stage};

const PLAIN: Operation = Operation::Send { immediate: None };

/// A SEND arrives complete in the RECEIVE, and the completions of both ends report it.
pub fn message_arrives<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::SEND)? {
        let mut link = stage.link(transport);
        let data = pattern(1, 1000);
        let source = stage.holding(&data);
        let target = stage.peer.blank(2000);
        stage.peer.receive(link.remote, 7, &[(target, 100, 1500)]);
        link.local.post(3, PLAIN, &[piece(&source, 0, 1000)]);
        let arrived = stage.arrived(&mut link, 7);
        assert_eq!(arrived.opcode, CompletionOpcode::Receive);
        assert_eq!((arrived.bytes, arrived.immediate), (1000, None));
        assert_eq!(arrived.source_queue_pair, None);
        assert_eq!(stage.peer.read(target, 100, 1000), data);
        assert_eq!(stage.peer.read(target, 1100, 900), vec![0; 900]);
        assert_eq!(stage.peer.read(target, 0, 100), vec![0; 100]);
        let done = stage.done(&mut link, 3);
        assert_eq!(done.opcode, CompletionOpcode::Send);
    }
    Ok(())
}

/// Immediate data arrives with a SEND, even if it is zero or there are no other bytes.
pub fn immediate_arrives<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::SEND)? {
        let mut link = stage.link(transport);
        let data = pattern(2, 64);
        let source = stage.holding(&data);
        let target = stage.peer.blank(64);
        for (id, immediate, length) in [(1, 0xdead_beef, 64), (2, 0, 64), (3, u32::MAX, 0)] {
            stage.peer.receive(link.remote, id, &[(target, 0, 64)]);
            let operation = Operation::Send {
                immediate: Some(immediate),
            };
            link.local.post(id, operation, &[piece(&source, 0, length)]);
            let arrived = stage.arrived(&mut link, id);
            assert_eq!(arrived.opcode, CompletionOpcode::Receive);
            assert_eq!(
                (arrived.immediate, arrived.bytes),
                (Some(immediate), length)
            );
            stage.done(&mut link, id);
        }
        assert_eq!(stage.peer.read(target, 0, 64), data);
    }
    Ok(())
}

/// A SEND gathers its segments and the RECEIVE scatters over its own, with different boundaries.
pub fn gather_and_scatter<D: Device>(stage: &mut Stage<D>) -> Outcome {
    if stage.device.attributes().max_segments < 3 {
        return Err(stage.lacks("three segments"));
    }
    for transport in stage.connected(Verbs::SEND)? {
        let mut link = stage.link(transport);
        let data = pattern(3, 300);
        let (a, b) = (stage.holding(&data[..150]), stage.holding(&data[150..]));
        let (x, y) = (stage.peer.blank(400), stage.peer.blank(400));
        let places = [(x, 10, 7), (y, 0, 200), (x, 50, 300)];
        stage.peer.receive(link.remote, 1, &places);
        let gathered = [piece(&a, 0, 1), piece(&a, 1, 149), piece(&b, 0, 150)];
        link.local.post(1, PLAIN, &gathered);
        assert_eq!(stage.arrived(&mut link, 1).bytes, 300);
        let mut whole = stage.peer.read(x, 10, 7);
        whole.extend(stage.peer.read(y, 0, 200));
        whole.extend(stage.peer.read(x, 50, 93));
        assert_eq!(whole, data);
        stage.done(&mut link, 1);
    }
    Ok(())
}

/// A SEND without bytes consumes a RECEIVE and writes nothing.
pub fn zero_length<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::SEND)? {
        let mut link = stage.link(transport);
        let target = stage.peer.blank(64);
        stage.peer.receive(link.remote, 1, &[(target, 0, 64)]);
        stage.peer.receive(link.remote, 2, &[]);
        for id in [1, 2] {
            link.local.post(id, PLAIN, &[]);
            assert_eq!(stage.arrived(&mut link, id).bytes, 0);
            stage.done(&mut link, id);
        }
        assert_eq!(stage.peer.read(target, 0, 64), vec![0; 64]);
    }
    Ok(())
}

/// A SEND of a mebibyte, or of the device's maximum, arrives complete.
pub fn large_message<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let length = stage
        .device
        .attributes()
        .max_message_bytes
        .min((1 << 20) + 5);
    for transport in stage.connected(Verbs::SEND)? {
        let mut link = stage.link(transport);
        let data = pattern(4, length);
        let source = stage.holding(&data);
        let target = stage.peer.blank(length);
        stage.peer.receive(link.remote, 1, &[(target, 0, length)]);
        link.local.post(1, PLAIN, &[piece(&source, 0, length)]);
        assert_eq!(stage.arrived(&mut link, 1).bytes, length);
        assert!(stage.peer.read(target, 0, length) == data, "bytes differ");
        stage.done(&mut link, 1);
    }
    Ok(())
}

/// A list of SENDs posted with one doorbell arrives completely and in order, and completes in order.
pub fn list_with_one_doorbell<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::SEND)? {
        let mut link = stage.link(transport);
        let source = stage.holding(&pattern(5, 160));
        let target = stage.peer.blank(160);
        for id in 0..16 {
            let place = id as usize * 10;
            stage.peer.receive(link.remote, id, &[(target, place, 10)]);
        }
        let pieces: Vec<[Piece<'_, D>; 1]> =
            (0..16).map(|i| [piece(&source, i * 10, 10)]).collect();
        let list: Vec<Request<'_, D>> = (pieces.iter().zip(0..))
            .map(|(piece, id)| {
                Request::<D>::new(id, PLAIN, Payload::Segments(piece), SendFlags::SIGNALED)
            })
            .collect();
        link.local
            .queue_pair
            .post_send(&list)
            .expect("a list of 16");
        for id in 0..16 {
            stage.arrived(&mut link, id);
        }
        for id in 0..16 {
            stage.done(&mut link, id);
        }
        assert_eq!(stage.peer.read(target, 0, 160), pattern(5, 160));
        link.local.queue_pair.post_send(&[]).expect("an empty list");
    }
    Ok(())
}

/// Both ends SEND concurrently over one connection.
pub fn both_directions<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::SEND)? {
        let mut link = stage.link(transport);
        let source = stage.holding(&pattern(6, 64));
        let inbox = stage.blank(64);
        let (theirs, target) = (stage.peer.blank(64), stage.peer.blank(64));
        stage.peer.write(theirs, 0, &pattern(7, 64));
        for round in 0..20 {
            stage.peer.receive(link.remote, round, &[(target, 0, 64)]);
            link.local.receive(1000 + round, &[piece(&inbox, 0, 64)]);
            link.local
                .post(2000 + round, PLAIN, &[piece(&source, 0, 64)]);
            stage
                .peer
                .send(link.remote, 3000 + round, false, &[(theirs, 0, 64)]);
            let mut ids = [stage.ours(&mut link).id, stage.ours(&mut link).id];
            ids.sort_unstable();
            assert_eq!(ids, [1000 + round, 2000 + round]);
            let mut ids = [stage.theirs(&mut link).id, stage.theirs(&mut link).id];
            ids.sort_unstable();
            assert_eq!(ids, [round, 3000 + round]);
        }
        let mut bytes = [0; 64];
        inbox.memory().read(0, &mut bytes);
        assert_eq!(bytes.to_vec(), pattern(7, 64));
        assert_eq!(stage.peer.read(target, 0, 64), pattern(6, 64));
    }
    Ok(())
}

/// Several connections between the same devices do not interfere.
pub fn connections_are_separate<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(Transport::ReliableConnection, Verbs::SEND)?;
    let mut links: Vec<_> = (0..4)
        .map(|_| stage.link(Transport::ReliableConnection))
        .collect();
    let target = stage.peer.blank(64);
    let sources: Vec<_> = (0..4).map(|i| stage.holding(&pattern(i, 16))).collect();
    for (i, link) in links.iter_mut().enumerate() {
        stage
            .peer
            .receive(link.remote, i as u64, &[(target, i * 16, 16)]);
    }
    for (i, link) in links.iter_mut().enumerate().rev() {
        link.local
            .post(i as u64, PLAIN, &[piece(&sources[i], 0, 16)]);
    }
    for (i, link) in links.iter_mut().enumerate() {
        stage.arrived(link, i as u64);
        stage.done(link, i as u64);
        let bytes = stage.peer.read(target, i * 16, 16);
        assert_eq!(bytes, pattern(i as u64, 16));
    }
    Ok(())
}
