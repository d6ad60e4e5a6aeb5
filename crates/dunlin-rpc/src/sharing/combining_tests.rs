//! Tests of the combining queue with real threads.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::combining::{Combiner, Members, Node, Outcome, Run, MOST_MEMBERS};

/// An engine that records what it was given.
#[derive(Default)]
struct Wire {
    space: Vec<u8>,
    messages: Vec<Vec<u8>>,
    most: usize,
}

fn send(wire: &mut Wire, members: &mut Members<'_>) {
    let mut total = 0;
    let most = wire.most;
    let count = members.gather(most, |bytes, _, _, _| {
        total += bytes;
        true
    });
    assert!(count <= most);
    wire.space.resize(total, 0);
    members.fill(&mut wire.space);
    if count > 0 {
        wire.messages.push(wire.space.clone());
    }
    members.settle(Outcome::Sent);
}

fn stress(threads: u32, rounds: u32, most: usize) -> Wire {
    let mut combiner = Combiner::new(Wire {
        most,
        ..Default::default()
    });
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let combiner = &combiner;
            scope.spawn(move || {
                let node = Node::new();
                for round in 0..rounds {
                    let mut bytes = [0; 16];
                    bytes[..4].copy_from_slice(&thread.to_le_bytes());
                    bytes[4..8].copy_from_slice(&round.to_le_bytes());
                    bytes[8..].fill(round as u8);
                    let run = Run {
                        bytes: &bytes,
                        messages: 1,
                        requests: 1,
                        operations: &[],
                    };
                    assert_eq!(combiner.join(&node, run, send), Outcome::Sent);
                    if round % 7 == 0 {
                        combiner.try_lead(&node, Run::NONE, send);
                    }
                    if round % 64 == thread {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    std::mem::take(combiner.engine_mut())
}

/// A leader may wait for threads that it knows to be coming, with a run of its own or without.
#[test]
fn a_leader_sees_how_many_have_come() {
    for leaders_run in [&b"leader"[..], b""] {
        let mut combiner = Combiner::new(Wire {
            most: MOST_MEMBERS,
            ..Default::default()
        });
        let run = |bytes| Run {
            bytes,
            messages: u32::from(!bytes.is_empty()),
            requests: 0,
            operations: &[],
        };
        let leads = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                combiner.try_lead(&Node::new(), run(leaders_run), |wire, members| {
                    assert!(members.have_come(0) && !members.have_come(1));
                    assert_eq!(members.leader_sends(), !leaders_run.is_empty());
                    leads.store(true, Ordering::Release);
                    while !members.have_come(2) {
                        std::thread::yield_now();
                    }
                    assert!(!members.have_come(3));
                    send(wire, members);
                });
            });
            while !leads.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            for _ in 0..2 {
                scope.spawn(|| combiner.join(&Node::new(), run(b"follower"), send));
            }
        });
        let whole = [leaders_run, b"follower", b"follower"].concat();
        assert_eq!(std::mem::take(combiner.engine_mut()).messages, [whole]);
    }
}

/// 64 threads, far more than cores: every run is written once, complete, and in its thread's order.
#[test]
fn sixty_four_threads_send_everything_once_and_in_order() {
    for most in [1, 4, MOST_MEMBERS] {
        let wire = stress(64, 500, most);
        let mut next = [0u32; 64];
        for run in wire.messages.iter().flat_map(|message| message.chunks(16)) {
            let word = |at: usize| u32::from_le_bytes(run[at..at + 4].try_into().unwrap());
            let (thread, round) = (word(0) as usize, word(4));
            assert_eq!(next[thread], round);
            assert!(run[8..].iter().all(|&byte| byte == round as u8));
            next[thread] += 1;
        }
        assert!(next.iter().all(|&rounds| rounds == 500));
    }
}

/// An engine that panics in a turn: its leader gets the panic, the members of the turn an outcome, and the others go
/// on.
#[test]
fn a_panic_of_the_engine_lets_everybody_go() {
    let combiner = Combiner::new(Wire {
        most: 4,
        ..Default::default()
    });
    let (armed, panics, lost) = (
        AtomicBool::new(false),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let (combiner, armed, panics, lost) = (&combiner, &armed, &panics, &lost);
            scope.spawn(move || {
                let node = Node::new();
                for round in 0..300 {
                    let bytes = [thread; 8];
                    let run = Run {
                        bytes: &bytes,
                        messages: 1,
                        requests: 1,
                        operations: &[],
                    };
                    if round % 50 == 25 {
                        armed.store(true, Ordering::Relaxed);
                    }
                    let joined = catch_unwind(AssertUnwindSafe(|| {
                        combiner.join(&node, run, |wire, members| {
                            send(wire, members);
                            members.settle(Outcome::Lost);
                            assert!(!armed.swap(false, Ordering::Relaxed), "wanted");
                            members.settle(Outcome::Sent);
                        })
                    }));
                    match joined {
                        Ok(Outcome::Sent) => {}
                        Ok(_) => {
                            lost.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(_) => {
                            panics.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    assert!(panics.load(Ordering::Relaxed) > 0);
    let node = Node::new();
    assert_eq!(
        combiner.try_lead(&node, Run::NONE, send),
        Some(Outcome::Sent)
    );
}

#[test]
fn who_does_not_fit_is_told_and_the_next_leads() {
    let combiner = Combiner::new(Wire {
        most: 4,
        ..Default::default()
    });
    let node = Node::new();
    let run = Run {
        bytes: &[1; 8],
        messages: 1,
        requests: 1,
        operations: &[],
    };
    let outcome = combiner.join(&node, run, |_, members| {
        assert_eq!(members.gather(4, |_, _, _, _| false), 0);
    });
    assert_eq!(outcome, Outcome::Full);
    assert_eq!(combiner.join(&node, run, send), Outcome::Sent);
}
