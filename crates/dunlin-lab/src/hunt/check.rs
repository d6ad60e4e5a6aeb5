//! The invariants.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use dunlin_verbs::{Region, Transport};

use super::flow::{Flow, Kind, Log};

/// Faults of a flow, and of the network for its packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    /// Its host crashed.
    pub(super) sender_gone: bool,
    pub(super) receiver_gone: bool,
    /// Whether its queue pair failed.
    pub(super) pair_failed: bool,
    pub(super) loses: bool,
    pub(super) late: bool,
    pub(super) doubles: bool,
}

/// Checks the record of a flow. A crashed host's log ends where it crashed.
pub(super) fn check(flow: &Flow, log: &Log, around: Around, violations: &mut Vec<String>) {
    let Around {
        sender_gone,
        receiver_gone,
        ..
    } = around;
    let mut wrong =
        |what: String| violations.push(format!("flow {} ({}): {what}", flow.number, flow.name()));
    // Completions: each once, in order, and none succeeds after a failure.
    for (place, (message, _)) in log.completions.iter().enumerate() {
        if *message != place {
            return wrong(format!("completion {place} is of message {message}"));
        }
    }
    let succeeded = log
        .completions
        .iter()
        .take_while(|completion| completion.1)
        .count();
    let connected = flow.transport == Transport::ReliableConnection;
    if log.completions[succeeded..]
        .iter()
        .any(|completion| completion.1)
    {
        wrong(format!(
            "a success behind the failure of message {succeeded}"
        ));
    }
    // Nothing hangs.
    if !sender_gone {
        if log.completions.len() < log.posted {
            wrong(format!(
                "{} of {} requests completed",
                log.completions.len(),
                log.posted
            ));
        } else if log.posted < flow.messages {
            wrong(format!(
                "{} of {} messages posted",
                log.posted, flow.messages
            ));
        }
    }
    // Messages that arrived are whole.
    if let Some((message, _)) = log.received.iter().find(|received| !received.1) {
        wrong(format!("message {message} has other bytes"));
    }
    let order: Vec<usize> = log.received.iter().map(|received| received.0).collect();
    match (flow.transport, flow.kind) {
        (_, Kind::FetchAndAdd) => check_atomics(log, succeeded, &mut wrong),
        (Transport::ReliableConnection, Kind::Read) => {}
        (Transport::ReliableConnection, _) => {
            // Exactly once, in order, without gaps; including all that succeeded.
            if order
                .iter()
                .enumerate()
                .any(|(place, &message)| place != message)
            {
                wrong(format!("arrived as {order:?}"));
            }
            if connected && !receiver_gone && order.len() < succeeded {
                wrong(format!("{succeeded} succeeded, {} arrived", order.len()));
            }
            if order.len() > log.posted {
                wrong("more arrived than was sent".to_owned());
            }
        }
        (Transport::UnreliableConnection, _) => {
            // Some may be missing; none arrives twice or late.
            if order.windows(2).any(|pair| pair[0] >= pair[1]) {
                wrong(format!("arrived as {order:?}"));
            }
            // A message that is overtaken, or whose packets are duplicated, counts as lost.
            if !(around.late || around.doubles) {
                check_arrived(flow, log, around, &order, &mut wrong);
            }
        }
        (Transport::UnreliableDatagram, _) => {
            // The network may lose, repeat and reorder, if it was told to.
            if order.iter().any(|&message| message >= log.posted) {
                wrong("a datagram that nobody sent".to_owned());
            }
            let distinct: BTreeSet<usize> = order.iter().copied().collect();
            if !around.doubles && distinct.len() < order.len() {
                wrong(format!("datagrams arrived twice: {order:?}"));
            }
            // A duplicate takes the RECEIVE of another message.
            if !around.doubles {
                check_arrived(flow, log, around, &order, &mut wrong);
            }
        }
    }
}

/// If nothing is lost, and each message finds a RECEIVE, all messages that succeeded arrive, over any transport.
fn check_arrived(
    flow: &Flow,
    log: &Log,
    around: Around,
    order: &[usize],
    wrong: &mut impl FnMut(String),
) {
    let disturbed =
        around.loses || around.sender_gone || around.receiver_gone || around.pair_failed;
    // With fewer RECEIVEs than messages the sender may be ahead of the receiver.
    let Some(from) = log
        .ready
        .filter(|_| !disturbed && flow.receives >= flow.messages)
    else {
        return;
    };
    let sent = log.completions.iter().filter(|completion| completion.1);
    let missing: Vec<usize> = sent
        .map(|completion| completion.0)
        .filter(|message| *message >= from && !order.contains(message))
        .collect();
    if !missing.is_empty() {
        wrong(format!("nothing was lost, and {missing:?} did not arrive"));
    }
}

/// Each success returned another old value, and the cell counts every success once and at most what was posted.
fn check_atomics(log: &Log, succeeded: usize, wrong: &mut impl FnMut(String)) {
    let distinct: BTreeSet<u64> = log.olds.iter().copied().collect();
    if distinct.len() != log.olds.len() {
        wrong("an old value was seen twice".to_owned());
    }
    let Some(cell) = &log.cell else { return };
    let value = cell.memory().atomic_u64(0).load(Ordering::Acquire) as usize;
    if value < succeeded || value > log.posted {
        wrong(format!(
            "the cell counts {value}, {succeeded} of {} succeeded",
            log.posted
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::terrain;
    use super::*;
    use crate::dice::Dice;

    const QUIET: Around = Around {
        sender_gone: false,
        receiver_gone: false,
        pair_failed: false,
        loses: false,
        late: false,
        doubles: false,
    };

    /// A flow with a RECEIVE for each message.
    fn flow(transport: Transport) -> Flow {
        let mut dice = Dice::new(1);
        let terrain = terrain::build(1, &mut dice);
        let mut all = (0..10_000).map(|_| Flow::draw(0, &terrain, &mut dice));
        all.find(|flow| flow.transport == transport && flow.receives >= flow.messages)
            .expect("one is drawn")
    }

    fn violations(flow: &Flow, around: Around, received: &[usize]) -> Vec<String> {
        let log = Log {
            posted: flow.messages,
            ready: Some(1),
            completions: (0..flow.messages).map(|message| (message, true)).collect(),
            received: received.iter().map(|&message| (message, true)).collect(),
            ..Log::default()
        };
        let mut violations = Vec::new();
        check(flow, &log, around, &mut violations);
        violations
    }

    #[test]
    fn what_a_network_without_loss_carried_must_arrive_once() {
        use Transport::{UnreliableConnection, UnreliableDatagram};
        for transport in [UnreliableConnection, UnreliableDatagram] {
            let flow = flow(transport);
            // The first was on its way before there was a RECEIVE.
            let all: Vec<usize> = (1..flow.messages).collect();
            assert!(violations(&flow, QUIET, &all).is_empty());
            for some in [&[][..], &all[1..], &all[..all.len() - 1]] {
                let found = violations(&flow, QUIET, some);
                assert!(
                    found.iter().any(|what| what.contains("did not arrive")),
                    "{transport}: {found:?}"
                );
                let around = Around {
                    loses: true,
                    ..QUIET
                };
                assert!(violations(&flow, around, some).is_empty());
            }
            // A delayed message arrives, though behind others.
            let around = Around {
                late: true,
                ..QUIET
            };
            let swapped: Vec<usize> = [2, 1].into_iter().chain(all[2..].iter().copied()).collect();
            let datagrams = transport == UnreliableDatagram;
            assert_eq!(violations(&flow, around, &swapped).is_empty(), datagrams);
            assert_eq!(violations(&flow, around, &all[1..]).is_empty(), !datagrams);
            let twice: Vec<usize> = [1].into_iter().chain(all.iter().copied()).collect();
            assert!(!violations(&flow, QUIET, &twice).is_empty(), "{transport}");
        }
    }
}
