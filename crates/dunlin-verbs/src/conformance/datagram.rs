//! SEND on UD.

use crate::{
    CompletionOpcode, Destination, Device, EndpointAddress, Operation, Payload, PostErrorKind,
    QueuePair, SendFlags, Transport, Verbs, GRH_BYTES,
};

use super::{
    pattern, piece, wait, Endpoint, Handle, Link, Options, Outcome, Piece, Request, Stage,
};

const UD: Transport = Transport::UnreliableDatagram;
const PLAIN: Operation = Operation::Send { immediate: None };

/// Two UD endpoints and the address handle from ours to the peer's.
fn pair<D: Device>(stage: &mut Stage<D>) -> Result<(Link<D>, Handle<D>), super::Skipped> {
    stage.needs(UD, Verbs::SEND)?;
    let options = Options::new(UD);
    let (remote, remote_address) = stage.peer.endpoint(&options);
    stage.peer.connect(remote, None, options.attributes);
    let handle = stage
        .device
        .create_address_handle(&stage.domain, &remote_address)
        .expect("an address handle");
    let link = Link {
        local: sender(stage),
        remote,
        remote_address,
    };
    Ok((link, handle))
}

fn sender<D: Device>(stage: &Stage<D>) -> Endpoint<D> {
    let options = Options::new(UD);
    let mut local = stage.endpoint(&options);
    local.connect(None, options.attributes).expect("ready");
    local
}

fn datagram<'a, D: Device>(
    id: u64,
    operation: Operation,
    segments: &'a [Piece<'a, D>],
    handle: &'a Handle<D>,
    to: &EndpointAddress,
) -> Request<'a, D> {
    let payload = Payload::Segments(segments);
    let mut request = Request::<D>::new(id, operation, payload, SendFlags::SIGNALED);
    request.destination = Some(Destination {
        handle,
        queue_pair: to.queue_pair,
        queue_key: to.queue_key,
    });
    request
}

fn post<D: Device>(
    link: &mut Link<D>,
    id: u64,
    operation: Operation,
    segments: &[Piece<'_, D>],
    handle: &Handle<D>,
) {
    let request = datagram::<D>(id, operation, segments, handle, &link.remote_address);
    link.local
        .queue_pair
        .post_send(&[request])
        .expect("a datagram");
}

/// A datagram arrives behind its routing header, with its sender's number and immediate data.
pub fn arrives_behind_header<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let (mut link, handle) = pair(stage)?;
    let data = pattern(1, 200);
    let ours = stage.holding(&data);
    let target = stage.peer.blank(400);
    let number = link.local.queue_pair.number();
    let most = GRH_BYTES + 200;
    for (id, immediate, length) in [(1, None, 200), (2, Some(77), 200), (3, Some(0), 0)] {
        stage.peer.receive(link.remote, id, &[(target, 16, most)]);
        let operation = Operation::Send { immediate };
        post(
            &mut link,
            id,
            operation,
            &[piece(&ours, 0, length)],
            &handle,
        );
        let arrived = stage.arrived(&mut link, id);
        assert_eq!(arrived.opcode, CompletionOpcode::Receive);
        assert_eq!(arrived.bytes, GRH_BYTES + length);
        assert_eq!(arrived.source_queue_pair, Some(number));
        assert_eq!(arrived.immediate, immediate);
        let bytes = stage.peer.read(target, 16 + GRH_BYTES, length);
        assert_eq!(bytes, data[..length]);
        stage.done(&mut link, id);
    }
    Ok(())
}

/// The routing header is scattered like the data.
pub fn scattered_header<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let (mut link, handle) = pair(stage)?;
    if stage.device.attributes().max_segments < 2 {
        return Err(stage.lacks("two segments"));
    }
    let ours = stage.holding(&pattern(2, 100));
    let (header, body) = (stage.peer.blank(GRH_BYTES), stage.peer.blank(100));
    let places = [(header, 0, GRH_BYTES), (body, 0, 100)];
    stage.peer.receive(link.remote, 1, &places);
    post(&mut link, 1, PLAIN, &[piece(&ours, 0, 100)], &handle);
    stage.arrived(&mut link, 1);
    assert_eq!(stage.peer.read(body, 0, 100), pattern(2, 100));
    Ok(())
}

/// A datagram of one MTU arrives; one byte more is refused when posted, and the error contains the limit.
pub fn mtu_is_the_limit<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let (mut link, handle) = pair(stage)?;
    let mtu = stage.device.attributes().mtu_bytes;
    let ours = stage.holding(&pattern(3, mtu + 1));
    let target = stage.peer.blank(GRH_BYTES + mtu);
    stage
        .peer
        .receive(link.remote, 1, &[(target, 0, GRH_BYTES + mtu)]);
    let long = [piece(&ours, 0, mtu + 1)];
    let request = datagram::<D>(9, PLAIN, &long, &handle, &link.remote_address);
    let error = link
        .local
        .queue_pair
        .post_send(&[request])
        .expect_err("too long");
    let expected = PostErrorKind::Length {
        bytes: mtu + 1,
        limit: mtu,
    };
    assert_eq!(error.kind, expected);
    post(&mut link, 1, PLAIN, &[piece(&ours, 0, mtu)], &handle);
    stage.arrived(&mut link, 1);
    let bytes = stage.peer.read(target, GRH_BYTES, mtu);
    assert!(bytes == pattern(3, mtu + 1)[..mtu], "bytes differ");
    stage.done(&mut link, 1);
    Ok(())
}

/// An undeliverable datagram disappears, while its sender succeeds: wrong queue key, no such queue pair, too long for
/// the RECEIVE, no RECEIVE. The next deliverable one is the first to arrive.
pub fn undeliverable_vanishes<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let (mut link, handle) = pair(stage)?;
    let (bad, good) = (stage.holding(&[1; 8]), stage.holding(&[2; 8]));
    let target = stage.peer.blank(GRH_BYTES + 8);
    let to = link.remote_address;
    post(&mut link, 0, PLAIN, &[piece(&bad, 0, 8)], &handle);
    stage.done(&mut link, 0);
    // One from another pair of endpoints: once it has arrived, the one before it has been processed.
    let (mut behind, handle_behind) = pair(stage)?;
    let place = [(target, 0, GRH_BYTES + 8)];
    stage.peer.receive(behind.remote, 1, &place);
    let bytes = [piece(&good, 0, 8)];
    post(&mut behind, 1, PLAIN, &bytes, &handle_behind);
    stage.arrived(&mut behind, 1);
    stage.peer.receive(link.remote, 9, &place);
    let bytes = [piece(&bad, 0, 8)];
    let mut wrong_key = to;
    wrong_key.queue_key ^= 1;
    let mut wrong_number = to;
    wrong_number.queue_pair ^= 0x0055_5500;
    for (id, to) in [(1, wrong_key), (2, wrong_number)] {
        let request = datagram::<D>(id, PLAIN, &bytes, &handle, &to);
        link.local
            .queue_pair
            .post_send(&[request])
            .expect("a datagram");
        stage.done(&mut link, id);
    }
    post(&mut link, 3, PLAIN, &[piece(&good, 0, 8)], &handle);
    stage.arrived(&mut link, 9);
    assert_eq!(stage.peer.read(target, GRH_BYTES, 8), [2; 8]);
    stage.done(&mut link, 3);
    Ok(())
}

/// One endpoint receives from many senders and can tell them apart.
pub fn many_senders<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let (mut link, handle) = pair(stage)?;
    let target = stage.peer.blank(16 * 64);
    let ours = stage.holding(&pattern(4, 16));
    let mut others: Vec<_> = (0..7).map(|_| sender(stage)).collect();
    for id in 0..16 {
        let place = [(target, id as usize * 64, 64)];
        stage.peer.receive(link.remote, id, &place);
    }
    let to = link.remote_address;
    let mut expected = Vec::new();
    for round in 0..2 {
        for (i, end) in others.iter_mut().chain([&mut link.local]).enumerate() {
            let segments = [piece(&ours, i, 1)];
            let request = datagram::<D>(round, PLAIN, &segments, &handle, &to);
            end.queue_pair.post_send(&[request]).expect("a datagram");
            expected.push((end.queue_pair.number(), pattern(4, 16)[i]));
        }
    }
    let mut seen = Vec::new();
    for id in 0..16 {
        let arrived = stage.arrived(&mut link, id);
        let place = id as usize * 64 + GRH_BYTES;
        let byte = stage.peer.read(target, place, 1)[0];
        seen.push((arrived.source_queue_pair.expect("a source"), byte));
    }
    expected.sort_unstable();
    seen.sort_unstable();
    assert_eq!(seen, expected);
    for end in others.iter_mut().chain([&mut link.local]) {
        for round in 0..2 {
            let completion = wait("a sender's completion", || end.poll());
            assert!(completion.is_success() && completion.id == round);
        }
    }
    Ok(())
}

/// UD accepts only SENDs with a destination, and connections only SENDs without.
pub fn destination_must_fit<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let (mut link, handle) = pair(stage)?;
    let target = stage.peer.blank(8);
    let ours = stage.blank(8);
    let pieces = [piece(&ours, 0, 8)];
    let payload = Payload::Segments(&pieces);
    let nowhere = Request::<D>::new(1, PLAIN, payload, SendFlags::SIGNALED);
    let write = Operation::Write {
        remote: target.at(0),
        immediate: None,
    };
    let read = Operation::Read {
        remote: target.at(0),
    };
    let to = link.remote_address;
    let one_sided = [write, read].map(|verb| datagram::<D>(1, verb, &pieces, &handle, &to));
    for request in [nowhere].into_iter().chain(one_sided) {
        let error = link
            .local
            .queue_pair
            .post_send(&[request])
            .expect_err("not for UD");
        assert_eq!(error.kind, PostErrorKind::Verb(UD));
    }
    for transport in stage.connected(Verbs::SEND)? {
        let mut connected = stage.link(transport);
        let request = datagram::<D>(1, PLAIN, &pieces, &handle, &to);
        let error = connected.local.queue_pair.post_send(&[request]);
        let error = error.expect_err("not for a connection");
        assert_eq!(error.kind, PostErrorKind::Verb(transport));
    }
    Ok(())
}

/// A datagram may be inline.
pub fn inline_datagram<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let (mut link, handle) = pair(stage)?;
    let most = stage.device.attributes().max_inline_bytes.min(64);
    if most == 0 {
        return Err(stage.lacks("inline payloads"));
    }
    let target = stage.peer.blank(GRH_BYTES + most);
    stage
        .peer
        .receive(link.remote, 1, &[(target, 0, GRH_BYTES + most)]);
    let mut bytes = pattern(5, most);
    let mut request = datagram::<D>(1, PLAIN, &[], &handle, &link.remote_address);
    request.payload = Payload::Inline(&bytes);
    link.local.queue_pair.post_send(&[request]).expect("inline");
    bytes.fill(0);
    assert_eq!(stage.arrived(&mut link, 1).bytes, GRH_BYTES + most);
    assert_eq!(stage.peer.read(target, GRH_BYTES, most), pattern(5, most));
    stage.done(&mut link, 1);
    Ok(())
}

/// Consecutive datagrams, over many laps of the queues, each find their RECEIVE.
pub fn stream_of_datagrams<D: Device>(stage: &mut Stage<D>) -> Outcome {
    let (mut link, handle) = pair(stage)?;
    let ours = stage.blank(8);
    let target = stage.peer.blank(16 * 64);
    for id in 0..300u64 {
        let at = id as usize % 16 * 64;
        stage.peer.receive(link.remote, id, &[(target, at, 48)]);
        crate::Region::memory(&ours).write(0, &id.to_ne_bytes());
        post(&mut link, id, PLAIN, &[piece(&ours, 0, 8)], &handle);
        stage.arrived(&mut link, id);
        assert_eq!(stage.peer.read_u64(target, at + GRH_BYTES), id);
        stage.done(&mut link, id);
    }
    Ok(())
}
