//! `dunlin perf rpc --processes N`: many client processes against one server; reports how evenly they were served, and
//! the server's memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::rpc::Args;
use crate::commands::Failure;
use crate::interrupt;
use crate::output;
use crate::report::{check_errors, Report};
use crate::services::child::ServerProcess;

/// Interval of the samples of the server's memory.
const SAMPLE: Duration = Duration::from_millis(100);
/// Time that a client process may take in addition to its measurement, to connect along with all others and to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// The JSON object.
#[derive(Debug, Serialize)]
struct Crowd {
    preset: String,
    device: String,
    processes: usize,
    /// Of each process.
    threads: usize,
    /// Duration of the process that measured longest.
    seconds: f64,
    /// Calls per second of all processes together.
    rate_per_s: f64,
    /// Rates of the slowest and the fastest process, and of the slowest as a part of the mean.
    slowest_per_s: f64,
    fastest_per_s: f64,
    slowest_of_mean: f64,
    /// Calls that failed.
    errors: u64,
    /// The server's resident memory before the clients connected, and its maximum.
    server_bytes_before: Option<u64>,
    server_bytes_max: Option<u64>,
}

/// A client process that is connected and waits for the order to begin.
struct ClientProcess {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl ClientProcess {
    fn start(arguments: &[String]) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let Some(output) = child.stdout.take() else {
            return Err(Failure::new("a client process has no standard output"));
        };
        Ok(Self {
            child,
            output: BufReader::new(output),
        })
    }

    fn await_ready(&mut self) -> Result<(), Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        match line.trim() {
            "ready" => Ok(()),
            // It has said why.
            _ if self.child.wait()?.code() == Some(2) => {
                Err(Failure::usage("invalid arguments for a client process"))
            }
            _ => Err(Failure::new("a client process did not connect")),
        }
    }

    fn begin(&mut self) -> Result<(), Failure> {
        match &mut self.child.stdin {
            Some(input) => Ok(input.write_all(b"go\n")?),
            None => Err(Failure::new("a client process has no standard input")),
        }
    }

    /// Tells the process to end with what it has measured.
    fn end(&mut self) {
        self.child.stdin = None;
    }

    fn report(mut self) -> Result<Report, Failure> {
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        self.child.wait()?;
        serde_json::from_str(&text).map_err(|error| {
            Failure::new(format!(
                "a client process did not report its result: {error}"
            ))
        })
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resident bytes of a process, if the system reports them.
fn resident_bytes(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Measures and prints.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let server = match &args.address {
        Some(_) => None,
        None => Some(ServerProcess::start("echo", &args.server_arguments(&[]))?),
    };
    let address = args.address.as_ref();
    let address = address.or(server.as_ref().map(ServerProcess::address));
    let address = address.ok_or_else(|| Failure::new("there is no server"))?;
    let memory = || {
        server
            .as_ref()
            .and_then(|server| resident_bytes(server.id()))
    };
    let before = memory();
    let arguments = args.client_arguments(address);
    let mut clients = (0..args.processes)
        .map(|_| ClientProcess::start(&arguments))
        .collect::<Result<Vec<_>, _>>()?;
    for client in &mut clients {
        client.await_ready()?;
    }
    interrupt::listen()?;
    for client in &mut clients {
        client.begin()?;
    }
    let mut most = before.max(memory());
    let started = Instant::now();
    let over = |client: &mut ClientProcess| !matches!(client.child.try_wait(), Ok(None));
    while !clients.iter_mut().all(over) {
        if started.elapsed() > args.seconds + PATIENCE {
            return Err(Failure::new("client processes did not end in time"));
        }
        if interrupt::came() {
            clients.iter_mut().for_each(ClientProcess::end);
        }
        std::thread::sleep(SAMPLE);
        most = most.max(memory());
    }
    let reports = clients
        .into_iter()
        .map(ClientProcess::report)
        .collect::<Result<Vec<_>, _>>()?;
    server.map(ServerProcess::stop).transpose()?;
    let rates: Vec<f64> = reports.iter().map(|report| report.rate_per_s).collect();
    let sum: f64 = rates.iter().sum();
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let first = reports.first().map(|report| &report.setting);
    let crowd = Crowd {
        preset: first.map_or_else(String::new, |setting| setting.preset.clone()),
        device: first.map_or_else(String::new, |setting| setting.device.clone()),
        processes: rates.len(),
        threads: usize::from(args.threads),
        seconds: reports.iter().map(|one| one.seconds).fold(0.0, f64::max),
        rate_per_s: sum,
        slowest_per_s: slowest,
        fastest_per_s: rates.iter().copied().fold(0.0, f64::max),
        slowest_of_mean: slowest * rates.len() as f64 / sum,
        errors: reports.iter().map(|report| report.errors).sum(),
        server_bytes_before: before,
        server_bytes_max: most,
    };
    print(&crowd, args.json)?;
    let first = reports.iter().find_map(|one| one.first_error.as_ref());
    check_errors(crowd.errors, "calls", first)?;
    interrupt::check()?;
    match args.fairness {
        Some(least) if crowd.slowest_of_mean < least => Err(Failure::new(format!(
            "the slowest process made {:.2} of the mean, below the {least} required by --fairness",
            crowd.slowest_of_mean
        ))
        .help("a longer measurement (--seconds) evens out the effects of the system's scheduler")),
        _ => Ok(()),
    }
}

fn print(crowd: &Crowd, json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json(crowd);
    }
    let mut table = output::table(&["", "calls/s"]);
    table.add_row(["all", &format!("{:.0}", crowd.rate_per_s)]);
    table.add_row(["slowest process", &format!("{:.0}", crowd.slowest_per_s)]);
    table.add_row(["fastest process", &format!("{:.0}", crowd.fastest_per_s)]);
    output::print(table)?;
    let mebibytes = |bytes: Option<u64>| match bytes {
        Some(bytes) => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        None => "unknown".to_owned(),
    };
    output::print(format!(
        "{} processes of {} threads, {}: the slowest had {:.2} of the mean; {} calls failed; the server's memory {} before, {} at most",
        crowd.processes,
        crowd.threads,
        crowd.preset,
        crowd.slowest_of_mean,
        crowd.errors,
        mebibytes(crowd.server_bytes_before),
        mebibytes(crowd.server_bytes_max),
    ))?;
    Ok(())
}
