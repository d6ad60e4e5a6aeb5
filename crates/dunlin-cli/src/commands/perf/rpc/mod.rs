//! `dunlin perf rpc`: calls between two processes.

mod presets;
mod raw;
mod sweep;

use std::io::Read;
use std::str::FromStr;
use std::time::Duration;

use dunlin::{Address, Client, Preset};

use self::raw::Raw;
use super::load::{in_slices, measure, Loader, Shape, SLICE, WARM_UP};
use crate::affinity;
use crate::against;
use crate::commands::{connect, Failure};
use crate::input::parse_bytes;
use crate::interrupt;
use crate::output;
use crate::report::{check_errors, Report, Setting};
use crate::services::child::ServerProcess;

/// Measure calls between two processes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --address, a server process is started and pinned to the second core; client threads start on the first. With \
one call outstanding `Client::call` is measured, with more a `Pipeline` for each thread. When several calls are \
outstanding, the latency of one call in sixteen is measured.\n\n\
Examples:\n  \
  dunlin perf rpc                                     round trip of 64 bytes\n  \
  dunlin perf rpc --outstanding 64 --against limits   rate, compared with the machine's raw limits\n  \
  dunlin perf rpc --threads 4 --against plain,flock   the preset `auto` and two others, in turns\n  \
  dunlin perf rpc --size 1MiB --outstanding 4 --json | jq .bytes_per_s\n  \
  dunlin perf rpc --sweep                             all sizes from 8 B to 4 MiB\n  \
  dunlin perf rpc --histogram                         distribution of the latency\n  \
  dunlin perf rpc --preset flock --processes 64 --threads 4 --seconds 60 --fairness 0.5")]
pub struct Args {
    /// Bytes of a request, at least 4, such as 4K or 1MiB
    #[arg(long, default_value_t = 64, value_parser = parse_bytes(4..=u32::MAX))]
    size: u32,
    /// Bytes of a response [default: as many as the request's, but 64 for requests above 4096]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes(0..=u32::MAX))]
    response_size: Option<u32>,
    /// Calls outstanding per thread
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    outstanding: u32,
    /// Client threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: u16,
    /// Client processes, each with --threads threads; also reports fairness and the server's memory
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) processes: u16,
    /// With --processes: fail (exit code 1) if the slowest process reached less than this part of the mean rate
    #[arg(long, value_name = "PART", value_parser = parse_part, allow_negative_numbers = true)]
    pub(super) fairness: Option<f64>,
    /// Measure all sizes from 8 B to 4 MiB that the server accepts, a tenth of --seconds for each
    #[arg(long, short = 'a', conflicts_with_all = ["size", "against", "histogram"])]
    sweep: bool,
    /// Also print the distribution of the latency; with --json at full resolution, one part in a thousand
    #[arg(long, conflicts_with = "against")]
    histogram: bool,
    /// Seconds to measure
    #[arg(long, default_value = "3", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    pub(super) seconds: Duration,
    /// Use this server instead of starting one (`dunlin serve echo`)
    #[arg(long)]
    pub(super) address: Option<Address>,
    /// Compare with the machine's raw limits (`limits`) or with other presets (names separated by commas), in turns,
    /// and print the ratios
    #[arg(long, value_name = "limits|PRESET,...")]
    against: Option<Against>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// Connect, report this, and wait for a byte on standard input (for `--processes`)
    #[arg(long, hide = true)]
    held: bool,
    #[command(flatten)]
    connect: connect::Options,
}

impl Args {
    /// Arguments of a server that the command starts, pinned to a core if one is given.
    pub(super) fn server_arguments(&self, pinned: &[usize]) -> Vec<String> {
        super::server_arguments(pinned, self.connect.device())
    }

    /// Arguments of one client process of many.
    pub(super) fn client_arguments(&self, address: &Address) -> Vec<String> {
        let address = address.to_string();
        let mut arguments: Vec<String> = ["perf", "rpc", "--held", "--json", "--address", &address]
            .map(str::to_owned)
            .into();
        let mut number = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        number("--size", self.size.to_string());
        number("--outstanding", self.outstanding.to_string());
        number("--threads", self.threads.to_string());
        number("--seconds", self.seconds.as_secs_f64().to_string());
        if let Some(size) = self.response_size {
            number("--response-size", size.to_string());
        }
        arguments.extend(self.connect.arguments());
        arguments
    }
}

/// Parses a part of a whole.
fn parse_part(text: &str) -> Result<f64, String> {
    let part = text.parse::<f64>().ok();
    let part = part.filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| "a part must be from 0 to 1".to_owned())
}

/// What to compare the preset with.
#[derive(Clone, Debug)]
enum Against {
    /// The raw limits of the machine.
    Limits,
    /// Other presets.
    Presets(Vec<Preset>),
}

impl FromStr for Against {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "limits" {
            return Ok(Self::Limits);
        }
        if text.split(',').any(|one| one == "limits") {
            return Err("`limits` cannot be combined with presets".to_owned());
        }
        let presets: Result<_, _> = text.split(',').map(Preset::from_str).collect();
        presets
            .map(Self::Presets)
            .map_err(|unknown| format!("{unknown}; or `limits`"))
    }
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.processes > 1 {
        if args.against.is_some() {
            return Err(Failure::usage("--against cannot be used with --processes"));
        }
        if args.sweep || args.histogram {
            let words = "--sweep and --histogram cannot be used with --processes";
            return Err(Failure::usage(words));
        }
        return super::crowd::run(args);
    }
    if args.fairness.is_some() {
        return Err(Failure::usage("--fairness requires --processes"));
    }
    // One of many processes has no core to itself.
    let cores: &[usize] = if args.held { &[] } else { affinity::cores() };
    let server = match &args.address {
        Some(_) => None,
        None => {
            let second = cores.get(1).map(std::slice::from_ref).unwrap_or_default();
            Some(ServerProcess::start(
                "echo",
                &args.server_arguments(second),
            )?)
        }
    };
    let address = args.address.as_ref();
    let address = address.or(server.as_ref().map(ServerProcess::address));
    let address = address.ok_or_else(|| Failure::new("there is no server"))?;
    let mut clients = vec![args.connect.connect(address)?];
    if let Some(Against::Presets(others)) = &args.against {
        for &preset in others {
            clients.push(args.connect.with_preset(preset).connect(address)?);
        }
    }
    let longest = clients[0].max_message_bytes().map_err(Failure::new)?;
    args.check(longest)?;
    if args.sweep {
        interrupt::listen()?;
        let reports = sweep::run(args, &clients[0], longest)?;
        clients.iter().for_each(Client::close);
        server.map(ServerProcess::stop).transpose()?;
        return sweep::print(&reports, args.json);
    }
    let shape = args.shape(args.size);
    let threads = args.start(&clients, shape, cores)?;
    match args.held {
        true => args.hold(&threads)?,
        false => interrupt::listen()?,
    }
    let setting = setting(&clients[0], shape, threads.len());
    let bar = output::progress_bar();
    bar.set_message("perf rpc");
    let progress = |done: f64| bar.set_position((done * 1000.0) as u64);
    let (report, comparison) = match &args.against {
        Some(Against::Limits) => {
            let measured = |slice| measure(&threads, 0, slice);
            let against =
                against::interleave::<Failure>(&setting, args.seconds, measured, progress)?;
            let against = against.ok_or_else(Failure::interrupted)?;
            (against.report(setting), None)
        }
        Some(Against::Presets(others)) => {
            let slices = presets::interleave(&threads, clients.len(), args.seconds, progress)?;
            let (tally, comparison) = presets::conclude(others, &slices);
            (Report::new(setting, &tally), Some(comparison))
        }
        None => {
            // One of many is measured while all the others are, and not again when they have ended.
            let longest = match args.held {
                true => args.seconds,
                false => SLICE,
            };
            let tally = in_slices(&threads, args.seconds, longest, progress)?;
            let histogram_ns = args.histogram.then(|| tally.latencies.clone());
            let report = Report {
                histogram_ns,
                ..Report::new(setting, &tally)
            };
            (report, None)
        }
    };
    bar.finish_and_clear();
    drop(threads);
    clients.iter().for_each(Client::close);
    server.map(ServerProcess::stop).transpose()?;
    match comparison {
        Some(comparison) => presets::print(report, comparison, args.json)?,
        None => {
            output::print_report(&report, args.json)?;
            check_errors(report.errors, "calls", report.first_error.as_ref())?;
        }
    }
    // One of many processes was ordered to end by the one that reports.
    match args.held {
        true => Ok(()),
        false => interrupt::check(),
    }
}

fn setting(client: &Client, shape: Shape, threads: usize) -> Setting {
    let info = client.info();
    Setting {
        device: info.device,
        preset: info.preset.to_string(),
        threads,
        outstanding: shape.outstanding,
        size: shape.size,
        response_size: shape.response_size(),
    }
}

impl Args {
    /// Rejects what the server would refuse, before anything is measured.
    fn check(&self, longest: usize) -> Result<(), Failure> {
        let sizes = [
            ("--size", Some(self.size)),
            ("--response-size", self.response_size),
        ];
        for (name, size) in sizes {
            match size {
                Some(size) if size as usize > longest => {
                    let words = format!(
                        "{name} {size} is too large: the server's limit is {longest} bytes"
                    );
                    let help =
                        "raise it with --max-message-bytes of `dunlin serve`, and of this command for responses";
                    return Err(Failure::usage(words).help(help));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Starts threads with a load for each client; the first thread is pinned.
    fn start(
        &self,
        clients: &[Client],
        shape: Shape,
        cores: &[usize],
    ) -> Result<Vec<Loader>, Failure> {
        let thread = |i| {
            let core = (i == 0).then(|| cores.first().copied()).flatten();
            let loads = clients.iter().map(|client| Raw::new(client, shape));
            Loader::start(loads.collect(), core)
        };
        (0..usize::from(self.threads)).map(thread).collect()
    }

    /// Runs as one of many processes: connects, reports this, and waits for the order to begin. From then on it ends
    /// early when its standard input closes.
    fn hold(&self, threads: &[Loader]) -> Result<(), Failure> {
        interrupt::ignore()?;
        // Threads connect with their first call.
        measure(threads, 0, Duration::from_nanos(1))?;
        output::print("ready")?;
        let read = || std::io::stdin().read(&mut [0; 16]);
        // Either the order to begin, or the end of the process that would give it.
        let _ = read()?;
        std::thread::spawn(move || {
            while matches!(read(), Ok(1..)) {}
            interrupt::end();
        });
        Ok(())
    }

    fn shape(&self, size: u32) -> Shape {
        Shape {
            size: size as usize,
            response: self
                .response_size
                .unwrap_or(if size <= 4096 { size } else { 64 }),
            outstanding: self.outstanding as usize,
            warm_up: if self.held { 0 } else { WARM_UP },
        }
    }
}
