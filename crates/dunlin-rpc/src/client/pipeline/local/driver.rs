//! The task that polls for the responses to one thread's calls.

use std::future::{poll_fn, Future};
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin_verbs::thread;

use super::{go_along, Inner, Shared};
use crate::client::driver::DEADLINE_STEP;
use crate::error::CallError;

/// Number of successful polls between two reads of the clock: there may be no response to one of the calls.
const FOUND_PER_CLOCK: u32 = 64;
/// How many times a future of [`LocalDriver::run_until`] is polled again at once because a response has arrived.
const ROUNDS: u32 = 16;

/// Sends the calls of a [`super::LocalClient`] and takes their responses, as a task of its own: spawn it where the
/// calls are made, or pass it the future that makes them ([`LocalDriver::run_until`]). While it is not polled nothing
/// is sent and no call ends; when it is dropped all calls end with [`CallError::Closed`].
///
/// It completes when the client, its clones and its calls have been dropped, or with an error when the connection is
/// lost.
#[must_use = "calls do not complete unless their driver is polled"]
pub struct LocalDriver {
    shared: Rc<Shared>,
}

impl std::fmt::Debug for LocalDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalDriver").finish_non_exhaustive()
    }
}

/// What the driver does after polling the lane.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// It has taken something, and polls again.
    Found,
    /// It polls again.
    Again,
    /// It waits until it is woken: by a call, or by the thread that sleeps on its behalf.
    Wait,
    /// It falls asleep, because nothing has arrived for this long.
    FallAsleep(Duration),
    /// No call can be made any more.
    End,
}

impl Inner {
    /// Polls the lane as often as one poll of the driver does.
    fn look(&mut self) -> Result<Next, CallError> {
        let Self {
            pipeline: Some(pipeline),
            calls,
            ..
        } = self
        else {
            return Err(self.end.clone());
        };
        if calls.live == 0 {
            // There is nothing to wait for.
            return Ok(Next::Wait);
        }
        pipeline.lane.check()?;
        let before = pipeline.outstanding();
        let found = pipeline.look_some(before, calls)?.is_some();
        if !calls.waiting.is_empty() {
            go_along(pipeline, calls);
            if calls.send_waiting(pipeline.lane.as_mut()) {
                pipeline.flush_lane(calls)?;
            }
        }
        if found {
            pipeline.waiting.reset();
            self.found = self.found.wrapping_add(1);
            if self.found % FOUND_PER_CLOCK == 0 {
                self.expire();
            }
            return Ok(Next::Found);
        }
        if !pipeline.waiting.is_to_look_at_clock() {
            return Ok(Next::Again);
        }
        let now = pipeline.clock()?;
        pipeline.check_lane(calls)?;
        if pipeline.former.is_some() && !calls.are_on_former() {
            pipeline.end_former();
        }
        let Some(idle) = pipeline.idle(now) else {
            self.expire();
            return Ok(Next::Again);
        };
        Ok(Next::FallAsleep(idle))
    }

    /// Makes the driver wait, or fall asleep, unless there is something to do by now: its waker was cloned meanwhile,
    /// which may have made calls. `task` is the waker for the sleeping thread, and afterwards a waker for the caller to
    /// drop.
    fn wait(&mut self, next: Next, task: &mut Option<Waker>) -> Result<Next, CallError> {
        let Self {
            pipeline: Some(pipeline),
            calls,
            ..
        } = self
        else {
            return Err(self.end.clone());
        };
        let Next::FallAsleep(idle) = next else {
            return Ok(if calls.live == 0 { next } else { Next::Again });
        };
        if pipeline.look_once(calls)? > 0 {
            return Ok(Next::Found);
        }
        let now = thread::now();
        let left = calls.until_deadline(now);
        if left.is_zero() {
            calls.expire(now, |call, on_former| pipeline.give_up(call, on_former));
            return Ok(Next::Again);
        }
        let stays_awake = pipeline.fall_asleep(idle, left, task, calls)?;
        Ok(if stays_awake { Next::Again } else { Next::Wait })
    }

    /// Ends calls whose deadlines have passed.
    fn expire(&mut self) {
        let now = thread::now();
        if let Some(pipeline) = self.pipeline.as_mut().filter(|_| now >= self.next_expiry) {
            self.next_expiry = now + DEADLINE_STEP;
            let give_up = |call, on_former| pipeline.give_up(call, on_former);
            self.calls.expire(now, give_up);
        }
    }
}

impl LocalDriver {
    pub(super) fn new(shared: Rc<Shared>) -> Self {
        Self { shared }
    }

    /// Polls once; after all results but [`Next::Wait`] the caller has to arrange the next poll.
    fn turn(&self, context: &mut Context<'_>) -> Result<Next, CallError> {
        if Rc::strong_count(&self.shared) == 1 {
            return Ok(Next::End);
        }
        let mut inner = self.shared.lock();
        let mut next = inner.look();
        let (mut driver, mut task) = (None, None);
        if let Ok(waits @ (Next::Wait | Next::FallAsleep(_))) = next {
            drop(inner);
            driver = Some(context.waker().clone());
            task = Some(context.waker().clone());
            inner = self.shared.lock();
            next = inner.wait(waits, &mut task);
            if let Ok(Next::Wait) = next {
                std::mem::swap(&mut inner.driver, &mut driver);
            }
        }
        self.shared.give_back(inner);
        drop((driver, task));
        if let Err(error) = &next {
            self.shared.end(error.clone());
        }
        next
    }

    /// Drives the calls that this future makes, in its own task. The future continues at once when its calls are
    /// answered; other tasks with calls on the same client make progress for as long as it runs.
    pub async fn run_until<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            for _ in 0..ROUNDS {
                if let Poll::Ready(output) = future.as_mut().poll(context) {
                    return Poll::Ready(output);
                }
                match self.turn(context) {
                    Ok(Next::Found) => {}
                    Ok(Next::Again) => break,
                    // After an error as after the end: there is nothing to drive, and its calls have been ended.
                    Ok(Next::Wait | Next::FallAsleep(_) | Next::End) | Err(_) => {
                        return Poll::Pending
                    }
                }
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}

impl Future for LocalDriver {
    type Output = Result<(), CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.turn(context) {
            Ok(Next::Found | Next::Again) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(Next::Wait | Next::FallAsleep(_)) => Poll::Pending,
            Ok(Next::End) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Drop for LocalDriver {
    fn drop(&mut self) {
        self.shared.end(CallError::Closed);
    }
}
