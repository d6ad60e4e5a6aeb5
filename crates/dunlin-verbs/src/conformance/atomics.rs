//! Compare-and-swap and fetch-and-add.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{
    CompletionOpcode, CompletionStatus, Device, Operation, QueuePair, QueuePairState, Region,
    RemoteAddress, Transport, Verbs,
};

use super::{piece, wait, Endpoint, Outcome, Stage};

const RC: Transport = Transport::ReliableConnection;

fn value(region: &impl Region) -> u64 {
    region.memory().atomic_u64(0).load(Ordering::Acquire)
}

/// Fetch-and-add returns the old value and adds, wrapping on overflow.
pub fn fetch_and_add<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::ATOMIC)?;
    let mut link = stage.link(RC);
    let (old, cell) = (stage.blank(8), stage.peer.blank(24));
    stage.peer.write(cell, 8, &5u64.to_ne_bytes());
    let remote = cell.at(8);
    for (id, add, before) in [(1, 3, 5), (2, u64::MAX, 8), (3, u64::MAX - 8, 7)] {
        link.local.post(
            id,
            Operation::FetchAndAdd { remote, add },
            &[piece(&old, 0, 8)],
        );
        let done = stage.done(&mut link, id);
        assert_eq!(done.opcode, CompletionOpcode::FetchAndAdd);
        assert_eq!(value(&old), before);
        assert_eq!(stage.peer.read_u64(cell, 8), before.wrapping_add(add));
    }
    assert_eq!(stage.peer.read_u64(cell, 0), 0);
    assert_eq!(stage.peer.read_u64(cell, 16), 0);
    Ok(())
}

/// Compare-and-swap swaps if the values are equal, not otherwise, and returns the old value in either case.
pub fn compare_and_swap<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::ATOMIC)?;
    let mut link = stage.link(RC);
    let (old, cell) = (stage.blank(8), stage.peer.blank(8));
    stage.peer.write(cell, 0, &10u64.to_ne_bytes());
    let remote = cell.at(0);
    let rows = [(10, 20, 10, 20), (10, 30, 20, 20), (20, 0, 20, 0)];
    for (id, (compare, swap, before, after)) in (1..).zip(rows) {
        let operation = Operation::CompareAndSwap {
            remote,
            compare,
            swap,
        };
        link.local.post(id, operation, &[piece(&old, 0, 8)]);
        let done = stage.done(&mut link, id);
        assert_eq!(done.opcode, CompletionOpcode::CompareAndSwap);
        assert_eq!(value(&old), before);
        assert_eq!(stage.peer.read_u64(cell, 0), after);
    }
    Ok(())
}

const ROUNDS: u64 = 500;

/// One of the contenders: adds 1 by fetch-and-add, then equally often by compare-and-swap on the next cell.
fn contend<D: Device>(mut end: Endpoint<D>, old: D::Region, cell: RemoteAddress) -> Vec<u64> {
    let mut carry_out = |id, operation| {
        end.post(id, operation, &[piece(&old, 0, 8)]);
        let completion = wait("an atomic", || end.poll());
        assert_eq!(completion.status, CompletionStatus::Success);
        assert_eq!(completion.id, id);
        value(&old)
    };
    let mut seen = Vec::new();
    for id in 0..ROUNDS {
        let remote = cell;
        seen.push(carry_out(id, Operation::FetchAndAdd { remote, add: 1 }));
        let mut compare = 0;
        loop {
            let operation = Operation::CompareAndSwap {
                remote: cell.plus(8),
                compare,
                swap: compare + 1,
            };
            let found = carry_out(id, operation);
            if found == compare {
                break;
            }
            compare = found;
        }
    }
    seen
}

/// Concurrent atomics of two queue pairs on two threads lose no update: every old value is seen once, and the sums are
/// exact.
pub fn contention_sums_up<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::ATOMIC)?;
    let cell = stage.peer.blank(16);
    let (a, b) = (stage.link(RC), stage.link(RC));
    let regions = [stage.blank(8), stage.blank(8)];
    let remotes = [a.remote, b.remote];
    let running = AtomicUsize::new(2);
    let mut seen = BTreeSet::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = ([a.local, b.local].into_iter().zip(regions))
            .map(|(end, region)| {
                let running = &running;
                scope.spawn(move || {
                    let run = || contend::<D>(end, region, cell.at(0));
                    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
                    running.fetch_sub(1, Ordering::Release);
                    seen.expect("the contender succeeds")
                })
            })
            .collect();
        while running.load(Ordering::Acquire) > 0 {
            remotes.iter().for_each(|&end| stage.peer.pump(end));
            std::thread::yield_now();
        }
        for thread in threads {
            seen.extend(thread.join().expect("a contender"));
        }
    });
    assert!(seen.into_iter().eq(0..2 * ROUNDS), "old values repeat");
    assert_eq!(stage.peer.read_u64(cell, 0), 2 * ROUNDS);
    assert_eq!(stage.peer.read_u64(cell, 8), 2 * ROUNDS);
    Ok(())
}

/// An atomic on an address that is not a multiple of 8 fails, as an invalid request or as an access error, and changes
/// nothing.
pub fn misaligned_is_refused<D: Device>(stage: &mut Stage<D>) -> Outcome {
    stage.needs(RC, Verbs::ATOMIC)?;
    let (old, cell) = (stage.blank(8), stage.peer.blank(24));
    for offset in [1, 4, 7] {
        let mut link = stage.link(RC);
        let remote = cell.at(offset);
        link.local.post(
            1,
            Operation::FetchAndAdd { remote, add: 1 },
            &[piece(&old, 0, 8)],
        );
        let status = stage.failed(&mut link, 1);
        assert!(
            matches!(
                status,
                CompletionStatus::RemoteInvalidRequest | CompletionStatus::RemoteAccess
            ),
            "{status}"
        );
        assert_eq!(link.local.queue_pair.state(), QueuePairState::Error);
    }
    assert_eq!(stage.peer.read(cell, 0, 24), vec![0; 24]);
    Ok(())
}
