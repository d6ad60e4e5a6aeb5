//! The calls of a client's futures: the requests until they can be sent, and their results.

mod sending;
mod slot;
mod terms;
mod wish;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::waiters::Waiters;
use crate::call::lane::{Answer, CallId, Sink};
use crate::call::reply::Reply;
use crate::call::timeout::Told;
use crate::call::wanted::RegionKey;
use crate::error::CallError;
pub(in crate::client) use slot::{Keep, Slot, State};
pub(in crate::client) use terms::Terms;
pub(in crate::client) use wish::{Asked, Wish};

/// The tag of the driver's own request for a region; calls are tagged by the numbers of their slots.
pub(super) const ATTACH: u64 = u64::MAX;

/// The calls and their results, by tag.
pub(in crate::client) struct Calls<K: Keep = Reply> {
    pub(in crate::client) slots: Vec<Slot<K>>,
    /// The first free slot, which holds the next one; equal to the number of slots when none is free.
    free: usize,
    /// Calls that are not sent yet, in order.
    pub(in crate::client) waiting: VecDeque<usize>,
    /// Number of calls that are outstanding or queued, and its limit.
    pub(in crate::client) live: usize,
    pub(super) limit: usize,
    /// The default deadline that the server knows.
    told: Told,
    pub(super) attaching: Option<Attaching>,
    pub(in crate::client) waiters: Waiters,
    /// The call whose task was the last to request to be woken.
    pub(super) last_asked: usize,
    /// Tasks to be woken when the lock is released.
    pub(in crate::client) woken: Vec<Waker>,
}

/// The place that a call holds before it is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Holds {
    Nothing,
    /// A place that counts as a call already.
    Place,
    /// A place among the calls of an earlier lane: it gets one here, too, even if all are taken.
    PlaceElsewhere,
}

/// The request for a region that the first of the queued calls needs.
pub(super) struct Attaching {
    pub(super) call: CallId,
    pub(super) region: Arc<RegionKey>,
    pub(super) answer: Option<Result<Reply, CallError>>,
}

impl<K: Keep> Calls<K> {
    pub(in crate::client) fn new(limit: usize, told: Told) -> Self {
        Self {
            slots: Vec::new(),
            free: 0,
            waiting: VecDeque::new(),
            live: 0,
            limit,
            told,
            attaching: None,
            waiters: Waiters::default(),
            last_asked: 0,
            woken: Vec::new(),
        }
    }

    /// Gives up the request for a region: calls that need it request it again. Returns its call, if that is
    /// outstanding.
    pub(in crate::client) fn give_up_attaching(&mut self) -> Option<CallId> {
        let attaching = self.attaching.take()?;
        attaching.answer.is_none().then_some(attaching.call)
    }

    /// Marks the calls that are outstanding now as being on the former lane.
    pub(in crate::client) fn leave_lane(&mut self) {
        for slot in &mut self.slots {
            if let State::Out(_) = slot.state {
                slot.terms.on_former = true;
            }
        }
    }

    /// Whether a call on the former lane is still waited for.
    pub(in crate::client) fn are_on_former(&self) -> bool {
        let mut terms = self.slots.iter().filter_map(Slot::terms);
        terms.any(|terms| terms.on_former)
    }

    /// Whether a call that has not ended is still waited for.
    pub(super) fn are_awaited(&self) -> bool {
        self.slots.iter().any(|slot| slot.state.is_live())
    }

    /// Reserves a slot for a call with the deadline `after`.
    ///
    /// # Errors
    /// When the maximum number of calls is outstanding or queued, and it holds no place.
    #[inline]
    fn reserve(
        &mut self,
        after: Duration,
        holds: Holds,
    ) -> Result<(usize, &mut Slot<K>), CallError> {
        if holds == Holds::Nothing && self.live >= self.limit {
            return Err(CallError::TooManyOutstanding { limit: self.limit });
        }
        self.live += usize::from(holds != Holds::Place);
        let (tag, slot) = self.unused();
        slot.terms.renew(after);
        Ok((tag, slot))
    }

    /// Takes a free slot.
    #[inline]
    fn unused(&mut self) -> (usize, &mut Slot<K>) {
        let tag = self.free;
        if tag >= self.slots.len() {
            self.slots.push(Slot::new(tag + 1));
        }
        let slot = &mut self.slots[tag];
        if let State::Free(next) = slot.state {
            self.free = next;
        }
        (tag, slot)
    }

    /// Stores a call that failed before it could be sent, for its future.
    #[cold]
    pub(in crate::client) fn refuse(&mut self, error: CallError) -> usize {
        let (tag, slot) = self.unused();
        slot.state.fill(State::Failed(Box::new(error)));
        tag
    }

    /// Frees a slot whose contents are no longer wanted. Its waker is returned for the caller to drop.
    pub(in crate::client) fn release(&mut self, tag: usize) -> Option<Waker> {
        let slot = &mut self.slots[tag];
        let state = std::mem::replace(&mut slot.state, State::Free(self.free));
        self.free = tag;
        slot.kept.take();
        let waker = slot.terms.waker.take();
        if state.is_live() {
            self.live -= 1;
            self.offer_place();
        }
        if let State::Waiting(_) = state {
            self.waiting.retain(|&other| other != tag);
        }
        waker
    }

    /// Whether a call has ended, and its result is ready to be taken.
    #[inline]
    pub(in crate::client) fn has_ended(&self, tag: usize) -> bool {
        matches!(self.slots[tag].state, State::Answered | State::Failed(_))
    }

    /// Takes the result of a call that has ended, for its task. Inlined: then a response is moved only once, from its
    /// slot to where the task wants it.
    #[inline(always)]
    pub(in crate::client) fn take(&mut self, tag: usize) -> Result<K::Reply, CallError> {
        let slot = &mut self.slots[tag];
        let State::Answered = slot.state else {
            return Err(self.take_failed(tag));
        };
        slot.state.fill(State::Free(self.free));
        self.free = tag;
        match slot.kept.take() {
            Some(reply) => Ok(reply),
            None => Err(CallError::Closed),
        }
    }

    #[cold]
    fn take_failed(&mut self, tag: usize) -> CallError {
        let state = &mut self.slots[tag].state;
        if !matches!(state, State::Failed(_)) {
            return CallError::Closed;
        }
        let state = std::mem::replace(state, State::Free(self.free));
        self.free = tag;
        match state {
            State::Failed(error) => *error,
            _ => CallError::Closed,
        }
    }

    /// Stores the response of a call, or returns it if the call is not waited for.
    #[inline(always)]
    fn answered<'a>(&mut self, tag: usize, answer: Answer<'a>) -> Result<(), Answer<'a>> {
        let slot = match self.slots.get_mut(tag) {
            Some(slot) if matches!(slot.state, State::Out(_)) => slot,
            _ => return Err(answer),
        };
        slot.state.fill(State::Answered);
        slot.kept.keep(answer);
        if slot.terms.waker.is_some() {
            self.wake_later(tag);
        }
        self.live -= 1;
        self.offer_place();
        Ok(())
    }

    /// The task of this call is woken when the lock is released.
    #[inline(never)]
    fn wake_later(&mut self, tag: usize) {
        let waker = self.slots[tag].terms.waker.take();
        self.woken.extend(waker);
    }

    /// Ends a call with an error.
    #[cold]
    fn fail(&mut self, tag: usize, error: CallError) {
        let Some(slot) = self.slots.get_mut(tag) else {
            return;
        };
        if !slot.state.is_live() {
            return;
        }
        self.woken.extend(slot.terms.waker.take());
        slot.state = State::Failed(Box::new(error));
        self.live -= 1;
        self.offer_place();
    }

    /// Ends all calls.
    pub(in crate::client) fn end(&mut self, error: &CallError) {
        self.waiting.clear();
        self.attaching = None;
        for tag in 0..self.slots.len() {
            self.fail(tag, error.clone());
        }
        self.wake_waiters();
    }

    /// Ends calls, and waits for a place, whose deadlines have passed. Outstanding ones are passed to `give_up`, with
    /// their names and whether they are on the former lane.
    pub(in crate::client) fn expire(
        &mut self,
        now: Instant,
        mut give_up: impl FnMut(CallId, bool),
    ) {
        self.wake_expired_waiters(now);
        let mut waited = false;
        for tag in 0..self.slots.len() {
            let slot = &mut self.slots[tag];
            let Some(terms) = slot.terms_mut() else {
                continue;
            };
            if terms.until(now) > now {
                continue;
            }
            let (after, on_former) = (terms.after, terms.on_former);
            match slot.state {
                State::Out(call) => give_up(call, on_former),
                _ => waited = true,
            }
            self.fail(tag, CallError::DeadlineExceeded { after });
        }
        if waited {
            let slots = &self.slots;
            self.waiting
                .retain(|&tag| matches!(slots[tag].state, State::Waiting(_)));
            if let Some(attaching) = self.attaching.take() {
                // The next call that needs the region requests it again.
                give_up(attaching.call, false);
            }
        }
    }

    /// The first and the last deadline of the calls that are not sent yet.
    pub(super) fn deadlines_of_waiting(&self) -> Option<(Instant, Instant)> {
        let terms = self.waiting.iter().map(|&tag| self.slots[tag].terms());
        let mut deadlines = terms.flatten().filter_map(Terms::deadline);
        let first = deadlines.next()?;
        let widen = |(min, max): (Instant, Instant), at: Instant| (min.min(at), max.max(at));
        Some(deadlines.fold((first, first), widen))
    }

    /// The time until the first deadline of a call, outstanding or queued, or of a wait for a place.
    pub(in crate::client) fn until_deadline(&mut self, now: Instant) -> Duration {
        let terms = self.slots.iter_mut().filter_map(Slot::terms_mut);
        let calls = terms.map(|terms| terms.until(now));
        let first = calls.chain(self.waiters.first_deadline()).min();
        first.map_or(Duration::MAX, |first| first.saturating_duration_since(now))
    }
}

impl<K: Keep> Sink for Calls<K> {
    #[inline]
    fn answer(&mut self, tag: u64, response: &[u8]) {
        if let Err(answer) = self.answered(tag as usize, Answer::Short(response)) {
            self.complete_other(tag, Ok(answer));
        }
    }

    fn complete(&mut self, tag: u64, result: Result<Answer<'_>, CallError>) {
        let other = match result {
            Ok(answer) => self.answered(tag as usize, answer).map_err(Ok),
            Err(error) => Err(Err(error)),
        };
        if let Err(result) = other {
            self.complete_other(tag, result);
        }
    }
}

impl<K: Keep> Calls<K> {
    /// Handles the end of anything but a waiting call that was answered.
    #[cold]
    fn complete_other(&mut self, tag: u64, result: Result<Answer<'_>, CallError>) {
        match (tag, result) {
            (ATTACH, result) => {
                if let Some(attaching) = &mut self.attaching {
                    attaching.answer = Some(result.map(Reply::new));
                }
            }
            (_, Ok(_)) => {}
            (_, Err(error)) => self.fail(tag as usize, error),
        }
    }
}
