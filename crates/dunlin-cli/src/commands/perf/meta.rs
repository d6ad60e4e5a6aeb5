//! `dunlin perf meta`: the metadata load of mdtest, through the library: create, stat, read directories, remove.

use std::sync::{Arc, Barrier};
use std::time::Instant;

use dunlin::{Address, Preset};
use dunlin_fs::client::MetaClient;
use dunlin_fs::types::{Attr, Ino, ROOT, S_IFDIR, S_IFREG};
use dunlin_fs::wire::{Ask, Change};
use dunlin_fs::{FsError, FsOptions};
use serde::Serialize;

use crate::commands::serve::read_secret;
use crate::commands::Failure;
use crate::histogram::{Latencies, Percentiles};
use crate::interrupt;
use crate::output;
use crate::services::child::ServerProcess;

/// Where the files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Directories {
    /// All in one directory
    One,
    /// Each client's in its own
    Each,
}

/// Measure a metadata server: files made, looked up, listed and removed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each client is a thread with a session and a connection of its own, and has one call out. All make their files, then all\n\
look them up by name, then all read the whole directory, then all remove them: mdtest's phases, files of no bytes. The\n\
rate of readdir counts entries. What was made and removed is in the journal when it is answered; `--durability power`\n\
has it synced to the disk for each group, which then sets the rate of few clients.\n\n\
Examples:\n  \
  dunlin perf meta                                     8 clients, one directory, a server of its own\n  \
  dunlin perf meta --preset scalerpc --clients 40      as the ScaleRPC paper's file system\n  \
  dunlin perf meta --preset selfrpc --clients 40       its rival\n  \
  dunlin perf meta --directories each --json\n  \
  dunlin perf meta --address dunlin://host:7400        a server that runs already")]
pub struct Args {
    /// Client threads, each with a session of its own
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// Files of each client
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    files: u32,
    /// Where the files are
    #[arg(long, value_enum, default_value_t = Directories::One)]
    directories: Directories,
    /// How calls cross: auto, scalerpc, selfrpc, rawwrite, fasst and all others of `dunlin perf rpc`
    #[arg(long, default_value = "auto")]
    preset: Preset,
    /// Of the server of its own: when a change counts as kept, `process` or `power`
    #[arg(long, default_value = "process", value_parser = ["process", "power"])]
    durability: String,
    /// Server to use instead (`dunlin serve meta`)
    #[arg(long)]
    address: Option<Address>,
    /// File whose bytes the server must prove to have
    #[arg(long, value_name = "FILE")]
    secret_file: Option<std::path::PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What one phase did.
#[derive(Debug, Serialize)]
struct Phase {
    name: &'static str,
    /// Files, or entries of directories, a second.
    rate_per_s: f64,
    seconds: f64,
    operations: u64,
    /// Of one call; of `readdir`, of one whole directory.
    latency_ns: Percentiles,
}

#[derive(Debug, Serialize)]
struct MetaReport {
    preset: String,
    clients: u16,
    files: u32,
    one_directory: bool,
    /// Of a server of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<String>,
    phases: Vec<Phase>,
}

const PHASES: [&str; 4] = ["create", "stat", "readdir", "remove"];

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    interrupt::listen()?;
    let folder = std::env::temp_dir().join(format!("dunlin-perf-meta-{}", std::process::id()));
    let server = match &args.address {
        Some(_) => None,
        None => {
            let store = folder.to_string_lossy().into_owned();
            let words = ["--store", &store, "--durability", &args.durability];
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            Some(ServerProcess::start("meta", &words)?)
        }
    };
    let address = args.address.as_ref();
    let address = address.or(server.as_ref().map(ServerProcess::address));
    let address = address
        .ok_or_else(|| Failure::new("no server"))?
        .to_string();
    let measured = measure(args, &address);
    let stopped = server.map(ServerProcess::stop).transpose();
    if args.address.is_none() {
        let _ = std::fs::remove_dir_all(&folder);
    }
    let phases = measured?;
    stopped?;
    let report = MetaReport {
        preset: args.preset.to_string(),
        clients: args.clients,
        files: args.files,
        one_directory: args.directories == Directories::One,
        durability: args.address.is_none().then(|| args.durability.clone()),
        phases,
    };
    if args.json {
        output::print_json(&report)?;
    } else {
        print_table(&report)?;
    }
    interrupt::check()
}

fn print_table(report: &MetaReport) -> Result<(), Failure> {
    let mut table = output::table(&["", "a second", "p50", "p99", "seconds"]);
    for phase in &report.phases {
        table.add_row([
            phase.name.to_owned(),
            output::rate(phase.rate_per_s),
            output::nanoseconds(phase.latency_ns.p50 as f64),
            output::nanoseconds(phase.latency_ns.p99 as f64),
            format!("{:.2}", phase.seconds),
        ]);
    }
    output::print(table)
}

/// One client: its session, its directory, its number.
struct MetaLoad {
    meta: MetaClient,
    directory: Ino,
    number: u16,
    files: u32,
}

fn measure(args: &Args, address: &str) -> Result<Vec<Phase>, Failure> {
    let options = FsOptions {
        preset: args.preset,
        secret: args.secret_file.as_ref().map(read_secret).transpose()?,
        ..FsOptions::default()
    };
    let connect = || MetaClient::connect(address, &options).map_err(Failure::new);
    let (first, _) = connect()?;
    let run = format!("perf-{}", std::process::id());
    let top = make(&first, ROOT, run.as_bytes(), S_IFDIR)
        .map_err(Failure::new)?
        .ino;
    let mut clients = Vec::new();
    for number in 0..args.clients {
        let (meta, _) = connect()?;
        let name = format!("c{number}");
        let directory = match args.directories {
            Directories::One => top,
            Directories::Each => {
                make(&first, top, name.as_bytes(), S_IFDIR)
                    .map_err(Failure::new)?
                    .ino
            }
        };
        clients.push(MetaLoad {
            meta,
            directory,
            number,
            files: args.files,
        });
    }
    let outcome = phases(&clients);
    // What was made for it goes again.
    for client in &clients {
        if client.directory != top {
            let name = format!("c{}", client.number);
            let _ = first.change(Change::Rmdir {
                parent: top,
                name: name.as_bytes(),
            });
        }
        let _ = client.meta.change(Change::Bye);
    }
    let _ = first.change(Change::Rmdir {
        parent: ROOT,
        name: run.as_bytes(),
    });
    let _ = first.change(Change::Bye);
    outcome
}

fn phases(clients: &[MetaLoad]) -> Result<Vec<Phase>, Failure> {
    let bar = output::progress_bar();
    bar.set_length(PHASES.len() as u64);
    let mut phases = Vec::new();
    for name in PHASES {
        bar.set_message(name);
        // What was made is removed even when Ctrl-C came.
        if interrupt::came() && name != "remove" {
            continue;
        }
        phases.push(phase(name, clients)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(phases)
}

fn phase(name: &'static str, clients: &[MetaLoad]) -> Result<Phase, Failure> {
    let start = Arc::new(Barrier::new(clients.len()));
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter()
            .map(|client| {
                let start = Arc::clone(&start);
                scope.spawn(move || {
                    // The connection of this thread is made before the clock starts.
                    let warm = client.meta.ask(&Ask::GetAttr { ino: ROOT });
                    start.wait();
                    let began = Instant::now();
                    let mut latencies = Latencies::new();
                    let done = warm.and_then(|_| client.run(name, &mut latencies));
                    (done, began, Instant::now(), latencies)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect()
    });
    let (mut operations, mut latencies) = (0, Latencies::new());
    let (mut began, mut ended) = (None::<Instant>, None::<Instant>);
    for result in results {
        let (done, first, last, of) = result.map_err(|_| Failure::new("a client panicked"))?;
        operations += done.map_err(|error| Failure::new(format!("{name}: {error}")))?;
        latencies.merge(&of);
        began = Some(began.map_or(first, |other| other.min(first)));
        ended = Some(ended.map_or(last, |other| other.max(last)));
    }
    let seconds = match (began, ended) {
        (Some(began), Some(ended)) => ended.duration_since(began).as_secs_f64(),
        _ => 0.0,
    };
    Ok(Phase {
        name,
        rate_per_s: operations as f64 / seconds.max(1e-9),
        seconds,
        operations,
        latency_ns: latencies.percentiles(),
    })
}

impl MetaLoad {
    fn run(&self, phase: &str, latencies: &mut Latencies) -> Result<u64, FsError> {
        if phase == "readdir" {
            let began = Instant::now();
            let entries = self.meta.read_dir(self.directory)?.len();
            latencies.record(began.elapsed().as_nanos() as u64);
            return Ok(entries as u64);
        }
        for file in 0..self.files {
            let name = format!("file.{}.{file}", self.number);
            let (parent, name) = (self.directory, name.as_bytes());
            let began = Instant::now();
            match phase {
                "create" => {
                    make(&self.meta, parent, name, S_IFREG)?;
                }
                "stat" => {
                    self.meta.ask_attr(&Ask::Lookup { parent, name })?;
                }
                // Where Ctrl-C came, not all were made.
                _ => match self.meta.change(Change::Unlink { parent, name }) {
                    Err(_) if interrupt::came() => {}
                    other => {
                        other?;
                    }
                },
            }
            latencies.record(began.elapsed().as_nanos() as u64);
        }
        Ok(self.files.into())
    }
}

fn make(meta: &MetaClient, parent: Ino, name: &[u8], kind: u32) -> Result<Attr, FsError> {
    meta.change_attr(Change::Make {
        parent,
        name,
        mode: kind | 0o755,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: &[],
        lease: false,
    })
}
