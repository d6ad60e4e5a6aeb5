//! The combining queue in all interleavings of two and three threads: leadership is exclusive, room is handed out and
//! taken back, and what a follower copied is seen by the leader that writes it.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p dunlin-rpc --release --lib loom`

use loom::sync::Arc;
use loom::thread;

use super::combining::{Combiner, Members, Node, Outcome, Run};

#[derive(Default)]
struct Wire {
    sent: [u8; 4],
    bytes: usize,
}

fn send(wire: &mut Wire, members: &mut Members<'_>, most: usize) {
    let mut total = 0;
    members.gather(most, |bytes, _, _, _| {
        total += bytes;
        true
    });
    let at = wire.bytes;
    members.fill(&mut wire.sent[at..at + total]);
    wire.bytes += total;
    members.settle(Outcome::Sent);
}

fn one(combiner: &Combiner<Wire>, byte: u8, most: usize) {
    let node = Node::new();
    let run = Run {
        bytes: &[byte],
        messages: 1,
        requests: 1,
        operations: &[],
    };
    assert_eq!(
        combiner.join(&node, run, |wire, members| send(wire, members, most)),
        Outcome::Sent
    );
}

fn sent_by(threads: u8, most: usize, looker: bool, preemptions: Option<usize>) {
    let mut model = loom::model::Builder::new();
    // With three threads there are too many interleavings to explore all.
    model.preemption_bound = preemptions;
    model.max_branches = 100_000;
    model.check(move || {
        let combiner = Arc::new(Combiner::new(Wire::default()));
        let others: Vec<_> = (1..threads)
            .map(|byte| {
                let combiner = Arc::clone(&combiner);
                thread::spawn(move || one(&combiner, byte, most))
            })
            .collect();
        if looker {
            let node = Node::new();
            combiner.try_lead(&node, Run::NONE, |wire, members| send(wire, members, most));
        } else {
            one(&combiner, threads, most);
        }
        for other in others {
            other.join().unwrap();
        }
        let node = Node::new();
        let check = combiner.try_lead(&node, Run::NONE, |wire, members| {
            let mut sent = wire.sent[..wire.bytes].to_vec();
            sent.sort_unstable();
            let most = if looker { threads - 1 } else { threads };
            assert_eq!(sent, (1..=most).collect::<Vec<_>>());
            members.settle(Outcome::Sent);
        });
        assert!(check.is_some(), "the queue is empty at the end");
    });
}

#[test]
fn loom_two_threads_combine() {
    sent_by(2, 8, false, None);
}

#[test]
fn loom_leadership_is_handed_over_at_the_bound() {
    sent_by(3, 1, false, Some(2));
}

#[test]
fn loom_three_threads_combine() {
    sent_by(3, 8, false, Some(1));
}

#[test]
fn loom_who_only_looks_serves_those_who_come() {
    sent_by(3, 8, true, Some(1));
}
