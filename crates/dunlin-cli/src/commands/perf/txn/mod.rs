//! `dunlin perf txn`: measures transactions on three server processes, also against other databases.

mod beside;

use std::time::Duration;

use dunlin::txn::server::TableSpec;
use dunlin::txn::{Database, TRANSACTIONS, TRANSACTIONS_MAX};
use dunlin::{Address, Preset};
use serde::Serialize;

use crate::commands::{connect, Failure};
use crate::histogram::Percentiles;
use crate::services::child::ServerProcess;
use crate::services::store::workload;
use crate::txn_load::{measure_ours, OurLoad, Tally};
use crate::{interrupt, output};
use beside::{Beside, Compared};

/// Measure transactions on three server processes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --address, three server processes are started, each with a copy of every key. A client thread keeps 20 \
transactions in flight (--transactions); an aborted one is counted, and another is begun. The rate counts committed \
transactions.\n\n\
With --against redis or postgres (both may be given), that program is started on a Unix socket in its own folder, \
loaded with the same rows and given the same mix (smallbank, tatp) from as many threads with as many transactions in \
flight, in turns with Dunlin; rates are medians of the turns, and ratios are taken within each turn. Each is used as \
suits it best: Redis with single commands and functions executed on the server, over one connection per thread; \
PostgreSQL with prepared statements and functions, one call per transaction, SERIALIZABLE, synchronous_commit off, \
and one connection per transaction in flight. Both are one process without replicas; Dunlin has three processes with \
a copy each.\n\n\
Workloads: smallbank, tatp, object-R-W (R random keys, W of them changed), ycsb-a, -b, -c, -d, -f. \
Protocols, and the default preset of each:\n  \
  fasst      RPC for all; log at the coordinator's replicas    fasst\n  \
  flocktx    validates by READ; backups are the log            flock\n  \
  scaletx    validates by READ, commits by WRITE               scalerpc\n  \
  scaletx-o  scaletx with RPC alone                            scalerpc\n  \
  auto       ours                                              auto\n\n\
Examples:\n  \
  dunlin perf txn                                                  SmallBank, auto\n  \
  dunlin perf txn --workload tatp --protocol fasst --device roce\n  \
  dunlin perf txn --against redis --against postgres --turns 5 --seconds 10\n  \
  dunlin perf txn --workload object-4-2 --protocol scaletx --preset plain --json | jq .rate_per_s")]
pub struct Args {
    /// Workload
    #[arg(long, default_value = "smallbank")]
    workload: String,
    /// Protocol for validation, logging and commit
    #[arg(long, default_value = "auto", value_parser = ["fasst", "flocktx", "scaletx", "scaletx-o", "auto"])]
    protocol: String,
    /// Number of customers, subscribers or keys
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(2..=100_000_000))]
    rows: u64,
    /// Client threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Transactions in flight per thread
    #[arg(long, default_value_t = TRANSACTIONS, value_parser = clap::value_parser!(u16).range(1..=i64::from(TRANSACTIONS_MAX)))]
    transactions: u16,
    /// Seconds to measure
    #[arg(long, default_value = "3", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    seconds: Duration,
    /// Use this device or fail (see `dunlin devices`)
    #[arg(long, value_parser = connect::parse_device)]
    device: Option<String>,
    /// Preset used for calls [default: that of the protocol]
    #[arg(long)]
    preset: Option<Preset>,
    /// Server to use instead of starting three (`dunlin serve store --load WORKLOAD`); repeat for each. Servers may
    /// replace each other, and keep running afterwards with what the transactions have changed
    #[arg(long)]
    address: Vec<Address>,
    /// Database to compare with, in turns; may be given several times
    #[arg(long, value_enum)]
    against: Vec<Beside>,
    /// With --against: number of turns for each database, which share --seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    turns: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Number of server processes that are started.
const SERVERS: u16 = 3;

/// The JSON object.
#[derive(Debug, Serialize)]
struct Found {
    protocol: String,
    workload: String,
    /// Committed transactions per second.
    rate_per_s: f64,
    /// The share of transactions aborted by others among those that others could abort.
    abort_share: f64,
    /// Transactions that failed for any other reason.
    errors: u64,
    /// Time from the beginning of a transaction to the report that it has committed.
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
    /// Other databases, measured in turns with Dunlin's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    against: Vec<Compared>,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    // Says what there is before servers are started.
    let wanted = workload(&args.workload, args.rows)?.tables();
    interrupt::listen()?;
    let others = beside::start(args)?;
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
    check_tables(&database, &wanted, &args.workload)?;
    let bar = output::progress_bar();
    bar.set_message("perf txn");
    let progress = |done: f64| bar.set_position((done * 1000.0) as u64);
    let measured = match others.is_empty() {
        true => ours(args, &database, args.seconds, progress).map(|tally| (tally, None)),
        false => beside::in_turns(args, &database, others, progress)
            .map(|(tally, rate, against)| (tally, Some((rate, against)))),
    };
    bar.finish_and_clear();
    let (sum, compared) = measured?;
    let info = database.connection();
    drop(database);
    servers.into_iter().try_for_each(ServerProcess::stop)?;
    let (rate_per_s, against) = compared.unwrap_or_else(|| (sum.rate_per_s(), Vec::new()));
    let found = Found {
        protocol: args.protocol.clone(),
        workload: args.workload.clone(),
        rate_per_s,
        abort_share: sum.abort_share(),
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
        seconds: sum.elapsed_ns as f64 / 1e9,
        against,
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

/// Rejects tables that are not the workload's, so that nothing else is changed.
fn check_tables(database: &Database, wanted: &[TableSpec], workload: &str) -> Result<(), Failure> {
    let help = format!("use servers that have them: `dunlin serve store --load {workload}`");
    for spec in wanted {
        let table = database.table::<u64, Vec<u8>>(&spec.name);
        let table = table.map_err(|error| Failure::usage(error).help(&help))?;
        let is_same = table.number() == spec.id
            && table
                .value_bytes()
                .is_none_or(|bytes| bytes == spec.value_bytes);
        if !is_same {
            let words = format!(
                "the servers' table '{}' does not match {workload}",
                spec.name
            );
            return Err(Failure::usage(words).help(&help));
        }
    }
    Ok(())
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

/// Runs all client threads together for this time.
fn ours(
    args: &Args,
    database: &Database,
    limit: Duration,
    progress: impl Fn(f64) + Sync,
) -> Result<Tally, Failure> {
    let load = OurLoad {
        workload: &args.workload,
        rows: args.rows,
        transactions: args.transactions,
    };
    std::thread::scope(|scope| {
        let threads = (0..args.threads).map(|number| {
            let progress = &progress;
            let first = move |done| {
                if number == 0 {
                    progress(done);
                }
            };
            scope.spawn(move || measure_ours(load, database, limit, first))
        });
        Tally::of_threads(threads.collect())
    })
}

fn print(found: &Found, json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json(found);
    }
    if !found.against.is_empty() {
        return beside::print(found);
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
        ("99.9 %", output::tail(found.latency_ns.p999)),
        ("slowest", nanoseconds(found.latency_ns.max)),
    ];
    for (name, value) in rows {
        table.add_row([name.to_owned(), value]);
    }
    output::print(table)
}
