//! A pipeline that a task waits for: it blocks no thread of the executor.
//!
//! While answers are expected at once the task asks its executor to be polled again, behind all others that are ready,
//! and looks some times with each poll; when nothing has come for as long as a thread would spin ([`WaitMode`]) a
//! thread of the pipeline's own sleeps for it ([`SleepThread`]). One task takes all answers, so there is no lock, no
//! waker and no place for each call, as [`crate::client::CallFuture`] needs them.

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

/// Looks of one poll, a third of a microsecond: an executor takes as long as several to come back. A simulated thread
/// rests with each, and others on it are to have their turn.
const LOOKS_PER_POLL: u32 = 32;
/// Polls in vain between two looks at the clock.
const POLLS_PER_CLOCK: u32 = 8;

/// The longest sleep while calls are out on the lane before the last change.
const LOOK_AT_FORMER: Duration = Duration::from_millis(1);

/// The waiting of a task, from poll to poll.
#[derive(Default)]
pub(super) struct Waiting {
    /// Polls in vain.
    polls: u32,
    began: Option<Instant>,
    idle_since: Option<Instant>,
    sleeper: Option<Owned<SleepThread>>,
}

impl Waiting {
    pub(super) fn is_to_look_at_clock(&self) -> bool {
        self.polls % POLLS_PER_CLOCK == 0
    }

    /// Another lane has taken the place of the one that is slept on.
    pub(super) fn leave_lane(&self) {
        if let Some(sleeper) = &self.sleeper {
            sleeper.leave_lane();
        }
    }

    /// Another wait begins.
    pub(super) fn reset(&mut self) {
        self.polls = 0;
        self.began = None;
        self.idle_since = None;
    }
}

impl Pipeline {
    /// As [`Pipeline::wait`], for a task: it waits without blocking its executor's thread. Nothing is lost when the
    /// future is dropped before it is ready: what has come was given to `answer`, and another wait goes on.
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

    /// Answers that were taken, of `before` calls that were out when the wait began; `None`: the task is woken when it
    /// is to look again.
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
        // It may have come while the task fell asleep.
        let answered = before - self.outstanding();
        Ok((answered > 0).then_some(answered))
    }

    /// Sends what was submitted, and says how many messages were taken.
    #[inline]
    pub(super) fn look_once(&mut self, sink: &mut dyn Sink) -> Result<usize, CallError> {
        match &self.former {
            Some(_) => self.turn_both(sink, true),
            None => self.lane.turn(sink, true),
        }
    }

    /// Looks of one poll, until an answer comes: how many of `before` have been taken, if any.
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
                // Who waits for room with nothing out lets others go first.
                break;
            }
            if taken > 0 {
                // Words about a call are no answer.
                self.waiting.idle_since = None;
            }
            self.lane.rest();
        }
        self.waiting.polls += 1;
        Ok(None)
    }

    /// The clock, for a thread that may wait for this server.
    pub(super) fn clock(&self) -> Result<Instant, CallError> {
        match identity::is_polled_here(self.server) {
            true => Err(CallError::OwnServer),
            false => Ok(thread::now()),
        }
    }

    /// For how long nothing has come, once that is longer than a thread would spin.
    pub(super) fn idle(&mut self, now: Instant) -> Option<Duration> {
        let idle_since = *self.waiting.idle_since.get_or_insert(now);
        let idle = now.duration_since(idle_since);
        match self.wait {
            WaitMode::Doze { spin } => (idle >= spin).then_some(idle),
            WaitMode::Spin => None,
        }
    }

    /// The task, for which nothing has come for so long, is woken when something comes, or when what is left is over.
    /// `true`: something has come, and it is not woken. Afterwards there is a waker in `task` for the caller to drop.
    pub(super) fn fall_asleep(
        &mut self,
        idle: Duration,
        left: Duration,
        task: &mut Option<Waker>,
        sink: &mut dyn Sink,
    ) -> Result<bool, CallError> {
        // A task that is woken looks at once at what there is, and then at the clock.
        self.waiting.polls = POLLS_PER_CLOCK - 1;
        // A sleeper hears of one lane only.
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
            // It is lost, and has said so to its calls; the others go on. The loss may have shown when the thread had
            // the waker already.
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
