//! What a real thread does after an empty poll: it spins while it has its core to itself, and yields where it shares
//! the core.
//!
//! A thread that spins on a contended core holds up the very threads that could produce what it waits for: others of
//! its process, the peer's, or unrelated ones. One process cannot tell which threads exist and on how many cores, but
//! the system tells each thread how often another ran in its place. This is checked once in an [`INTERVAL`] of polling,
//! so a thread whose polls succeed quickly pays nothing. Where all threads that share a core yield to each other, each
//! gets its turn after a few polls rather than after time slices of milliseconds.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Consecutive empty polls before a thread that shares its core yields: as many as have paid off lately. If the thread
/// that it waits for runs on another core, the answer comes sooner than a yield would return; if that thread waits for
/// this core, polling cannot succeed. The upper bound takes about 2 us, which is the cost of switching to another
/// thread and back: a thread that polls for at most this long and then yields never spends more than twice the time of
/// the better choice.
const LOOKS_PER_YIELD: RangeInclusive<u32> = 4..=128;
/// The same for simulated threads, for which one poll lasts until something arrives.
const SIMULATED_LOOKS_PER_YIELD: RangeInclusive<u32> = 4..=32;
/// One in this many waits polls for the maximum count, whatever has paid off: a thread that yields after four polls
/// would not notice that its answer would have come with the thirtieth.
const WAITS_PER_PROBE: u32 = 16;
/// Empty polls between two reads of the clock: about 2 us.
const LOOKS_PER_CLOCK: u32 = 64;
/// Interval between two checks for other threads on the core. It is longer than the few milliseconds that a thread runs
/// before another takes its place.
const INTERVAL: Duration = Duration::from_millis(10);

/// Consecutive empty polls without a pause instruction between them, since a pause lasts as long as several polls. What
/// arrives within a round trip or two is found sooner this way; after that, pausing leaves more of the core to a
/// sibling.
pub(crate) const LOOKS_WITHOUT_PAUSE: u32 = 64;

/// What to do after an empty poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Poll again.
    Look,
    /// Execute a pause instruction.
    Pause,
    /// Yield to other threads.
    Yield,
}

thread_local! {
    static LOOKS: Cell<Looks> = const { Cell::new(Looks::new()) };
    static LOOKED: Cell<u32> = const { Cell::new(0) };
    static SHARES: Cell<bool> = const { Cell::new(false) };
    static BEGAN: Cell<Option<(Instant, Usage)>> = const { Cell::new(None) };
}

/// Counts the empty polls of a thread that shares its core, and decides when it yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// Empty polls since something was found or the thread yielded.
    in_vain: u32,
    per_yield: u32,
    /// Upper bound of `per_yield`.
    most: u32,
    /// Number of waits with few polls until the next one polls for the maximum count; zero if none does.
    until_probe: u32,
}

impl Looks {
    /// For a real thread that has not polled yet.
    pub const fn new() -> Self {
        Self {
            in_vain: 0,
            per_yield: *LOOKS_PER_YIELD.end(),
            most: *LOOKS_PER_YIELD.end(),
            until_probe: WAITS_PER_PROBE,
        }
    }

    /// For a simulated thread.
    pub const fn simulated() -> Self {
        Self {
            in_vain: 0,
            per_yield: *SIMULATED_LOOKS_PER_YIELD.start(),
            most: *SIMULATED_LOOKS_PER_YIELD.end(),
            until_probe: 0,
        }
    }

    /// Counts an empty poll; returns whether to yield now, because polling did not pay off.
    #[inline]
    pub fn in_vain(&mut self, shares: bool) -> bool {
        self.in_vain = self.in_vain.saturating_add(1);
        if !shares || self.in_vain < self.per_yield {
            return false;
        }
        self.gave_up()
    }

    #[inline(never)]
    fn gave_up(&mut self) -> bool {
        self.in_vain = 0;
        let fewest = *LOOKS_PER_YIELD.start();
        if self.per_yield > fewest {
            self.per_yield = (self.per_yield / 2).max(fewest);
        } else if self.until_probe > 0 {
            self.until_probe -= 1;
            if self.until_probe == 0 {
                self.per_yield = self.most;
                self.until_probe = WAITS_PER_PROBE;
            }
        }
        true
    }

    /// Number of empty polls since something was found or the thread yielded.
    pub fn count(&self) -> u32 {
        self.in_vain
    }

    /// Resets the count: what was waited for came in another way.
    #[inline]
    pub fn begin_anew(&mut self) {
        self.in_vain = 0;
    }

    /// Records that something was found. If the thread yielded just before, it arrived meanwhile, and polling did not
    /// pay off.
    #[inline]
    pub fn found(&mut self) {
        if self.in_vain > 0 {
            self.per_yield = (self.per_yield * 2).min(self.most);
            self.in_vain = 0;
        }
    }
}

impl Default for Looks {
    fn default() -> Self {
        Self::new()
    }
}

/// A thread's use of its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Usage {
    /// How often another thread ran in its place although it was runnable.
    displaced: u64,
    /// CPU time that it has used.
    ran: Duration,
}

/// Whether a thread shared its core during this time: others ran there repeatedly or for long. Threads of the system
/// run briefly on every core now and then, which does not count.
fn shares_core(before: Usage, after: Usage, passed: Duration) -> bool {
    let displaced = after.displaced.saturating_sub(before.displaced);
    let ran = after.ran.saturating_sub(before.ran);
    let intervals = (passed.as_millis() / INTERVAL.as_millis()) as u64;
    displaced > 2 * intervals.max(1) || displaced > 0 && ran < passed * 3 / 4
}

/// Records an empty poll of the calling thread.
#[inline]
pub(crate) fn in_vain() -> Next {
    let looked = LOOKED.get().wrapping_add(1);
    LOOKED.set(looked);
    if looked % LOOKS_PER_CLOCK == 0 {
        measure();
    }
    let mut looks = LOOKS.get();
    let yields = looks.in_vain(SHARES.get());
    LOOKS.set(looks);
    if yields {
        Next::Yield
    } else if looks.count() < LOOKS_WITHOUT_PAUSE {
        Next::Look
    } else {
        Next::Pause
    }
}

/// Records that the calling thread has found something.
#[inline]
pub(crate) fn found() {
    let mut looks = LOOKS.get();
    looks.found();
    LOOKS.set(looks);
}

/// Whether the calling thread shares its core with other runnable threads.
#[inline]
pub(crate) fn is_sharing() -> bool {
    SHARES.get()
}

#[cold]
fn measure() {
    let now = Instant::now();
    let Some((began, before)) = BEGAN.get() else {
        BEGAN.set(usage().map(|usage| (now, usage)));
        return;
    };
    let passed = now.saturating_duration_since(began);
    if passed < INTERVAL {
        return;
    }
    let Some(after) = usage() else {
        return;
    };
    SHARES.set(shares_core(before, after, passed));
    BEGAN.set(Some((now, after)));
}

/// The calling thread's use of its core.
#[allow(unsafe_code)]
fn usage() -> Option<Usage> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable and as long as the call expects; all zeros are a valid value of it.
    let (failed, usage) = unsafe {
        let failed = libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        (failed, usage.assume_init())
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs())
            + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    (failed == 0).then(|| Usage {
        displaced: usage.ru_nivcsw.unsigned_abs(),
        ran: time(usage.ru_utime) + time(usage.ru_stime),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    use std::sync::Barrier;

    use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};

    use super::*;
    use crate::thread;

    #[test]
    fn who_has_the_core_alone_never_lets_others_go_first() {
        let mut looks = Looks::new();
        assert!((0..100_000).all(|_| !looks.in_vain(false)));
    }

    fn until_yield(looks: &mut Looks) -> usize {
        (1..).find(|_| looks.in_vain(true)).unwrap()
    }

    #[test]
    fn looks_that_pay_become_more_and_those_that_do_not_fewer() {
        let mut looks = Looks::simulated();
        assert_eq!(until_yield(&mut looks), 4);
        for _ in 0..10 {
            assert!(!looks.in_vain(true));
            looks.found();
        }
        assert_eq!(until_yield(&mut looks), 32);
        // A find after a yield does not show that polling pays off.
        looks.found();
        assert_eq!(until_yield(&mut looks), 16);
        assert_eq!(until_yield(&mut looks), 8);
        assert_eq!(until_yield(&mut looks), 4);
        assert_eq!(until_yield(&mut looks), 4);
    }

    /// The answer comes with the 30th poll: a thread that once yielded after four must discover this.
    #[test]
    fn who_gives_way_too_soon_finds_out_that_looking_would_pay() {
        let mut looks = Looks::new();
        while until_yield(&mut looks) > 4 {}
        let mut waits = 0;
        let mut wait = |looks: &mut Looks| {
            waits += 1;
            let found = (0..30).all(|_| !looks.in_vain(true));
            looks.found();
            found
        };
        assert!((0..100).any(|_| wait(&mut looks)));
        assert!((0..100).all(|_| wait(&mut looks)), "it stays so");
        assert!(waits < 120, "{waits} waits");
    }

    #[test]
    fn looking_where_it_never_pays_costs_little() {
        let mut looks = Looks::new();
        let looked: usize = (0..1000).map(|_| until_yield(&mut looks)).sum();
        assert!(looked < 20 * 1000, "{looked} looks in 1000 waits");
    }

    #[test]
    fn a_core_is_shared_with_who_runs_often_or_long() {
        let usage = |displaced: u64, ran_ms: u64| Usage {
            displaced,
            ran: Duration::from_millis(ran_ms),
        };
        let shares = |displaced: u64, ran_ms: u64, passed_ms| {
            shares_core(
                usage(7, 500),
                usage(7 + displaced, 500 + ran_ms),
                Duration::from_millis(passed_ms),
            )
        };
        assert!(!shares(0, 10, 10));
        assert!(!shares(1, 9, 10), "something short of the system's");
        assert!(shares(3, 9, 10), "one that comes again and again");
        assert!(shares(1, 3, 10), "one that stays");
        assert!(!shares(0, 1, 10), "it slept");
        assert!(!shares(3, 990, 1000), "something short in each 300 ms");
        assert!(shares(1, 3, 400), "one of a hundred");
    }

    /// Each of two threads on one core can make progress only after the other has run. While both spin, the kernel
    /// alternates them by time slices, in each of which the other polls some ten thousand times.
    #[test]
    fn two_that_wait_for_each_other_on_one_core_look_a_few_times() {
        const TURNS: u32 = 2_000;
        let (turn, knowing) = (AtomicU32::new(0), AtomicU32::new(0));
        let looks = AtomicU64::new(0);
        let both = Barrier::new(2);
        let play = |own: u32| {
            let mut set = CpuSet::new();
            let all = sched_getaffinity(None).unwrap();
            let core = (0..CpuSet::MAX_CPU).find(|&core| all.is_set(core)).unwrap();
            set.set(core);
            sched_setaffinity(None, &set).unwrap();
            both.wait();
            // Both must poll until each has noticed that it shares the core: a thread that waited in another way would
            // leave the core to the other.
            let mut known = false;
            while knowing.load(Ordering::Relaxed) < 2 {
                if thread::shares_core() && !std::mem::replace(&mut known, true) {
                    knowing.fetch_add(1, Ordering::Relaxed);
                }
                thread::idle(Duration::ZERO, false);
            }
            let mut vain = 0;
            for mine in (own..2 * TURNS).step_by(2) {
                while turn.load(Ordering::Acquire) != mine {
                    thread::idle(Duration::ZERO, false);
                    vain += 1;
                }
                thread::found();
                turn.store(mine + 1, Ordering::Release);
            }
            looks.fetch_add(vain, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| play(0));
            scope.spawn(|| play(1));
        });
        let each = looks.into_inner() / u64::from(2 * TURNS);
        assert!(each < 500, "{each} looks in vain for each turn");
    }
}
