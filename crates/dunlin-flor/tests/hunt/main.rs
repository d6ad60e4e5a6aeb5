//! Two connections over a network that loses, doubles, delays and reorders packets and kills queue pairs, in virtual
//! time: each message is delivered once or reported, none is torn, and no buffer is used again too soon, at either end.
//!
//! A seed replays its run: `DUNLIN_FLOR_SEED=7 cargo test -p dunlin-flor --test hunt`. `DUNLIN_FLOR_SEEDS=10000` tries
//! more of them.

mod host;
mod nic;
mod random;
mod world;

use std::collections::BTreeMap;

use dunlin_flor::connection::{Counters, Deployment};
use world::World;

/// Seeds that are tried if nothing is said.
const SEEDS: u64 = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[derive(Debug, Default)]
struct Sum {
    runs: u64,
    lost: u64,
    counters: Counters,
}

#[test]
fn each_message_is_delivered_once_or_reported() {
    let one = number("DUNLIN_FLOR_SEED");
    let seeds = one.map_or(0..number("DUNLIN_FLOR_SEEDS").unwrap_or(SEEDS), |seed| {
        seed..seed + 1
    });
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for seed in seeds {
        let mut world = World::new(seed);
        let weather = world.weather();
        if one.is_some() {
            println!("{weather:#?}");
        }
        let run = std::panic::AssertUnwindSafe(|| world.run());
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("DUNLIN_FLOR_SEED={seed}: {weather:#?}");
            std::panic::resume_unwind(panic);
        }
        let name = format!("{:?} {:?}", weather.deployment, weather.service);
        let sum = sums.entry(name).or_default();
        sum.runs += 1;
        for host in &world.hosts {
            sum.lost += u64::from(host.lost);
            let counters = host.connection.counters();
            assert_eq!(counters.violations, 0, "DUNLIN_FLOR_SEED={seed}");
            sum.counters.repeated += counters.repeated;
            sum.counters.spurious += counters.spurious;
            sum.counters.timeouts += counters.timeouts;
            sum.counters.switches += counters.switches;
            sum.counters.duplicates += counters.duplicates;
            sum.counters.late_writes += counters.late_writes;
        }
    }
    for (name, sum) in &sums {
        println!("{name}: {sum:?}");
    }
    // The hunt has to have met what it hunts.
    if one.is_none() {
        assert_eq!(sums.len(), Deployment::ALL.len() + 3, "{:?}", sums.keys());
        let any =
            |what: fn(&Counters) -> u64| sums.values().map(|sum| what(&sum.counters)).sum::<u64>();
        assert!(any(|counters| counters.repeated) > 0);
        assert!(any(|counters| counters.timeouts) > 0);
        assert!(any(|counters| counters.switches) > 0);
        assert!(any(|counters| counters.late_writes) > 0);
    }
}
