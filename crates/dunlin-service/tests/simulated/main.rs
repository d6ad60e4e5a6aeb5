//! Typed services on simulated hosts, from seeds: unary calls, streams of all kinds, calls that are given up, deadlines
//! that handlers' own calls inherit, a server that is started anew; by tasks, by threads that wait and by pipelines, of
//! handlers that are futures, run on workers or on the polling thread; over any preset, under loss, delay, duplicates,
//! slow hosts, queue pairs that fail and hosts that crash.
//!
//! Whatever happens: each message of a stream comes once and in order, and the stream ends, well or with a status; a
//! unary call is executed once at most, and once when it was answered; no error comes without a cause; a call that is
//! given up has no handler any more; nothing hangs, and nothing is left behind. A seed that fails fails again.
#![allow(missing_docs, unreachable_pub)]

mod blocking;
mod call;
mod callbacks;
mod caller;
mod cut;
mod dice;
mod faults;
mod futures;
mod idle;
mod log;
mod pipelined;
mod resting;
mod scene;
mod service;
mod works;

fn said(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Of a server that was ending while calls for its workers came: they were refused for want of room.
const FOUND: [u64; 2] = [336, 731];

/// 16 seeds and those that found something, or `DUNLIN_SEEDS` from `DUNLIN_SEED` on. Most take a tenth of a second, a
/// few ten seconds: there threads wait for a server that is gone.
#[test]
fn whatever_happens_messages_come_once_and_calls_end() {
    let first = said("DUNLIN_SEED").unwrap_or(17);
    let mut sum = scene::Outcome::default();
    let count = said("DUNLIN_SEEDS");
    let found = FOUND.into_iter().filter(|_| count.is_none());
    for seed in (first..first + count.unwrap_or(16)).chain(found) {
        let outcome = scene::run(seed);
        assert!(
            outcome.wrong.is_empty(),
            "DUNLIN_SEED={seed} DUNLIN_SEEDS=1\n{}\n{}",
            outcome.words,
            outcome.wrong.join("\n")
        );
        sum.add(&outcome);
    }
    println!("{}", sum.figures());
    // What was to be tried was tried.
    let tried = [
        sum.calls.ended_well,
        sum.messages,
        sum.given_up,
        sum.hops,
        sum.by_workers,
        sum.pipelined,
        sum.blocking,
    ];
    assert!(!tried.contains(&0) || count.is_some());
}

#[test]
fn a_seed_gives_the_same_run() {
    for seed in [1, 3] {
        let [one, two] = [(); 2].map(|()| scene::run(seed));
        assert_eq!(
            (one.digest, &one.words),
            (two.digest, &two.words),
            "seed {seed}"
        );
    }
}
