//! `dunlin lab hunt`: random loads under random faults; a seed that breaks an invariant is told with the command that
//! replays it.

use dunlin_lab::parallel;

use super::runner;
use crate::commands::Failure;
use crate::output;

/// Random loads under random faults, with invariants checked
#[derive(Debug, clap::Args)]
pub struct Args {
    /// So many seeds, from 0
    #[arg(long, default_value_t = 50, conflicts_with = "seed")]
    seeds: u64,
    /// This seed alone
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds worked on at once; as many as there are cores
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

/// Hunts.
///
/// # Errors
/// When an invariant is broken.
pub fn run(args: &Args) -> Result<(), Failure> {
    let seeds: Vec<u64> = match args.seed {
        Some(seed) => vec![seed],
        None => (0..args.seeds).collect(),
    };
    let outcomes = runner::points(seeds.len(), "seeds", || {
        parallel::map(runner::threads(args.threads), &seeds, |&seed| {
            dunlin_lab::hunt::hunt(seed)
        })
    });
    let (mut failed, mut events, mut posted, mut succeeded) = (0, 0, 0, 0);
    for outcome in &outcomes {
        events += outcome.events;
        posted += outcome.messages.0;
        succeeded += outcome.messages.1;
        if seeds.len() == 1 || !outcome.violations.is_empty() {
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
            output::print(format_args!(
                "  replay: dunlin lab hunt --seed {}",
                outcome.seed
            ))?;
        }
    }
    let count = seeds.len();
    output::print(format_args!(
        "{count} seeds, {posted} messages posted, {succeeded} succeeded, {events} events, {failed} seeds failed"
    ))?;
    if failed > 0 {
        return Err(Failure::new(format!("{failed} of {count} seeds failed")));
    }
    Ok(())
}
