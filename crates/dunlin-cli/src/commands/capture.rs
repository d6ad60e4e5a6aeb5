//! `dunlin capture`: prints the calls of a running server as a list, or writes them to a file for Wireshark.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dunlin::{Address, CallError, CapturedCall, CapturedCalls, HandlerId};
use serde::Serialize;

use super::{connect, perf, Failure};
use crate::capture::{File, Frame, DISSECTOR};
use crate::input::parse_bytes;
use crate::{interrupt, output};

/// Pause between two requests to the server, which buffers 8 MiB of calls for each client that captures.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes of a payload shown in a line of the list.
const SHOWN_BYTES: usize = 32;

/// Capture the calls of a running server
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Shows every call that the server's handlers answer from now on, of all clients, over any device and preset: the \
caller, the request and its outcome. The server must allow it (`dunlin serve --allow-capture`, \
`ServerBuilder::allows_capture`), and a server with rights must grant it to this client (`call = [\"capture\"]`). If \
the server answers calls faster than this command fetches them, some are lost; their number is shown at the end.\n\n\
Examples:\n  \
  dunlin capture db1:7400                                one line per call\n  \
  dunlin capture db1:7400 --write calls.pcapng --seconds 10\n  \
  dunlin capture --dissector > dunlin.lua                dissector for Wireshark\n  \
  tshark -X lua_script:dunlin.lua -r calls.pcapng -Y 'dunlin.kind == 2'\n  \
  dunlin capture db1:7400 --write - | wireshark -X lua_script:dunlin.lua -k -i -\n  \
  dunlin capture db1:7400 --json | jq 'select(.took_ns > 1000000)'")]
pub struct Args {
    /// Address of the server
    #[arg(required_unless_present = "dissector")]
    address: Option<Address>,
    /// Write a pcapng file; `-` is standard output
    #[arg(long, short = 'w', value_name = "FILE", conflicts_with = "json")]
    write: Option<PathBuf>,
    /// Bytes kept of each request and of each response
    #[arg(long, short = 's', default_value = "256KiB", value_name = "BYTES", value_parser = parse_bytes(0..=u32::MAX))]
    snap: u32,
    /// Only calls of this handler; may be given several times
    #[arg(long, value_name = "ID")]
    handler: Vec<HandlerId>,
    /// Number of calls after which to end
    #[arg(long, short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Seconds after which to end [default: at Ctrl-C]
    #[arg(long, value_parser = perf::parse_seconds, value_name = "SECONDS", allow_negative_numbers = true)]
    seconds: Option<Duration>,
    /// Print one JSON object for each call
    #[arg(long)]
    json: bool,
    /// Print a dissector for Wireshark, in Lua, and do nothing else
    #[arg(long, exclusive = true)]
    dissector: bool,
    #[command(flatten)]
    connect: connect::Options,
}

/// A call as a JSON object.
#[derive(Debug, Serialize)]
struct Line<'a> {
    number: u64,
    began_s: f64,
    took_ns: u64,
    connection: u64,
    peer: &'a str,
    handler: HandlerId,
    name: &'a str,
    end: String,
    request_bytes: u64,
    request: String,
    answer_bytes: u64,
    answer: String,
}

/// Captures.
pub fn run(args: &Args) -> Result<(), Failure> {
    let Some(address) = args.address.as_ref().filter(|_| !args.dissector) else {
        return output::write(DISSECTOR.as_bytes());
    };
    let mut target = Target::open(args, address)?;
    let client = args.connect.connect(address)?;
    interrupt::listen()?;
    let mut capture = client.capture(args.snap).map_err(explain)?;
    let began = Instant::now();
    output::note(format_args!(
        "capturing the calls of {address}; Ctrl-C ends it"
    ));
    let (mut seen, mut missed) = (0, 0);
    let is_over = |seen| {
        interrupt::came()
            || args.count.is_some_and(|count| seen >= count)
            || args.seconds.is_some_and(|most| began.elapsed() >= most)
    };
    while !is_over(seen) {
        let mut some = capture.next_calls().map_err(explain)?;
        missed += some.missed;
        let all = some.calls.len();
        some.calls
            .retain(|call| args.handler.is_empty() || args.handler.contains(&call.handler));
        let left = args.count.map_or(u64::MAX, |count| count - seen);
        some.calls
            .truncate(usize::try_from(left).unwrap_or(usize::MAX));
        seen += some.calls.len() as u64;
        target.add(&some)?;
        if all == 0 {
            std::thread::sleep(PAUSE);
        }
    }
    if missed > 0 || args.write.is_some() {
        output::note(format_args!("{seen} calls, {missed} missed"));
    }
    Ok(())
}

fn explain(error: CallError) -> Failure {
    let unknown = matches!(error, CallError::UnknownHandler(_));
    let failure = Failure::new(error);
    if unknown {
        return failure.help(
            "the server does not allow capture: start it with `dunlin serve --allow-capture`, or set \
             ServerBuilder::allows_capture",
        );
    }
    failure
}

/// The output for calls.
enum Target {
    File(File<Box<dyn Write>>),
    Lines,
    Json,
}

impl Target {
    /// Opens the output first, so that a file that cannot be written is reported at once.
    fn open(args: &Args, address: &Address) -> Result<Self, Failure> {
        let output: Box<dyn Write> = match args.write.as_deref() {
            None if args.json => return Ok(Self::Json),
            None => return Ok(Self::Lines),
            Some(file) if file == Path::new("-") => Box::new(std::io::stdout()),
            Some(file) => Box::new(
                std::fs::File::create(file)
                    .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?,
            ),
        };
        let output: Box<dyn Write> = Box::new(BufWriter::new(output));
        let mut file = File::begin(output, &address.to_string())?;
        file.flush()?;
        Ok(Self::File(file))
    }

    fn add(&mut self, some: &CapturedCalls) -> Result<(), Failure> {
        match self {
            Self::File(file) => {
                file.missed(some.missed);
                // In the order of time, as far as it goes.
                let mut frames = BTreeMap::new();
                for call in &some.calls {
                    for (index, frame) in Frame::both(call).into_iter().enumerate() {
                        frames.insert((frame.at, call.number, index), frame);
                    }
                }
                for frame in frames.values() {
                    file.add(frame)?;
                }
                file.flush()
            }
            Self::Lines => some
                .calls
                .iter()
                .try_for_each(|call| output::print(in_words(call))),
            Self::Json => some
                .calls
                .iter()
                .try_for_each(|call| output::print_message(&line(call))),
        }
    }
}

/// Describes the outcome of a call in a word or two.
fn end_of(call: &CapturedCall) -> String {
    use dunlin::CallEnd::{Answered, Cancelled, Failed, Panicked};
    match call.end {
        Answered => "answered".into(),
        Failed(code) => format!("error {code}"),
        Panicked => "panicked".into(),
        Cancelled => "cancelled".into(),
        _ => "ended".into(),
    }
}

fn in_words(call: &CapturedCall) -> String {
    let seconds = call.began.as_secs() % 86_400;
    let what = match call.name.as_str() {
        "" => format!("handler {}", call.handler),
        name => name.to_owned(),
    };
    format!(
        "{:02}:{:02}:{:02}.{:06} client {} {what}: {} B \"{}\" -> {} in {}, {} B \"{}\"",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        call.began.subsec_micros(),
        call.connection,
        call.request_bytes,
        shown(&call.request),
        end_of(call),
        output::nanoseconds(call.took.as_nanos() as f64),
        call.answer_bytes,
        shown(&call.answer),
    )
}

/// The beginning of a payload, with everything but text escaped.
fn shown(bytes: &[u8]) -> String {
    let beginning = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let dots = if beginning.len() < bytes.len() {
        "..."
    } else {
        ""
    };
    format!("{}{dots}", beginning.escape_ascii())
}

fn line(call: &CapturedCall) -> Line<'_> {
    Line {
        number: call.number,
        began_s: call.began.as_secs_f64(),
        took_ns: call.took.as_nanos() as u64,
        connection: call.connection,
        peer: &call.peer,
        handler: call.handler,
        name: &call.name,
        end: end_of(call),
        request_bytes: call.request_bytes,
        request: call.request.escape_ascii().to_string(),
        answer_bytes: call.answer_bytes,
        answer: call.answer.escape_ascii().to_string(),
    }
}
