//! How a thread falls asleep, whoever it is: a caller that waits, a poller, the thread of a connection handle, the
//! driver of futures.
//!
//! It tells its peers, and may not sleep before they are known to have heard of it: a peer that has not wakes nobody.
//! Then it looks on for longer than a store takes to become visible anywhere, looks for failures, which messages do not
//! show, and sleeps for a bounded time.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dunlin_verbs::thread;

/// How long a thread looks on after it has announced its sleep: longer than a store takes to become visible anywhere.
const GRACE: Duration = Duration::from_micros(20);
/// Longest sleep of one that has not looked on before.
const BRIEF: Duration = Duration::from_micros(200);
/// Longest sleep: bounds the harm of a wake-up that was lost after all.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// Sleeps of this process, and those that ended by their bound though there was something to do.
static SLEEPS: AtomicU64 = AtomicU64::new(0);
static LATE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The same of simulated threads.
    static SIMULATED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// One who may fall asleep.
pub(crate) trait Doze {
    /// What ends it all.
    type Error;
    /// Tells all peers. `false`: not all are known to have heard of it.
    fn announce(&mut self) -> Result<bool, Self::Error>;
    /// Takes what has come, or sees that it is there; `false`: nothing.
    fn look(&mut self) -> Result<bool, Self::Error>;
    /// Looks for failures.
    fn check(&mut self) -> Result<(), Self::Error>;
    /// Sleeps until it is woken, for `most` at most.
    fn sleep(&mut self, most: Duration) -> Result<(), Self::Error>;
    /// Whether who is waited for may be waiting for this core: then it does not look on, and sleeps for [`BRIEF`] at
    /// most, which bounds the harm where a peer had not heard of it.
    fn gives_way(&self) -> bool {
        false
    }
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dozed {
    /// Not all peers have heard of it yet.
    Unheard,
    /// Something came before it slept, or ended a brief sleep.
    Found,
    /// It slept, and woke.
    Slept,
}

/// Falls asleep for `most` at most, unless something comes before.
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

/// Sleeps of this process since its start, and how many of them ended by their bound though there was something to do:
/// next to none, as long as no wake-up is lost.
/// Asked by a simulated thread it is of those that run on the same real one.
#[cfg(feature = "conformance")]
pub(crate) fn sleeps() -> (u64, u64) {
    match thread::is_simulated() {
        true => simulated_sleeps(),
        false => (SLEEPS.load(Ordering::Relaxed), LATE.load(Ordering::Relaxed)),
    }
}

/// Sleeps of all simulated threads that the calling real one has run, and how many of them ended by their bound though
/// there was something to do: none, as long as no wake-up is lost.
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

    /// What it is told to find at each look, and what it did.
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
