//! Requests that a server answers later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::{CallError, Client, HandlerError, OwnedRequest, OwnedResponder};
use dunlin_verbs::thread;

use super::super::caller::{self, ECHO, NOT_NESTED};
use super::super::fronts;
use super::lock;
use crate::dice::Dice;

/// Calls that handlers have deferred, and whether no more will come.
#[derive(Clone, Default)]
pub(super) struct PutOff {
    pub(super) calls: Arc<Mutex<Vec<(OwnedRequest, OwnedResponder)>>>,
    pub(super) over: Arc<AtomicBool>,
    /// Answers of the other server that belong to another call.
    pub(super) wrong: Arc<Mutex<Vec<String>>>,
}

/// Interval at which the thread that answers deferred calls looks for them, when there are some and when there are
/// none.
pub(super) const LATER_LOOK: Duration = Duration::from_micros(60);

pub(super) const LATER_REST: Duration = Duration::from_micros(600);

impl PutOff {
    /// Answers in random order, some at once and some late; calls `other` first, by a call or a future of this thread.
    pub(super) fn answer_all(self, other: Option<&Client>, mut dice: Dice) {
        while !self.over.load(Ordering::Relaxed) {
            let next = {
                let mut calls = lock(&self.calls);
                match calls.len() as u64 {
                    0 => None,
                    count => Some(calls.swap_remove(dice.between(0, count - 1) as usize)),
                }
            };
            let Some((request, responder)) = next else {
                thread::sleep(LATER_REST);
                continue;
            };
            // A request without its key was reported when it arrived.
            let (thread, call) = caller::read_key(request.payload()).unwrap_or_default();
            let response = caller::response(thread, call);
            if let Some(other) = other {
                let asked = match dice.chance(1, 2) {
                    true => other.call(ECHO, request.payload()),
                    false => fronts::block_on(other.call_async(ECHO, request.payload())),
                };
                let echoed = asked
                    .as_ref()
                    .is_ok_and(|reply| **reply == *request.payload());
                if !echoed {
                    let words = match &asked {
                        Ok(_) => "another answer".to_owned(),
                        Err(error) => error.to_string(),
                    };
                    use CallError::{Handler, UnknownHandler};
                    if matches!(asked, Ok(_) | Err(Handler { .. } | UnknownHandler(_))) {
                        let what = format!("the echo of call {call} of thread {thread}: {words}");
                        lock(&self.wrong).push(what);
                    }
                    responder.fail(HandlerError::new(NOT_NESTED, words));
                    continue;
                }
            }
            match dice.chance(1, 2) {
                true => responder.reply(response),
                false => responder.answer(|reply| reply.write(&response)),
            }
            if dice.chance(1, 2) {
                thread::sleep(LATER_LOOK);
            }
        }
    }
}
