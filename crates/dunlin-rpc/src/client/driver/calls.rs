//! The calls of a client's futures: what is wanted, until it can be sent, and what became of it.

mod terms;
mod wish;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::waiters::Waiters;
use crate::call::lane::{Answer, CallId, Lane, Sink, Submitted};
use crate::call::reply::Reply;
use crate::call::timeout::Told;
use crate::call::wanted::RegionKey;
use crate::client::region::granted_on;
use crate::error::CallError;
pub(in crate::client) use terms::Terms;
pub(in crate::client) use wish::{Asked, Wish};

/// The tag of the driver's own question for a region; calls have the numbers of their slots.
pub(super) const ATTACH: u64 = u64::MAX;

/// How answers are kept until their tasks take them.
pub(in crate::client) trait Keep {
    /// What a task gets.
    type Reply;
    /// The answer of the call with this tag.
    fn keep(&mut self, tag: usize, answer: Answer<'_>) -> Self::Reply;
}

/// Each in a [`Reply`] that its task owns, on any thread.
#[derive(Default)]
pub(in crate::client) struct OwnedReplies;

impl Keep for OwnedReplies {
    type Reply = Reply;

    #[inline]
    fn keep(&mut self, _tag: usize, answer: Answer<'_>) -> Reply {
        Reply::new(answer)
    }
}

/// What became of the calls, by tag.
pub(in crate::client) struct Calls<K: Keep = OwnedReplies> {
    keep: K,
    pub(in crate::client) slots: Vec<Slot<K::Reply>>,
    pub(super) free: Vec<usize>,
    /// Calls that are not sent yet, in their order.
    pub(in crate::client) waiting: VecDeque<usize>,
    /// Calls that are out or wait, and how many there may be.
    pub(in crate::client) live: usize,
    pub(super) limit: usize,
    pub(super) attaching: Option<Attaching>,
    pub(in crate::client) waiters: Waiters,
    /// The call whose task has asked last to be woken.
    pub(super) last_asked: usize,
    /// Who is to be woken when the lock is given back.
    pub(in crate::client) woken: Vec<Waker>,
}

/// The question for a region that the first of the waiting calls needs.
pub(super) struct Attaching {
    pub(super) call: CallId,
    pub(super) region: Arc<RegionKey>,
    pub(super) answer: Option<Result<Reply, CallError>>,
}

#[derive(Default)]
pub(in crate::client) enum Slot<R> {
    #[default]
    Free,
    Waiting(Asked, Terms),
    Out(CallId, Terms),
    /// `None`: its task has taken it. It is written and taken by itself, not with the whole slot: a move that is wider
    /// than the stores before it waits for them.
    Answered(Option<R>),
    Failed(CallError),
}

impl<K: Keep> Calls<K> {
    pub(in crate::client) fn new(limit: usize) -> Self
    where
        K: Default,
    {
        Self {
            keep: K::default(),
            slots: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            live: 0,
            limit,
            attaching: None,
            waiters: Waiters::default(),
            last_asked: 0,
            woken: Vec::new(),
        }
    }

    /// The question for a region is given up: who needs that asks again. Says its call, if it is out.
    pub(in crate::client) fn give_up_attaching(&mut self) -> Option<CallId> {
        let attaching = self.attaching.take()?;
        attaching.answer.is_none().then_some(attaching.call)
    }

    /// Those that are out now are on the former lane from now on.
    pub(in crate::client) fn leave_lane(&mut self) {
        for slot in &mut self.slots {
            if let Slot::Out(_, terms) = slot {
                terms.on_former = true;
            }
        }
    }

    /// Whether somebody waits for one that is out on the former lane.
    pub(in crate::client) fn are_on_former(&self) -> bool {
        let mut terms = self.slots.iter().filter_map(Slot::terms);
        terms.any(|terms| terms.on_former)
    }

    /// Whether somebody waits for one that has not ended.
    pub(super) fn are_awaited(&self) -> bool {
        self.slots.iter().any(|slot| slot.terms().is_some())
    }

    /// A place for a call.
    ///
    /// # Errors
    /// When as many as there may be are out or wait.
    #[inline]
    pub(in crate::client) fn reserve(&mut self) -> Result<(usize, &mut Slot<K::Reply>), CallError> {
        if self.live >= self.limit {
            return Err(CallError::TooManyOutstanding { limit: self.limit });
        }
        self.live += 1;
        let tag = self.unused();
        Ok((tag, &mut self.slots[tag]))
    }

    /// The number of a free slot.
    #[inline]
    fn unused(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            self.slots.len() - 1
        })
    }

    /// A call that has failed before it could be sent, for its future to find.
    #[cold]
    pub(in crate::client) fn refuse(&mut self, error: CallError) -> usize {
        let tag = self.unused();
        self.slots[tag] = Slot::Failed(error);
        tag
    }

    /// Nobody wants what is in the slot any more, which is given back for the caller to drop: it may hold a waker.
    pub(in crate::client) fn release(&mut self, tag: usize) -> Slot<K::Reply> {
        self.free.push(tag);
        let slot = std::mem::take(&mut self.slots[tag]);
        if slot.terms().is_some() {
            self.live -= 1;
            self.offer_place();
        }
        if matches!(slot, Slot::Waiting(..)) {
            self.waiting.retain(|&other| other != tag);
        }
        slot
    }

    /// What became of a call, for its task; `None`: it has not ended.
    #[inline]
    pub(in crate::client) fn take(&mut self, tag: usize) -> Option<Result<K::Reply, CallError>> {
        let slot = &mut self.slots[tag];
        let ended = match slot {
            Slot::Answered(reply) => reply.take().ok_or(CallError::Closed),
            Slot::Failed(error) => Err(std::mem::replace(error, CallError::Closed)),
            _ => return None,
        };
        slot.fill(Slot::Free);
        self.free.push(tag);
        Some(ended)
    }

    /// A call has been answered.
    #[inline]
    fn answered(&mut self, tag: usize, answer: Answer<'_>) {
        let Some(slot) = self.slots.get_mut(tag) else {
            return;
        };
        let Slot::Out(_, terms) = slot else {
            return;
        };
        if let Some(waker) = terms.waker.take() {
            self.woken.push(waker);
        }
        slot.fill(Slot::Answered(Some(self.keep.keep(tag, answer))));
        self.live -= 1;
        self.offer_place();
    }

    /// A call has failed.
    #[cold]
    fn fail(&mut self, tag: usize, error: CallError) {
        let Some(slot) = self.slots.get_mut(tag) else {
            return;
        };
        let Some(terms) = slot.terms_mut() else {
            return;
        };
        self.woken.extend(terms.waker.take());
        *slot = Slot::Failed(error);
        self.live -= 1;
        self.offer_place();
    }

    /// All calls end.
    pub(in crate::client) fn end(&mut self, error: &CallError) {
        self.waiting.clear();
        self.attaching = None;
        for tag in 0..self.slots.len() {
            self.fail(tag, error.clone());
        }
        self.wake_waiters();
    }

    /// Calls end whose time is up, and waits for a place. Those that are out are given up: their names, and whether
    /// that is on the lane before the present one.
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
            let after = terms.after;
            match slot {
                Slot::Out(call, terms) => give_up(*call, terms.on_former),
                slot => waited |= matches!(slot, Slot::Waiting(..)),
            }
            self.fail(tag, CallError::DeadlineExceeded { after });
        }
        if waited {
            let slots = &self.slots;
            self.waiting
                .retain(|&tag| matches!(slots[tag], Slot::Waiting(..)));
            if let Some(attaching) = self.attaching.take() {
                // The next that needs the region asks again.
                give_up(attaching.call, false);
            }
        }
    }

    /// When the first of the calls that are not sent yet has to end.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        let waiting = self
            .waiting
            .iter()
            .filter_map(|&tag| self.slots[tag].terms());
        waiting.filter_map(|terms| terms.deadline).min()
    }

    /// How long it is until the first call has to end, whether it is out or waits, or a wait for a place.
    pub(in crate::client) fn until_deadline(&mut self, now: Instant) -> Duration {
        let terms = self.slots.iter_mut().filter_map(Slot::terms_mut);
        let calls = terms.map(|terms| terms.until(now));
        let first = calls.chain(self.waiters.first_deadline()).min();
        first.map_or(Duration::MAX, |first| first.saturating_duration_since(now))
    }

    /// Sends those that wait, as far as there is room; says whether any was.
    pub(in crate::client) fn send_waiting(&mut self, lane: &mut dyn Lane) -> bool {
        let mut sent = false;
        while let Some(&tag) = self.waiting.front() {
            let mut refused = None;
            match self.attaching.take() {
                Some(Attaching {
                    answer: Some(answer),
                    region,
                    ..
                }) => {
                    let granted = granted_on(lane, &region, answer);
                    refused = granted.err().map(|error| (region.number, error));
                }
                Some(attaching) => {
                    self.attaching = Some(attaching);
                    return sent;
                }
                None => {}
            }
            let Slot::Waiting(asked, terms) = &self.slots[tag] else {
                self.waiting.pop_front();
                continue;
            };
            let wish = asked.wish();
            let submitted = match (refused, wish) {
                // Who asked for it may have been given up.
                (Some((number, error)), Wish::OneSided(region, ..)) if region.number == number => {
                    Err(error)
                }
                _ => wish.submit(lane, tag, terms.says_late()),
            };
            let submitted = match (submitted, wish) {
                (Ok(Submitted::Unattached), Wish::OneSided(region, ..)) => {
                    match lane.submit_attach(region, ATTACH) {
                        Ok(Some(call)) => {
                            self.attaching = Some(Attaching {
                                call,
                                region: Arc::clone(region),
                                answer: None,
                            });
                            return true;
                        }
                        Ok(None) => return sent,
                        Err(error) => Err(error),
                    }
                }
                (other, _) => other,
            };
            match submitted {
                Ok(Submitted::Call(call)) => {
                    sent = true;
                    if let Slot::Waiting(_, terms) = std::mem::take(&mut self.slots[tag]) {
                        self.slots[tag] = Slot::Out(call, terms);
                    }
                }
                Ok(Submitted::Full | Submitted::Unattached) => return sent,
                Err(error) => self.fail(tag, error),
            }
            self.waiting.pop_front();
        }
        sent
    }
}

impl<K: Keep> Calls<K> {
    /// Sends a call, or lets it wait for room. `flush_now`: nobody else hands the lane's batch to the device soon.
    #[inline]
    pub(in crate::client) fn put(
        &mut self,
        lane: &mut (dyn Lane + 'static),
        wish: Wish<'_>,
        (after, told): (Duration, Told),
        flush_now: bool,
    ) -> Result<usize, CallError> {
        if !self.waiting.is_empty() {
            // Those that wait are before it.
            return self.wait(wish, (after, told));
        }
        let (tag, slot) = self.reserve()?;
        // It is out before it is named: it may end while it is sent.
        slot.fill(Slot::Out(CallId::MAX, Terms::new(after, told)));
        let said = told.says(after, None);
        if let (Some(_), Some(terms)) = (said, slot.terms_mut()) {
            // It says how much time it has, so that begins now.
            terms.begin();
        }
        let mut submitted = wish.submit(lane, tag, said);
        if matches!(submitted, Ok(Submitted::Full)) && matches!(lane.turn(self, true), Ok(1..)) {
            submitted = wish.submit(lane, tag, said);
        }
        match submitted {
            Ok(Submitted::Call(name)) => {
                if let Slot::Out(call, _) = &mut self.slots[tag] {
                    *call = name;
                }
                if flush_now {
                    // A lane that is lost has said so to its calls.
                    let _ = lane.flush(self);
                }
            }
            Ok(Submitted::Full | Submitted::Unattached) => self.put_behind(lane, wish, tag),
            Err(error) => {
                drop(self.release(tag));
                return Err(error);
            }
        }
        Ok(tag)
    }

    /// A call that found no room waits for it.
    #[cold]
    fn put_behind(&mut self, lane: &mut (dyn Lane + 'static), wish: Wish<'_>, tag: usize) {
        if let Slot::Out(_, mut terms) = std::mem::take(&mut self.slots[tag]) {
            terms.begin();
            self.slots[tag] = Slot::Waiting(wish.keep(), terms);
            self.waiting.push_back(tag);
        }
        if self.send_waiting(lane) {
            let _ = lane.flush(self);
        }
    }

    /// Puts a call behind those that wait.
    pub(in crate::client) fn wait(
        &mut self,
        wish: Wish<'_>,
        (after, told): (Duration, Told),
    ) -> Result<usize, CallError> {
        let mut terms = Terms::new(after, told);
        terms.begin();
        let (tag, slot) = self.reserve()?;
        *slot = Slot::Waiting(wish.keep(), terms);
        self.waiting.push_back(tag);
        Ok(tag)
    }
}

impl<R> Slot<R> {
    /// Puts something where nothing is left that would have to be dropped: all has been taken from it. So nobody looks
    /// what it was.
    #[inline]
    fn fill(&mut self, with: Self) {
        let _ = std::mem::ManuallyDrop::new(std::mem::replace(self, with));
    }

    /// Of a call that has not ended.
    pub(in crate::client) fn terms(&self) -> Option<&Terms> {
        match self {
            Slot::Waiting(_, terms) | Slot::Out(_, terms) => Some(terms),
            Slot::Free | Slot::Answered(_) | Slot::Failed(_) => None,
        }
    }

    pub(in crate::client) fn terms_mut(&mut self) -> Option<&mut Terms> {
        match self {
            Slot::Waiting(_, terms) | Slot::Out(_, terms) => Some(terms),
            Slot::Free | Slot::Answered(_) | Slot::Failed(_) => None,
        }
    }
}

impl<K: Keep> Sink for Calls<K> {
    #[inline]
    fn answer(&mut self, tag: u64, response: &[u8]) {
        match tag {
            ATTACH => self.answer_attaching(Ok(Answer::Short(response))),
            _ => self.answered(tag as usize, Answer::Short(response)),
        }
    }

    fn complete(&mut self, tag: u64, result: Result<Answer<'_>, CallError>) {
        match (tag, result) {
            (ATTACH, result) => self.answer_attaching(result),
            (_, Ok(answer)) => self.answered(tag as usize, answer),
            (_, Err(error)) => self.fail(tag as usize, error),
        }
    }
}

impl<K: Keep> Calls<K> {
    #[cold]
    fn answer_attaching(&mut self, result: Result<Answer<'_>, CallError>) {
        if let Some(attaching) = &mut self.attaching {
            attaching.answer = Some(result.map(Reply::new));
        }
    }
}
