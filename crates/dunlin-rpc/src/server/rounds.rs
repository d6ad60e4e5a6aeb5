//! How a polling thread lives: rounds of looking, and sleep when there is nothing to see.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use dunlin_verbs::{progress, thread, CompletionChannel};

use super::thread_task::{ThreadProgress, ThreadTask};
use crate::config::{WaitMode, REST, UNHEARD_PAUSE};
use crate::doze::{doze, Doze, Dozed, LONGEST_SLEEP};

/// Passes without work between two looks at the clock.
const PASSES_PER_CLOCK: u32 = 64;
/// Passes between two looks for failures, which messages do not show.
const PASSES_PER_CHECK: u32 = 1 << 14;
/// Between two looks for failures of a thread that has so much to do that it does not sleep.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// Such a look at thousands of connections takes long. It is one part in so many of the thread's time, but there is one
/// as often as [`LONGEST`] says.
const CHECK_SHARE: u32 = 100;
/// Passes, and messages that they brought, between two looks at the clock of a thread that does not sleep.
const STEPS_PER_CLOCK: usize = 64;
/// A shorter sleep costs more than it saves.
const SHORTEST_SLEEP: Duration = Duration::from_micros(200);
/// The longest.
pub(super) const LONGEST: Duration = LONGEST_SLEEP;

/// What a polling thread does.
pub(super) trait Rounds {
    /// Serves what has come; says how much that was. It may leave out some of whom nothing is expected.
    fn pass(&mut self) -> usize;
    /// Serves what has come of those that a pass leaves out: after one in which nobody on the thread had anything.
    fn pass_quiet(&mut self) -> usize {
        0
    }
    /// Looks for failures.
    fn check(&mut self);
    /// Whether anybody's messages may come.
    fn has_clients(&self) -> bool;
    /// Whether the thread is to end, now or after what was taken.
    fn is_over(&mut self) -> bool;
    /// Whether it must end at once.
    fn is_ending(&self) -> bool;
    /// Whether a pass would find something.
    fn has_work(&mut self) -> bool;
    /// How long it may sleep.
    fn longest_sleep(&mut self) -> Duration {
        LONGEST
    }
    /// Tells all peers that it will sleep. `false`: not all know it yet.
    fn prepare_sleep(&mut self) -> bool;
    /// Ends all connections.
    fn close(&mut self);
}

/// Whether it pays to look for as long as [`WaitMode`] says before a sleep. It does not where requests come seldom, nor
/// where who sends the next one waits for this core: that one comes as soon as the thread sleeps, and never before. Nor
/// where anybody else does: who looks on is not put aside for who was woken until its time slice ends.
struct Spinning {
    /// Passes without work since the last work or sleep.
    passes: u32,
    /// Times that it looked for so long in vain, one after the other.
    in_vain: u32,
    /// Short waits until one is as long as it may be again.
    until_probe: u32,
    /// Short waits between two that are as long as they may be.
    probe_interval: u32,
    /// Another thread had the core during this wait.
    preempted: bool,
    /// When the clock was looked at last during this wait.
    last_look: Option<Instant>,
    /// The shortest time between two looks at the clock.
    shortest: Duration,
    /// The last sleep was a brief one that nobody ended, and there was no work since.
    slept_briefly: bool,
}

impl Spinning {
    /// Long waits in vain, one after the other, after which they become short.
    const IN_VAIN: u32 = 16;
    /// Passes of a short wait.
    const SHORT: u32 = 16;
    /// One of so many waits is long, whatever has paid; twice as many each time that it was in vain.
    const WAITS_PER_PROBE: u32 = 16;
    /// But no more than this.
    const MOST_WAITS_PER_PROBE: u32 = 1024;
    /// The core was another's when so much more time has passed between two looks than passes take.
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

    /// One more pass without work; whether a short wait is over with it. A simulated thread's pass lasts until news.
    #[inline]
    fn is_over(&mut self) -> bool {
        self.passes = self.passes.saturating_add(1);
        self.passes >= Self::SHORT
            && self.in_vain >= Self::IN_VAIN
            && self.until_probe > 0
            && !thread::is_simulated()
    }

    /// There was work.
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

    /// It has looked at the clock, [`PASSES_PER_CLOCK`] passes after the last time.
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

    /// Nothing had come, and the thread slept; `long`: after having looked for as long as it may.
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

/// When failures are looked for that messages do not show, and deadlines that have passed. There is always a look before
/// a sleep; where there is none this goes by the clock, because a pass takes as long as the handlers that it runs, and a
/// turn of the thread's own task as long as that likes.
#[derive(Default)]
struct Checks {
    passes: u32,
    /// Since the last look at the clock.
    steps: usize,
    next: Option<Instant>,
}

impl Checks {
    /// There was a pass that brought so much.
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

/// Serves until the server ends, and gives `task` its turns; sleeps on `wake`.
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
            // It stands where a caller would that waits for answers.
            idle_since = None;
            thread::idle(REST, false);
            continue;
        }
        if !rounds.has_clients() {
            // Whatever comes next comes by mail, which wakes: nobody's latency is at stake, and other pollers may want
            // the core.
            rest(wake, LONGEST_SLEEP);
            continue;
        }
        idle_passes = idle_passes.wrapping_add(1);
        if spinning.is_over() && matches!(wait, WaitMode::Doze { .. }) {
            // Where nothing has come in a brief sleep nobody was waiting for the core.
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
    // Nobody is told of a sleep that will not be, or is not worth it.
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

/// A poller that may fall asleep.
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
        // What the checks have found may be due sooner.
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
        tracing::error!(%error, "a poller cannot sleep");
        thread::sleep(Duration::from_millis(1));
    }
}
