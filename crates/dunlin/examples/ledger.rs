//! Calls whose data and number of executions are checked from end to end.
//!
//! The server keeps a ledger: how often each numbered call was executed. The client sends calls with contents that
//! follow from their number, compares each answer byte by byte, and in the end compares the ledger with what it was
//! told: a call that succeeded was executed once, a call that failed once or never. Everything may fail in between;
//! what must not happen is a wrong answer, a second execution, or threads that do not get going again.
//!
//! ```text
//! cargo run --release -p dunlin --example ledger serve dunlin://127.0.0.1:7400
//! cargo run --release -p dunlin --example ledger call dunlin://127.0.0.1:7400 threads=4 seconds=5
//! ```
//!
//! `device=NAME` works for both; `call` takes `preset=NAME`, `threads=N`, `seconds=N`, `longest=BYTES`,
//! `deadline=SECONDS`.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin::{CallError, Client, HandlerError, Server};

/// Client (8 bytes), number (8 bytes), body -> the body, each byte inverted.
const RECORD: u16 = 1;
/// Client (8 bytes), first number (8 bytes), how many (4 bytes) -> how often each was executed (a byte each).
const COUNTS: u16 = 2;
/// Counts that are asked for at once.
const PAGE: u64 = 4096;
/// Calls of one client that the server remembers.
const MOST_CALLS: usize = 1 << 24;
/// One call of so many is long.
const LONG: u64 = 16;
/// How long a client tries to get the ledger, and a thread to make a call after its last failure.
const LEDGER: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((verb, rest)) if verb == "serve" && !rest.is_empty() => serve(rest),
        Some((verb, rest)) if verb == "call" && !rest.is_empty() => call(rest),
        _ => Err("ledger serve|call dunlin://HOST:PORT [NAME=VALUE ...]".into()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// The value of `name=value` among the arguments.
fn setting<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let mut pairs = arguments.iter().filter_map(|one| one.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn number(arguments: &[String], name: &str, default: u64) -> Result<u64, Box<dyn Error>> {
    let value = setting(arguments, name).map(str::parse).transpose()?;
    Ok(value.unwrap_or(default))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn serve(arguments: &[String]) -> Result<bool, Box<dyn Error>> {
    let ledger: Arc<Mutex<HashMap<u64, Vec<u8>>>> = Arc::default();
    let malformed = || HandlerError::new(1, "client, number, and more");
    let book = Arc::clone(&ledger);
    let mut server = Server::bind(&arguments[0])?
        .handle(RECORD, move |request, reply| {
            let payload = request.payload();
            let (Some(client), Some(number)) = (word(payload, 0), word(payload, 8)) else {
                return Err(malformed());
            };
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            if number >= MOST_CALLS {
                return Err(HandlerError::new(2, "too many calls"));
            }
            {
                let mut ledger = book.lock().unwrap_or_else(PoisonError::into_inner);
                let counts = ledger.entry(client).or_default();
                if counts.len() <= number {
                    counts.resize(number + 1, 0);
                }
                counts[number] = counts[number].saturating_add(1);
            }
            let body = &payload[16..];
            let answer = reply.in_place(body.len())?;
            for (to, from) in answer.iter_mut().zip(body) {
                *to = !from;
            }
            Ok(())
        })
        .handle(COUNTS, move |request, reply| {
            let payload = request.payload();
            let (Some(client), Some(first), Some(count)) = (
                word(payload, 0),
                word(payload, 8),
                payload.get(16..20).and_then(|b| b.try_into().ok()),
            ) else {
                return Err(malformed());
            };
            let (first, count) = (first as usize, u32::from_le_bytes(count).min(PAGE as u32));
            let ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
            let counts = ledger.get(&client).map_or(&[][..], Vec::as_slice);
            let page: Vec<u8> = (first..first + count as usize)
                .map(|number| counts.get(number).copied().unwrap_or(0))
                .collect();
            reply.write(&page)
        });
    if let Some(device) = setting(arguments, "device") {
        server = server.device(device);
    }
    let server = server.serve()?;
    println!(
        "listening on {} over {:?}",
        server.address(),
        server.devices()
    );
    loop {
        std::thread::park();
    }
}

/// What became of the calls of one thread.
#[derive(Default)]
struct Outcome {
    done: Vec<u64>,
    failed: Vec<u64>,
    wrong: Vec<u64>,
    reasons: BTreeMap<String, u64>,
    longest_gap: Duration,
    /// Successes after the last failure.
    since_failure: u64,
}

/// The body of a call: its length and bytes follow from its number.
fn body(number: u64, longest: u64, to: &mut Vec<u8>) {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let most = if number % LONG == LONG - 1 {
        longest
    } else {
        longest.min(200)
    };
    let length = next() % (most + 1);
    while (to.len() as u64) < 16 + length {
        let left = (16 + length) as usize - to.len();
        to.extend_from_slice(&next().to_le_bytes()[..left.min(8)]);
    }
}

/// An error without the numbers that differ from call to call.
fn reason(error: &CallError) -> String {
    match error {
        CallError::DeadlineExceeded { .. } => "no answer within the deadline".to_owned(),
        other => other.to_string(),
    }
}

fn work(client: &Client, id: u64, next: &AtomicU64, longest: u64, end: Instant) -> Outcome {
    let mut outcome = Outcome::default();
    let mut request = Vec::new();
    let mut last_success = Instant::now();
    // A thread whose last call failed goes on until one succeeds: whether it gets going again is to be seen, not how
    // soon.
    let patience = end + LEDGER;
    let stuck = |outcome: &Outcome| outcome.since_failure == 0 && !outcome.failed.is_empty();
    while Instant::now() < end || stuck(&outcome) && Instant::now() < patience {
        let number = next.fetch_add(1, Ordering::Relaxed);
        request.clear();
        request.extend_from_slice(&id.to_le_bytes());
        request.extend_from_slice(&number.to_le_bytes());
        body(number, longest, &mut request);
        match client.call(RECORD, &request) {
            Ok(answer) => {
                let right = answer.len() == request.len() - 16
                    && answer.iter().zip(&request[16..]).all(|(a, b)| *a == !b);
                if !right {
                    outcome.wrong.push(number);
                }
                outcome.done.push(number);
                outcome.since_failure += 1;
                outcome.longest_gap = outcome.longest_gap.max(last_success.elapsed());
                last_success = Instant::now();
            }
            Err(error) => {
                outcome.failed.push(number);
                *outcome.reasons.entry(reason(&error)).or_default() += 1;
                outcome.since_failure = 0;
                // Without a connection a call fails at once; asking again and again helps nobody.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    outcome
}

/// How often each of the first `calls` was executed, by the server's word.
fn counts(client: &Client, id: u64, calls: u64) -> Result<Vec<u8>, CallError> {
    let mut all = Vec::new();
    let begin = Instant::now();
    while (all.len() as u64) < calls {
        let mut request = id.to_le_bytes().to_vec();
        request.extend_from_slice(&(all.len() as u64).to_le_bytes());
        request.extend_from_slice(&(PAGE as u32).to_le_bytes());
        match client.call(COUNTS, &request) {
            Ok(page) => all.extend_from_slice(&page),
            Err(error) if begin.elapsed() > LEDGER => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    Ok(all)
}

fn call(arguments: &[String]) -> Result<bool, Box<dyn Error>> {
    let seconds = Duration::from_secs(number(arguments, "seconds", 5)?);
    let threads = number(arguments, "threads", 1)?;
    let longest = number(arguments, "longest", 100_000)?;
    let deadline = Duration::from_secs(number(arguments, "deadline", 10)?);
    let mut builder = Client::builder().deadline(deadline);
    if let Some(device) = setting(arguments, "device") {
        builder = builder.device(device);
    }
    if let Some(preset) = setting(arguments, "preset") {
        builder = builder.preset(preset.parse()?);
    }
    let client = builder.connect(&arguments[0])?;
    let info = client.info();
    println!("{} over {}: {}", info.preset, info.device, info.why);

    // Any number that no other client of the server has.
    let id = u64::from(std::process::id()) << 32
        | u64::from(
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)?
                .subsec_nanos(),
        );
    let next = AtomicU64::new(0);
    let end = Instant::now() + seconds;
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| scope.spawn(|| work(&client, id, &next, longest, end)))
            .collect();
        workers
            .into_iter()
            .filter_map(|worker| worker.join().ok())
            .collect()
    });

    let ledger = counts(&client, id, next.load(Ordering::Relaxed))?;
    let times = |number: &u64| ledger[*number as usize];
    let (mut done, mut failed, mut executed, mut good) =
        (0, 0, 0, outcomes.len() as u64 == threads);
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    let mut gap = Duration::ZERO;
    for outcome in &outcomes {
        done += outcome.done.len();
        failed += outcome.failed.len();
        executed += outcome
            .failed
            .iter()
            .filter(|number| times(number) == 1)
            .count();
        for (reason, count) in &outcome.reasons {
            *reasons.entry(reason.clone()).or_default() += count;
        }
        gap = gap.max(outcome.longest_gap);
        let not_once = outcome.done.iter().filter(|number| times(number) != 1);
        let twice = outcome.failed.iter().filter(|number| times(number) > 1);
        let broken: Vec<&u64> = outcome.wrong.iter().chain(not_once).chain(twice).collect();
        if !broken.is_empty() {
            println!("WRONG: calls {broken:?}: a wrong answer, or not executed once");
            good = false;
        }
        if outcome.since_failure == 0 {
            println!("STUCK: a thread made no call after its last failure");
            good = false;
        }
    }
    println!(
        "{done} calls checked, {failed} failed ({executed} of them executed), longest time without an answer {gap:.1?}"
    );
    for (reason, count) in reasons {
        println!("  {count} x {reason}");
    }
    println!(
        "{}",
        if good {
            "the ledger agrees"
        } else {
            "THE LEDGER DISAGREES"
        }
    );
    Ok(good)
}
