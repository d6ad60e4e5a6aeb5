//! WRITE and READ.

use crate::{
    Access, CompletionOpcode, Device, Operation, Payload, QueuePair, Region, SendFlags, Transport,
    Verbs,
};

use super::{pattern, piece, Outcome, PeerRegion, Piece, Request, Stage};

const RC: Transport = Transport::ReliableConnection;

fn write_to(region: PeerRegion, offset: usize, immediate: Option<u32>) -> Operation {
    Operation::Write {
        remote: region.at(offset),
        immediate,
    }
}

fn bytes_of(region: &impl Region, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    region.memory().read(offset, &mut bytes);
    bytes
}

/// A WRITE changes the bytes that it names and no others, and generates no completion at the peer.
pub fn write_lands<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::WRITE)? {
        let mut link = stage.link(transport);
        let mut data = pattern(1, 777);
        data[776] = 1;
        let source = stage.holding(&data);
        let target = stage.peer.blank(1000);
        link.local
            .post(5, write_to(target, 123, None), &[piece(&source, 0, 777)]);
        let done = stage.done(&mut link, 5);
        assert_eq!(done.opcode, CompletionOpcode::Write);
        stage.landed(&link, target, 123 + 776, 1);
        assert_eq!(stage.peer.read(target, 123, 777), data);
        assert_eq!(stage.peer.read(target, 0, 123), vec![0; 123]);
        assert_eq!(stage.peer.read(target, 900, 100), vec![0; 100]);
        assert_eq!(stage.peer.poll(link.remote), None);
    }
    Ok(())
}

/// A WRITE with immediate data arrives and consumes a RECEIVE, whose buffer does not change.
pub fn write_with_immediate<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::WRITE_WITH_IMMEDIATE)? {
        let mut link = stage.link(transport);
        let data = pattern(2, 200);
        let source = stage.holding(&data);
        let (target, buffer) = (stage.peer.blank(200), stage.peer.blank(64));
        stage.peer.receive(link.remote, 1, &[]);
        stage.peer.receive(link.remote, 2, &[(buffer, 0, 64)]);
        stage.peer.receive(link.remote, 3, &[]);
        for (id, length) in [(1, 100), (2, 200), (3, 0)] {
            let operation = write_to(target, 0, Some(id as u32 * 7));
            link.local.post(id, operation, &[piece(&source, 0, length)]);
            let arrived = stage.arrived(&mut link, id);
            assert_eq!(arrived.opcode, CompletionOpcode::ReceiveWriteWithImmediate);
            assert_eq!(arrived.immediate, Some(id as u32 * 7));
            assert_eq!(arrived.bytes, length);
            assert_eq!(stage.peer.read(target, 0, length), data[..length]);
            stage.done(&mut link, id);
        }
        assert_eq!(stage.peer.read(buffer, 0, 64), vec![0; 64]);
    }
    Ok(())
}

/// A READ fetches the bytes that it names and changes none around them.
pub fn read_fetches<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::READ)?;
    let mut link = stage.link(RC);
    let data = pattern(3, 3000);
    let source = stage.peer.blank(3000);
    stage.peer.write(source, 0, &data);
    let target = stage.blank(4000);
    let operation = Operation::Read {
        remote: source.at(17),
    };
    link.local.post(1, operation, &[piece(&target, 500, 2900)]);
    let done = stage.done(&mut link, 1);
    assert_eq!((done.opcode, done.bytes), (CompletionOpcode::Read, 2900));
    assert_eq!(bytes_of(&target, 500, 2900), data[17..2917]);
    assert_eq!(bytes_of(&target, 0, 500), vec![0; 500]);
    assert_eq!(bytes_of(&target, 3400, 600), vec![0; 600]);
    assert_eq!(stage.peer.poll(link.remote), None);
    Ok(())
}

/// A WRITE gathers and a READ scatters.
pub fn gather_and_scatter<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE | Verbs::READ)?;
    if stage.device.attributes().max_segments < 3 {
        return Err(stage.lacks("three segments"));
    }
    let mut link = stage.link(RC);
    let data = pattern(4, 500);
    let (a, b) = (stage.holding(&data[..250]), stage.holding(&data[250..]));
    let place = stage.peer.blank(600);
    let gathered = [piece(&a, 0, 3), piece(&a, 3, 247), piece(&b, 0, 250)];
    link.local.post(1, write_to(place, 50, None), &gathered);
    stage.done(&mut link, 1);
    assert_eq!(stage.peer.read(place, 50, 500), data);
    let (x, y) = (stage.blank(400), stage.blank(400));
    let scattered = [piece(&x, 100, 199), piece(&y, 0, 300), piece(&x, 0, 1)];
    let read = Operation::Read {
        remote: place.at(50),
    };
    link.local.post(2, read, &scattered);
    assert_eq!(stage.done(&mut link, 2).bytes, 500);
    let mut whole = bytes_of(&x, 100, 199);
    whole.extend(bytes_of(&y, 0, 300));
    whole.extend(bytes_of(&x, 0, 1));
    assert_eq!(whole, data);
    Ok(())
}

/// WRITE and READ of zero bytes succeed, with and without an empty segment.
pub fn zero_length<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE | Verbs::READ)?;
    let mut link = stage.link(RC);
    let ours = stage.holding(&[9; 8]);
    let theirs = stage.peer.blank(8);
    let read = Operation::Read {
        remote: theirs.at(0),
    };
    link.local.post(1, write_to(theirs, 0, None), &[]);
    link.local
        .post(2, write_to(theirs, 4, None), &[piece(&ours, 8, 0)]);
    link.local.post(3, read, &[]);
    link.local.post(4, read, &[piece(&ours, 0, 0)]);
    for id in 1..=4 {
        stage.done(&mut link, id);
    }
    assert_eq!(stage.peer.read(theirs, 0, 8), vec![0; 8]);
    assert_eq!(bytes_of(&ours, 0, 8), vec![9; 8]);
    Ok(())
}

/// Eight mebibytes, or the device's maximum, by WRITE and back by READ.
pub fn large_messages<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE | Verbs::READ)?;
    let length = stage
        .device
        .attributes()
        .max_message_bytes
        .min((8 << 20) + 3);
    let mut link = stage.link(RC);
    let data = pattern(5, length);
    let (ours, theirs) = (stage.holding(&data), stage.peer.blank(length));
    link.local
        .post(1, write_to(theirs, 0, None), &[piece(&ours, 0, length)]);
    stage.done(&mut link, 1);
    let back = stage.blank(length);
    let read = Operation::Read {
        remote: theirs.at(0),
    };
    link.local.post(2, read, &[piece(&back, 0, length)]);
    assert_eq!(stage.done(&mut link, 2).bytes, length);
    assert!(bytes_of(&back, 0, length) == data, "bytes differ");
    assert!(stage.peer.read(theirs, 0, length) == data, "bytes differ");
    Ok(())
}

/// WRITEs and READs of one list are all executed and complete in order.
pub fn list_with_one_doorbell<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE | Verbs::READ)?;
    let mut link = stage.link(RC);
    let source = stage.holding(&pattern(6, 80));
    let back = stage.blank(80);
    let theirs = stage.peer.blank(80);
    let mut pieces: Vec<[Piece<'_, D>; 1]> = Vec::new();
    for i in 0..8 {
        pieces.push([piece(&source, i * 10, 10)]);
        pieces.push([piece(&back, i * 10, 10)]);
    }
    let mut list = Vec::new();
    for (i, segments) in pieces.iter().enumerate() {
        let remote = theirs.at(i / 2 * 10);
        let (operation, flags) = if i % 2 == 0 {
            let immediate = None;
            (Operation::Write { remote, immediate }, SendFlags::SIGNALED)
        } else {
            (Operation::Read { remote }, SendFlags::SIGNALED)
        };
        let payload = Payload::Segments(segments);
        list.push(Request::<D>::new(i as u64, operation, payload, flags));
    }
    link.local
        .queue_pair
        .post_send(&list)
        .expect("a list of 16");
    for id in 0..16 {
        stage.done(&mut link, id);
    }
    assert_eq!(bytes_of(&back, 0, 80), pattern(6, 80));
    assert_eq!(stage.peer.read(theirs, 0, 80), pattern(6, 80));
    Ok(())
}

/// A region granted for one verb only is usable by that verb.
pub fn single_grants_suffice<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE | Verbs::READ)?;
    let mut link = stage.link(RC);
    let ours = stage.holding(&pattern(7, 64));
    let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let written = stage.peer.region(64, writable, 0);
    link.local
        .post(1, write_to(written, 0, None), &[piece(&ours, 0, 64)]);
    stage.done(&mut link, 1);
    assert_eq!(stage.peer.read(written, 0, 64), pattern(7, 64));
    let read = stage.peer.region(64, Access::REMOTE_READ, 0);
    let remote = read.at(0);
    link.local
        .post(2, Operation::Read { remote }, &[piece(&ours, 0, 64)]);
    stage.done(&mut link, 2);
    assert_eq!(bytes_of(&ours, 0, 64), vec![0; 64]);
    // The source of a WRITE needs no access at all.
    let constant = stage.region(64, Access::empty());
    link.local
        .post(3, write_to(written, 0, None), &[piece(&constant, 0, 64)]);
    stage.done(&mut link, 3);
    assert_eq!(stage.peer.read(written, 0, 64), vec![0; 64]);
    Ok(())
}

/// As many READs as the send queue holds are all answered, in order, however many the device keeps in flight.
pub fn many_reads_at_once<D: Device>(stage: &mut Stage<D>) -> Outcome {
    many_reads(stage, 100)
}

/// The same with READs of many packets.
pub fn many_long_reads_at_once<D: Device>(stage: &mut Stage<D>) -> Outcome {
    many_reads(stage, 48 << 10)
}

fn many_reads<D: Device>(stage: &mut Stage<D>, bytes: usize) -> Outcome {
    stage.needs(RC, Verbs::READ)?;
    let mut link = stage.link(RC);
    let all = 32 * bytes;
    let (theirs, ours) = (stage.peer.blank(all), stage.blank(all));
    stage.peer.write(theirs, 0, &pattern(8, all));
    for id in 0..32 {
        let at = id as usize * bytes;
        let remote = theirs.at(at);
        let place = [piece(&ours, at, bytes)];
        link.local.post(id, Operation::Read { remote }, &place);
    }
    for id in 0..32 {
        assert_eq!(stage.done(&mut link, id).bytes, bytes);
    }
    assert_eq!(bytes_of(&ours, 0, all), pattern(8, all));
    Ok(())
}
