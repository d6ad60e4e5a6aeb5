//! A lane for a loop that keeps many calls outstanding: the fastest option for one thread.

mod kind;
pub(super) mod local;
mod next_lane;
mod one_sided;
mod sleep_thread;
mod submitting;
mod task;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dunlin_verbs::process::Owned;
use dunlin_verbs::thread;

use super::attempts::Attempts;
use super::recipe::{Recipe, Successor};
use super::wait::{end_of, Waiter};
use super::Core;
use crate::call::lane::{Answer, CallId, Lane, Sink};
use crate::call::timeout::Told;
use crate::config::WaitMode;
use crate::error::CallError;
pub(super) use one_sided::submit_attached;
pub(super) use submitting::submit_on;

/// Number of polls without a response between two checks for failures, which messages do not show.
const POLLS_PER_CHECK: u32 = 1024;
/// A pipeline ends when it is dropped, not when its client is closed.
pub(super) static NEVER_CLOSED: AtomicBool = AtomicBool::new(false);

/// Many outstanding calls, each with a tag chosen by the caller and answered by callback in any order. Made by
/// [`super::Client::pipeline`].
///
/// A pipeline does not reconnect: when its connection is lost, every outstanding call ends with an error and the
/// pipeline can no longer be used. It follows when its client changes its preset ([`super::Client::change_preset`]),
/// and when so many threads use the client that all share with `auto`.
pub struct Pipeline {
    lane: Owned<Box<dyn Lane>>,
    /// The lane before the last change, while calls are outstanding on it.
    former: Option<Owned<Box<dyn Lane>>>,
    /// Its lane of the other kind, and the state of switching between them.
    kind: kind::Kinds,
    attempts: Attempts,
    /// Its next lane, while another thread makes it.
    making: Option<next_lane::Making>,
    client: Weak<Core>,
    /// The recipe that made the lane; the pipeline is counted there.
    recipe: Arc<Recipe>,
    counted: Arc<()>,
    window: usize,
    /// It gives up its lane when all threads share.
    may_share: bool,
    wait: WaitMode,
    deadline: Duration,
    told: Told,
    /// Calls started now carry no deadline.
    is_plain: bool,
    /// Requests with their trailers appended.
    copy: Vec<u8>,
    /// A request that was filled where its lane has no place for it.
    filled: Vec<u8>,
    server: u64,
    /// Number of consecutive polls that took nothing.
    empty_polls: u32,
    waiting: task::Waiting,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline")
            .field("outstanding", &self.outstanding())
            .finish_non_exhaustive()
    }
}

/// Passes responses to the callback of a poll.
struct Callback<F>(F);

impl<F: FnMut(u64, Result<&[u8], CallError>)> Sink for Callback<F> {
    #[inline]
    fn calls_back(&self) -> bool {
        true
    }

    #[inline]
    fn answer(&mut self, tag: u64, response: &[u8]) {
        (self.0)(tag, Ok(response));
    }

    fn complete(&mut self, tag: u64, result: Result<Answer<'_>, CallError>) {
        // One call of the callback here and one above: the fewer there are, the likelier it is inlined.
        let landed;
        let result = match result {
            Ok(Answer::Short(bytes)) => Ok(bytes),
            Ok(Answer::Long(long)) => {
                landed = long;
                Ok(landed.bytes())
            }
            Err(error) => Err(error),
        };
        (self.0)(tag, result);
    }
}

impl Pipeline {
    pub(super) fn new(
        lane: Box<dyn Lane>,
        (client, recipe): (&Arc<Core>, Arc<Recipe>),
        window: usize,
        deadline: Duration,
    ) -> Self {
        Self {
            may_share: recipe.may_share(lane.as_ref(), window),
            lane: Owned::new(lane),
            former: None,
            kind: kind::Kinds::default(),
            attempts: Attempts::default(),
            making: None,
            client: Arc::downgrade(client),
            counted: recipe.pipeline(),
            window,
            wait: recipe.channel.wait,
            deadline,
            told: recipe.told,
            is_plain: recipe.told.is_enough(deadline),
            copy: Vec::new(),
            filled: Vec::new(),
            server: recipe.server(),
            empty_polls: 0,
            waiting: task::Waiting::default(),
            recipe,
        }
    }

    /// The other lane, if any, that is to carry what is submitted now. The pipeline shares only if it `may_share`, and
    /// its outstanding calls end first.
    fn successor(&mut self) -> Option<Successor> {
        let shares = |_: &dyn Lane| self.may_share;
        let successor = self.recipe.successor(self.lane.as_ref(), shares);
        let successor = self.kind.other.but_refused(successor);
        let current = || self.client.upgrade().map(|client| client.recipe());
        let successor = self.attempts.but_failed(successor, current)?;
        self.may_go(successor).then_some(successor)
    }

    #[inline]
    fn change_if_left(&mut self) {
        if !self.recipe.keeps_lanes() {
            self.change_if_due();
        }
    }

    #[inline(never)]
    fn change_if_due(&mut self) {
        if let Some(successor) = self.successor() {
            self.change(successor);
        }
    }

    /// Sends what is submitted from now on over a lane of the new preset, a shared one, or one of the requested kind.
    #[cold]
    fn change(&mut self, to: Successor) {
        if self.former.is_some() {
            // Calls submitted before the previous change are still outstanding.
            return;
        }
        if to == Successor::OtherKind {
            return self.change_kind();
        }
        let Some(client) = self.client.upgrade() else {
            return;
        };
        let recipe = client.recipe();
        let spare = match self.recipe.is_replaced() {
            true => recipe.spares.take(),
            false => None,
        };
        let Some(lane) = spare.or_else(|| self.next_lane(&recipe)) else {
            return;
        };
        self.may_share = recipe.may_share(lane.as_ref(), self.window);
        let former = std::mem::replace(&mut self.lane, Owned::new(lane));
        self.former = (former.outstanding() > 0).then_some(former);
        self.waiting.leave_lane();
        self.kind.forget();
        self.attempts = Attempts::default();
        self.making = None;
        self.counted = recipe.pipeline();
        self.server = recipe.server();
        self.recipe = recipe;
    }

    /// Takes the responses to calls submitted before the last change.
    #[cold]
    fn take_former(&mut self, sink: &mut dyn Sink) -> Result<usize, CallError> {
        let Some(former) = &mut self.former else {
            return Ok(0);
        };
        former.check()?;
        let before = former.outstanding();
        let taken = match former.turn(sink, false) {
            Ok(0) => former.as_mut().check(sink).map(|()| 0),
            taken => taken,
        };
        match taken {
            Ok(taken) => {
                if former.outstanding() == 0 {
                    self.end_former();
                }
                Ok(taken)
            }
            // It has ended its calls with the error. The others continue.
            Err(_) => {
                self.former = None;
                Ok(before)
            }
        }
    }

    /// The result of the present lane. If that lane is lost it has ended its calls; this is an error once those of the
    /// former lane have ended, too, and `otherwise` until then.
    #[inline]
    fn while_former<T>(&self, said: Result<T, CallError>, otherwise: T) -> Result<T, CallError> {
        match said {
            Err(_) if self.former.is_some() => Ok(otherwise),
            said => said,
        }
    }

    /// Takes the responses of both lanes.
    #[cold]
    fn turn_both(&mut self, sink: &mut dyn Sink, waits: bool) -> Result<usize, CallError> {
        let former = self.take_former(sink)?;
        let taken = self.lane.turn(sink, waits);
        Ok(former + self.while_former(taken, 0)?)
    }

    /// Gives up an outstanding call, on this lane or the former one.
    fn give_up(&mut self, call: CallId, on_former: bool) {
        match &mut self.former {
            Some(former) if on_former => former.abandon(call),
            // Its lane has ended.
            None if on_former => {}
            _ => self.lane.abandon(call),
        }
    }

    /// Hands the batch to the device.
    fn flush_lane(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        let flushed = self.lane.flush(sink);
        self.while_former(flushed, ())
    }

    /// Checks for what messages do not show.
    fn check_lane(&mut self, sink: &mut dyn Sink) -> Result<(), CallError> {
        let checked = self.lane.as_mut().check(sink);
        self.while_former(checked, ())
    }

    /// As [`Pipeline::wait`], while responses are outstanding on two lanes.
    #[cold]
    fn wait_for_both(&mut self, sink: &mut dyn Sink) -> Result<usize, CallError> {
        let (before, began) = (self.outstanding(), thread::now());
        let until = end_of(began, self.deadline);
        loop {
            if self.turn_both(sink, false)? == 0 {
                self.check_lane(sink)?;
            }
            let answered = before - self.outstanding();
            if answered > 0 || before == 0 {
                return Ok(answered);
            }
            if thread::now() >= until {
                return Err(CallError::DeadlineExceeded {
                    after: self.deadline,
                });
            }
            thread::give_way();
        }
    }

    /// Number of outstanding calls.
    pub fn outstanding(&self) -> usize {
        let former = self.former.as_ref();
        self.lane.outstanding() + former.map_or(0, |former| former.outstanding())
    }

    /// Sends the batch and takes the responses that have arrived, without waiting; returns the number of messages.
    ///
    /// # Errors
    /// When the connection is lost; every outstanding call has been passed to `answer` with the error.
    #[inline]
    pub fn poll(
        &mut self,
        answer: impl FnMut(u64, Result<&[u8], CallError>),
    ) -> Result<usize, CallError> {
        self.lane.check()?;
        let mut sink = Callback(answer);
        let taken = match self.former {
            None => self.lane.turn(&mut sink, false)?,
            Some(_) => self.turn_both(&mut sink, false)?,
        };
        if taken > 0 {
            if self.empty_polls > 0 {
                thread::found();
            }
            self.empty_polls = 0;
            return Ok(taken);
        }
        self.empty_polls += 1;
        if self.lane.outstanding() > 0 {
            thread::missed();
        }
        if self.empty_polls == POLLS_PER_CHECK {
            self.empty_polls = 0;
            self.check_lane(&mut sink)?;
        }
        Ok(taken)
    }

    /// As [`Pipeline::wait`], for at most `limit`.
    pub(super) fn wait_at_most(
        &mut self,
        limit: Duration,
        answer: impl FnMut(u64, Result<&[u8], CallError>),
    ) -> Result<usize, CallError> {
        let deadline = std::mem::replace(&mut self.deadline, limit);
        let waited = self.wait(answer);
        self.deadline = deadline;
        waited
    }

    /// A pipeline that waits for long and sleeps meanwhile, whatever the wait mode of its client.
    pub(super) fn sleeping(mut self) -> Self {
        self.wait = WaitMode::default();
        self
    }

    /// Sends the batch and waits until at least one response has been taken or no call is outstanding.
    ///
    /// # Errors
    /// When the connection is lost, as for [`Pipeline::poll`], or no response arrived within the client's deadline.
    #[inline]
    pub fn wait(
        &mut self,
        answer: impl FnMut(u64, Result<&[u8], CallError>),
    ) -> Result<usize, CallError> {
        self.lane.check()?;
        let mut sink = Callback(answer);
        if self.former.is_some() {
            return self.wait_for_both(&mut sink);
        }
        let mut waiter = Waiter::new(self.wait, self.deadline, &NEVER_CLOSED).of(self.server);
        let before = self.lane.outstanding();
        if before == 0 {
            self.lane.flush(&mut sink)?;
            return Ok(0);
        }
        let mut taken = self.lane.turn(&mut sink, true)?;
        loop {
            let answered = before - self.lane.outstanding();
            if answered > 0 {
                return Ok(answered);
            }
            // Messages about the state of a call are not responses.
            waiter.polled(taken, self.lane.as_mut(), &mut sink)?;
            taken = self.lane.poll(&mut sink)?;
        }
    }
}
