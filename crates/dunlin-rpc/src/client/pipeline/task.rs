//! A pipeline awaited by a task: it does not block a thread of the executor.
//!
//! While responses are expected soon the task asks its executor to be polled again, behind all other ready tasks, and
//! polls the lane several times each time; when nothing has arrived for as long as a thread would spin ([`WaitMode`]),
//! a thread of the pipeline sleeps on its behalf ([`SleepThread`]). One task takes all responses, so there is no lock,
//! no waker and no slot for each call, which [`crate::client::CallFuture`] needs.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dunlin_verbs::process::Owned;
use dunlin_verbs::thread;

use super::sleep_thread::SleepThread;
use super::{Callback, Pipeline};
use crate::call::lane::{Lane, Sink};
use crate::client::wait::{fall_asleep, unheard_pause};
use crate::config::WaitMode;
use crate::doze::Dozed;
use crate::error::CallError;
use crate::identity;

/// Number of polls of the lane per poll of the task, a third of a microsecond: an executor takes as long as several of
/// them to return. A simulated thread rests with each, and other tasks on it should get their turn.
const LOOKS_PER_POLL: u32 = 32;
/// Number of polls without success between two reads of the clock.
const POLLS_PER_CLOCK: u32 = 8;

/// Longest sleep while calls are outstanding on the lane before the last change.
const LOOK_AT_FORMER: Duration = Duration::from_millis(1);

/// The state of a waiting task between polls.
#[derive(Default)]
pub(super) struct Waiting {
    /// Number of polls without success.
    polls: u32,
    began: Option<Instant>,
    idle_since: Option<Instant>,
    sleeper: Option<Owned<SleepThread>>,
}

impl Waiting {
    pub(super) fn is_to_look_at_clock(&self) -> bool {
        self.polls % POLLS_PER_CLOCK == 0
    }

    /// The lane that is slept on was replaced.
    pub(super) fn leave_lane(&self) {
        if let Some(sleeper) = &self.sleeper {
            sleeper.leave_lane();
        }
    }

    /// Starts another wait.
    pub(super) fn reset(&mut self) {
        self.polls = 0;
        self.began = None;
        self.idle_since = None;
    }
}

impl Pipeline {
    /// As [`Pipeline::wait`], for a task: it waits without blocking its executor's thread. Nothing is lost when the
    /// future is dropped before it is ready: responses that have arrived were passed to `answer`, and another wait
    /// continues.
    ///
    /// # Errors
    /// As for [`Pipeline::wait`].
    pub async fn wait_async(
        &mut self,
        answer: impl FnMut(u64, Result<&[u8], CallError>),
    ) -> Result<usize, CallError> {
        self.waiting.reset();
        let before = self.outstanding();
        let mut sink = Callback(answer);
        poll_fn(|context| {
            let looked = self.look_as_task(before, context, &mut sink);
            looked.transpose().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Number of responses taken, of `before` calls that were outstanding when the wait began; `None`: the task will be
    /// woken to poll again.
    fn look_as_task(
        &mut self,
        before: usize,
        context: &mut Context<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Option<usize>, CallError> {
        self.lane.check()?;
        self.kind.is_task = true;
        if let Some(answered) = self.look_some(before, sink)? {
            return Ok(Some(answered));
        }
        if before == 0 && self.waiting.polls > 1 {
            return Ok(Some(0));
        }
        if before == 0 || !self.waiting.is_to_look_at_clock() {
            context.waker().wake_by_ref();
            return Ok(None);
        }
        let now = self.clock()?;
        let waited = now.duration_since(*self.waiting.began.get_or_insert(now));
        if waited >= self.deadline {
            return Err(CallError::DeadlineExceeded {
                after: self.deadline,
            });
        }
        self.check_lane(sink)?;
        let stays_awake = match self.idle(now) {
            Some(idle) => {
                let mut task = Some(context.waker().clone());
                self.fall_asleep(idle, self.deadline - waited, &mut task, sink)?
            }
            None => true,
        };
        if stays_awake {
            context.waker().wake_by_ref();
        }
        // It may have arrived while the task fell asleep.
        let answered = before - self.outstanding();
        Ok((answered > 0).then_some(answered))
    }

    /// Sends what was submitted, and returns the number of messages taken.
    #[inline]
    pub(super) fn look_once(&mut self, sink: &mut dyn Sink) -> Result<usize, CallError> {
        match &self.former {
            Some(_) => self.turn_both(sink, true),
            None => self.lane.turn(sink, true),
        }
    }

    /// Polls the lane several times, until a response arrives: returns the number taken of `before`, if any.
    #[inline]
    pub(super) fn look_some(
        &mut self,
        before: usize,
        sink: &mut dyn Sink,
    ) -> Result<Option<usize>, CallError> {
        let looks = match thread::is_simulated() {
            true => 1,
            false => LOOKS_PER_POLL,
        };
        for _ in 0..looks {
            let taken = self.look_once(sink)?;
            let answered = before - self.outstanding();
            if answered > 0 {
                thread::found();
                return Ok(Some(answered));
            }
            if before == 0 {
                // A task that waits for room while nothing is outstanding lets others go first.
                break;
            }
            if taken > 0 {
                // Messages about the state of a call are not responses.
                self.waiting.idle_since = None;
            }
            self.lane.rest();
        }
        self.waiting.polls += 1;
        Ok(None)
    }

    /// The time, for a thread that may wait for this server.
    pub(super) fn clock(&self) -> Result<Instant, CallError> {
        match identity::is_polled_here(self.server) {
            true => Err(CallError::OwnServer),
            false => Ok(thread::now()),
        }
    }

    /// For how long nothing has arrived, once that is longer than a thread would spin.
    pub(super) fn idle(&mut self, now: Instant) -> Option<Duration> {
        let idle_since = *self.waiting.idle_since.get_or_insert(now);
        let idle = now.duration_since(idle_since);
        match self.wait {
            WaitMode::Doze { spin } => (idle >= spin).then_some(idle),
            WaitMode::Spin => None,
        }
    }

    /// Arranges for the task, for which nothing has arrived for `idle`, to be woken when something arrives, or after
    /// `left`. `true`: something has arrived, and it will not be woken. Afterwards `task` may hold a waker for the
    /// caller to drop.
    pub(super) fn fall_asleep(
        &mut self,
        idle: Duration,
        left: Duration,
        task: &mut Option<Waker>,
        sink: &mut dyn Sink,
    ) -> Result<bool, CallError> {
        // A task that is woken polls at once, and then reads the clock.
        self.waiting.polls = POLLS_PER_CLOCK - 1;
        // A sleeper is woken by one lane only.
        let left = match self.former {
            Some(_) => left.min(LOOK_AT_FORMER),
            None => left,
        };
        let sleeper = match &mut self.waiting.sleeper {
            Some(sleeper) => sleeper,
            none => none.insert(Owned::new(SleepThread::start(&self.recipe)?)),
        };
        // Another thread sleeps, and wakes the task.
        let mut has_waker = false;
        let mut sleep = |lane: &dyn Lane, most| {
            sleeper.sleep(Some(lane.sleeper()), most, task);
            has_waker = true;
            Ok(())
        };
        let dozed = match fall_asleep(self.lane.as_mut(), sink, left, &mut sleep) {
            // It is lost, and has ended its calls; the others continue. The loss may have been found after the thread
            // got the waker.
            Err(_) if self.former.is_some() => {
                if !has_waker {
                    sleeper.sleep(None, left, task);
                }
                return Ok(false);
            }
            dozed => dozed?,
        };
        if dozed == Dozed::Unheard {
            sleeper.sleep(None, unheard_pause(idle).min(left), task);
        }
        Ok(dozed == Dozed::Found)
    }
}
