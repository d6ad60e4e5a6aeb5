//! `dunlin lab hunt`: runs random loads under random faults; a seed that breaks an invariant is reported with the
//! command that replays it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use dunlin_lab::hunt::{self, Load, Outcome};
use dunlin_lab::parallel;
use serde::Serialize;

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
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Reads the name of a load.
fn load() -> impl TypedValueParser<Value = Load> {
    PossibleValuesParser::new(Load::ALL.map(Load::name)).try_map(|name| {
        let named = |load: &Load| load.name() == name;
        let unknown = || format!("unknown load '{name}'");
        Load::ALL.into_iter().find(named).ok_or_else(unknown)
    })
}

/// The result of a hunt, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Found {
    /// Seeds that ended, of those that were asked for.
    seeds: usize,
    asked: usize,
    events: u64,
    /// Messages and calls that were begun, and of those that succeeded.
    messages: usize,
    succeeded: usize,
    seconds: f64,
    /// What a single seed gave, failed or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Shown>,
    /// Seeds that broke an invariant.
    failures: Vec<Shown>,
}

/// What one seed gave.
#[derive(Clone, Debug, Serialize)]
struct Shown {
    seed: u64,
    scene: String,
    events: u64,
    /// As in the text, since not every reader of JSON has integers of 64 bits.
    digest: String,
    messages: usize,
    succeeded: usize,
    violations: Vec<String>,
    /// The command that runs it again.
    replay: String,
}

impl Shown {
    fn new(outcome: Outcome, load: Option<Load>) -> Self {
        let load = load.map(|load| format!(" --load {}", load.name()));
        let (seed, load) = (outcome.seed, load.unwrap_or_default());
        let (messages, succeeded) = outcome.messages;
        Self {
            seed,
            scene: outcome.scene,
            events: outcome.events,
            digest: format!("{:016x}", outcome.digest),
            messages,
            succeeded,
            violations: outcome.violations,
            replay: format!("dunlin lab hunt --seed {seed}{load}"),
        }
    }

    fn print(&self) -> Result<(), Failure> {
        output::print(format_args!(
            "seed {}: {}\n  {} events, digest {}, messages {:?}",
            self.seed,
            self.scene,
            self.events,
            self.digest,
            (self.messages, self.succeeded)
        ))?;
        for violation in &self.violations {
            output::print(format_args!("  VIOLATED: {violation}"))?;
        }
        match self.violations.is_empty() {
            true => Ok(()),
            false => output::print(format_args!("  replay: {}", self.replay)),
        }
    }
}

impl Found {
    fn new(mut outcomes: Vec<Outcome>, asked: usize, load: Option<Load>, took: Duration) -> Self {
        outcomes.sort_by_key(|outcome| outcome.seed);
        let total = |of: fn(&Outcome) -> usize| outcomes.iter().map(of).sum();
        Self {
            seeds: outcomes.len(),
            asked,
            events: outcomes.iter().map(|outcome| outcome.events).sum(),
            messages: total(|outcome| outcome.messages.0),
            succeeded: total(|outcome| outcome.messages.1),
            seconds: took.as_secs_f64(),
            outcome: match outcomes.as_slice() {
                [one] if asked == 1 => Some(Shown::new(one.clone(), load)),
                _ => None,
            },
            failures: outcomes
                .into_iter()
                .filter(|outcome| !outcome.violations.is_empty())
                .map(|outcome| Shown::new(outcome, load))
                .collect(),
        }
    }

    fn print(&self) -> Result<(), Failure> {
        match &self.outcome {
            Some(outcome) => outcome.print()?,
            None => self.failures.iter().try_for_each(Shown::print)?,
        }
        let (messages, succeeded, events) = (self.messages, self.succeeded, self.events);
        let (seeds, failed) = (self.seeds, self.failures.len());
        output::print(format_args!(
            "{seeds} seeds, {messages} messages posted, {succeeded} succeeded, {events} events, {failed} seeds failed"
        ))
    }
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
    let (asked, load, threads) = (seeds.len(), args.load, runner::threads(args.threads));
    let ended = Arc::new(Mutex::new(Vec::new()));
    let outcomes = Arc::clone(&ended);
    let started = Instant::now();
    // Seeds that are left at Ctrl-C are not begun.
    runner::points(asked, "seeds", move || {
        parallel::map(threads, &seeds, |&seed| {
            if interrupt::came() {
                return;
            }
            let outcome = match load {
                None => hunt::hunt(seed),
                Some(load) => hunt::hunt_with(load, seed),
            };
            runner::lock(&outcomes).push(outcome);
        });
    });
    let outcomes = std::mem::take(&mut *runner::lock(&ended));
    let found = Found::new(outcomes, asked, load, started.elapsed());
    match args.json {
        true => output::print_json(&found)?,
        false => found.print()?,
    }
    let (failed, count) = (found.failures.len(), found.seeds);
    if failed > 0 {
        return Err(Failure::new(format!("{failed} of {count} seeds failed")));
    }
    interrupt::check()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(seed: u64, violations: &[&str]) -> Outcome {
        Outcome {
            seed,
            scene: "a scene".to_owned(),
            digest: u64::MAX,
            events: 10,
            messages: (5, 4),
            violations: violations.iter().map(|&words| words.to_owned()).collect(),
        }
    }

    #[test]
    fn failures_are_told_with_their_seeds_and_how_to_replay_them() {
        let outcomes = vec![outcome(8, &["it hangs"]), outcome(7, &[])];
        let found = Found::new(outcomes, 3, Some(Load::Calls), Duration::from_secs(1));
        let found = serde_json::to_value(found).expect("an object");
        assert_eq!((&found["seeds"], &found["asked"]), (&2.into(), &3.into()));
        assert_eq!(
            (&found["events"], &found["messages"]),
            (&20.into(), &10.into())
        );
        let failures = found["failures"].as_array().expect("a list");
        assert_eq!(failures.len(), 1, "{found}");
        assert_eq!(failures[0]["seed"], 8);
        assert_eq!(failures[0]["violations"][0], "it hangs");
        assert_eq!(failures[0]["digest"], "ffffffffffffffff");
        let replay = "dunlin lab hunt --seed 8 --load calls";
        assert_eq!(failures[0]["replay"], replay);
        assert!(found.get("outcome").is_none(), "{found}");
    }
}
