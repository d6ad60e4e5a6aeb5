//! The receiving end of UC, whose peer sends whatever it likes.

use dunlin_roce::packet::{Operation, Psn, Service, PSN_COUNT};
use dunlin_roce::unreliable::{Receiver, Verdict};

use super::choices::Choices;
use super::packets;
use super::watched::{Effects, Watched};

/// Plays what `bytes` choose: messages are whole or dropped, and the next one is taken, whatever came before.
pub(crate) fn hostile_sender(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mtu = choices.one_of(&[256, 1024, 4096]);
    let mut psn = Psn::new(choices.one_of(&[0, PSN_COUNT - 3, 77]));
    let mut receiver = Receiver::new(psn, mtu);
    let mut target = Watched::default();
    target.unreliable = true;
    target.capacity = 1 << 40;
    let mut handle = |target: &mut Watched, operation, psn, payload: u32| {
        let mut header = packets::header(&mut Choices::new(&[]), operation, psn);
        header.service = Service::Unreliable;
        target.effects = Effects::default();
        let verdict = receiver.handle(&header, &[7; 4_100][..payload as usize], target);
        let Effects {
            writes,
            filled,
            delivered,
            ..
        } = target.effects;
        assert!(writes + filled <= 1 && delivered <= 1);
        if verdict != Verdict::Taken {
            assert_eq!((filled, delivered), (0, 0), "{operation:?}");
            assert!(writes == 0 || verdict == Verdict::NoReceive);
        }
        verdict
    };
    while !choices.is_empty() {
        match choices.below(8) {
            0 => target.receives = choices.below(4) as u32,
            1 => target.revoked = choices.one_in(4),
            2 => target.broken_receives = choices.one_in(4),
            3 => target.capacity = choices.one_of(&[0, 1, mtu.into(), 1 << 40]),
            _ => {
                let operation = packets::request(&mut choices, mtu);
                let payload = match (operation, choices.below(4)) {
                    (_, 0) => packets::length(&mut choices, mtu).min(4_100),
                    (Operation::WriteOnly { target, .. }, _) => target.bytes.min(4_100),
                    (Operation::SendLast { .. } | Operation::WriteLast { .. }, _) => 1,
                    _ => mtu,
                };
                psn = match choices.one_in(8) {
                    true => Psn::new(choices.word()),
                    false => psn,
                };
                handle(&mut target, operation, psn, payload);
                psn = psn.plus(1);
            }
        }
    }
    let empty = Operation::SendOnly { immediate: None };
    target.receives = 2;
    target.broken_receives = false;
    assert_eq!(handle(&mut target, empty, psn, 0), Verdict::Taken);
}
