//! `dunlin perf mpi`: measures messages between the ranks of a job.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dunlin_mpi::environment::{DEVICE, JOB, RANK, ROOT, SECRET_FILE, SIZE};
use dunlin_mpi::{JoinError, Rendezvous, Settings, World};
use serde::Serialize;

use crate::affinity;
use crate::commands::{connect, Failure};
use crate::input::parse_bytes;
use crate::interrupt;
use crate::mpi::measure::{end, follow, goes_on, lead, Test, Times, WINDOW};
use crate::output;

/// The usual sizes: a value, a cache line, short messages, and some of several pieces.
const SIZES: &str = "8,64,512,4K,32K,256K,1M";

/// Measure messages between the ranks of a job, as the OSU micro-benchmarks do
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Latency is half a round trip between two ranks. Bandwidth is that of windows of 64 nonblocking sends, each window \
answered by one empty message. The last columns have the time of an allreduce of doubles by all ranks after a \
barrier, as rank 0 sees it. Each rank is a process, pinned to a core of its own if there are enough.\n\n\
Examples:\n  \
  dunlin perf mpi                        over shared memory, 8 B to 1 MiB\n  \
  dunlin perf mpi --device roce --size 8,64K\n  \
  dunlin perf mpi -n 4 --json | jq .allreduce")]
pub struct Args {
    /// Number of ranks; latency and bandwidth are those between two of them
    #[arg(short = 'n', long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=64))]
    ranks: u16,
    /// Bytes of a message
    #[arg(long, value_delimiter = ',', default_value = SIZES, value_parser = parse_bytes(0..=1 << 26))]
    size: Vec<u32>,
    /// Seconds to measure each point
    #[arg(long, default_value = "0.3", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    seconds: Duration,
    /// Device between the ranks (see `dunlin devices`)
    #[arg(long, default_value = "shm", value_parser = connect::parse_own_device)]
    device: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The bandwidth at one size.
#[derive(Debug, Serialize)]
struct Bandwidth {
    size: usize,
    bytes_per_s: f64,
    messages_per_s: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    device: String,
    ranks: u16,
    window: usize,
    /// Half a round trip.
    latency: Vec<Times>,
    bandwidth: Vec<Bandwidth>,
    allreduce: Vec<Times>,
}

/// The other ranks. They are killed when this is dropped, if they still run.
struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            // Those that have ended are gone already.
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    interrupt::listen()?;
    let size = usize::from(args.ranks);
    let settings = Settings::default().device(&args.device);
    let root = Rendezvous::bind("dunlin://127.0.0.1:0", size, &settings).map_err(failed)?;
    let mut ranks = Ranks(Vec::new());
    for rank in 1..size {
        let child = Command::new(std::env::current_exe()?)
            .args(["perf", "mpi-peer"])
            .env(RANK, rank.to_string())
            .env(SIZE, size.to_string())
            .env(ROOT, root.address().to_string())
            .env(DEVICE, &args.device)
            // This is a job of its own, whatever the environment is prepared for.
            .env_remove(JOB)
            .env_remove(SECRET_FILE)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        ranks.0.push(child);
    }
    pin(0, size);
    let mut world = root.join().map_err(failed)?;
    let report = measure(&mut world, args)?;
    end(&mut world).map_err(Failure::new)?;
    world.finalize().map_err(Failure::new)?;
    for rank in &mut ranks.0 {
        rank.wait()?;
    }
    print(&report, args.json)?;
    interrupt::check()
}

/// The main function of the other ranks.
///
/// # Errors
/// When it cannot join, or a rank is lost.
pub fn peer() -> Result<(), Failure> {
    // Ctrl-C is for rank 0, which ends this process.
    interrupt::ignore()?;
    let world = World::from_env().map_err(failed)?;
    pin(world.rank(), world.size());
    follow(world).map_err(Failure::new)
}

fn failed(error: JoinError) -> Failure {
    Failure::new(error)
}

/// Pins a rank to a core of its own, if there is one for each.
fn pin(rank: usize, size: usize) {
    let cores = affinity::cores();
    if let Some(core) = cores.get(rank).filter(|_| size <= cores.len()) {
        affinity::pin(*core);
    }
}

fn measure(world: &mut World, args: &Args) -> Result<Report, Failure> {
    let bar = output::progress_bar();
    bar.set_message("perf mpi");
    let mut done = 0;
    let points = args.size.len() * 3;
    let mut all = |test| {
        let mut found = Vec::new();
        for size in args.size.iter().filter(|_| goes_on()) {
            let point = lead(world, test, *size as usize, args.seconds);
            found.extend(point.map_err(Failure::new)?);
            done += 1;
            bar.set_position((done * 1000 / points) as u64);
        }
        Ok::<_, Failure>(found)
    };
    let latency = all(Test::Latency)?;
    let bandwidth = all(Test::Bandwidth)?;
    let allreduce = all(Test::Allreduce)?;
    bar.finish_and_clear();
    let rate = |times: &Times| Bandwidth {
        size: times.size,
        bytes_per_s: times.size as f64 * 1e9 / times.mean_ns.max(1e-9),
        messages_per_s: 1e9 / times.mean_ns.max(1e-9),
    };
    Ok(Report {
        device: args.device.clone(),
        ranks: args.ranks,
        window: WINDOW,
        latency,
        bandwidth: bandwidth.iter().map(rate).collect(),
        allreduce,
    })
}

fn print(report: &Report, json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json(report);
    }
    output::print(format_args!(
        "{} ranks over {}",
        report.ranks, report.device
    ))?;
    let mut table = output::table(&[
        "size",
        "latency p50",
        "p99",
        "messages",
        "bandwidth",
        "allreduce p50",
        "p99",
    ]);
    for (at, latency) in report.latency.iter().enumerate() {
        let bandwidth = report.bandwidth.get(at);
        // Elements are 8 bytes: a size in between was not measured.
        let allreduce = report.allreduce.get(at);
        let allreduce = allreduce.filter(|one| one.size == latency.size);
        table.add_row([
            output::bytes(latency.size as f64),
            output::nanoseconds(latency.p50_ns),
            output::nanoseconds(latency.p99_ns),
            output::measured(bandwidth.map(|one| one.messages_per_s), output::rate),
            output::measured(bandwidth.map(|one| one.bytes_per_s), output::bandwidth),
            output::measured(allreduce.map(|one| one.p50_ns), output::nanoseconds),
            output::measured(allreduce.map(|one| one.p99_ns), output::nanoseconds),
        ]);
    }
    output::print(table)
}
