//! `dunlin perf change`: measures what a client's callers notice while it changes its preset (Flor §7.7, Fig. 12).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use dunlin::{Address, Client, Preset};
use serde::Serialize;

use crate::affinity;
use crate::commands::connect;
use crate::commands::Failure;
use crate::interrupt;
use crate::output;
use crate::services::child::ServerProcess;

/// The length of a window.
const WINDOW: Duration = Duration::from_millis(10);
/// The rates before a change are averaged over this time, and a change is over when nothing differs for as long.
const CALM: Duration = Duration::from_millis(500);
/// How far a window's rate or latency may be from the median before the change and still count as undisturbed, beyond
/// the range of the windows before it.
const NOTICED: f64 = 0.05;

/// Measure what callers notice while a client changes its preset and changes back
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Threads of one client call an echo handler without pause, each with one call outstanding; without --address, a server \
process is started and pinned to the second core, and the first thread to the first. After a third of the time the \
client changes to the other preset, after two thirds back again; no call may fail. Reported for each change: the \
duration of the call that makes the change, the longest call outstanding meanwhile, the dip of the rate in windows of \
10 ms, and the time until windows no longer differ from those before it.\n\n\
Examples:\n  \
  dunlin perf change --preset xrdma --device roce           from xrdma to flor and back, on UDP\n  \
  dunlin perf change --preset plain --to flock --threads 8")]
pub struct Args {
    /// Preset to change to from that of `--preset`, and to change back from
    #[arg(long, default_value = "flor")]
    to: Preset,
    /// Bytes of a request and of its response, such as 4K or 1MiB
    #[arg(long, default_value_t = 64, value_parser = crate::input::parse_bytes(0..=u32::MAX))]
    size: u32,
    /// Client threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Seconds to measure
    #[arg(long, default_value = "6", value_parser = super::parse_seconds)]
    seconds: Duration,
    /// Use this server instead of starting one (`dunlin serve echo`)
    #[arg(long)]
    address: Option<Address>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: connect::Options,
}

/// The calls that ended in one window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    calls: u64,
    /// Of all of them, and of the one that took longest.
    total_ns: u64,
    longest_ns: u64,
}

/// The report of a change.
#[derive(Debug, Serialize)]
struct Change {
    from: String,
    to: String,
    device: String,
    /// How long `Client::change_preset` took, which tests the path and makes connections in addition to those in use.
    changed_after_us: u64,
    /// Medians of the windows in the half second before, and in the last half second of the phase after it.
    rate_before_per_s: f64,
    rate_after_per_s: f64,
    latency_before_ns: u64,
    latency_after_ns: u64,
    /// The fewest and most calls of a window in that half second before, as parts of the median.
    range_before: [f64; 2],
    /// The fewest calls of a window while it changed, as a part of the median before it.
    least_rate: f64,
    /// The longest call that ended while it changed, and the longest in the half second before.
    longest_us: u64,
    longest_before_us: u64,
    /// From its beginning to the end of the last window below both those before and those after it.
    disturbed_ms: u64,
}

#[derive(Debug, Serialize)]
struct ChangeReport {
    size: u32,
    threads: u16,
    calls: u64,
    errors: u64,
    changes: Vec<Change>,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    interrupt::listen()?;
    let server = match &args.address {
        Some(_) => None,
        None => {
            let second = affinity::cores().get(1).map(std::slice::from_ref);
            let arguments =
                super::server_arguments(second.unwrap_or_default(), args.connect.device());
            Some(ServerProcess::start("echo", &arguments)?)
        }
    };
    let address = args.address.as_ref();
    let address = address.or(server.as_ref().map(ServerProcess::address));
    let address = address.ok_or_else(|| Failure::new("there is no server"))?;
    let client = args.connect.connect(address)?;
    let report = measure(args, &client)?;
    if args.json {
        return output::print_json(&report);
    }
    for change in &report.changes {
        output::print(describe(change))?;
    }
    output::print(format!(
        "{} calls of {} bytes by {} threads, {} errors",
        report.calls, report.size, report.threads, report.errors
    ))
}

fn describe(change: &Change) -> String {
    format!(
        "{} to {} ({}): changed after {:.1} ms, disturbed for {} ms\n  \
         rate {:.0} -> {:.0} calls/s (windows before it {:.0} to {:.0} %), at least {:.0} % meanwhile\n  \
         mean latency {:.1} -> {:.1} us; longest call {} us (before it {} us)",
        change.from,
        change.to,
        change.device,
        change.changed_after_us as f64 / 1e3,
        change.disturbed_ms,
        change.rate_before_per_s,
        change.rate_after_per_s,
        change.range_before[0] * 100.0,
        change.range_before[1] * 100.0,
        change.least_rate * 100.0,
        change.latency_before_ns as f64 / 1e3,
        change.latency_after_ns as f64 / 1e3,
        change.longest_us,
        change.longest_before_us,
    )
}

/// A change that was made.
struct Made {
    preset: Preset,
    device: String,
    began: Duration,
    took: Duration,
}

fn measure(args: &Args, client: &Client) -> Result<ChangeReport, Failure> {
    let count = (args.seconds.as_nanos() / WINDOW.as_nanos()) as usize + 1;
    let over = AtomicBool::new(false);
    let windows = Mutex::new(vec![Window::default(); count]);
    let failed = Mutex::new((0_u64, None));
    let began = Instant::now();
    let mut made = Vec::new();
    let mut refused = None;
    std::thread::scope(|scope| {
        for number in 0..args.threads {
            let first = affinity::cores().first().filter(|_| number == 0);
            let (over, failed, windows) = (&over, &failed, &windows);
            scope.spawn(move || {
                if let Some(core) = first {
                    affinity::pin(*core);
                }
                let mine = call(client, args.size as usize, (began, count), over, failed);
                let mut all = windows.lock().unwrap_or_else(|poison| poison.into_inner());
                for (all, mine) in all.iter_mut().zip(mine) {
                    all.calls += mine.calls;
                    all.total_ns += mine.total_ns;
                    all.longest_ns = all.longest_ns.max(mine.longest_ns);
                }
            });
        }
        for (third, preset) in [(1, args.to), (2, args.connect.preset())] {
            sleep_until(began + args.seconds * third / 3);
            if interrupt::came() {
                break;
            }
            let started = began.elapsed();
            if let Err(error) = client.change_preset(preset) {
                refused = Some(error);
                break;
            }
            made.push(Made {
                preset,
                device: client.info().device,
                began: started,
                took: began.elapsed() - started,
            });
        }
        if refused.is_none() {
            sleep_until(began + args.seconds);
        }
        over.store(true, Ordering::Relaxed);
    });
    if let Some(error) = refused {
        return Err(error.into());
    }
    // A change that was not watched to its end is not reported.
    interrupt::check()?;
    let windows = windows
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    let (errors, first) = failed
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    if let Some(first) = first {
        return Err(Failure::new(format!(
            "{errors} calls failed, the first with: {first}"
        )));
    }
    // The last window was measured only in part.
    let windows = &windows[..count - 1];
    let mut from = args.connect.preset();
    let ends = [made.get(1).map(|next| next.began), Some(args.seconds)];
    let changes = made.iter().zip(ends);
    let changes = changes.map(|(made, end)| {
        let change = judge(windows, made, end.unwrap_or(args.seconds), from);
        from = made.preset;
        change
    });
    Ok(ChangeReport {
        size: args.size,
        threads: args.threads,
        changes: changes.collect(),
        calls: windows.iter().map(|window| window.calls).sum(),
        errors,
    })
}

fn sleep_until(end: Instant) {
    while Instant::now() < end && !interrupt::came() {
        std::thread::sleep((end - Instant::now()).min(Duration::from_millis(50)));
    }
}

/// Makes calls until the end, and returns the calls that ended in each window.
fn call(
    client: &Client,
    size: usize,
    (began, count): (Instant, usize),
    over: &AtomicBool,
    failed: &Mutex<(u64, Option<String>)>,
) -> Vec<Window> {
    let mut windows = vec![Window::default(); count];
    let request = vec![7; size];
    let mut from = began.elapsed();
    while !over.load(Ordering::Relaxed) {
        let answer = client.call(crate::services::echo::ECHO, &request);
        let to = began.elapsed();
        if let Err(error) = answer {
            let mut failed = failed.lock().unwrap_or_else(|poison| poison.into_inner());
            failed.0 += 1;
            failed.1.get_or_insert(error.to_string());
        }
        let took_ns = (to - from).as_nanos() as u64;
        let window = (to.as_nanos() / WINDOW.as_nanos()) as usize;
        if let Some(window) = windows.get_mut(window) {
            window.calls += 1;
            window.total_ns += took_ns;
            window.longest_ns = window.longest_ns.max(took_ns);
        }
        from = to;
    }
    windows
}

/// The figures of undisturbed windows.
struct Usual {
    rate: f64,
    range: [f64; 2],
    latency_ns: u64,
    longest_ns: u64,
}

impl Usual {
    fn of(windows: &[Window]) -> Self {
        let mut calls: Vec<u64> = windows.iter().map(|window| window.calls).collect();
        let total: u64 = calls.iter().sum();
        let total_ns: u64 = windows.iter().map(|window| window.total_ns).sum();
        calls.sort_unstable();
        let at = |index: usize| calls.get(index).copied().unwrap_or(0) as f64;
        let median = at(calls.len() / 2);
        let part = |calls: f64| calls / median.max(1.0);
        Self {
            rate: median / WINDOW.as_secs_f64(),
            range: [part(at(0)), part(at(calls.len().saturating_sub(1)))],
            latency_ns: total_ns / total.max(1),
            longest_ns: windows.iter().map(|w| w.longest_ns).max().unwrap_or(0),
        }
    }

    /// Whether a window is below all of these by more than `NOTICED`.
    fn is_below(&self, window: &Window) -> bool {
        let part = window.calls as f64 / WINDOW.as_secs_f64() / self.rate.max(1.0);
        part < self.range[0] && part < 1.0 - NOTICED
    }
}

/// `end`: of the phase after the change.
fn judge(windows: &[Window], made: &Made, end: Duration, from: Preset) -> Change {
    let at = |time: Duration| ((time.as_nanos() / WINDOW.as_nanos()) as usize).min(windows.len());
    let first = at(made.began);
    let end = at(end).max(first + 1).min(windows.len());
    let calm = (CALM.as_nanos() / WINDOW.as_nanos()) as usize;
    let before = Usual::of(&windows[first.saturating_sub(calm)..first]);
    let after = Usual::of(&windows[end.saturating_sub(calm).max(first)..end]);
    // The first windows that are as calm as those before or after it end it.
    let disturbed = |window: &Window| before.is_below(window) && after.is_below(window);
    let during = &windows[first..end];
    let changing = at(made.began + made.took) + 1 - first;
    let mut last = changing.min(during.len());
    let mut quiet = 0;
    for (index, window) in during.iter().enumerate() {
        if disturbed(window) {
            last = last.max(index + 1);
            quiet = 0;
        } else {
            quiet += 1;
        }
        if quiet > calm {
            break;
        }
    }
    let during = &during[..last];
    let least = during.iter().map(|window| window.calls).min().unwrap_or(0);
    Change {
        from: from.to_string(),
        to: made.preset.to_string(),
        device: made.device.clone(),
        changed_after_us: made.took.as_micros() as u64,
        rate_before_per_s: before.rate,
        rate_after_per_s: after.rate,
        latency_before_ns: before.latency_ns,
        latency_after_ns: after.latency_ns,
        range_before: before.range,
        least_rate: least as f64 / WINDOW.as_secs_f64() / before.rate.max(1.0),
        longest_us: during.iter().map(|w| w.longest_ns).max().unwrap_or(0) / 1000,
        longest_before_us: before.longest_ns / 1000,
        disturbed_ms: (last as u128 * WINDOW.as_millis()) as u64,
    }
}
