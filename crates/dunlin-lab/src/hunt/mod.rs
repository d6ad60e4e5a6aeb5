//! The hunt: random loads over random clusters under random faults, from one seed, and the invariants that must hold whatever happens.
//!
//! A seed that fails is printed by its number; running it again fails in the same way. What is checked (design §8): each message is
//! delivered exactly once and intact, or reported failed; completions come once and in order; nothing that succeeded is missing;
//! atomics are carried out exactly once; nothing hangs; nothing leaks; the same seed gives the same events.

mod chaos;
mod check;
mod dice;
mod flow;
mod terrain;

use std::sync::{Arc, Mutex};

pub use flow::Kind;

use dice::Dice;
use flow::{Flow, Log};

/// What a seed gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What was there, in words.
    pub scene: String,
    /// Digest of the events.
    pub digest: u64,
    /// Events.
    pub events: u64,
    /// Messages posted, and of those completed well.
    pub messages: (usize, usize),
    /// Invariants that did not hold.
    pub violations: Vec<String>,
}

/// Virtual time after the last fault in which everything must have come to an end: longer than all retries together.
const SETTLE_NS: u64 = 5_000_000_000;

/// Runs one seed.
pub fn hunt(seed: u64) -> Outcome {
    let mut dice = Dice::new(seed);
    let terrain = terrain::build(seed, &mut dice);
    let count = dice.between(1, 8);
    let flows: Vec<Flow> = (0..count)
        .map(|number| Flow::draw(number as usize, &terrain, &mut dice))
        .collect();
    let logs: Vec<Arc<Mutex<Log>>> = flows.iter().map(|flow| flow.start(&terrain)).collect();
    let faults = chaos::run(&terrain, &flows, &mut dice);
    let settled = terrain.cluster.settle(SETTLE_NS);
    let mut violations = Vec::new();
    if !settled {
        violations.push("something still happens long after the last fault".to_owned());
    } else if terrain.cluster.packets_in_flight() > 0 {
        violations.push(format!(
            "{} packets are nowhere",
            terrain.cluster.packets_in_flight()
        ));
    }
    let mut messages = (0, 0);
    for (flow, log) in flows.iter().zip(&logs) {
        let log = log.lock().expect("steps do not panic");
        messages.0 += log.posted;
        messages.1 += log
            .completions
            .iter()
            .filter(|completion| completion.1)
            .count();
        let gone = |host| faults.crashed.contains(&host);
        check::check(flow, &log, gone(flow.from), gone(flow.to), &mut violations);
    }
    let names: Vec<String> = flows.iter().map(Flow::name).collect();
    Outcome {
        seed,
        scene: format!(
            "{}; {}; {}",
            terrain.name,
            names.join(", "),
            faults.words.join(", ")
        ),
        digest: terrain.cluster.digest(),
        events: terrain.cluster.events(),
        messages,
        violations,
    }
}

#[cfg(test)]
mod tests {
    /// 50 seeds; `dunlin lab hunt --seed S` replays one.
    #[test]
    fn fifty_seeds() {
        for seed in 0..50 {
            let outcome = super::hunt(seed);
            assert!(
                outcome.violations.is_empty(),
                "dunlin lab hunt --seed {seed}\n{}\n{}",
                outcome.scene,
                outcome.violations.join("\n")
            );
        }
    }

    /// Digests of seeds 3 and 17: the same in debug and in release. They change with the model, the parameter files and the hunt itself,
    /// and are then to be set to what the failing test prints.
    const GOLDEN: [u64; 2] = [0x8e10_c6e8_1fe8_0525, 0x5b7c_ba3f_a4a0_fc0f];

    #[test]
    fn every_build_and_any_number_of_threads_give_the_same_run() {
        let digests =
            |threads| crate::parallel::map(threads, &[3, 17], |&seed| super::hunt(seed).digest);
        assert_eq!(digests(1), GOLDEN, "{:#018x?}", digests(1));
        assert_eq!(digests(2), GOLDEN);
    }

    #[test]
    fn a_seed_gives_the_same_run() {
        for seed in [3, 17, 29] {
            let (one, two) = (super::hunt(seed), super::hunt(seed));
            assert_eq!(
                (one.digest, one.events),
                (two.digest, two.events),
                "seed {seed}"
            );
        }
        assert_ne!(super::hunt(1).digest, super::hunt(2).digest);
    }
}
