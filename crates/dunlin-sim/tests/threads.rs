//! Simulated threads: time, charges, sharing of a core.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dunlin_sim::{
    Busy, Cluster, HostParameters, Next, NicParameters, Observer, Part, SimDevice, SwitchParameters,
};
use dunlin_verbs::{Device, Work};

fn cluster(slice_ns: u64) -> Cluster {
    let mut host = HostParameters::xeon_gold_5118();
    host.time_slice = slice_ns * 1_000;
    Cluster::star(
        1,
        1,
        &host,
        &NicParameters::connectx_5(),
        &SwitchParameters::z9264f(),
    )
}

/// Starts a thread that works for a microsecond per step and counts its steps.
fn worker(cluster: &Cluster, core: usize) -> Arc<AtomicU64> {
    let steps = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&steps);
    cluster.spawn(cluster.hosts()[0], core, move |_now: u64| {
        count.fetch_add(1, Ordering::Relaxed);
        SimDevice::charge(Work::Compute(1_000));
        Next::Again
    });
    steps
}

#[test]
fn a_step_takes_what_it_was_charged() {
    let cluster = cluster(1_000_000);
    let steps = worker(&cluster, 0);
    cluster.run_for(1_000_000);
    assert!((1000..=1001).contains(&steps.load(Ordering::Relaxed)));
}

#[test]
fn threads_on_one_core_share_its_time_and_those_on_two_do_not() {
    let cluster = cluster(50_000);
    let shared = [
        worker(&cluster, 0),
        worker(&cluster, 0),
        worker(&cluster, 0),
    ];
    let alone = worker(&cluster, 1);
    cluster.run_for(3_000_000);
    let shared = shared.map(|steps| steps.load(Ordering::Relaxed));
    assert!((2_999..=3_001).contains(&alone.load(Ordering::Relaxed)));
    // A slice of 50 µs and a switch of 1.5 µs: a little below a third each.
    assert!(
        shared.iter().all(|steps| (850..=1_050).contains(steps)),
        "{shared:?}"
    );
}

#[test]
fn a_thread_that_blocks_leaves_its_core_to_others() {
    let cluster = cluster(50_000);
    let busy = worker(&cluster, 0);
    cluster.spawn(cluster.hosts()[0], 0, |_now: u64| Next::Block);
    cluster.run_for(1_000_000);
    assert!(busy.load(Ordering::Relaxed) > 900);
}

/// A switch takes longer than the pauses of two of them: the third was given the core and lost it again and again,
/// before it had begun its step.
#[test]
fn a_thread_that_works_is_not_starved_by_those_that_come_while_the_core_changes_to_it() {
    let cluster = cluster(50_000);
    let works = worker(&cluster, 0);
    let counts = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let pauses = [Next::YieldUntil as fn(u64) -> Next, Next::BlockUntil];
    for ((count, pause), ns) in counts.iter().zip(pauses).zip([1_000, 500]) {
        let count = Arc::clone(count);
        cluster.spawn(cluster.hosts()[0], 0, move |now: u64| {
            count.fetch_add(1, Ordering::Relaxed);
            pause(now + ns)
        });
    }
    cluster.run_for(3_000_000);
    let counts = counts.map(|count| count.load(Ordering::Relaxed));
    let works = works.load(Ordering::Relaxed);
    assert!(
        works > 100 && counts.iter().all(|&count| count > 100),
        "{works} {counts:?}"
    );
}

/// Six threads on this many cores that work for up to `longest_ns` per step and then return any `Next`; they end after
/// 40 steps each. Returns the number that have not ended long after they should have.
fn crowd(cluster: &Cluster, seed: u64, cores: usize, longest_ns: u64) -> u64 {
    let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let left = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for number in 0..6 {
        left.fetch_add(1, Ordering::Relaxed);
        let left = Arc::clone(&left);
        let mut steps = 0;
        let step = move |now: u64| {
            // xorshift64 (Marsaglia 2003): each thread of a core draws from its own copy.
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            steps += 1;
            SimDevice::charge(Work::Compute(dice % longest_ns));
            match dice >> 32 & 7 {
                _ if steps == 40 => {
                    left.fetch_sub(1, Ordering::Relaxed);
                    Next::Done
                }
                0 | 1 => Next::Again,
                2 => Next::Yield,
                3 => Next::YieldUntil(now + dice % 7_000),
                4 => Next::PollUntil(now + dice % 9_000),
                _ => Next::BlockUntil(now + dice % 11_000),
            }
        };
        threads.push(cluster.spawn(cluster.hosts()[0], number % cores, step));
        dice = dice.wrapping_mul(0xd134_2543_de82_ef95);
    }
    for round in 0..4_000 {
        cluster.run_for(500 + round % 7 * 300);
        cluster.wake(threads[(round * round % 11 % 6) as usize]);
    }
    cluster.run_for(20_000_000);
    left.load(Ordering::Relaxed)
}

/// A thread that had missed its step, then had another, and ended, was given a slice that it never used: all others
/// waited for it.
#[test]
fn threads_that_end_keep_nobody_from_a_core() {
    for seed in 0..100 {
        assert_eq!(
            crowd(&cluster(5_000), seed, 1, 3_000),
            0,
            "left of seed {seed}"
        );
    }
}

/// Time until which each core is busy, the number of steps, and those that began too early.
#[derive(Default)]
struct Cores {
    busy_until: BTreeMap<u32, u64>,
    steps: u64,
    too_early: Vec<String>,
}

impl Observer for Cores {
    fn busy(&mut self, busy: &Busy<'_>) {
        let Part::Core(core) = busy.part else { return };
        let before = self.busy_until.insert(core, busy.until_ps).unwrap_or(0);
        self.steps += 1;
        if busy.from_ps < before {
            let (from, what) = (busy.from_ps, busy.activity);
            self.too_early.push(format!(
                "core {core}, {what:?} at {from}, busy until {before}"
            ));
        }
    }
}

/// A thread that gave its core up at the end of a step left it at the step's beginning: others took their steps
/// meanwhile. Steps shorter and longer than a slice.
#[test]
fn a_core_does_one_thing_at_a_time() {
    for (seed, longest_ns) in (0..60).zip([3_000, 12_000, 300].into_iter().cycle()) {
        let cluster = cluster(5_000);
        let cores = Arc::new(Mutex::new(Cores::default()));
        cluster.observe(Some(Box::new(Arc::clone(&cores))));
        assert_eq!(
            crowd(&cluster, seed, 2, longest_ns),
            0,
            "left of seed {seed}"
        );
        let cores = cores.lock().expect("nobody panics");
        assert_eq!(cores.steps, 6 * 40);
        assert!(
            cores.too_early.is_empty(),
            "seed {seed}: {:#?}",
            cores.too_early
        );
    }
}

/// A thread that woke itself in a step and then went on with it had its next step before the end of this one.
#[test]
fn a_thread_that_wakes_itself_ends_its_step_first() {
    let cluster = Arc::new(cluster(50_000));
    let cores = Arc::new(Mutex::new(Cores::default()));
    cluster.observe(Some(Box::new(Arc::clone(&cores))));
    let me = Arc::new(Mutex::new(None));
    let (inside, this) = (Arc::downgrade(&cluster), Arc::clone(&me));
    let step = move |_now: u64| {
        let this = *this.lock().expect("nobody panics");
        if let (Some(cluster), Some(this)) = (inside.upgrade(), this) {
            cluster.wake(this);
        }
        SimDevice::charge(Work::Compute(100_000));
        Next::Block
    };
    let thread = cluster.spawn(cluster.hosts()[0], 0, step);
    *me.lock().expect("nobody panics") = Some(thread);
    cluster.run_for(1_000_000);
    cluster.wake(thread);
    cluster.run_for(1_000_000);
    let cores = cores.lock().expect("nobody panics");
    assert!(cores.steps >= 10, "{} steps", cores.steps);
    assert!(cores.too_early.is_empty(), "{:#?}", cores.too_early);
}

#[test]
fn timers_and_wakes_come() {
    let cluster = cluster(50_000);
    let seen = Arc::new(AtomicU64::new(0));
    let last = Arc::clone(&seen);
    let thread = cluster.spawn(cluster.hosts()[0], 0, move |now: u64| {
        last.store(now, Ordering::Relaxed);
        if now < 10_000 {
            Next::BlockUntil(10_000)
        } else {
            Next::Block
        }
    });
    cluster.run_for(50_000);
    assert_eq!(seen.load(Ordering::Relaxed), 10_000);
    cluster.wake(thread);
    cluster.run_for(50_000);
    assert!(seen.load(Ordering::Relaxed) > 50_000);
}

#[test]
fn a_crashed_host_stands_still() {
    let cluster = cluster(50_000);
    let steps = worker(&cluster, 0);
    cluster.run_for(100_000);
    cluster.crash(cluster.hosts()[0]);
    let before = steps.load(Ordering::Relaxed);
    cluster.run_for(100_000);
    assert_eq!(steps.load(Ordering::Relaxed), before);
}

/// A request for a thread too many returns an error, and does not panic.
#[test]
fn a_device_says_when_its_host_has_had_all_threads() {
    let cluster = cluster(1_000_000);
    let host = cluster.hosts()[0];
    let device = cluster.device(host);
    for _ in 0..(1 << 17) - 1 {
        cluster.spawn(host, 1, |_now: u64| Next::Done);
    }
    let more = device.spawn("more".to_owned(), None, Box::new(|| ()));
    let why = more.map(drop).expect_err("a thread too many").to_string();
    assert!(why.contains("131,071"), "{why}");
}
