//! How a thread waits on a lane: it polls for a while, then sleeps until the server wakes it, and never beyond its
//! deadline.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dunlin_verbs::{progress, thread};

use crate::call::lane::{Lane, Sink};
use crate::config::{WaitMode, UNHEARD_PAUSE};
use crate::doze::{doze, Doze, Dozed};
use crate::error::CallError;
use crate::identity;

/// Number of polls between two reads of the clock.
const POLLS_PER_CLOCK: u32 = 64;
/// Number of reads of the clock between two checks for failures.
const CLOCKS_PER_CHECK: u32 = 64;
/// While its peer is not known to have received the announcement of its sleep, a thread yields its core for the time
/// for which nothing has arrived, divided by this number.
const UNHEARD_SHARE: u32 = 8;
const LONGEST_UNHEARD_PAUSE: Duration = Duration::from_millis(20);

/// The end of a wait of at most `limit` that began at `began`; one beyond the range of the clock lasts for years.
pub(super) fn end_of(began: Instant, limit: Duration) -> Instant {
    const YEARS: Duration = Duration::from_secs(10 << 25);
    began.checked_add(limit).unwrap_or(began + YEARS)
}

/// How long to yield the core when nothing has arrived for `idle` and the peer is not known to have received the
/// announcement of the sleep. The longer it takes, the more threads are waiting for the same thing: the threads that
/// could inform the peer need the cores more. A call that makes progress (eRPC's packets of a long message) is not
/// among them, however long it takes.
pub(super) fn unheard_pause(idle: Duration) -> Duration {
    (idle / UNHEARD_SHARE).clamp(UNHEARD_PAUSE, LONGEST_UNHEARD_PAUSE)
}

/// The wait for one call or batch.
pub(super) struct Waiter<'a> {
    mode: WaitMode,
    limit: Duration,
    closed: &'a AtomicBool,
    polls: u32,
    /// Number of polls that took something.
    arrivals: u32,
    clocks: u32,
    started: Option<Instant>,
    idle_since: Option<Instant>,
    /// The last result of [`progress::moved`].
    moved: u32,
    /// The server that is waited for, if the lane may be used on another thread than it was made on; otherwise zero.
    server: u64,
}

impl<'a> Waiter<'a> {
    /// For at most `limit`, counted from the first read of the clock (a call that is answered at once never reads it),
    /// and until `closed` is set.
    #[inline]
    pub(super) fn new(mode: WaitMode, limit: Duration, closed: &'a AtomicBool) -> Self {
        Self {
            mode,
            limit,
            closed,
            polls: 0,
            arrivals: 0,
            clocks: 0,
            started: None,
            idle_since: None,
            moved: progress::moved(),
            server: 0,
        }
    }

    /// Waits for this server, which may be the one that the calling thread polls for.
    #[inline]
    pub(super) fn of(mut self, server: u64) -> Self {
        self.server = server;
        self
    }

    /// Sets the beginning of the wait: the caller has waited for something else before.
    #[inline]
    pub(super) fn since(mut self, began: Option<Instant>) -> Self {
        self.started = began;
        self
    }

    /// When the wait began: now, if the clock has not been read yet.
    pub(super) fn began(&mut self) -> Instant {
        *self.started.get_or_insert_with(thread::now)
    }

    /// Another wait within the same time, for something else that has to come first.
    pub(super) fn before(&mut self) -> Self {
        let began = self.began();
        Self::new(self.mode, self.limit, self.closed)
            .of(self.server)
            .since(Some(began))
    }

    /// Submits as soon as there is room; `submit` returns `None` as long as there is none.
    ///
    /// # Errors
    /// Those of `submit`, and as for [`Waiter::polled`].
    pub(super) fn submit<T>(
        &mut self,
        lane: &mut dyn Lane,
        sink: &mut dyn Sink,
        mut submit: impl FnMut(&mut dyn Lane) -> Result<Option<T>, CallError>,
    ) -> Result<T, CallError> {
        loop {
            if let Some(submitted) = submit(lane)? {
                return Ok(submitted);
            }
            let taken = lane.poll(sink)?;
            self.polled(taken, lane, sink)?;
        }
    }

    /// To be called after a poll that took this many messages.
    ///
    /// # Errors
    /// When the deadline has passed, the client is closed or the lane is lost.
    #[inline]
    pub(super) fn polled(
        &mut self,
        taken: usize,
        lane: &mut dyn Lane,
        sink: &mut dyn Sink,
    ) -> Result<(), CallError> {
        match taken {
            0 => self.idle(lane, sink),
            _ => self.progressed(),
        }
    }

    /// To be called after a poll that took something. This need not be what is waited for, and a server may send
    /// without end.
    ///
    /// # Errors
    /// When the deadline has passed or the client is closed.
    #[inline]
    pub(super) fn progressed(&mut self) -> Result<(), CallError> {
        self.idle_since = None;
        thread::found();
        self.arrivals = self.arrivals.wrapping_add(1);
        match self.arrivals % POLLS_PER_CLOCK {
            0 => self.look_at_limits().map(drop),
            _ => Ok(()),
        }
    }

    /// To be called after a poll that took nothing: spins, checks the lane or sleeps.
    ///
    /// # Errors
    /// When the deadline has passed or the lane is lost.
    #[inline]
    pub(super) fn idle(
        &mut self,
        lane: &mut dyn Lane,
        sink: &mut dyn Sink,
    ) -> Result<(), CallError> {
        if self.polls == 0 {
            // What was waited for before has arrived.
            thread::found();
        }
        self.polls += 1;
        if self.polls % POLLS_PER_CLOCK != 0 {
            lane.rest();
            return Ok(());
        }
        self.look_at_clock(lane, sink)
    }

    #[cold]
    fn look_at_clock(&mut self, lane: &mut dyn Lane, sink: &mut dyn Sink) -> Result<(), CallError> {
        if identity::is_polled_here(self.server) {
            return Err(CallError::OwnServer);
        }
        let (now, waited) = self.look_at_limits()?;
        self.clocks += 1;
        if self.clocks % CLOCKS_PER_CHECK == 0 {
            lane.check(sink)?;
        }
        let moved = progress::moved();
        if std::mem::replace(&mut self.moved, moved) != moved {
            self.idle_since = None;
        }
        let idle_since = *self.idle_since.get_or_insert(now);
        if let WaitMode::Doze { spin } = self.mode {
            let idle = now.duration_since(idle_since);
            if idle >= spin {
                return self.sleep(lane, sink, idle, self.limit - waited);
            }
            thread::give_way();
        }
        Ok(())
    }

    /// The time, and how long it has waited.
    #[cold]
    fn look_at_limits(&mut self) -> Result<(Instant, Duration), CallError> {
        let now = thread::now();
        let started = *self.started.get_or_insert(now);
        let waited = now.duration_since(started);
        if waited >= self.limit {
            return Err(CallError::DeadlineExceeded { after: self.limit });
        }
        if self.closed.load(Ordering::Relaxed) {
            return Err(CallError::Closed);
        }
        Ok((now, waited))
    }

    fn sleep(
        &mut self,
        lane: &mut dyn Lane,
        sink: &mut dyn Sink,
        idle: Duration,
        left: Duration,
    ) -> Result<(), CallError> {
        let mut sleep = |lane: &dyn Lane, most| {
            let slept = lane.sleeper().sleep(most);
            slept.map_err(|error| CallError::ConnectionLost {
                why: error.to_string(),
            })
        };
        match fall_asleep(lane, sink, left, &mut sleep)? {
            Dozed::Unheard => {
                thread::sleep(unheard_pause(idle).min(left));
                // One poll suffices to see whether the announcement has been received by now.
                self.polls = POLLS_PER_CLOCK - 1;
            }
            Dozed::Found => self.idle_since = None,
            Dozed::Slept => {}
        }
        Ok(())
    }
}

/// Falls asleep on a lane as described at [`doze`], using `sleep`.
///
/// # Errors
/// When the lane is lost, and those of `sleep`.
pub(super) fn fall_asleep(
    lane: &mut dyn Lane,
    sink: &mut dyn Sink,
    most: Duration,
    sleep: &mut dyn FnMut(&dyn Lane, Duration) -> Result<(), CallError>,
) -> Result<Dozed, CallError> {
    doze(&mut Caller { lane, sink, sleep }, most)
}

/// A thread that waits for calls and may fall asleep.
struct Caller<'a> {
    lane: &'a mut dyn Lane,
    sink: &'a mut dyn Sink,
    sleep: &'a mut dyn FnMut(&dyn Lane, Duration) -> Result<(), CallError>,
}

impl Doze for Caller<'_> {
    type Error = CallError;

    fn announce(&mut self) -> Result<bool, CallError> {
        self.lane.prepare_sleep(self.sink)
    }

    fn look(&mut self) -> Result<bool, CallError> {
        Ok(self.lane.poll(self.sink)? > 0)
    }

    fn check(&mut self) -> Result<(), CallError> {
        self.lane.check(self.sink)
    }

    fn sleep(&mut self, most: Duration) -> Result<(), CallError> {
        (self.sleep)(self.lane, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server keeps sending messages that are not responses.
    #[test]
    fn what_arrives_without_end_is_not_waited_for_without_end() {
        let closed = AtomicBool::new(false);
        let ends = |limit| {
            let mut waiter = Waiter::new(WaitMode::Spin, limit, &closed);
            (0..POLLS_PER_CLOCK).find_map(|_| waiter.progressed().err())
        };
        let never = Duration::from_secs(300);
        assert!(ends(never).is_none());
        let late = ends(Duration::ZERO);
        assert!(
            matches!(late, Some(CallError::DeadlineExceeded { .. })),
            "{late:?}"
        );
        closed.store(true, Ordering::Relaxed);
        let ended = ends(never);
        assert!(matches!(ended, Some(CallError::Closed)), "{ended:?}");
    }
}
