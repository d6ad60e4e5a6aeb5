//! How a polling thread lives: rounds of looking, and sleep when there is nothing to see.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use dunlin_verbs::{thread, CompletionChannel};

use super::thread_task::{ThreadProgress, ThreadTask};
use crate::config::{WaitMode, REST, UNHEARD_PAUSE};
use crate::doze::{doze, Doze, Dozed, LONGEST_SLEEP};

/// Passes without work between two looks at the clock.
const PASSES_PER_CLOCK: u32 = 64;
/// Passes between two looks for failures, which messages do not show; a server that is always busy looks, too.
const PASSES_PER_CHECK: u32 = 1 << 14;
/// Between two looks for failures of a thread that does not sleep because of its own task.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
/// A shorter sleep costs more than it saves.
const SHORTEST_SLEEP: Duration = Duration::from_micros(200);
/// The longest.
pub(super) const LONGEST: Duration = LONGEST_SLEEP;

/// What a polling thread does.
pub(super) trait Rounds {
    /// Serves what has come; says how much that was.
    fn pass(&mut self) -> usize;
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

/// Serves until the server ends, and gives `task` its turns; sleeps on `wake`.
pub(super) fn run(
    mut rounds: impl Rounds,
    mut task: ThreadTask,
    wait: WaitMode,
    wake: &impl CompletionChannel,
) {
    let mut passes = 0u32;
    let mut idle_passes = 0u32;
    let mut turns = 0u32;
    let mut next_check: Option<Instant> = None;
    let mut idle_since: Option<Instant> = None;
    loop {
        let work = rounds.pass();
        if rounds.is_over() {
            break;
        }
        passes = passes.wrapping_add(1);
        if passes % PASSES_PER_CHECK == 0 {
            rounds.check();
        }
        let own = task.turn();
        if own != ThreadProgress::Idle {
            // Its turns may take long, and there is no sleep before which failures are looked for.
            turns = turns.wrapping_add(1);
            if turns % PASSES_PER_CLOCK == 0 {
                let now = thread::now();
                if now >= *next_check.get_or_insert(now + CHECK_INTERVAL) {
                    next_check = Some(now + CHECK_INTERVAL);
                    rounds.check();
                }
            }
        }
        if work > 0 || own == ThreadProgress::Worked {
            idle_passes = 0;
            idle_since = None;
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
        if idle_passes % PASSES_PER_CLOCK != 0 {
            thread::stand_by(REST, idle_passes);
            continue;
        }
        let now = thread::now();
        let since = *idle_since.get_or_insert(now);
        if let WaitMode::Doze { spin } = wait {
            if now.duration_since(since) >= spin {
                sleep(&mut rounds, wake);
                idle_since = None;
            }
        }
    }
    rounds.close();
}

#[cold]
fn sleep(rounds: &mut impl Rounds, wake: &impl CompletionChannel) {
    let most = rounds.longest_sleep();
    // Nobody is told of a sleep that will not be, or is not worth it.
    if rounds.has_work() || most < SHORTEST_SLEEP {
        return;
    }
    let Ok(dozed) = doze(&mut Polling { rounds, wake }, most);
    if dozed == Dozed::Unheard {
        thread::sleep(UNHEARD_PAUSE);
    }
}

/// A poller that may fall asleep.
struct Polling<'a, R, W> {
    rounds: &'a mut R,
    wake: &'a W,
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
}

#[cold]
fn rest(wake: &impl CompletionChannel, most: Duration) {
    if let Err(error) = wake.wait(most.min(LONGEST_SLEEP)) {
        tracing::error!(%error, "a poller cannot sleep");
        thread::sleep(Duration::from_millis(1));
    }
}
