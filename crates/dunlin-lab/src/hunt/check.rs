//! The invariants.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use dunlin_verbs::{Region, Transport};

use super::flow::{Flow, Kind, Log};

/// Checks what a flow saw. A crashed host's log ends where it crashed.
pub(super) fn check(
    flow: &Flow,
    log: &Log,
    sender_gone: bool,
    receiver_gone: bool,
    violations: &mut Vec<String>,
) {
    let mut wrong =
        |what: String| violations.push(format!("flow {} ({}): {what}", flow.number, flow.name()));
    // Completions: each once, in order, and after a failure none succeeds.
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
    // What arrived is whole.
    if let Some((message, _)) = log.received.iter().find(|received| !received.1) {
        wrong(format!("message {message} has other bytes"));
    }
    let order: Vec<usize> = log.received.iter().map(|received| received.0).collect();
    match (flow.transport, flow.kind) {
        (_, Kind::FetchAndAdd) => check_atomics(log, succeeded, &mut wrong),
        (Transport::ReliableConnection, Kind::Read) => {}
        (Transport::ReliableConnection, _) => {
            // Exactly once, in order, without gaps; and all that succeeded.
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
            // Some may be missing; none comes twice or late.
            if order.windows(2).any(|pair| pair[0] >= pair[1]) {
                wrong(format!("arrived as {order:?}"));
            }
        }
        (Transport::UnreliableDatagram, _) => {
            // Anything but other bytes: the network may lose, repeat and reorder.
            if order.iter().any(|&message| message >= log.posted) {
                wrong("a datagram that nobody sent".to_owned());
            }
        }
    }
}

/// Each success saw another old value, and the cell counts every success once and at most what was posted.
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
