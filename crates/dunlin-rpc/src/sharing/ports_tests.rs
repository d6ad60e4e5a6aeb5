//! Ports and calls: every answer reaches its caller, whichever thread takes it.

use super::calls::Calls;
use super::port::{CALL, OPERATION};
use super::ports::{Mine, Ports};
use crate::call::lane::{Answer, CallId, Sink};
use crate::error::CallError;
use proptest::prelude::*;

/// What a port's owner was given.
#[derive(Default)]
struct Told(Vec<u64>);

impl Sink for Told {
    fn complete(&mut self, tag: u64, _result: Result<Answer<'_>, CallError>) {
        self.0.push(tag);
    }
}

#[test]
fn answers_to_no_call_are_violations() {
    let ports = Ports::new(4);
    let port = ports.open().unwrap();
    let mut calls = Calls::new(4);
    let call = calls.begin(1, &port).unwrap();
    for wrong in [
        call + 1,
        call + (1 << 32),
        call + (1 << 48),
        u64::MAX,
        call | 1 << 60,
    ] {
        assert!(ports
            .answer(wrong, CALL, b"", &mut None)
            .unwrap_err()
            .is_violation());
    }
    ports.begin_fetch(call).unwrap();
    assert!(ports.begin_fetch(call).is_err(), "one answer for each call");
    ports.answer(call, CALL, b"", &mut None).unwrap();
    assert!(ports.answer(call, CALL, b"", &mut None).is_err());
}

/// A server may write its messages before the device has completed the operation.
#[test]
fn a_message_does_not_end_an_operation() {
    let ports = Ports::new(4);
    let port = ports.open().unwrap();
    let mut calls = Calls::new(4);
    let call = calls.begin_operation(1, &port).unwrap();
    let refused = [
        ports.answer(call, CALL, b"", &mut None).map(drop),
        ports.expect_answer(call),
        ports.begin_fetch(call),
    ];
    for refused in refused {
        assert!(refused.unwrap_err().is_violation());
    }
    ports.answer(call, OPERATION, b"", &mut None).unwrap();
    let next = calls.begin(2, &port).unwrap();
    assert!(ports.answer(next, OPERATION, b"", &mut None).is_err());
}

#[test]
fn a_port_with_calls_out_is_not_given_to_another() {
    let ports = Ports::new(4);
    let port = ports.open().unwrap();
    let call = Calls::new(4).begin(1, &port).unwrap();
    ports.close(&port);
    let other = ports.open().unwrap();
    assert_ne!(other.id, port.id);
    ports.answer(call, CALL, b"late", &mut None).unwrap();
    assert_eq!(ports.open().unwrap().id, port.id);
    assert!(port.mailbox.try_recv().is_err());
}

/// A thread that has ended the last call of a port, has seen that its owner is gone, and frees the port late, does not
/// free it for a new owner.
#[test]
fn a_port_is_not_freed_for_a_former_owner() {
    let ports = Ports::new(4);
    let port = ports.open().unwrap();
    ports.close(&port);
    let next = ports.open().unwrap();
    assert_eq!(next.id, port.id);
    ports.release(&port);
    assert_ne!(ports.open().unwrap().id, next.id);
}

#[test]
fn an_end_that_finds_no_place_is_counted() {
    let ports = Ports::new(1);
    let port = ports.open().unwrap();
    // They are not taken, and the slot is used again and again, which its owner would not do.
    let end = || {
        assert!(ports
            .answer(port.begin(0, CALL), CALL, b"", &mut None)
            .unwrap())
    };
    (0..65).for_each(|_| end());
    assert_eq!(ports.undelivered(), 0);
    end();
    assert_eq!(ports.undelivered(), 1);
}

proptest! {
    /// Any order of calls, answers by any thread, abandonment and changes of owner: each call that is waited for ends
    /// once, with its own answer.
    #[test]
    fn every_answer_finds_its_caller(steps in prop::collection::vec((0u8..6, 0usize..3, 0usize..8), 0..400)) {
        let ports = Ports::new(4);
        let mut owners: Vec<_> = (0..3).map(|_| (ports.open().unwrap(), Calls::new(4), Vec::<u64>::new())).collect();
        let mut out: Vec<(usize, CallId, u64)> = Vec::new();
        let mut next = 0;
        for (step, who, which) in steps {
            match step {
                0 | 1 => {
                    let (port, calls, waiting) = &mut owners[who];
                    if let Some(call) = calls.begin(next, port) {
                        waiting.push(next);
                        out.push((who, call, next));
                    }
                    next += 1;
                }
                2 | 3 if !out.is_empty() => {
                    // Some thread leads, possibly the one that the answer is for.
                    let (_, call, _) = out.swap_remove(which % out.len());
                    let (port, calls, waiting) = &mut owners[who];
                    let mut told = Told::default();
                    let mine = Mine::Thread { port, calls, sink: &mut told };
                    ports.answer(call, CALL, b"", &mut Some(mine)).unwrap();
                    for tag in told.0 {
                        let place = waiting.iter().position(|&t| t == tag);
                        prop_assert!(place.is_some());
                        waiting.swap_remove(place.unwrap());
                    }
                }
                4 => {
                    let (_, calls, waiting) = &mut owners[who];
                    if let Some(&(_, call, tag)) = out.iter().find(|o| o.0 == who && waiting.contains(&o.2)) {
                        prop_assert!(calls.abandon(call));
                        prop_assert!(!calls.abandon(call));
                        waiting.retain(|&t| t != tag);
                    }
                }
                5 => {
                    // The owner leaves, its calls stay outstanding; another comes.
                    let fresh = (ports.open().unwrap(), Calls::new(4), Vec::new());
                    let (port, _, _) = std::mem::replace(&mut owners[who], fresh);
                    ports.close(&port);
                    out.iter_mut().filter(|o| o.0 == who).for_each(|o| o.0 = usize::MAX);
                }
                _ => {}
            }
            for (port, calls, waiting) in &mut owners {
                while let Ok(delivered) = port.mailbox.try_recv() {
                    if let Some(tag) = calls.finish(delivered.call) {
                        let place = waiting.iter().position(|&t| t == tag);
                        prop_assert!(place.is_some());
                        waiting.swap_remove(place.unwrap());
                    }
                }
            }
        }
        for (who, (_, _, waiting)) in owners.iter().enumerate() {
            let mut expected: Vec<u64> =
                out.iter().filter(|o| o.0 == who).map(|o| o.2).filter(|t| waiting.contains(t)).collect();
            expected.sort_unstable();
            let mut waiting = waiting.clone();
            waiting.sort_unstable();
            prop_assert_eq!(waiting, expected);
        }
    }
}
