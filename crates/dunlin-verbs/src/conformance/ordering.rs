//! Ordering guarantees.

use crate::{Device, Operation, Placement, Region, SendFlags, Transport, Verbs};

use super::{pattern, piece, wait, Link, Outcome, PeerRegion, Stage};

const RC: Transport = Transport::ReliableConnection;
const PLAIN: Operation = Operation::Send { immediate: None };

/// SENDs arrive in the order in which they were posted, over many laps of both queues.
pub fn sends_arrive_in_order<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::SEND)? {
        let mut link = stage.link(transport);
        let source = stage.blank(8 * 16);
        let target = stage.peer.blank(8 * 16);
        let (mut posted, mut taken) = (0, 0);
        let at = |id: u64| (id % 16) as usize * 8;
        while taken < 200 {
            while posted < 200 && posted < taken + 16 {
                stage
                    .peer
                    .receive(link.remote, posted, &[(target, at(posted), 8)]);
                source.memory().write(at(posted), &posted.to_ne_bytes());
                link.local
                    .post(posted, PLAIN, &[piece(&source, at(posted), 8)]);
                posted += 1;
            }
            stage.arrived(&mut link, taken);
            assert_eq!(stage.peer.read_u64(target, at(taken)), taken);
            stage.done(&mut link, taken);
            taken += 1;
        }
    }
    Ok(())
}

/// A WRITE has arrived completely when the SEND posted after it is received.
pub fn write_then_send<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::WRITE | Verbs::SEND)? {
        let mut link = stage.link(transport);
        let length = 70_000.min(stage.device.attributes().max_message_bytes);
        let source = stage.blank(length);
        let target = stage.peer.blank(length);
        for round in 1..=20u8 {
            stage.peer.receive(link.remote, u64::from(round), &[]);
            source.memory().fill(0, length, round);
            let remote = target.at(0);
            let write = Operation::Write {
                remote,
                immediate: None,
            };
            let whole = [piece(&source, 0, length)];
            link.local
                .post_flagged(0, write, &whole, SendFlags::empty());
            link.local.post(u64::from(round), PLAIN, &[]);
            stage.arrived(&mut link, u64::from(round));
            let bytes = stage.peer.read(target, 0, length);
            assert!(bytes.iter().all(|&byte| byte == round), "stale bytes");
            stage.done(&mut link, u64::from(round));
        }
    }
    Ok(())
}

/// WRITEs and SENDs with immediate data arrive in the order in which they were posted, mixed.
pub fn mixed_immediates_in_order<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::WRITE_WITH_IMMEDIATE | Verbs::SEND)? {
        let mut link = stage.link(transport);
        let source = stage.holding(&pattern(1, 8));
        let (target, buffer) = (stage.peer.blank(8), stage.peer.blank(8));
        for id in 0..16 {
            stage.peer.receive(link.remote, id, &[(buffer, 0, 8)]);
        }
        for id in 0..16u32 {
            let immediate = Some(id);
            let remote = target.at(0);
            let operation = match id % 3 {
                0 => Operation::Send { immediate },
                _ => Operation::Write { remote, immediate },
            };
            link.local
                .post(u64::from(id), operation, &[piece(&source, 0, 8)]);
        }
        for id in 0..16u32 {
            let arrived = stage.arrived(&mut link, u64::from(id));
            assert_eq!(arrived.immediate, Some(id));
        }
    }
    Ok(())
}

/// Waits until the peer's watcher has seen `round`.
fn acknowledged<D: Device>(
    stage: &mut Stage<D>,
    link: &mut Link<D>,
    (region, at): (PeerRegion, usize),
    round: u8,
) {
    wait("the watcher", || {
        stage.step(link);
        (stage.peer.read_u64(region, at) == u64::from(round)).then_some(())
    });
}

/// A core that polls a later WRITE sees the earlier one completely.
pub fn write_then_write<D: Device>(stage: &mut Stage<D>) -> Outcome {
    for transport in stage.connected(Verbs::WRITE)? {
        for size in [1, 64, 4096, 65536 + 8] {
            let size = size.min(stage.device.attributes().max_message_bytes);
            let mut link = stage.link(transport);
            let (flag, acknowledge) = (1 << 17, (1 << 17) + 64);
            let target = stage.peer.blank((1 << 17) + 128);
            let source = stage.blank(size.max(8));
            stage
                .peer
                .watch(target, (3, 3 + size), flag, acknowledge, 50);
            for round in 1..=50u8 {
                source.memory().fill(0, size.max(8), round);
                let to = |offset| Operation::Write {
                    remote: target.at(offset),
                    immediate: None,
                };
                let data = [piece(&source, 0, size)];
                link.local.post_flagged(0, to(3), &data, SendFlags::empty());
                link.local
                    .post(u64::from(round), to(flag), &[piece(&source, 0, 8)]);
                acknowledged(stage, &mut link, (target, acknowledge), round);
                stage.done(&mut link, u64::from(round));
            }
            stage.peer.watched();
        }
    }
    Ok(())
}

/// Where in-order placement is promised, a core that polls the last byte of a WRITE sees all bytes before it.
pub fn placement_in_order<D: Device>(stage: &mut Stage<D>) -> Outcome {
    if stage.device.attributes().placement != Placement::InOrder {
        return Err(stage.lacks("placement in order"));
    }
    for transport in stage.connected(Verbs::WRITE)? {
        for size in [8, 9, 64, 77, 4096, 65536 + 13] {
            let size = size.min(stage.device.attributes().max_message_bytes);
            let mut link = stage.link(transport);
            let (end, acknowledge) = (1 << 17, (1 << 17) + 64);
            let target = stage.peer.blank((1 << 17) + 128);
            let source = stage.blank(size);
            let span = (end - size, end);
            stage.peer.watch(target, span, end - 8, acknowledge, 100);
            for round in 1..=100u8 {
                source.memory().fill(0, size, round);
                let write = Operation::Write {
                    remote: target.at(end - size),
                    immediate: None,
                };
                link.local
                    .post(u64::from(round), write, &[piece(&source, 0, size)]);
                acknowledged(stage, &mut link, (target, acknowledge), round);
                stage.done(&mut link, u64::from(round));
            }
            stage.peer.watched();
        }
    }
    Ok(())
}

/// A READ sees what a WRITE before it on the same queue pair wrote.
pub fn read_after_write<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE | Verbs::READ)?;
    let mut link = stage.link(RC);
    let (source, back) = (stage.blank(256), stage.blank(256));
    let target = stage.peer.blank(256);
    for round in 1..=50u8 {
        source.memory().fill(0, 256, round);
        let remote = target.at(0);
        let write = Operation::Write {
            remote,
            immediate: None,
        };
        let whole = [piece(&source, 0, 256)];
        link.local
            .post_flagged(0, write, &whole, SendFlags::empty());
        link.local.post(
            u64::from(round),
            Operation::Read { remote },
            &[piece(&back, 0, 256)],
        );
        stage.done(&mut link, u64::from(round));
        let mut bytes = [0; 256];
        back.memory().read(0, &mut bytes);
        assert_eq!(bytes, [round; 256]);
    }
    Ok(())
}

/// A fenced request starts after the READs before it: data fetched by a READ can be sent on immediately.
pub fn fence_waits_for_read<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::WRITE | Verbs::READ)?;
    let mut link = stage.link(RC);
    let length = 20_000.min(stage.device.attributes().max_message_bytes);
    let via = stage.blank(length);
    let (from, to) = (stage.peer.blank(length), stage.peer.blank(length));
    for round in 1..=20u8 {
        stage.peer.write(from, 0, &vec![round; length]);
        let read = Operation::Read { remote: from.at(0) };
        let write = Operation::Write {
            remote: to.at(0),
            immediate: None,
        };
        let whole = [piece(&via, 0, length)];
        link.local.post_flagged(0, read, &whole, SendFlags::empty());
        let fenced = SendFlags::SIGNALED | SendFlags::FENCE;
        link.local
            .post_flagged(u64::from(round), write, &whole, fenced);
        stage.done(&mut link, u64::from(round));
        assert!(
            stage.peer.read(to, 0, length) == vec![round; length],
            "not fenced"
        );
    }
    Ok(())
}
