//! How threads fall asleep, the same for all: a caller that waits, a poller, the thread of a connection handle, the
//! driver of futures.
//!
//! The thread announces its sleep to its peers, and may not sleep before they are known to have received this: a peer
//! that has not wakes nobody. Then it keeps polling for longer than a store takes to become visible anywhere, checks
//! for failures, which messages do not show, and sleeps for a bounded time.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dunlin_verbs::thread;

/// How long a thread keeps polling after it has announced its sleep: longer than a store takes to become visible
/// anywhere.
const GRACE: Duration = Duration::from_micros(20);
/// Longest sleep of a thread that has not polled before.
const BRIEF: Duration = Duration::from_micros(200);
/// Longest sleep: bounds the harm of a lost wake-up.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// Number of sleeps of this process, and of those that ended by timeout although there was something to do.
static SLEEPS: AtomicU64 = AtomicU64::new(0);
static LATE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The same for simulated threads.
    static SIMULATED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// A thread that may fall asleep.
pub(crate) trait Doze {
    /// An error that ends the thread's work.
    type Error;
    /// Announces sleep to all peers. `false`: not all are known to have received it.
    fn announce(&mut self) -> Result<bool, Self::Error>;
    /// Polls once; `false` if nothing has arrived.
    fn look(&mut self) -> Result<bool, Self::Error>;
    /// Checks for failures.
    fn check(&mut self) -> Result<(), Self::Error>;
    /// Sleeps until woken, for `most` at most.
    fn sleep(&mut self, most: Duration) -> Result<(), Self::Error>;
    /// Whether the awaited peer may be waiting for this core. The thread then does not keep polling before it sleeps,
    /// and sleeps for [`BRIEF`] at most, which bounds the harm if a peer had not received the announcement.
    fn gives_way(&self) -> bool {
        false
    }
}

/// The outcome of `doze`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dozed {
    /// Not all peers have received the announcement yet.
    Unheard,
    /// Something arrived before it slept, or ended a brief sleep.
    Found,
    /// It slept and woke up.
    Slept,
}

/// Falls asleep for `most` at most, unless something arrives before.
///
/// # Errors
/// As the methods of `one`.
pub(crate) fn doze<D: Doze>(one: &mut D, most: Duration) -> Result<Dozed, D::Error> {
    if !one.announce()? {
        return Ok(Dozed::Unheard);
    }
    if one.gives_way() {
        one.check()?;
        if one.look()? {
            return Ok(Dozed::Found);
        }
        let most = most.min(BRIEF);
        let began = thread::now();
        one.sleep(most)?;
        let woken = thread::now().duration_since(began) < most;
        return Ok(if woken { Dozed::Found } else { Dozed::Slept });
    }
    let announced = thread::now();
    while thread::now().duration_since(announced) < GRACE {
        if one.look()? {
            return Ok(Dozed::Found);
        }
        thread::relax();
    }
    one.check()?;
    if one.look()? {
        return Ok(Dozed::Found);
    }
    let most = most.min(LONGEST_SLEEP);
    let began = thread::now();
    one.sleep(most)?;
    let woken = thread::now().duration_since(began) < most;
    one.check()?;
    let late = !woken && one.look()?;
    count(late);
    Ok(Dozed::Slept)
}

/// Number of sleeps of this process since its start, and of those that ended by timeout although there was something to
/// do: almost none, as long as no wake-up is lost. Called by a simulated thread, it counts the simulated threads of the
/// same real thread.
#[cfg(feature = "conformance")]
pub(crate) fn sleeps() -> (u64, u64) {
    match thread::is_simulated() {
        true => simulated_sleeps(),
        false => (SLEEPS.load(Ordering::Relaxed), LATE.load(Ordering::Relaxed)),
    }
}

/// Number of sleeps of all simulated threads that the calling real thread has run, and of those that ended by timeout
/// although there was something to do: none, as long as no wake-up is lost.
pub fn simulated_sleeps() -> (u64, u64) {
    SIMULATED.get()
}

fn count(late: bool) {
    if thread::is_simulated() {
        let (sleeps, lates) = SIMULATED.get();
        return SIMULATED.set((sleeps + 1, lates + u64::from(late)));
    }
    SLEEPS.fetch_add(1, Ordering::Relaxed);
    LATE.fetch_add(u64::from(late), Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A scripted thread: what each poll finds, and a record of what it did.
    struct Told {
        heard: bool,
        looks_in_vain: u32,
        log: String,
    }

    impl Doze for Told {
        type Error = &'static str;

        fn announce(&mut self) -> Result<bool, Self::Error> {
            self.log.push('a');
            Ok(self.heard)
        }

        fn look(&mut self) -> Result<bool, Self::Error> {
            if !self.log.ends_with('l') {
                self.log.push('l');
            }
            let found = self.looks_in_vain == 0;
            self.looks_in_vain = self.looks_in_vain.saturating_sub(1);
            Ok(found)
        }

        fn check(&mut self) -> Result<(), Self::Error> {
            self.log.push('c');
            Ok(())
        }

        fn sleep(&mut self, most: Duration) -> Result<(), Self::Error> {
            self.log.push('s');
            if most < Duration::from_millis(1) {
                std::thread::sleep(most);
                return Ok(());
            }
            Err("it was to be short")
        }
    }

    fn told(
        heard: bool,
        looks_in_vain: u32,
        most: Duration,
    ) -> (Result<Dozed, &'static str>, String) {
        let mut one = Told {
            heard,
            looks_in_vain,
            log: String::new(),
        };
        (doze(&mut one, most), one.log)
    }

    #[test]
    fn nobody_sleeps_unheard_or_with_something_to_do() {
        let short = Duration::from_micros(10);
        assert_eq!(told(false, 0, short), (Ok(Dozed::Unheard), "a".into()));
        assert_eq!(told(true, 0, short), (Ok(Dozed::Found), "al".into()));
        assert_eq!(told(true, 1, short), (Ok(Dozed::Found), "al".into()));
    }

    #[test]
    fn a_sleep_is_between_two_looks_for_failures() {
        let slept = told(true, u32::MAX, Duration::from_micros(10));
        assert_eq!(slept, (Ok(Dozed::Slept), "alclscl".into()));
        let long = told(true, u32::MAX, Duration::from_secs(1));
        assert_eq!(long, (Err("it was to be short"), "alcls".into()));
    }
}
