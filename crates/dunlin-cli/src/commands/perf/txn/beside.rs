//! `dunlin perf txn --against`: other databases under the same load, in turns with Dunlin's.

use std::time::Duration;

use dunlin::txn::Database;
use serde::Serialize;

use super::{ours, Args, Found};
use crate::commands::Failure;
use crate::histogram::Percentiles;
use crate::kv_load::peer::{Peer, Program};
use crate::limits::survey::median;
use crate::txn_load::{measure_theirs, postgres, redis, Draws, Engine, Tally};
use crate::{interrupt, output};

/// Time before each turn that is not counted, in which all sides wake up.
const WARM_UP: Duration = Duration::from_millis(100);
/// Generous estimate of a server's memory for each row.
const ROW_BYTES: usize = 2048;

/// A database to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Beside {
    /// Redis (7 or later), which must be installed
    Redis,
    /// PostgreSQL, which must be installed
    Postgres,
}

/// A running database that has the load's rows.
pub(super) struct Other {
    // Connections end before the process that they go to.
    engines: Vec<Box<dyn Engine>>,
    peer: Peer,
}

/// The results of another database, and Dunlin's relative to it.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    /// Its name and version.
    against: String,
    /// Committed transactions per second: the median of the turns.
    rate_per_s: f64,
    /// The share of transactions aborted by others among those that others could abort.
    abort_share: f64,
    /// Time from the beginning of a transaction to the response that it has committed.
    latency_ns: Percentiles,
    declined: u64,
    committed: u64,
    aborted: u64,
    /// Dunlin's rate divided by its rate, turn by turn.
    ratio: Spread,
}

/// The spread of the ratios of all turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self {
            median: median(&values),
            low: values.first().copied().unwrap_or_default(),
            high: values.last().copied().unwrap_or_default(),
        }
    }
}

/// Starts all databases to be measured, and loads their rows.
pub(super) fn start(args: &Args) -> Result<Vec<Other>, Failure> {
    if args.against.is_empty() {
        return Ok(Vec::new());
    }
    let draws = draws(args)?;
    let mut wanted = args.against.clone();
    wanted.dedup();
    wanted
        .into_iter()
        .map(|one| one.start(args, &draws))
        .collect()
}

fn draws(args: &Args) -> Result<Draws, Failure> {
    Draws::named(&args.workload, args.rows).ok_or_else(|| {
        let words = format!("--against: the others cannot execute {}", args.workload);
        Failure::usage(words).help("they can execute smallbank and tatp")
    })
}

impl Beside {
    fn start(self, args: &Args, draws: &Draws) -> Result<Other, Failure> {
        let bar = output::progress_bar();
        bar.set_message(match self {
            Self::Redis => "filling Redis",
            Self::Postgres => "filling PostgreSQL",
        });
        let rows_each = if args.workload == "tatp" { 10 } else { 2 };
        let progress = |done: usize| {
            bar.set_position((done as u64 * 1000 / (args.rows * rows_each)).min(1000));
        };
        let threads = usize::from(args.threads);
        let each = usize::from(args.transactions);
        match self {
            Self::Redis => {
                let memory = (args.rows as usize).saturating_mul(ROW_BYTES);
                let peer = Peer::start(Program::Redis, memory)?;
                redis::Connection::open(peer.socket())?.load(draws, progress)?;
                let open = |_| Ok(Box::new(redis::Connection::open(peer.socket())?) as _);
                let engines = (0..threads).map(open).collect::<Result<_, Failure>>()?;
                Ok(Other { engines, peer })
            }
            Self::Postgres => {
                let peer = postgres::start(threads * each)?;
                postgres::load(&peer, draws, progress)?;
                let open = |_| {
                    let opened = postgres::Connections::open(peer.socket(), each, draws);
                    opened.map(|connections| Box::new(connections) as _)
                };
                let engines = (0..threads).map(open).collect::<Result<_, Failure>>()?;
                Ok(Other { engines, peer })
            }
        }
    }
}

/// Measures Dunlin's and the other databases in turns; returns Dunlin's total, the median of its rates, and the results
/// of each other one.
pub(super) fn in_turns(
    args: &Args,
    database: &Database,
    mut others: Vec<Other>,
    progress: impl Fn(f64),
) -> Result<(Tally, f64, Vec<Compared>), Failure> {
    let draws = draws(args)?;
    let slice = args.seconds / u32::from(args.turns);
    let mut our_rates = Vec::new();
    let mut our_sum = Tally::default();
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); others.len()];
    let mut sums: Vec<Tally> = others.iter().map(|_| Tally::default()).collect();
    for turn in 0..args.turns {
        ours(args, database, WARM_UP, |_| ())?;
        let tally = ours(args, database, slice, |_| ())?;
        our_rates.push(tally.rate_per_s());
        our_sum.merge_after(tally);
        for (number, other) in others.iter_mut().enumerate() {
            other.run(args, &draws, WARM_UP)?;
            let tally = other.run(args, &draws, slice)?;
            if let Some(why) = &tally.last_error {
                let (errors, version) = (tally.errors, other.peer.version());
                return Err(Failure::new(format!(
                    "{errors} transactions of {version} failed: {why}"
                )));
            }
            rates[number].push(tally.rate_per_s());
            sums[number].merge_after(tally);
        }
        progress(f64::from(turn + 1) / f64::from(args.turns));
        interrupt::check()?;
    }
    let compared = others
        .iter()
        .zip(sums)
        .zip(rates)
        .map(|((other, sum), rates)| {
            let ratios = our_rates.iter().zip(&rates);
            Compared {
                against: other.peer.version().to_owned(),
                abort_share: sum.abort_share(),
                latency_ns: sum.latencies.percentiles(),
                declined: sum.declined,
                committed: sum.committed,
                aborted: sum.aborted,
                ratio: Spread::of(
                    ratios
                        .map(|(ours, theirs)| ours / theirs.max(1e-9))
                        .collect(),
                ),
                rate_per_s: Spread::of(rates).median,
            }
        });
    let compared = compared.collect();
    Ok((our_sum, Spread::of(our_rates).median, compared))
}

impl Other {
    /// Runs all client threads together for this time.
    fn run(&mut self, args: &Args, draws: &Draws, limit: Duration) -> Result<Tally, Failure> {
        let transactions = usize::from(args.transactions);
        std::thread::scope(|scope| {
            let threads = self.engines.iter_mut().map(|engine| {
                scope.spawn(move || measure_theirs(&mut **engine, draws, transactions, limit))
            });
            Tally::of_threads(threads.collect())
        })
    }
}

/// Prints a table with a column for each database.
pub(super) fn print(found: &Found) -> Result<(), Failure> {
    let ours = format!("ours, {}", found.protocol);
    let mut heads = vec![found.workload.as_str(), ours.as_str()];
    heads.extend(found.against.iter().map(|other| other.against.as_str()));
    let mut table = output::table(&heads);
    let nanoseconds = |value: u64| output::nanoseconds(value as f64);
    let share = |share: f64| format!("{:.2} %", share * 100.0);
    let mut add = |name: &str, ours: String, other: &dyn Fn(&Compared) -> String| {
        let mut cells = vec![name.to_owned(), ours];
        cells.extend(found.against.iter().map(other));
        table.add_row(cells);
    };
    let place = format!("{}, {}", found.device, found.preset);
    add("device, preset", place, &|_| "unix socket".to_owned());
    let rate = output::rate(found.rate_per_s);
    add("committed, median", rate, &|other| {
        output::rate(other.rate_per_s)
    });
    add("ours over it, median", String::new(), &|other| {
        format!("{:.2}", other.ratio.median)
    });
    add("lowest and highest", String::new(), &|other| {
        format!("{:.2} to {:.2}", other.ratio.low, other.ratio.high)
    });
    let aborted = share(found.abort_share);
    add("aborted by others", aborted, &|other| {
        share(other.abort_share)
    });
    let declined = found.declined.to_string();
    add("declined by themselves", declined, &|other| {
        other.declined.to_string()
    });
    add("errors", found.errors.to_string(), &|_| "0".to_owned());
    let latency = &found.latency_ns;
    add("median", nanoseconds(latency.p50), &|other| {
        nanoseconds(other.latency_ns.p50)
    });
    add("99 %", nanoseconds(latency.p99), &|other| {
        nanoseconds(other.latency_ns.p99)
    });
    add("slowest", nanoseconds(latency.max), &|other| {
        nanoseconds(other.latency_ns.max)
    });
    output::print(table)
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn a_spread_is_lowest_middle_and_highest() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]);
        assert_eq!((spread.low, spread.median, spread.high), (1.0, 2.0, 3.0));
    }
}
