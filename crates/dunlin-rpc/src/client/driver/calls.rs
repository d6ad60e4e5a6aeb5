//! The calls of a client's futures: what is wanted, until it can be sent, and what became of it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::ready::Waiters;
use crate::call::lane::{Answer, Body, CallId, Lane, Sink, Submitted};
use crate::call::reply::Reply;
use crate::call::timeout::{Said, Told};
use crate::call::wanted::{RegionKey, Wanted};
use crate::client::region::granted_on;
use crate::client::wait::end_of;
use crate::error::CallError;
use crate::HandlerId;

/// The tag of the driver's own question for a region; calls have the numbers of their slots.
pub(super) const ATTACH: u64 = u64::MAX;

/// What became of the calls, by tag.
pub(super) struct Calls {
    pub(super) slots: Vec<Slot>,
    pub(super) free: Vec<usize>,
    /// Calls that are not sent yet, in their order.
    pub(super) waiting: VecDeque<usize>,
    /// Calls that are out or wait, and how many there may be.
    pub(super) live: usize,
    pub(super) limit: usize,
    pub(super) attaching: Option<Attaching>,
    pub(super) waiters: Waiters,
    /// The call whose task has asked last to be woken.
    pub(super) last_asked: usize,
    /// Who is to be woken when the lock is given back.
    pub(super) woken: Vec<Waker>,
}

/// The question for a region that the first of the waiting calls needs.
pub(super) struct Attaching {
    pub(super) call: CallId,
    pub(super) region: Arc<RegionKey>,
    pub(super) answer: Option<Result<Reply, CallError>>,
}

#[derive(Default)]
pub(super) enum Slot {
    #[default]
    Free,
    Waiting(Asked, Terms),
    Out(CallId, Terms),
    Done(Result<Reply, CallError>),
}

/// How long a call may take, and who wants its answer.
pub(super) struct Terms {
    /// `None`: it counts from the next look at the clock on. A call that is sent at once does not look at it by itself.
    deadline: Option<Instant>,
    pub(super) after: Duration,
    pub(super) told: Told,
    pub(super) waker: Option<Waker>,
}

impl Terms {
    /// Of a call that is made now.
    pub(super) fn new(after: Duration, told: Told) -> Self {
        Self {
            deadline: None,
            after,
            told,
            waker: None,
        }
    }

    /// What a call says of its time that is sent at once: something, if its deadline is a short one.
    pub(super) fn says(&mut self) -> Option<Said> {
        let said = self.told.says(self.after, None);
        if said.is_some() {
            self.begin();
        }
        said
    }

    /// Its time begins now, if it has not yet.
    pub(super) fn begin(&mut self) {
        self.until(thread::now());
    }

    /// What a call says of its time that is sent some time after it was made.
    fn says_late(&self) -> Option<Said> {
        let deadline = self.deadline;
        let began = deadline.and_then(|deadline| deadline.checked_sub(self.after));
        self.told.says(self.after, began)
    }

    /// When it has to end.
    fn until(&mut self, now: Instant) -> Instant {
        *self.deadline.get_or_insert_with(|| end_of(now, self.after))
    }
}

/// What a caller wants, in its own memory.
#[derive(Clone, Copy)]
pub(super) enum Wish<'a> {
    Call(HandlerId, &'a [u8]),
    OneSided(&'a Arc<RegionKey>, u64, Wanted<'a>),
    Attach(&'a Arc<RegionKey>),
}

/// The same, until it can be sent.
pub(super) enum Asked {
    Call(HandlerId, Box<[u8]>),
    Write(Arc<RegionKey>, u64, Box<[u8]>),
    /// An operation that takes no bytes along.
    Bare(Arc<RegionKey>, u64, Wanted<'static>),
    Attach(Arc<RegionKey>),
}

impl Wish<'_> {
    pub(super) fn keep(&self) -> Asked {
        match *self {
            Wish::Call(handler, payload) => Asked::Call(handler, payload.into()),
            Wish::Attach(region) => Asked::Attach(Arc::clone(region)),
            Wish::OneSided(region, offset, wanted) => {
                let region = Arc::clone(region);
                match wanted {
                    Wanted::Write(bytes) => Asked::Write(region, offset, bytes.into()),
                    Wanted::Read(length) => Asked::Bare(region, offset, Wanted::Read(length)),
                    Wanted::FetchAndAdd(add) => {
                        Asked::Bare(region, offset, Wanted::FetchAndAdd(add))
                    }
                    Wanted::CompareAndSwap { compare, swap } => {
                        let wanted = Wanted::CompareAndSwap { compare, swap };
                        Asked::Bare(region, offset, wanted)
                    }
                }
            }
        }
    }

    /// Submits it, with what it says of its time. `Full`: there is no room now.
    pub(super) fn submit(
        &self,
        lane: &mut dyn Lane,
        tag: usize,
        said: Option<Said>,
    ) -> Result<Submitted, CallError> {
        let submitted = match *self {
            Wish::Call(handler, payload) => {
                let (mut copy, mut handler) = (Vec::new(), handler);
                let mut body = Body::Bytes(payload);
                if let Some(said) = said {
                    (handler, body) = said.put_behind(handler, body, lane.longest(), &mut copy);
                }
                lane.submit(handler, &mut body, tag as u64)
                    .map(|call| call.map_or(Submitted::Full, Submitted::Call))
            }
            Wish::OneSided(region, offset, wanted) => {
                lane.submit_one_sided(region, offset, &wanted, tag as u64)
            }
            Wish::Attach(region) => lane
                .submit_attach(region, tag as u64)
                .map(|call| call.map_or(Submitted::Full, Submitted::Call)),
        };
        submitted
    }
}

impl Asked {
    pub(super) fn wish(&self) -> Wish<'_> {
        match self {
            Asked::Call(handler, payload) => Wish::Call(*handler, payload),
            Asked::Write(region, offset, bytes) => {
                Wish::OneSided(region, *offset, Wanted::Write(bytes))
            }
            Asked::Bare(region, offset, wanted) => Wish::OneSided(region, *offset, *wanted),
            Asked::Attach(region) => Wish::Attach(region),
        }
    }
}

impl Calls {
    pub(super) fn new(limit: usize) -> Self {
        Self {
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

    /// Whether somebody waits for one that has not ended.
    pub(super) fn are_awaited(&self) -> bool {
        self.slots.iter().any(|slot| slot.terms().is_some())
    }

    /// A place for a call.
    ///
    /// # Errors
    /// When as many as there may be are out or wait.
    #[inline]
    pub(super) fn reserve(&mut self) -> Result<(usize, &mut Slot), CallError> {
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
    pub(super) fn refuse(&mut self, error: CallError) -> usize {
        let tag = self.unused();
        self.slots[tag] = Slot::Done(Err(error));
        tag
    }

    /// Nobody wants what is in the slot any more, which is given back for the caller to drop: it may hold a waker.
    pub(super) fn release(&mut self, tag: usize) -> Slot {
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

    /// A call has ended.
    #[inline]
    pub(super) fn finish(&mut self, tag: usize, result: Result<Reply, CallError>) {
        let Some(slot) = self.slots.get_mut(tag) else {
            return;
        };
        let Some(terms) = slot.terms_mut() else {
            return;
        };
        self.woken.extend(terms.waker.take());
        *slot = Slot::Done(result);
        self.live -= 1;
        self.offer_place();
    }

    /// All calls end.
    pub(super) fn end(&mut self, error: &CallError) {
        self.waiting.clear();
        self.attaching = None;
        for tag in 0..self.slots.len() {
            self.finish(tag, Err(error.clone()));
        }
        self.wake_waiters();
    }

    /// Calls end whose time is up.
    pub(super) fn expire(&mut self, now: Instant, mut lane: Option<&mut (dyn Lane + 'static)>) {
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
            match (&*slot, &mut lane) {
                (&Slot::Out(call, _), Some(lane)) => lane.abandon(call),
                (slot, _) => waited |= matches!(slot, Slot::Waiting(..)),
            }
            self.finish(tag, Err(CallError::DeadlineExceeded { after }));
        }
        if waited {
            let slots = &self.slots;
            self.waiting
                .retain(|&tag| matches!(slots[tag], Slot::Waiting(..)));
            if let Some((attaching, lane)) = self.attaching.take().zip(lane) {
                // The next that needs the region asks again.
                lane.abandon(attaching.call);
            }
        }
    }

    /// When the first of the waiting calls has to end.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        let waiting = self
            .waiting
            .iter()
            .filter_map(|&tag| self.slots[tag].terms());
        waiting.filter_map(|terms| terms.deadline).min()
    }

    /// How long it is until the first call has to end, whether it is out or waits.
    pub(super) fn until_deadline(&mut self, now: Instant) -> Duration {
        let terms = self.slots.iter_mut().filter_map(Slot::terms_mut);
        let first = terms.map(|terms| terms.until(now)).min();
        first.map_or(Duration::MAX, |first| first.saturating_duration_since(now))
    }

    /// Sends those that wait, as far as there is room; says whether any was.
    pub(super) fn send_waiting(&mut self, lane: &mut dyn Lane) -> bool {
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
                Err(error) => self.finish(tag, Err(error)),
            }
            self.waiting.pop_front();
        }
        sent
    }
}

impl Calls {
    /// Puts a call behind those that wait.
    pub(super) fn wait(&mut self, wish: Wish<'_>, mut terms: Terms) -> Result<usize, CallError> {
        terms.begin();
        let (tag, slot) = self.reserve()?;
        *slot = Slot::Waiting(wish.keep(), terms);
        self.waiting.push_back(tag);
        Ok(tag)
    }
}

impl Slot {
    /// Of a call that has not ended.
    pub(super) fn terms(&self) -> Option<&Terms> {
        match self {
            Slot::Waiting(_, terms) | Slot::Out(_, terms) => Some(terms),
            Slot::Free | Slot::Done(_) => None,
        }
    }

    pub(super) fn terms_mut(&mut self) -> Option<&mut Terms> {
        match self {
            Slot::Waiting(_, terms) | Slot::Out(_, terms) => Some(terms),
            Slot::Free | Slot::Done(_) => None,
        }
    }
}

impl Sink for Calls {
    #[inline]
    fn answer(&mut self, tag: u64, response: &[u8]) {
        match tag {
            ATTACH => self.complete(tag, Ok(Answer::Short(response))),
            _ => self.finish(tag as usize, Ok(Reply::new(Answer::Short(response)))),
        }
    }

    fn complete(&mut self, tag: u64, result: Result<Answer<'_>, CallError>) {
        let result = result.map(Reply::new);
        if tag != ATTACH {
            return self.finish(tag as usize, result);
        }
        if let Some(attaching) = &mut self.attaching {
            attaching.answer = Some(result);
        }
    }
}
