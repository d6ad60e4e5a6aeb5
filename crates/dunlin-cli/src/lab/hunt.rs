//! `dunlin lab hunt`: runs random loads under random faults; a seed that breaks an invariant is reported with the
//! command that replays it.

use std::sync::{Arc, Mutex};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use dunlin_lab::hunt::{self, Load, Outcome};
use dunlin_lab::parallel;

use super::runner;
use crate::commands::Failure;
use crate::interrupt;
use crate::output;

/// Maximum number of seeds of one run, whose results are kept until all have ended.
const SEEDS_MAX: u64 = 1_000_000;
/// Largest first seed that leaves room for the maximum number of seeds.
const FROM_MAX: u64 = u64::MAX - SEEDS_MAX;

/// Run random loads under random faults, and check invariants
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of seeds
    #[arg(
        long,
        default_value_t = 50,
        conflicts_with = "seed",
        value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX)
    )]
    seeds: u64,
    /// First seed
    #[arg(
        long,
        default_value_t = 0,
        conflicts_with = "seed",
        value_parser = clap::value_parser!(u64).range(..=FROM_MAX)
    )]
    from: u64,
    /// Load to run with every seed: queue pairs, the RPC, or rings [default: each seed draws one, which also changes
    /// its faults]
    #[arg(long, value_parser = load())]
    load: Option<Load>,
    /// Run this seed only
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds simulated at once [default: number of cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

/// Reads the name of a load.
fn load() -> impl TypedValueParser<Value = Load> {
    PossibleValuesParser::new(Load::ALL.map(Load::name)).try_map(|name| {
        let named = |load: &Load| load.name() == name;
        let unknown = || format!("unknown load '{name}'");
        Load::ALL.into_iter().find(named).ok_or_else(unknown)
    })
}

/// Hunts.
///
/// # Errors
/// When an invariant is broken.
pub fn run(args: &Args) -> Result<(), Failure> {
    let seeds: Vec<u64> = match args.seed {
        Some(seed) => vec![seed],
        None => (args.from..args.from + args.seeds).collect(),
    };
    interrupt::listen()?;
    let (alone, load, threads) = (seeds.len() == 1, args.load, runner::threads(args.threads));
    let ended = Arc::new(Mutex::new(Vec::new()));
    let found = Arc::clone(&ended);
    // Seeds that are left at Ctrl-C are not begun.
    runner::points(seeds.len(), "seeds", move || {
        parallel::map(threads, &seeds, |&seed| {
            if interrupt::came() {
                return;
            }
            let outcome = match load {
                None => hunt::hunt(seed),
                Some(load) => hunt::hunt_with(load, seed),
            };
            runner::lock(&found).push(outcome);
        });
    });
    let mut outcomes: Vec<Outcome> = std::mem::take(&mut *runner::lock(&ended));
    outcomes.sort_by_key(|outcome| outcome.seed);
    let (mut failed, mut events, mut posted, mut succeeded) = (0, 0, 0, 0);
    for outcome in &outcomes {
        events += outcome.events;
        posted += outcome.messages.0;
        succeeded += outcome.messages.1;
        if alone || !outcome.violations.is_empty() {
            let (events, digest) = (outcome.events, outcome.digest);
            output::print(format_args!(
                "seed {}: {}\n  {events} events, digest {digest:016x}, messages {:?}",
                outcome.seed, outcome.scene, outcome.messages
            ))?;
        }
        for violation in &outcome.violations {
            output::print(format_args!("  VIOLATED: {violation}"))?;
        }
        if !outcome.violations.is_empty() {
            failed += 1;
            let load = args.load.map(|load| format!(" --load {}", load.name()));
            let (seed, load) = (outcome.seed, load.unwrap_or_default());
            output::print(format_args!(
                "  replay: dunlin lab hunt --seed {seed}{load}"
            ))?;
        }
    }
    let count = outcomes.len();
    output::print(format_args!(
        "{count} seeds, {posted} messages posted, {succeeded} succeeded, {events} events, {failed} seeds failed"
    ))?;
    if failed > 0 {
        return Err(Failure::new(format!("{failed} of {count} seeds failed")));
    }
    interrupt::check()
}
