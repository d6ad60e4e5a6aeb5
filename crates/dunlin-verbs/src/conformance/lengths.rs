//! All verbs of a connection that transfer bytes, with lengths around the payload of packets, and with long ones.

use crate::{Access, CompletionOpcode, Device, Operation, Region, Transport, Verbs};

use super::{pattern, piece, Outcome, Stage};

const RC: Transport = Transport::ReliableConnection;
/// Zero, an odd number, around a path MTU of 1024 bytes, around the largest MTU of RoCE, around 32 KiB (up to which
/// Flor sends and above which it writes, with and without its own headers), and many packets.
const LENGTHS: [usize; 11] = [
    0, 1, 1023, 1024, 1025, 4096, 32_744, 32_768, 32_769, 65_536, 1_048_576,
];
/// Names an additional length to test: what takes a moment on hardware may take a minute on an emulated machine.
const LONGEST: &str = "DUNLIN_CONFORMANCE_LONGEST";

fn lengths<D: Device>(stage: &Stage<D>) -> Vec<usize> {
    let longest = std::env::var(LONGEST).ok();
    let longest = longest.map(|text| text.parse().expect("a number of bytes"));
    let most = stage.device.attributes().max_message_bytes;
    let mut all: Vec<usize> = LENGTHS.into_iter().chain(longest).collect();
    all.retain(|&length| length <= most);
    all
}

/// SENDs of every length arrive complete, with and without immediate data, and nothing is written behind them.
pub fn sends<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::SEND)? {
        let mut link = stage.link(transport);
        for (id, length) in (1..).zip(lengths(stage)) {
            let data = pattern(id, length);
            let source = stage.holding(&data);
            for immediate in [None, Some(length as u32)] {
                let target = stage.peer.blank(length + 1);
                stage
                    .peer
                    .receive(link.remote, id, &[(target, 0, length + 1)]);
                let operation = Operation::Send { immediate };
                link.local.post(id, operation, &[piece(&source, 0, length)]);
                let arrived = stage.arrived(&mut link, id);
                assert_eq!((arrived.bytes, arrived.immediate), (length, immediate));
                let mut expected = data.clone();
                expected.push(0);
                let whole = stage.peer.read(target, 0, length + 1) == expected;
                assert!(whole, "{length} bytes on {transport} differ");
                stage.done(&mut link, id);
            }
        }
    }
    Ok(())
}

/// The same in the other direction: SENDs of the peer arrive here.
pub fn sends_of_the_peer<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::SEND)? {
        let mut link = stage.link(transport);
        for (id, length) in (1..).zip(lengths(stage)) {
            let data = pattern(id, length);
            let source = stage.peer.blank(length.max(1));
            stage.peer.write(source, 0, &data);
            let target = stage.blank(length + 1);
            link.local.receive(id, &[piece(&target, 0, length + 1)]);
            stage
                .peer
                .send(link.remote, id, false, &[(source, 0, length)]);
            assert_eq!(stage.done(&mut link, id).bytes, length);
            let mut bytes = vec![1; length + 1];
            target.memory().read(0, &mut bytes);
            assert!(
                bytes[..length] == data && bytes[length] == 0,
                "{length} bytes on {transport} differ"
            );
            stage.arrived(&mut link, id);
        }
    }
    Ok(())
}

/// WRITEs of every length arrive complete, with immediate data and, if the completion implies their arrival, without.
pub fn writes<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::WRITE_WITH_IMMEDIATE)? {
        let mut link = stage.link(transport);
        for (id, length) in (1..).zip(lengths(stage)) {
            for immediate in [None, Some(length as u32)] {
                if immediate.is_none() && transport != RC {
                    continue;
                }
                let data = pattern(id + immediate.map_or(0, |_| 100), length);
                let source = stage.holding(&data);
                let target = stage.peer.blank(length + 1);
                let remote = target.at(0);
                if immediate.is_some() {
                    stage.peer.receive(link.remote, id, &[]);
                }
                let operation = Operation::Write { remote, immediate };
                link.local.post(id, operation, &[piece(&source, 0, length)]);
                if immediate.is_some() {
                    let arrived = stage.arrived(&mut link, id);
                    assert_eq!(arrived.opcode, CompletionOpcode::ReceiveWriteWithImmediate);
                    assert_eq!((arrived.bytes, arrived.immediate), (length, immediate));
                }
                stage.done(&mut link, id);
                let mut expected = data;
                expected.push(0);
                let whole = stage.peer.read(target, 0, length + 1) == expected;
                assert!(whole, "{length} bytes on {transport} differ");
            }
        }
    }
    Ok(())
}

/// READs of every length return the peer's bytes.
pub fn reads<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::READ)?;
    let mut link = stage.link(RC);
    for (id, length) in (1..).zip(lengths(stage)) {
        let data = pattern(id, length);
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let source = stage.peer.region(length.max(1), access, 0);
        stage.peer.write(source, 0, &data);
        let target = stage.blank(length + 1);
        let remote = source.at(0);
        link.local
            .post(id, Operation::Read { remote }, &[piece(&target, 0, length)]);
        assert_eq!(stage.done(&mut link, id).bytes, length);
        let mut bytes = vec![1; length + 1];
        target.memory().read(0, &mut bytes);
        assert!(
            bytes[..length] == data && bytes[length] == 0,
            "{length} bytes differ"
        );
    }
    Ok(())
}
