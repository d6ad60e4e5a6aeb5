//! `dunlin perf meta`: the metadata load of mdtest, through the library or in a folder of any file system: create,
//! stat, readdir, remove.

mod load;

use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use dunlin::{Address, Preset};
use dunlin_fs::client::MetaClient;
use dunlin_fs::types::{ROOT, S_IFDIR};
use dunlin_fs::wire::Change;
use dunlin_fs::FsOptions;
use serde::Serialize;

use crate::commands::{connect, Failure};
use crate::histogram::{Latencies, Percentiles};
use crate::interrupt;
use crate::output;
use crate::services::child::ServerProcess;
use load::{make, Load, Place};

/// Placement of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Directories {
    /// All in one directory
    One,
    /// Those of each client in its own
    Each,
}

/// Measure a file system's metadata server: create, stat, readdir, remove
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each client is a thread with its own session and connection, and one call outstanding. The phases are those of \
mdtest, with empty files: all clients create their files, then stat all of them by name, then read the whole \
directory, then remove them. The rate of readdir counts entries. A create or remove is in the journal when it is \
answered; with `--durability power` the journal is synced to disk for each group of changes, which then limits the \
rate of few clients.\n\n\
Examples:\n  \
  dunlin perf meta                                     8 clients, one directory, a server of its own\n  \
  dunlin perf meta --preset scalerpc --clients 40      as in the ScaleRPC paper's file system\n  \
  dunlin perf meta --preset selfrpc --clients 40       its competitor\n  \
  dunlin perf meta --directories each --json\n  \
  dunlin perf meta --address dunlin://host:7400        a running server\n  \
  dunlin perf meta --folder /mnt                       through the kernel, any file system")]
pub struct Args {
    /// Client threads, each with its own session
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// Files per client
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    files: u32,
    /// Placement of the files
    #[arg(long, value_enum, default_value_t = Directories::One)]
    directories: Directories,
    /// Preset used for calls: auto, scalerpc, selfrpc, rawwrite, fasst or any other of `dunlin perf rpc` [default:
    /// auto]
    #[arg(long)]
    preset: Option<Preset>,
    /// When the server that is started counts a change as durable: `process` or `power`
    #[arg(long, default_value = "process", value_parser = ["process", "power"])]
    durability: String,
    /// Use this server instead of starting one (`dunlin serve meta`)
    #[arg(long)]
    address: Option<Address>,
    /// Use this folder of a mounted file system instead of a server, by system calls; what the kernel caches of names
    /// and attributes is part of the figures
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["address", "preset", "durability", "secret_file"])]
    folder: Option<PathBuf>,
    /// File with the shared secret; both sides must prove that they know it
    #[arg(long, value_name = "FILE")]
    secret_file: Option<std::path::PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The results of one phase.
#[derive(Debug, Serialize)]
struct Phase {
    name: &'static str,
    /// Files, or directory entries, per second.
    rate_per_s: f64,
    seconds: f64,
    operations: u64,
    /// Latency of one call, or of one whole directory for `readdir`.
    latency_ns: Percentiles,
}

#[derive(Debug, Serialize)]
struct MetaReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    preset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<PathBuf>,
    clients: u16,
    files: u32,
    one_directory: bool,
    /// The durability of a server that was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<String>,
    phases: Vec<Phase>,
}

const PHASES: [&str; 4] = ["create", "stat", "readdir", "remove"];

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    interrupt::listen()?;
    let phases = match &args.folder {
        Some(folder) => measure_folder(args, folder)?,
        None => measure_server(args)?,
    };
    let own = args.folder.is_none() && args.address.is_none();
    let report = MetaReport {
        preset: args
            .folder
            .is_none()
            .then(|| connect::preset(args.preset).to_string()),
        folder: args.folder.clone(),
        clients: args.clients,
        files: args.files,
        one_directory: args.directories == Directories::One,
        durability: own.then(|| args.durability.clone()),
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
    let mut table = output::table(&["", "done", "a second", "p50", "p99", "seconds"]);
    for phase in &report.phases {
        table.add_row([
            phase.name.to_owned(),
            phase.operations.to_string(),
            output::rate(phase.rate_per_s),
            output::nanoseconds(phase.latency_ns.p50 as f64),
            output::nanoseconds(phase.latency_ns.p99 as f64),
            format!("{:.2}", phase.seconds),
        ]);
    }
    output::print(table)
}

fn measure_server(args: &Args) -> Result<Vec<Phase>, Failure> {
    if let Some(address) = &args.address {
        return measure(args, &address.to_string());
    }
    let folder = std::env::temp_dir().join(format!("dunlin-perf-meta-{}", std::process::id()));
    let store = folder.to_string_lossy().into_owned();
    let words = ["--store", &store, "--durability", &args.durability];
    let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
    let server = ServerProcess::start("meta", &words)?;
    let measured = measure(args, &server.address().to_string());
    let stopped = server.stop();
    let _ = std::fs::remove_dir_all(&folder);
    let phases = measured?;
    stopped?;
    Ok(phases)
}

fn measure_folder(args: &Args, folder: &std::path::Path) -> Result<Vec<Phase>, Failure> {
    let failed =
        |path: &std::path::Path, error| Failure::new(format!("{}: {error}", path.display()));
    let top = folder.join(format!("perf-{}", std::process::id()));
    std::fs::create_dir(&top).map_err(|error| failed(folder, error))?;
    let mut loads = Vec::new();
    for number in 0..args.clients {
        let own = match args.directories {
            Directories::One => top.clone(),
            Directories::Each => {
                let own = top.join(format!("c{number}"));
                std::fs::create_dir(&own).map_err(|error| failed(&own, error))?;
                own
            }
        };
        loads.push(Load::new(Place::Folder(own), number, args.files));
    }
    let outcome = phases(&loads);
    let removed = std::fs::remove_dir_all(&top);
    let phases = outcome?;
    removed.map_err(|error| failed(&top, error))?;
    Ok(phases)
}

fn measure(args: &Args, address: &str) -> Result<Vec<Phase>, Failure> {
    let options = FsOptions {
        preset: connect::preset(args.preset),
        device: connect::device(None).map(str::to_owned),
        secret: connect::secret(args.secret_file.as_ref())?,
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
        let place = Place::Server { meta, directory };
        clients.push(Load::new(place, number, args.files));
    }
    let outcome = phases(&clients);
    // Removes what was created for the measurement.
    for client in &clients {
        let Place::Server { meta, directory } = &client.place else {
            continue;
        };
        if *directory != top {
            let name = format!("c{}", client.number);
            let _ = first.change(Change::Rmdir {
                parent: top,
                name: name.as_bytes(),
            });
        }
        let _ = meta.change(Change::Bye);
    }
    let _ = first.change(Change::Rmdir {
        parent: ROOT,
        name: run.as_bytes(),
    });
    let _ = first.change(Change::Bye);
    outcome
}

fn phases(clients: &[Load]) -> Result<Vec<Phase>, Failure> {
    let bar = output::progress_bar();
    bar.set_length(PHASES.len() as u64);
    let mut phases = Vec::new();
    for name in PHASES {
        bar.set_message(name);
        // What was created is removed even after Ctrl-C.
        if interrupt::came() && name != "remove" {
            continue;
        }
        phases.push(phase(name, clients)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(phases)
}

fn phase(name: &'static str, clients: &[Load]) -> Result<Phase, Failure> {
    let start = Arc::new(Barrier::new(clients.len()));
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter()
            .map(|client| {
                let start = Arc::clone(&start);
                scope.spawn(move || {
                    // The connection of this thread is made before the clock starts.
                    let warm = client.begin();
                    start.wait();
                    let began = Instant::now();
                    let mut latencies = Latencies::new();
                    let done = warm.and_then(|()| client.run(name, &mut latencies));
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
        operations += done.map_err(|why| Failure::new(format!("{name}: {why}")))?;
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
