//! `dunlin perf kv`: measures the key-value store under a load, also against others.

use std::time::Duration;

use dunlin::Address;
use serde::Serialize;

use crate::affinity;
use crate::against::{self, Look};
use crate::commands::{connect, Failure};
use crate::input::parse_bytes;
use crate::interrupt;
use crate::kv_load::memcached::Memcached;
use crate::kv_load::peer::{Peer, Program};
use crate::kv_load::redis::Redis;
use crate::kv_load::{name, Alone, Engine, Load, Ours};
use crate::output;
use crate::report::{check_errors, Report, Setting, Tally};
use crate::services::child::ServerProcess;
use crate::services::kv::{Settings, ENTRY_BYTES, SCAN_BYTES};
use crate::workload::{Keys, Mix, Workload, Zipf, MAX_SCAN};

/// Measure the key-value store between two processes, optionally against memcached or Redis
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --address, `dunlin serve kv` is started in a process pinned to the second core and filled, and one thread on \
the first core runs the workload. With --against memcached or redis, that program is started on a Unix socket with \
one thread on the same core, filled with the same entries and given the same operations with as many outstanding; the \
two are measured in turns, and the ratios are medians of the turns. Redis scans a sorted set of keys and values. With \
--against store, the competitor is the same store with its index in the client's process, which executes one \
operation after another without any call.\n\n\
Examples:\n  \
  dunlin perf kv                                           100-byte values, 100,000 keys\n  \
  dunlin perf kv --against memcached --json | jq .ratio\n  \
  dunlin perf kv --workload ycsb-a --against redis\n  \
  dunlin perf kv --workload scan --outstanding 8\n  \
  dunlin perf kv --workload scan --scan-most 64 --against store\n  \
  dunlin perf kv --keys 1000000 --value-size 1KiB")]
pub struct Args {
    /// Operations to run
    #[arg(long, value_enum, default_value = "get")]
    workload: Workload,
    /// Entries loaded before the measurement
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    keys: u32,
    /// Bytes of a value, at least 2
    #[arg(long, default_value_t = 100, value_parser = parse_bytes(2..=1 << 20))]
    value_size: u32,
    /// Skew of the keys by Zipf's law; 0 is uniform [default: 0.99 for YCSB, 0 for the others]
    #[arg(long, value_name = "THETA", value_parser = parse_skew)]
    zipf: Option<f64>,
    /// Maximum number of entries in a scan; the minimum is one
    #[arg(long, value_name = "ENTRIES", default_value_t = MAX_SCAN, value_parser = clap::value_parser!(u8).range(1..))]
    scan_most: u8,
    /// Calls outstanding
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=512))]
    outstanding: u32,
    /// Seconds to measure
    #[arg(long, default_value = "3", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    seconds: Duration,
    /// Use this server instead of starting one (`dunlin serve kv`); its entries are overwritten
    #[arg(long)]
    address: Option<Address>,
    /// Memory of the server's store [default: what the workload is likely to need]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes(1 << 20..=u32::MAX))]
    memory: Option<u32>,
    /// Compare with this, in turns, and print the ratios
    #[arg(long, value_enum)]
    against: Option<Beside>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: connect::Options,
}

/// What to compare the store with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Beside {
    /// Raw limits of the machine for messages of the values' size
    Limits,
    /// memcached (1.6 or later), which must be installed
    Memcached,
    /// Redis (6.2 or later), which must be installed
    Redis,
    /// The same store in this process, without calls
    Store,
}

/// The JSON object.
#[derive(Debug, Serialize)]
struct KvReport {
    workload: String,
    keys: u32,
    zipf: f64,
    #[serde(flatten)]
    report: Report,
}

/// Bytes of requests that a socket accepts while the other side waits for room for its responses, with a margin.
const SOCKET_BYTES: u64 = 128 << 10;
/// Number of keys that a workload with inserts may add: as many short ones as fit into the added memory.
const ADDED_KEYS: u64 = 4 << 20;
/// The seed of all streams of operations, so that all stores execute the same.
const SEED: u64 = 42;

fn parse_skew(text: &str) -> Result<f64, String> {
    let skew: f64 = text
        .parse()
        .map_err(|_| format!("{text} is not a number"))?;
    match (0.0..1.0).contains(&skew) {
        true => Ok(skew),
        false => Err("a skew must be at least 0 and below 1".into()),
    }
}

impl Args {
    fn skew(&self) -> f64 {
        let usual = if self.workload.is_ycsb() { 0.99 } else { 0.0 };
        self.zipf.unwrap_or(usual)
    }

    fn mix(&self) -> Mix {
        let skew = self.skew();
        let keys = match skew > 0.0 {
            true => Keys::Zipf(Zipf::new(self.keys, skew)),
            false => Keys::Uniform(self.keys),
        };
        Mix::new((self.workload, self.scan_most), &keys, SEED)
    }

    /// Memory for the store: twice the entries, plus a GiB for workloads that add some.
    fn memory(&self) -> usize {
        let entry = u64::from(self.value_size) + 96;
        let added = if self.workload.inserts() {
            1 << 30
        } else {
            32 << 20
        };
        let likely = u64::from(self.keys) * entry * 2 + added;
        self.memory
            .map_or(likely as usize, |memory| memory as usize)
    }

    fn check(&self) -> Result<(), Failure> {
        let scans = self.workload.scans();
        let others = matches!(self.against, Some(Beside::Memcached | Beside::Redis));
        if scans && self.against == Some(Beside::Memcached) {
            return Err(Failure::usage(
                "--against memcached: memcached has no scans; use redis",
            ));
        }
        let entry = self.value_size as usize + name(0).len() + ENTRY_BYTES;
        if scans && entry * usize::from(self.scan_most) > SCAN_BYTES {
            let words = format!(
                "--scan-most {}: an answer has at most {SCAN_BYTES} bytes, but an entry has {entry}",
                self.scan_most
            );
            let help = "use fewer or shorter entries (--value-size), so that each scan is one call";
            return Err(Failure::usage(words).help(help));
        }
        let out = u64::from(self.value_size) * u64::from(self.outstanding);
        if others && out > SOCKET_BYTES {
            let words = format!(
                "--against: {out} bytes of values outstanding are more than the {SOCKET_BYTES} that a socket may hold"
            );
            return Err(Failure::usage(words));
        }
        if self.memory() > u32::MAX as usize {
            return Err(Failure::usage("so many entries need more than 4 GiB"));
        }
        Ok(())
    }

    /// Number of keys that the store is sized for.
    fn keys_in_store(&self) -> u64 {
        let added = if self.workload.inserts() {
            ADDED_KEYS
        } else {
            0
        };
        u64::from(self.keys) + added
    }

    fn server(&self) -> Result<ServerProcess, Failure> {
        let mut arguments = vec![
            "--memory".to_owned(),
            self.memory().to_string(),
            "--keys".to_owned(),
            self.keys_in_store().to_string(),
        ];
        if let Some((_, server)) = affinity::client_and_server() {
            arguments.extend(["--pin".to_owned(), server.to_string()]);
        }
        if let Some(device) = self.connect.device() {
            arguments.extend(["--device".to_owned(), device.to_owned()]);
        }
        ServerProcess::start("kv", &arguments)
    }
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    args.check()?;
    interrupt::listen()?;
    let peer = match args.against {
        Some(Beside::Memcached) => Some(Peer::start(Program::Memcached, args.memory())?),
        Some(Beside::Redis) => Some(Peer::start(Program::Redis, args.memory())?),
        Some(Beside::Limits | Beside::Store) | None => None,
    };
    let server = match &args.address {
        Some(_) => None,
        None => Some(args.server()?),
    };
    if let Some((client, _)) = affinity::client_and_server() {
        affinity::pin(client);
    }
    let address = args.address.as_ref();
    let address = address.or(server.as_ref().map(ServerProcess::address));
    let address = address.ok_or_else(|| Failure::new("there is no server"))?;
    let client = args.connect.connect(address)?;
    let setting = Setting {
        device: client.info().device,
        preset: client.info().preset.to_string(),
        threads: 1,
        outstanding: args.outstanding as usize,
        size: args.value_size as usize,
        response_size: None,
    };
    let pipeline = client.pipeline_of(args.outstanding as usize);
    let ours = Ours::new(pipeline.map_err(Failure::new)?, args.workload.scans());
    let mut load = loaded(args, ours, "filling the store")?;
    let mut mix = args.mix();
    let measured = |slice| load.run(&mut mix, slice);
    let report = match (args.against, &peer) {
        (Some(Beside::Memcached), Some(peer)) => {
            let theirs = loaded(
                args,
                Memcached::connect(peer.socket())?,
                "filling memcached",
            )?;
            beside(args, setting, measured, theirs, peer.version())?
        }
        (Some(Beside::Redis), Some(peer)) => {
            let theirs = loaded(args, Redis::connect(peer.socket())?, "filling Redis")?;
            beside(args, setting, measured, theirs, peer.version())?
        }
        (Some(Beside::Store), _) => {
            let settings = Settings {
                memory: args.memory(),
                keys: Some(args.keys_in_store()),
            };
            let theirs = loaded(args, Alone::new(&settings)?, "filling the store alone")?;
            beside(args, setting, measured, theirs, "the store alone")?
        }
        (Some(_), _) => {
            let bar = Bar::new("perf kv");
            against::interleave(&setting, args.seconds, measured, |done| bar.show(done))?
                .ok_or_else(Failure::interrupted)?
                .report(setting)
        }
        (None, _) => alone(args, setting, measured)?,
    };
    drop(load);
    client.close();
    server.map(ServerProcess::stop).transpose()?;
    let whole = KvReport {
        workload: args.workload.name(),
        keys: args.keys,
        zipf: args.skew(),
        report,
    };
    if args.json {
        output::print_json(&whole)?;
    } else {
        output::print_report(&whole.report, false)?;
    }
    let report = &whole.report;
    check_errors(report.errors, "operations", report.first_error.as_ref())?;
    interrupt::check()?;
    match report.rate_per_s > 0.0 {
        true => Ok(()),
        false => Err(Failure::new("no operation was answered")),
    }
}

fn loaded<E: Engine>(args: &Args, engine: E, words: &'static str) -> Result<Load<E>, Failure> {
    let bar = Bar::new(words);
    let (outstanding, value_bytes) = (args.outstanding as usize, args.value_size as usize);
    let mut load = Load::new(engine, outstanding, value_bytes, args.workload.scans());
    load.fill(args.keys, |done| bar.show(done))?;
    Ok(load)
}

/// Measures Dunlin's store and another one in turns.
fn beside<E: Engine>(
    args: &Args,
    setting: Setting,
    measured: impl FnMut(Duration) -> Result<Tally, Failure>,
    mut theirs: Load<E>,
    name: &str,
) -> Result<Report, Failure> {
    let bar = Bar::new("perf kv");
    let mut mix = args.mix();
    let mut errors = 0;
    let look = || {
        let tally = theirs.run(&mut mix, against::MEASURED_SLICE)?;
        errors += tally.errors;
        Ok::<_, Failure>(Look::of_another(&tally))
    };
    let found = against::interleave_with(look, args.seconds, measured, |done| bar.show(done))?;
    if errors > 0 {
        let words = format!("{errors} operations of {name} failed");
        return Err(Failure::new(words));
    }
    let found = found.ok_or_else(Failure::interrupted)?;
    Ok(Report {
        against: Some(name.to_owned()),
        ..found.report(setting)
    })
}

/// Measures in slices, so that the progress bar moves.
fn alone(
    args: &Args,
    setting: Setting,
    mut measured: impl FnMut(Duration) -> Result<Tally, Failure>,
) -> Result<Report, Failure> {
    let bar = Bar::new("perf kv");
    let mut tally = Tally::default();
    while tally.elapsed < args.seconds && !interrupt::came() {
        let left = args.seconds - tally.elapsed;
        tally.merge_after(&measured(left.min(Duration::from_millis(250)))?);
        bar.show(tally.elapsed.as_secs_f64() / args.seconds.as_secs_f64());
    }
    Ok(Report::new(setting, &tally))
}

/// A progress bar that is removed when the work ends in any way.
struct Bar(indicatif::ProgressBar);

impl Bar {
    fn new(words: &'static str) -> Self {
        let bar = output::progress_bar();
        bar.set_message(words);
        Self(bar)
    }

    fn show(&self, done: f64) {
        self.0.set_position((done.min(1.0) * 1000.0) as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
