//! Several calls at once from one thread.

use std::sync::Arc;
use std::time::Duration;

use super::driver::calls::Wish;
use super::region::attach_on;
use super::wait::Waiter;
use super::{thread_lane, Core, RemoteRegion};
use crate::call::lane::{Answer, Sink, Submitted};
use crate::call::reply::Reply;
use crate::call::wanted::Wanted;
use crate::error::CallError;
use crate::HandlerId;

/// Calls that are sent together. Made by [`super::Client::batch`].
#[derive(Debug)]
#[must_use = "a batch is not sent until send() is called"]
pub struct Batch<'a> {
    core: &'a Arc<Core>,
    calls: Vec<Wish<'a>>,
    deadline: Duration,
}

impl std::fmt::Debug for super::CoreState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl<'a> Batch<'a> {
    pub(super) fn new(core: &'a Arc<Core>, deadline: Duration) -> Self {
        Self {
            core,
            calls: Vec::new(),
            deadline,
        }
    }

    /// Adds a call.
    pub fn call(mut self, handler: HandlerId, payload: &'a [u8]) -> Self {
        self.calls.push(Wish::Call(handler, payload));
        self
    }

    /// Adds a READ of a region; its result is the bytes read.
    pub fn read(mut self, region: &'a RemoteRegion, offset: u64, length: usize) -> Self {
        let wish = Wish::OneSided(region.key(), offset, Wanted::Read(length));
        self.calls.push(wish);
        self
    }

    /// Adds a WRITE into a region.
    pub fn write(mut self, region: &'a RemoteRegion, offset: u64, bytes: &'a [u8]) -> Self {
        let wish = Wish::OneSided(region.key(), offset, Wanted::Write(bytes));
        self.calls.push(wish);
        self
    }

    /// Adds a fetch-and-add on a region; its result is the previous value of the 8 bytes.
    pub fn fetch_add(mut self, region: &'a RemoteRegion, offset: u64, add: u64) -> Self {
        let wish = Wish::OneSided(region.key(), offset, Wanted::FetchAndAdd(add));
        self.calls.push(wish);
        self
    }

    /// Sets a deadline for the whole batch instead of the client's.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sends the calls and waits for all of them: one result for each, in order. A batch may contain any number of
    /// calls; as many as the lane allows are outstanding at once.
    ///
    /// # Errors
    /// When there is no connection, so that nothing was sent.
    pub fn send(self) -> Result<Vec<Result<Reply, CallError>>, CallError> {
        let Self {
            core,
            calls,
            deadline,
        } = self;
        let settings = &core.settings;
        thread_lane::with(core, deadline, |lane, began| {
            let mut gathered = Gathered {
                results: Vec::new(),
                missing: calls.len(),
            };
            gathered.results.resize_with(calls.len(), || None);
            let mut waiter =
                Waiter::new(settings.channel.wait, deadline, &core.closed).since(began);
            let mut out = Vec::with_capacity(calls.len());
            let mut failed = None;
            let mut next = 0;
            let mut attaching = None;
            let mut copy = Vec::new();
            while gathered.missing > 0 && failed.is_none() {
                let said = match began.is_some() || !settings.told.is_enough(deadline) {
                    true => settings.told.says(deadline, Some(waiter.began())),
                    false => None,
                };
                while let Some(&wish) = calls.get(next) {
                    match wish.submit(lane, next, (said, &mut copy)) {
                        Ok(Submitted::Call(call)) => out.push(call),
                        Ok(Submitted::Full) => break,
                        Ok(Submitted::Unattached) => {
                            attaching.get_or_insert(wish);
                            break;
                        }
                        Err(error) => {
                            gathered.results[next] = Some(Err(error));
                            gathered.missing -= 1;
                        }
                    }
                    next += 1;
                }
                let ours_are_in = gathered.missing + next == calls.len();
                if let (Some(Wish::OneSided(region, ..)), true) = (attaching, ours_are_in) {
                    // No other answer can arrive.
                    attaching = None;
                    match attach_on(lane, region, waiter.before()) {
                        Ok(_) => {}
                        // This one has ended; the others may end differently.
                        Err(
                            error @ (CallError::UnknownRegion { .. } | CallError::Forbidden { .. }),
                        ) => {
                            gathered.results[next] = Some(Err(error));
                            gathered.missing -= 1;
                            next += 1;
                        }
                        Err(error) => failed = Some(error),
                    }
                    continue;
                }
                let step = match lane.turn(&mut gathered, true) {
                    Ok(0) if gathered.missing > 0 => waiter.idle(lane, &mut gathered),
                    Ok(_) => waiter.progressed(),
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
        // Responses to calls that an earlier batch gave up are not delivered, so the tag belongs to this batch.
        if let Some(place @ None) = self.results.get_mut(tag as usize) {
            *place = Some(result.map(Reply::new));
            self.missing -= 1;
        }
    }
}
