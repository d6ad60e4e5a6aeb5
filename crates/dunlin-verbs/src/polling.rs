//! What a real thread does after a look in vain: it spins while its core is its own, and lets others go first where it
//! shares it.
//!
//! Whoever waits by spinning on a core that others want keeps waiting who may do what it waits for: another thread of
//! its process, the peer, or somebody else's. Which threads there are and on how many cores cannot be told from one
//! process, but the system tells each thread how often another ran in its place: that is looked at once in an
//! [`INTERVAL`] of looking, so a thread that finds news quickly pays nothing. Where all who share a core let each other
//! go first, each gets its turn after a few looks rather than after slices of milliseconds.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Looks in vain, one after the other, before a thread that shares its core lets others go first: as many as have paid
/// lately. Where who is waited for runs beside us, its answer comes sooner than another thread; where it waits for our
/// core it cannot. The most takes about 2 us, which is what it costs to let another thread run and to come back: who
/// looks for so long at most and then gives way never spends more than twice the time of the better choice.
const LOOKS_PER_YIELD: RangeInclusive<u32> = 4..=128;
/// The same for simulated threads, whose look lasts until news.
const SIMULATED_LOOKS_PER_YIELD: RangeInclusive<u32> = 4..=32;
/// One of so many waits looks as often as it may, whatever has paid: a thread that gives way after four looks does not
/// see that its answer would have come with the thirtieth.
const WAITS_PER_PROBE: u32 = 16;
/// Looks in vain between two looks at the clock: about 2 us.
const LOOKS_PER_CLOCK: u32 = 64;
/// How often a thread asks who else ran: longer than a thread runs before another takes its place, which is some
/// milliseconds.
const INTERVAL: Duration = Duration::from_millis(10);

/// Looks in vain, one after the other, without a pause of the core between them, which lasts as long as several looks.
/// What comes within a round trip or two is found sooner; after that the pause leaves more of the core to a sibling.
pub(crate) const LOOKS_WITHOUT_PAUSE: u32 = 64;

/// What follows a look in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next look.
    Look,
    /// A pause of the core.
    Pause,
    /// Others go first.
    Yield,
}

thread_local! {
    static LOOKS: Cell<Looks> = const { Cell::new(Looks::new()) };
    static LOOKED: Cell<u32> = const { Cell::new(0) };
    static SHARES: Cell<bool> = const { Cell::new(false) };
    static BEGAN: Cell<Option<(Instant, Usage)>> = const { Cell::new(None) };
}

/// Looks in vain of a thread that shares its core, and after how many it lets others go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// Since something was found, or others were let go first.
    in_vain: u32,
    per_yield: u32,
    /// The most that `per_yield` becomes.
    most: u32,
    /// Waits with the fewest looks until the next one looks as often as it may; zero where none does.
    until_probe: u32,
}

impl Looks {
    /// Of a real thread that has not looked yet.
    pub const fn new() -> Self {
        Self {
            in_vain: 0,
            per_yield: *LOOKS_PER_YIELD.end(),
            most: *LOOKS_PER_YIELD.end(),
            until_probe: WAITS_PER_PROBE,
        }
    }

    /// Of a simulated one.
    pub const fn simulated() -> Self {
        Self {
            in_vain: 0,
            per_yield: *SIMULATED_LOOKS_PER_YIELD.start(),
            most: *SIMULATED_LOOKS_PER_YIELD.end(),
            until_probe: 0,
        }
    }

    /// One more look in vain; says whether others go first now, because looking did not pay.
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

    /// How many since something was found, or others were let go first.
    pub fn count(&self) -> u32 {
        self.in_vain
    }

    /// What was waited for came otherwise.
    #[inline]
    pub fn begin_anew(&mut self) {
        self.in_vain = 0;
    }

    /// Something was found. When others had been let go first just before it had come meanwhile, and looking did not
    /// pay for it.
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

/// What a thread has had of its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Usage {
    /// How often another ran in its place while it could have gone on.
    displaced: u64,
    /// How long it ran.
    ran: Duration,
}

/// Whether a thread shares its core, by what it has had of it in this time: another ran again and again, or for long.
/// Something of the system's runs on every core now and then, and shortly.
fn shares_core(before: Usage, after: Usage, passed: Duration) -> bool {
    let displaced = after.displaced.saturating_sub(before.displaced);
    let ran = after.ran.saturating_sub(before.ran);
    let intervals = (passed.as_millis() / INTERVAL.as_millis()) as u64;
    displaced > 2 * intervals.max(1) || displaced > 0 && ran < passed * 3 / 4
}

/// A look in vain of the calling thread.
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

/// The calling thread has found something.
#[inline]
pub(crate) fn found() {
    let mut looks = LOOKS.get();
    looks.found();
    LOOKS.set(looks);
}

/// Whether the calling thread shares its core with others that want it.
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

/// Of the calling thread.
#[allow(unsafe_code)]
fn usage() -> Option<Usage> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is writable and as long as the call expects; all zeros are a value of it, too.
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
        // What has come while others ran says nothing about looking.
        looks.found();
        assert_eq!(until_yield(&mut looks), 16);
        assert_eq!(until_yield(&mut looks), 8);
        assert_eq!(until_yield(&mut looks), 4);
        assert_eq!(until_yield(&mut looks), 4);
    }

    /// What comes with the 30th look: a thread that once gave way after four is to find that out.
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

    /// Each of two threads on one core can go on only when the other has run. While both spin it takes slices of the
    /// system's, in which the other looks some ten thousand times.
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
            // Until both know that they share it both look: who waited otherwise would leave the core to the other.
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
