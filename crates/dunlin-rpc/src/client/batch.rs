//! Several calls at once from one thread.

use std::sync::Arc;
use std::time::Duration;

use super::lane::{Answer, Body, Sink};
use super::reply::Reply;
use super::wait::Waiter;
use super::{thread_lane, Core};
use crate::error::CallError;
use crate::HandlerId;

/// Calls that go out together. Made by [`super::Client::batch`].
#[derive(Debug)]
#[must_use = "a batch is sent by send()"]
pub struct Batch<'a> {
    core: &'a Arc<Core>,
    calls: Vec<(HandlerId, &'a [u8])>,
    deadline: Duration,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl<'a> Batch<'a> {
    pub(super) fn new(core: &'a Arc<Core>) -> Self {
        Self {
            core,
            calls: Vec::new(),
            deadline: core.recipe.deadline,
        }
    }

    /// Adds a call.
    pub fn call(mut self, handler: HandlerId, payload: &'a [u8]) -> Self {
        self.calls.push((handler, payload));
        self
    }

    /// A deadline for the whole batch instead of the client's.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sends the calls and waits for all: one result for each, in order. Any number of calls may be in a batch; as many as the
    /// lane holds are out at once.
    ///
    /// # Errors
    /// When there is no connection, so that nothing was sent.
    pub fn send(self) -> Result<Vec<Result<Reply, CallError>>, CallError> {
        let Self {
            core,
            calls,
            deadline,
        } = self;
        let wait = core.recipe.channel.wait;
        thread_lane::with(core, |lane| {
            let mut gathered = Gathered {
                results: Vec::new(),
                missing: calls.len(),
            };
            gathered.results.resize_with(calls.len(), || None);
            let mut waiter = Waiter::new(wait, deadline, &core.closed);
            let mut out = Vec::with_capacity(calls.len());
            let mut failed = None;
            let mut next = 0;
            while gathered.missing > 0 && failed.is_none() {
                while let Some(&(handler, payload)) = calls.get(next) {
                    match lane.submit(handler, &mut Body::Bytes(payload), next as u64) {
                        Ok(Some(call)) => out.push(call),
                        Ok(None) => break,
                        Err(CallError::TooManyOutstanding { .. }) if !out.is_empty() => break,
                        Err(error) => {
                            gathered.results[next] = Some(Err(error));
                            gathered.missing -= 1;
                        }
                    }
                    next += 1;
                }
                let step = match lane.turn(&mut gathered) {
                    Ok(0) if gathered.missing > 0 => waiter.idle(lane, &mut gathered),
                    Ok(_) => {
                        waiter.progressed();
                        Ok(())
                    }
                    Err(error) => Err(error),
                };
                failed = step.err();
            }
            if let Some(error) = failed {
                for call in out {
                    lane.abandon(call);
                }
                for result in &mut gathered.results {
                    result.get_or_insert(Err(error.clone()));
                }
            }
            Ok(gathered.results.into_iter().flatten().collect())
        })
    }
}

struct Gathered {
    results: Vec<Option<Result<Reply, CallError>>>,
    missing: usize,
}

impl Sink for Gathered {
    fn complete(&mut self, tag: u64, result: Result<Answer<'_>, CallError>) {
        // Answers to calls that an earlier batch gave up are not delivered, so the tag is one of ours.
        if let Some(place @ None) = self.results.get_mut(tag as usize) {
            *place = Some(result.map(Reply::new));
            self.missing -= 1;
        }
    }
}
