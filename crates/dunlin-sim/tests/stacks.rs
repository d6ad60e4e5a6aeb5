//! Simulated threads with stacks: blocking code in virtual time.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin_sim::{Cluster, HostParameters, NicParameters, SimDevice, SwitchParameters};
use dunlin_verbs::{thread, CompletionChannel, Device, Work};

fn cluster() -> Cluster {
    Cluster::star(
        1,
        1,
        &HostParameters::epyc_7452(),
        &NicParameters::connectx_5(),
        &SwitchParameters::z9264f(),
    )
}

#[test]
fn the_clock_is_virtual_and_charges_and_sleeps_pass_on_it() {
    let cluster = cluster();
    let took = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&took);
    cluster.spawn_thread(cluster.hosts()[0], 0, move || {
        let begun = thread::now();
        let mut log = log.lock().unwrap();
        SimDevice::charge(Work::Compute(700));
        log.push(thread::now().duration_since(begun));
        thread::sleep(Duration::from_millis(3));
        log.push(thread::now().duration_since(begun));
    });
    cluster.run_for(10_000_000);
    let took = took.lock().unwrap();
    assert_eq!(took[0], Duration::from_nanos(700));
    assert_eq!(took[1], Duration::from_nanos(3_000_700));
}

/// Two threads that take turns through an atomic, spinning, on two cores and on one.
fn ping_pong(cores: [usize; 2]) -> (u64, u64) {
    const TURNS: u64 = 100;
    let cluster = cluster();
    let turn = Arc::new(AtomicU64::new(0));
    let ended = Arc::new(AtomicU64::new(0));
    for (me, core) in cores.into_iter().enumerate() {
        let (turn, ended) = (Arc::clone(&turn), Arc::clone(&ended));
        cluster.spawn_thread(cluster.hosts()[0], core, move || {
            let begun = thread::now();
            loop {
                let now = turn.load(Ordering::Relaxed);
                if now == TURNS {
                    break;
                }
                if now % 2 == me as u64 {
                    SimDevice::charge(Work::SharedLine);
                    turn.store(now + 1, Ordering::Relaxed);
                } else {
                    thread::yield_now();
                }
            }
            let took = thread::now().duration_since(begun).as_nanos() as u64;
            ended.fetch_max(took, Ordering::Relaxed);
        });
    }
    cluster.run_for(1_000_000_000);
    assert_eq!(turn.load(Ordering::Relaxed), TURNS);
    (ended.load(Ordering::Relaxed), cluster.digest())
}

#[test]
fn threads_overlap_and_share_a_core_by_yielding() {
    let (apart, digest) = ping_pong([0, 1]);
    // There, a turn costs the transfer of a line, and at least one look.
    assert!((8_000..40_000).contains(&apart), "{apart} ns");
    assert_eq!(ping_pong([0, 1]).1, digest);
    let (together, _) = ping_pong([0, 0]);
    // A switch of 1.5 µs for each turn.
    assert!((150_000..400_000).contains(&together), "{together} ns");
}

#[test]
fn who_wakes_on_a_busy_core_does_not_wait_for_the_end_of_a_slice() {
    let cluster = cluster();
    let host = cluster.hosts()[0];
    let ticks = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&ticks);
    cluster.spawn_thread(host, 0, move || loop {
        thread::sleep(Duration::from_micros(100));
        count.fetch_add(1, Ordering::Relaxed);
    });
    cluster.spawn_thread(host, 0, || loop {
        SimDevice::charge(Work::Compute(70));
    });
    cluster.run_for(10_000_000);
    // Each sleep also costs a wake-up and a switch.
    assert!(
        (90..100).contains(&ticks.load(Ordering::Relaxed)),
        "{ticks:?}"
    );
}

#[test]
fn who_parks_is_woken_and_a_wake_up_before_the_sleep_is_not_lost() {
    let cluster = cluster();
    let host = cluster.hosts()[0];
    let waker = Arc::new(Mutex::new(None));
    let woken = Arc::new(AtomicU64::new(0));
    let (place, time) = (Arc::clone(&waker), Arc::clone(&woken));
    cluster.spawn_thread(host, 0, move || {
        *place.lock().unwrap() = Some(thread::waker());
        let begun = thread::now();
        // The wake-up arrives while it computes.
        SimDevice::charge(Work::Compute(50_000));
        thread::park(Duration::from_secs(1));
        time.store(
            thread::now().duration_since(begun).as_nanos() as u64,
            Ordering::Relaxed,
        );
    });
    cluster.spawn_thread(host, 1, move || {
        thread::sleep(Duration::from_micros(10));
        waker.lock().unwrap().as_ref().unwrap().wake_by_ref();
    });
    cluster.run_for(2_000_000_000);
    let woken = woken.load(Ordering::Relaxed);
    assert!((50_000..60_000).contains(&woken), "{woken} ns");
}

#[test]
fn a_completion_channel_blocks_one_thread_until_another_wakes_it() {
    let cluster = cluster();
    let host = cluster.hosts()[0];
    let device = cluster.device(host);
    let channel = device.create_completion_channel().unwrap();
    let results = Arc::new(Mutex::new(Vec::new()));
    let (own, log) = (channel.clone(), Arc::clone(&results));
    cluster.spawn_thread(host, 0, move || {
        let first = own.wait(Duration::from_micros(5)).unwrap();
        let second = own.wait(Duration::from_secs(1)).unwrap();
        log.lock().unwrap().extend([first, second]);
    });
    cluster.spawn_thread(host, 0, move || {
        thread::sleep(Duration::from_micros(100));
        channel.wake();
    });
    cluster.run_for(1_000_000);
    assert_eq!(*results.lock().unwrap(), [false, true]);
}

#[test]
fn a_thread_that_a_device_starts_can_be_waited_for_from_outside() {
    let cluster = cluster();
    let device = cluster.device(cluster.hosts()[0]);
    let steps = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&steps);
    let run = move || {
        for _ in 0..100 {
            thread::sleep(Duration::from_micros(1));
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let running = device.spawn("counter".into(), None, Box::new(run)).unwrap();
    running.join().unwrap();
    assert_eq!(steps.load(Ordering::Relaxed), 100);
    assert!(!thread::is_simulated());
}

#[test]
fn a_panic_reaches_who_lets_time_pass_and_the_others_go_on() {
    let cluster = cluster();
    cluster.spawn_thread(cluster.hosts()[0], 0, || {
        thread::sleep(Duration::from_micros(1));
        panic!("as said");
    });
    let run = || cluster.run_for(1_000_000);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"as said"));
    assert!(!thread::is_simulated());
    let after = Arc::new(AtomicU64::new(0));
    let time = Arc::clone(&after);
    cluster.spawn_thread(cluster.hosts()[0], 0, move || {
        thread::sleep(Duration::from_micros(1));
        time.store(1, Ordering::Relaxed);
    });
    cluster.run_for(1_000_000);
    assert_eq!(after.load(Ordering::Relaxed), 1);
}
