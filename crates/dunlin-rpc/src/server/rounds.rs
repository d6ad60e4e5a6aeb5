//! The main loop of a polling thread: passes over its clients, and sleep when there is no work.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use dunlin_verbs::{progress, thread, CompletionChannel};

use super::thread_task::{ThreadProgress, ThreadTask};
use crate::config::{WaitMode, REST, UNHEARD_PAUSE};
use crate::doze::{doze, Doze, Dozed, LONGEST_SLEEP};

/// Passes without work between two readings of the clock.
const PASSES_PER_CLOCK: u32 = 64;
/// Passes between two checks for failures that do not show in messages.
const PASSES_PER_CHECK: u32 = 1 << 14;
/// Interval between two checks for failures on a thread that is too busy to sleep.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// A check of thousands of connections takes long. Checks take at most one part in this many of the thread's time, but
/// there is at least one per [`LONGEST`].
const CHECK_SHARE: u32 = 100;
/// Passes plus messages between two readings of the clock, on a thread that does not sleep.
const STEPS_PER_CLOCK: usize = 64;
/// Shorter sleeps cost more than they save.
const SHORTEST_SLEEP: Duration = Duration::from_micros(200);
/// The longest sleep.
pub(super) const LONGEST: Duration = LONGEST_SLEEP;

/// What a polling thread runs.
pub(super) trait Rounds {
    /// Serves what has arrived, and returns the amount of work done. It may skip some clients from which nothing is
    /// expected.
    fn pass(&mut self) -> usize;
    /// Serves the clients that a pass skips; called after a pass in which nothing on the thread had work.
    fn pass_quiet(&mut self) -> usize {
        0
    }
    /// Checks for failures.
    fn check(&mut self);
    /// Whether there are clients that may send messages.
    fn has_clients(&self) -> bool;
    /// Whether the thread is to end, now or when what was taken is answered.
    fn is_over(&mut self) -> bool;
    /// Whether it must end at once.
    fn is_ending(&self) -> bool;
    /// Whether a pass would find work.
    fn has_work(&mut self) -> bool;
    /// How long the thread may sleep.
    fn longest_sleep(&mut self) -> Duration {
        LONGEST
    }
    /// Tells all peers that the thread will sleep. Returns `false` if not all have been told yet.
    fn prepare_sleep(&mut self) -> bool;
    /// Ends all connections.
    fn close(&mut self);
}

/// Decides whether spinning for as long as [`WaitMode`] says pays off before a sleep. It does not if requests are rare,
/// nor if the sender of the next one waits for this core: then the request comes only once this thread sleeps. Nor if
/// any other thread waits for the core: a spinning thread is not preempted for a woken one before its time slice ends.
struct Spinning {
    /// Passes without work since the last work or sleep.
    passes: u32,
    /// Number of consecutive long waits in vain.
    in_vain: u32,
    /// Short waits left until the next long one.
    until_probe: u32,
    /// Short waits between two long ones.
    probe_interval: u32,
    /// Whether another thread had the core during this wait.
    preempted: bool,
    /// When the clock was last read during this wait.
    last_look: Option<Instant>,
    /// The shortest time between two readings of the clock.
    shortest: Duration,
    /// Whether the last sleep was a brief one that nothing ended early, without work since.
    slept_briefly: bool,
}

impl Spinning {
    /// Number of consecutive long waits in vain after which waits become short.
    const IN_VAIN: u32 = 16;
    /// Number of passes of a short wait.
    const SHORT: u32 = 16;
    /// One in this many waits is long in any case; the number doubles each time that the long one was in vain.
    const WAITS_PER_PROBE: u32 = 16;
    /// Upper limit of that number.
    const MOST_WAITS_PER_PROBE: u32 = 1024;
    /// The thread counts as preempted if this much more time has passed between two readings than passes take.
    const PREEMPTED: Duration = Duration::from_micros(20);

    fn new() -> Self {
        Self {
            passes: 0,
            in_vain: 0,
            until_probe: 0,
            probe_interval: Self::WAITS_PER_PROBE,
            preempted: false,
            last_look: None,
            shortest: Duration::MAX,
            slept_briefly: false,
        }
    }

    /// Counts a pass without work, and returns whether a short wait is over. A simulated thread's pass lasts until
    /// something arrives.
    #[inline]
    fn is_over(&mut self) -> bool {
        self.passes = self.passes.saturating_add(1);
        self.passes >= Self::SHORT
            && self.in_vain >= Self::IN_VAIN
            && self.until_probe > 0
            && !thread::is_simulated()
    }

    /// Called after a pass with work.
    #[inline]
    fn found(&mut self) {
        if self.passes > 0 {
            self.found_after_passes();
        }
    }

    fn found_after_passes(&mut self) {
        if self.passes >= Self::SHORT && !self.preempted {
            self.in_vain = 0;
            self.probe_interval = Self::WAITS_PER_PROBE;
        }
        self.slept_briefly = false;
        self.end_wait();
    }

    /// Called with each reading of the clock, [`PASSES_PER_CLOCK`] passes after the last one.
    fn looked(&mut self, now: Instant) {
        if let Some(last) = self.last_look.replace(now) {
            let took = now.duration_since(last);
            self.shortest = self.shortest.min(took);
            if took > 2 * self.shortest + Self::PREEMPTED && !self.preempted {
                self.preempted = true;
                self.in_vain = Self::IN_VAIN;
                self.plan_probe();
            }
        }
    }

    /// Called when nothing has come and the thread has slept; `long` if it was after a long wait.
    fn slept(&mut self, long: bool) {
        if !long {
            self.until_probe -= 1;
        } else if !self.preempted {
            self.in_vain = self.in_vain.saturating_add(1);
            self.plan_probe();
        }
        self.end_wait();
    }

    fn plan_probe(&mut self) {
        self.until_probe = self.probe_interval;
        if self.in_vain >= Self::IN_VAIN {
            self.probe_interval = (2 * self.probe_interval).min(Self::MOST_WAITS_PER_PROBE);
        }
    }

    fn end_wait(&mut self) {
        self.passes = 0;
        self.preempted = false;
        self.last_look = None;
    }
}

/// Schedules the checks for failures that do not show in messages, and for passed deadlines. There is always a check
/// before a sleep. Without sleeps the schedule goes by the clock, because the duration of a pass depends on the
/// handlers that it runs, and a turn of the thread's own task may take any time.
#[derive(Default)]
struct Checks {
    passes: u32,
    /// Steps since the last reading of the clock.
    steps: usize,
    next: Option<Instant>,
}

impl Checks {
    /// Called after a pass that did this much work.
    #[inline]
    fn passed(&mut self, work: usize, rounds: &mut impl Rounds) {
        self.passes = self.passes.wrapping_add(1);
        if self.passes % PASSES_PER_CHECK == 0 {
            rounds.check();
        }
        self.steps += 1 + work;
        if self.steps >= STEPS_PER_CLOCK {
            self.steps = 0;
            self.look_at_clock(rounds);
        }
    }

    #[inline(never)]
    fn look_at_clock(&mut self, rounds: &mut impl Rounds) {
        let now = thread::now();
        if now < *self.next.get_or_insert(now + CHECK_INTERVAL) {
            return;
        }
        rounds.check();
        let ended = thread::now();
        let took = ended.duration_since(now);
        self.next = Some(ended + (CHECK_SHARE * took).clamp(CHECK_INTERVAL, LONGEST));
    }
}

/// Serves until the server ends, with turns of `task` in between; sleeps on `wake`.
pub(super) fn run(
    mut rounds: impl Rounds,
    mut task: ThreadTask,
    wait: WaitMode,
    wake: &impl CompletionChannel,
) {
    let mut checks = Checks::default();
    let mut idle_passes = 0u32;
    let mut idle_since: Option<Instant> = None;
    let mut spinning = Spinning::new();
    let mut moved = progress::moved();
    loop {
        let work = rounds.pass();
        if rounds.is_over() {
            break;
        }
        checks.passed(work, &mut rounds);
        let own = task.turn();
        let moves = progress::moved();
        let packets = std::mem::replace(&mut moved, moves) != moves;
        if work > 0 || own == ThreadProgress::Worked || packets {
            idle_passes = 0;
            idle_since = None;
            spinning.found();
            continue;
        }
        if own == ThreadProgress::Waiting {
            // The task is in the position of a caller that waits for answers.
            idle_since = None;
            thread::idle(REST, false);
            continue;
        }
        if !rounds.has_clients() {
            // Whatever comes next comes by mail, which wakes the thread: no latency is at stake, and other pollers may
            // need the core.
            rest(wake, LONGEST_SLEEP);
            continue;
        }
        idle_passes = idle_passes.wrapping_add(1);
        if spinning.is_over() && matches!(wait, WaitMode::Doze { .. }) {
            // If nothing came in a brief sleep, no client was waiting for the core.
            let brief = !spinning.slept_briefly;
            let dozed = sleep(&mut rounds, wake, brief);
            spinning.slept(false);
            spinning.slept_briefly = brief && dozed == Some(Dozed::Slept);
            idle_since = None;
            continue;
        }
        if idle_passes % PASSES_PER_CLOCK != 0 {
            thread::stand_by(REST, idle_passes);
            continue;
        }
        let now = thread::now();
        spinning.looked(now);
        let since = *idle_since.get_or_insert(now);
        if let WaitMode::Doze { spin } = wait {
            if now.duration_since(since) >= spin {
                sleep(&mut rounds, wake, false);
                spinning.slept(true);
                idle_since = None;
            }
        }
    }
    rounds.close();
}

#[cold]
fn sleep(
    rounds: &mut impl Rounds,
    wake: &impl CompletionChannel,
    gives_way: bool,
) -> Option<Dozed> {
    let most = rounds.longest_sleep();
    // Peers are not told of a sleep that will not happen or is not worth it.
    if rounds.has_work() || most < SHORTEST_SLEEP {
        return None;
    }
    let mut polling = Polling {
        rounds,
        wake,
        gives_way,
    };
    let Ok(dozed) = doze(&mut polling, most);
    if dozed == Dozed::Unheard {
        thread::sleep(UNHEARD_PAUSE);
    }
    Some(dozed)
}

/// A poller that is about to sleep.
struct Polling<'a, R, W> {
    rounds: &'a mut R,
    wake: &'a W,
    gives_way: bool,
}

impl<R: Rounds, W: CompletionChannel> Doze for Polling<'_, R, W> {
    type Error = Infallible;

    fn announce(&mut self) -> Result<bool, Infallible> {
        Ok(self.rounds.prepare_sleep())
    }

    fn look(&mut self) -> Result<bool, Infallible> {
        Ok(self.rounds.has_work() || self.rounds.is_ending())
    }

    fn check(&mut self) -> Result<(), Infallible> {
        self.rounds.check();
        Ok(())
    }

    fn sleep(&mut self, most: Duration) -> Result<(), Infallible> {
        // The checks may have found something that is due sooner.
        rest(self.wake, most.min(self.rounds.longest_sleep()));
        Ok(())
    }

    fn gives_way(&self) -> bool {
        self.gives_way
    }
}

#[cold]
fn rest(wake: &impl CompletionChannel, most: Duration) {
    if let Err(error) = wake.wait(most.min(LONGEST_SLEEP)) {
        tracing::error!(%error, "a poller cannot wait for events");
        thread::sleep(Duration::from_millis(1));
    }
}
