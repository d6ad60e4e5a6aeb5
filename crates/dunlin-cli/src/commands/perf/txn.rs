//! `dunlin perf txn`: transactions on three server processes.

use std::time::Duration;

use dunlin::txn::{Database, Report, TransactionError, TRANSACTIONS, TRANSACTIONS_MAX};
use dunlin::{Address, Preset};
use serde::Serialize;

use crate::clock::now_ns;
use crate::commands::{connect, Failure};
use crate::histogram::{Latencies, Percentiles};
use crate::services::child::ServerProcess;
use crate::services::store::workload;
use crate::{interrupt, output};

/// Measure transactions on three server processes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --address it starts three server processes of its own, each with a copy of every key. A client thread runs\n\
20 transactions at once; one that is aborted is counted and another is begun. The rate is of those that committed.\n\n\
Workloads: smallbank, tatp, object-R-W (R random keys, W of them changed), ycsb-a, -b, -c, -d, -f.\n\
Protocols, and the preset that goes with each if none is said:\n  \
  fasst      RPC for all; log at the coordinator's replicas    fasst\n  \
  flocktx    validates by READ; backups are the log            flock\n  \
  scaletx    validates by READ, commits by WRITE               scalerpc\n  \
  scaletx-o  scaletx with RPC alone                            scalerpc\n  \
  auto       ours                                              auto\n\n\
Examples:\n  \
  dunlin perf txn                                                  SmallBank, auto\n  \
  dunlin perf txn --workload tatp --protocol fasst --device roce\n  \
  dunlin perf txn --workload object-4-2 --protocol scaletx --preset plain --json | jq .rate_per_s")]
pub struct Args {
    /// What the transactions do
    #[arg(long, default_value = "smallbank")]
    workload: String,
    /// How they validate, log and commit
    #[arg(long, default_value = "auto", value_parser = ["fasst", "flocktx", "scaletx", "scaletx-o", "auto"])]
    protocol: String,
    /// Customers, subscribers or keys
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(2..=100_000_000))]
    rows: u64,
    /// Client threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Transactions that each thread runs at once
    #[arg(long, default_value_t = TRANSACTIONS, value_parser = clap::value_parser!(u16).range(1..=i64::from(TRANSACTIONS_MAX)))]
    transactions: u16,
    /// How long to measure
    #[arg(long, default_value = "3", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    seconds: Duration,
    /// Use this device or fail (see `dunlin devices`)
    #[arg(long, value_parser = connect::parse_device)]
    device: Option<String>,
    /// How calls reach the servers; by default what goes with the protocol
    #[arg(long)]
    preset: Option<Preset>,
    /// A server to use, once for each (`dunlin serve store --load WORKLOAD`), instead of three of our own; they may
    /// replace each other, and are left as they are
    #[arg(long)]
    address: Vec<Address>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Server processes of our own.
const SERVERS: u16 = 3;

/// What was found: one JSON object.
#[derive(Debug, Serialize)]
struct Found {
    protocol: String,
    workload: String,
    /// Transactions that committed, a second.
    rate_per_s: f64,
    /// Of the transactions that others could abort, how many they did.
    abort_share: f64,
    /// Transactions that ended in any other way but their own wish.
    errors: u64,
    /// From the beginning of a transaction to the report that it has committed.
    latency_ns: Percentiles,
    /// Aborted by the transaction itself, as when an account does not cover a payment.
    declined: u64,
    committed: u64,
    aborted: u64,
    /// Ended without effect because the membership of the machines changed, or one of them did not answer until it was
    /// replaced.
    superseded: u64,
    device: String,
    preset: String,
    servers: usize,
    threads: u16,
    transactions: u16,
    rows: u64,
    seconds: f64,
}

#[derive(Debug, Default)]
struct Tally {
    committed: u64,
    aborted: u64,
    declined: u64,
    superseded: u64,
    /// Of an outcome that nobody knows yet.
    unknown: u64,
    /// Machines replace each other, so that one which does not answer is no error.
    replaces: bool,
    errors: u64,
    last_error: Option<String>,
    latencies: Latencies,
    elapsed_ns: u64,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    // Says what there is before servers are started.
    workload(&args.workload, 2)?;
    let preset = args.preset.unwrap_or(match args.protocol.as_str() {
        "fasst" => Preset::Fasst,
        "flocktx" => Preset::Flock,
        "scaletx" | "scaletx-o" => Preset::ScaleRpc,
        _ => Preset::Auto,
    });
    let servers = match args.address.is_empty() {
        true => (0..SERVERS)
            .map(|number| ServerProcess::start("store", &server_arguments(args, number)))
            .collect::<Result<Vec<_>, _>>()?,
        false => Vec::new(),
    };
    let own = servers.iter().map(ServerProcess::address);
    let addresses: Vec<String> = args
        .address
        .iter()
        .chain(own)
        .map(Address::to_string)
        .collect();
    let mut builder = Database::builder().protocol(&args.protocol).preset(preset);
    if let Some(device) = &args.device {
        builder = builder.device(device);
    }
    let database = builder.open(&addresses).map_err(Failure::new)?;
    interrupt::listen()?;
    let bar = output::progress_bar();
    bar.set_message("perf txn");
    let tallies = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads)
            .map(|number| {
                let (database, bar) = (&database, &bar);
                scope.spawn(move || {
                    measure(args, database, |done| {
                        if number == 0 {
                            bar.set_position((done * 1000.0) as u64);
                        }
                    })
                })
            })
            .collect();
        let gone = || Err(Failure::new("a client thread ended early"));
        let tallies = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| gone()));
        tallies.collect::<Result<Vec<_>, _>>()
    })?;
    bar.finish_and_clear();
    let info = database.connection();
    drop(database);
    servers.into_iter().try_for_each(ServerProcess::stop)?;
    let mut sum = Tally::default();
    for tally in tallies {
        sum.committed += tally.committed;
        sum.aborted += tally.aborted;
        sum.declined += tally.declined;
        sum.superseded += tally.superseded;
        sum.errors += tally.errors;
        sum.last_error = sum.last_error.or(tally.last_error);
        sum.latencies.merge(&tally.latencies);
        sum.elapsed_ns = sum.elapsed_ns.max(tally.elapsed_ns);
    }
    let seconds = sum.elapsed_ns as f64 / 1e9;
    let found = Found {
        protocol: args.protocol.clone(),
        workload: args.workload.clone(),
        rate_per_s: sum.committed as f64 / seconds.max(1e-9),
        abort_share: sum.aborted as f64 / (sum.committed + sum.aborted).max(1) as f64,
        errors: sum.errors,
        latency_ns: sum.latencies.percentiles(),
        declined: sum.declined,
        committed: sum.committed,
        aborted: sum.aborted,
        superseded: sum.superseded,
        device: info
            .as_ref()
            .map_or_else(String::new, |info| info.device.clone()),
        preset: info.map_or_else(String::new, |info| info.preset.to_string()),
        servers: addresses.len(),
        threads: args.threads,
        transactions: args.transactions,
        rows: args.rows,
        seconds,
    };
    print(&found, args.json)?;
    if let Some(why) = sum.last_error {
        return Err(Failure::new(format!(
            "{} transactions failed: {why}",
            found.errors
        )));
    }
    interrupt::check()
}

fn server_arguments(args: &Args, number: u16) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let mut say = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    say("--machine", number.to_string());
    say("--machines", SERVERS.to_string());
    say("--load", args.workload.clone());
    say("--rows", args.rows.to_string());
    if let Some(device) = &args.device {
        say("--device", device.clone());
    }
    if args.protocol == "scaletx" {
        arguments.push("--one-sided-writes".to_owned());
    }
    arguments
}

/// One thread's part.
fn measure(args: &Args, database: &Database, progress: impl Fn(f64)) -> Result<Tally, Failure> {
    let mut driver = database.driver(args.transactions).map_err(Failure::new)?;
    let mut load = workload(&args.workload, args.rows)?;
    let mut random = fastrand::Rng::new();
    let mut tally = Tally {
        replaces: database.configuration().is_some(),
        ..Tally::default()
    };
    let limit = args.seconds.as_nanos() as u64;
    let start = now_ns();
    let mut now = start;
    let mut polls = 0_u32;
    while now - start < limit {
        while driver.free() > 0 {
            driver.begin(now, load.next(&mut random));
        }
        let busy = driver.poll(|began, _, report| tally.take(began, report));
        polls = polls.wrapping_add(1);
        if busy || polls % 16 == 0 {
            now = now_ns();
        }
        if polls % 4096 == 0 {
            progress((now - start) as f64 / limit as f64);
            if interrupt::came() {
                break;
            }
        }
        if !busy {
            driver.rest();
        }
    }
    tally.elapsed_ns = now_ns() - start;
    // What is under way ends, and counts no more.
    let end = now_ns();
    while driver.running() > 0 && now_ns() - end < ENDING_NS {
        if !driver.poll(|_, _, report| tally.settle(&report)) {
            driver.rest();
        }
    }
    if tally.unknown > 0 {
        tally.errors += tally.unknown;
        let words = "whether they have committed is not known";
        tally.last_error.get_or_insert_with(|| words.to_owned());
    }
    Ok(tally)
}

/// How long the last transactions may take to end.
const ENDING_NS: u64 = 3_000_000_000;

impl Tally {
    fn take(&mut self, began: u64, report: Report) {
        match report {
            Report::Ended(Ok(_)) => {
                self.committed += 1;
                self.latencies.record(now_ns().saturating_sub(began));
            }
            Report::Ended(Err(TransactionError::Itself)) => self.declined += 1,
            Report::Ended(Err(
                TransactionError::Locked { .. } | TransactionError::Changed { .. },
            )) => {
                self.aborted += 1;
            }
            Report::Ended(Err(TransactionError::Superseded)) => self.superseded += 1,
            Report::Ended(Err(TransactionError::Unavailable { .. })) if self.replaces => {
                self.superseded += 1;
            }
            Report::Ended(Err(TransactionError::Unknown { .. })) => self.unknown += 1,
            Report::Ended(Err(error)) => {
                self.errors += 1;
                self.last_error.get_or_insert_with(|| error.to_string());
            }
            Report::Settled(_) | Report::Undone => self.settle(&report),
        }
    }

    /// What became of one whose outcome was unknown. It is late, so it has no latency.
    fn settle(&mut self, report: &Report) {
        match report {
            Report::Settled(_) => {
                self.unknown = self.unknown.saturating_sub(1);
                self.committed += 1;
            }
            Report::Undone => {
                self.unknown = self.unknown.saturating_sub(1);
                self.superseded += 1;
            }
            Report::Ended(_) => {}
        }
    }
}

fn print(found: &Found, json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json(found);
    }
    let mut table = output::table(&["", found.workload.as_str()]);
    let nanoseconds = |value: u64| output::nanoseconds(value as f64);
    let rows = [
        ("protocol", found.protocol.clone()),
        (
            "device, preset",
            format!("{}, {}", found.device, found.preset),
        ),
        ("committed", output::rate(found.rate_per_s)),
        (
            "aborted by others",
            format!("{:.2} %", found.abort_share * 100.0),
        ),
        ("declined by themselves", found.declined.to_string()),
        (
            "ended with a machine or an epoch",
            found.superseded.to_string(),
        ),
        ("errors", found.errors.to_string()),
        ("median", nanoseconds(found.latency_ns.p50)),
        ("99 %", nanoseconds(found.latency_ns.p99)),
        ("99.9 %", nanoseconds(found.latency_ns.p999)),
        ("slowest", nanoseconds(found.latency_ns.max)),
    ];
    for (name, value) in rows {
        table.add_row([name.to_owned(), value]);
    }
    output::print(table)
}
