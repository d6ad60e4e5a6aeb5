//! `dunlin perf rpc`: calls between two processes.

use std::io::Read;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use dunlin::{Address, CallError, Client, ConnectError, Pipeline};

use super::Against;
use crate::affinity;
use crate::against;
use crate::clock::now_ns;
use crate::commands::{connect, Failure};
use crate::input::parse_bytes;
use crate::interrupt;
use crate::output;
use crate::report::{Report, Setting, Tally};
use crate::services::child::ServerProcess;
use crate::services::echo::MEASURE;

/// Measure calls between two processes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --address it starts a server process of its own, pinned to the second core; client threads\n\
begin on the first. With one call outstanding it measures `Client::call`, with more a `Pipeline` for each\n\
thread. Latency is taken from one call in sixteen when several are outstanding.\n\n\
Examples:\n  \
  dunlin perf rpc                                     round trip of 64 bytes\n  \
  dunlin perf rpc --outstanding 64 --against limits   rate, beside what the bare machine allows\n  \
  dunlin perf rpc --size 1MiB --outstanding 4 --json | jq .bytes_per_s\n  \
  dunlin perf rpc --preset flock --processes 64 --threads 4 --seconds 60    is anybody starved, and what it costs")]
pub struct Args {
    /// Bytes of a request, at least 4; 4K and 1MiB are numbers, too
    #[arg(long, default_value_t = 64, value_parser = parse_bytes(4..=u32::MAX))]
    size: u32,
    /// Bytes of a response; as many as the request's by default, but 64 for requests above 4096
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes(0..=u32::MAX))]
    response_size: Option<u32>,
    /// Calls that each thread keeps outstanding
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    outstanding: u32,
    /// Client threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: u16,
    /// Client processes with so many threads each; says how even they were served, and the server's memory
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) processes: u16,
    /// How long to measure
    #[arg(long, default_value = "3", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    pub(super) seconds: Duration,
    /// Server to use instead of one of our own (`dunlin serve echo`)
    #[arg(long)]
    pub(super) address: Option<Address>,
    /// Measure what the bare machine does beside it, in turns, and print the ratios
    #[arg(long, value_enum)]
    against: Option<Against>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// Connect, say so, and wait for a byte on the standard input (for `--processes`)
    #[arg(long, hide = true)]
    held: bool,
    #[command(flatten)]
    connect: connect::Options,
}

impl Args {
    /// For a server of our own, pinned to a core if one is said.
    pub(super) fn server_arguments(&self, pinned: &[usize]) -> Vec<String> {
        let mut arguments = Vec::new();
        for core in pinned {
            arguments.extend(["--pin".to_string(), core.to_string()]);
        }
        if let Some(device) = self.connect.device() {
            arguments.extend(["--device".to_string(), device.to_string()]);
        }
        arguments
    }

    /// For one client process of many.
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

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.processes > 1 {
        if args.against.is_some() {
            return Err(Failure::usage("--against: not with --processes"));
        }
        return super::crowd::run(args);
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
    let address = address.ok_or_else(|| Failure::new("no server"))?;
    let client = args.connect.connect(address)?;
    let longest = client.max_message_bytes().map_err(Failure::new)?;
    if args.size as usize > longest {
        let words = format!(
            "--size {}: the server takes {longest} bytes at most",
            args.size
        );
        return Err(Failure::usage(words));
    }
    let load = Load {
        size: args.size as usize,
        response: args
            .response_size
            .unwrap_or(if args.size <= 4096 { args.size } else { 64 }),
        outstanding: args.outstanding as usize,
        warm_up: if args.held { 0 } else { WARM_UP },
    };
    let threads = (0..usize::from(args.threads))
        .map(|i| {
            Loader::start(
                &client,
                load,
                (i == 0).then(|| cores.first().copied()).flatten(),
            )
        })
        .collect::<Result<Vec<_>, _>>()?;
    if args.held {
        // Threads connect with their first call.
        measure(&threads, Duration::from_nanos(1))?;
        output::print("ready")?;
        // Whatever it is: the word to begin, or the end of who would say it.
        let _ = std::io::stdin().read(&mut [0])?;
    }
    let setting = Setting {
        device: client.info().device.clone(),
        preset: client.info().preset.to_string(),
        threads: threads.len(),
        outstanding: load.outstanding,
        size: load.size,
    };
    if !args.held {
        interrupt::listen()?;
    }
    let bar = output::progress_bar();
    bar.set_message("perf rpc");
    let progress = |done: f64| bar.set_position((done * 1000.0) as u64);
    let report = match args.against {
        Some(Against::Limits) => {
            let measured = |slice| measure(&threads, slice);
            against::interleave::<Failure>(&setting, args.seconds, measured, progress)?
                .report(setting)
        }
        None => {
            // In slices, so that the bar moves; but one of many is measured while all the others are, and not again
            // when they have ended.
            let longest = match args.held {
                true => args.seconds,
                false => Duration::from_millis(250),
            };
            let mut tally = Tally::default();
            while tally.elapsed < args.seconds && !interrupt::came() {
                let left = args.seconds - tally.elapsed;
                tally.merge_after(&measure(&threads, left.min(longest))?);
                progress(tally.elapsed.as_secs_f64() / args.seconds.as_secs_f64());
            }
            Report::new(setting, &tally)
        }
    };
    bar.finish_and_clear();
    drop(threads);
    client.close();
    server.map(ServerProcess::stop).transpose()?;
    output::print_report(&report, args.json)?;
    if report.errors > 0 {
        return Err(Failure::new(format!("{} calls failed", report.errors)));
    }
    interrupt::check()
}

/// One slice on all threads.
fn measure(threads: &[Loader], slice: Duration) -> Result<Tally, Failure> {
    for thread in threads {
        thread.begin(slice)?;
    }
    let mut sum = Tally::default();
    for thread in threads {
        sum.merge_beside(&thread.end()?);
    }
    // Pollers go to sleep now; the next to measure has the cores to itself.
    std::thread::sleep(Duration::from_millis(1));
    Ok(sum)
}

/// What each thread does.
#[derive(Clone, Copy, Debug)]
struct Load {
    size: usize,
    response: u32,
    outstanding: usize,
    /// Calls before the clock starts.
    warm_up: usize,
}

/// A client thread that makes calls when told to.
struct Loader {
    begin: Option<Sender<Duration>>,
    end: Receiver<Result<Tally, CallError>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    fn start(client: &Client, load: Load, core: Option<usize>) -> Result<Self, Failure> {
        let (begin, begins) = channel::<Duration>();
        let (tell, end) = channel();
        let client = client.clone();
        let thread = std::thread::Builder::new()
            .name("dunlin-load".into())
            .spawn(move || {
                if let Some(core) = core {
                    affinity::pin(core);
                }
                let mut pipeline = None;
                for slice in begins {
                    let tally = if load.outstanding == 1 && load.size <= LONG_BYTES {
                        one_by_one(&client, load, slice)
                    } else {
                        many(&client, &mut pipeline, load, slice)
                    };
                    if tell.send(tally).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            begin: Some(begin),
            end,
            thread: Some(thread),
        })
    }

    fn begin(&self, slice: Duration) -> Result<(), Failure> {
        let sent = self.begin.as_ref().map(|begin| begin.send(slice));
        sent.ok_or_else(thread_gone)?.map_err(|_| thread_gone())
    }

    fn end(&self) -> Result<Tally, Failure> {
        self.end
            .recv()
            .map_err(|_| thread_gone())?
            .map_err(Failure::new)
    }
}

fn thread_gone() -> Failure {
    Failure::new("a client thread ended early")
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.begin = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Calls before the clock starts: both sides are awake then.
const WARM_UP: usize = 64;
/// Calls between two looks at the end of the slice.
const STRIDE: usize = 64;
/// Of so many pipelined calls one is timed: reading the clock costs as much as a call.
const SAMPLE: u64 = 16;
/// Requests longer than this are filled in place.
const LONG_BYTES: usize = 4096;

fn one_by_one(client: &Client, load: Load, slice: Duration) -> Result<Tally, CallError> {
    let mut payload = vec![7; load.size];
    payload[..4].copy_from_slice(&load.response.to_le_bytes());
    for _ in 0..load.warm_up {
        client.call(MEASURE, &payload)?;
    }
    let mut tally = Tally::default();
    let start = now_ns();
    let limit = slice.as_nanos() as u64;
    let mut elapsed = 0;
    while elapsed < limit {
        for _ in 0..STRIDE {
            let before = now_ns();
            let ended = client.call(MEASURE, &payload);
            tally.latencies.record(now_ns() - before);
            count(&mut tally, load, &ended.map(|reply| reply.len()));
        }
        elapsed = now_ns() - start;
    }
    tally.elapsed = Duration::from_nanos(elapsed);
    Ok(tally)
}

fn count(tally: &mut Tally, load: Load, ended: &Result<usize, CallError>) {
    match ended {
        Ok(length) if *length == load.response as usize => {
            tally.operations += 1;
            tally.bytes += load.size as u64;
        }
        _ => tally.errors += 1,
    }
}

fn many(
    client: &Client,
    place: &mut Option<Pipeline>,
    load: Load,
    slice: Duration,
) -> Result<Tally, CallError> {
    let pipeline = match place {
        Some(pipeline) => pipeline,
        None => {
            let connect = |error: ConnectError| CallError::Connect(std::sync::Arc::new(error));
            place.insert(client.pipeline_of(load.outstanding).map_err(connect)?)
        }
    };
    let mut payload = vec![7; load.size];
    payload[..4].copy_from_slice(&load.response.to_le_bytes());
    let mut run = Run {
        tally: Tally::default(),
        load,
        timing: true,
    };
    let mut warm = Run {
        tally: Tally::default(),
        load,
        timing: false,
    };
    for _ in 0..load.warm_up.min(load.outstanding) {
        send(pipeline, &payload, u64::MAX)?;
        pipeline.wait(|tag, result| warm.take(tag, result))?;
    }
    let limit = slice.as_nanos() as u64;
    let start = now_ns();
    let (mut elapsed, mut sent) = (0, 0u64);
    while elapsed < limit {
        for _ in 0..STRIDE {
            for _ in pipeline.outstanding()..load.outstanding {
                sent += 1;
                let tag = if sent % SAMPLE == 0 {
                    now_ns()
                } else {
                    u64::MAX
                };
                if !send(pipeline, &payload, tag)? {
                    break;
                }
            }
            pipeline.wait(|tag, result| run.take(tag, result))?;
        }
        elapsed = now_ns() - start;
    }
    while pipeline.outstanding() > 0 {
        pipeline.wait(|tag, result| run.take(tag, result))?;
    }
    run.tally.elapsed = Duration::from_nanos(now_ns() - start);
    Ok(run.tally)
}

/// Sends one request: a long one in a registered buffer whose first bytes say what is wanted.
fn send(pipeline: &mut Pipeline, payload: &[u8], tag: u64) -> Result<bool, CallError> {
    if payload.len() <= LONG_BYTES {
        return pipeline.submit(MEASURE, payload, tag);
    }
    let mut request = pipeline.buffer(payload.len())?;
    request[..4].copy_from_slice(&payload[..4]);
    Ok(pipeline.submit_buffer(MEASURE, request, tag)?.is_none())
}

struct Run {
    tally: Tally,
    load: Load,
    timing: bool,
}

impl Run {
    #[inline]
    fn take(&mut self, tag: u64, result: Result<&[u8], CallError>) {
        if tag != u64::MAX && self.timing {
            self.tally.latencies.record(now_ns() - tag);
        }
        count(&mut self.tally, self.load, &result.map(<[u8]>::len));
    }
}
