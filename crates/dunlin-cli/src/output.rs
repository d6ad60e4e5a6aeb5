//! Output: tables, the JSON object, files, figures with units, a progress bar.

use std::io::{ErrorKind, Write};
use std::path::Path;

use comfy_table::{presets::UTF8_BORDERS_ONLY, CellAlignment, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::commands::Failure;
use crate::environment::Environment;
use crate::histogram::Latencies;
use crate::report::{AnyLimits, Report};

/// Writes bytes to standard output and flushes it.
///
/// # Errors
/// [`Failure::output_closed`] when the reader has gone away (`| head`), which ends the command; otherwise the system's
/// error.
pub fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    let written = output.write_all(bytes).and_then(|()| output.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::output_closed(),
        _ => Failure::new(format!("cannot write to standard output: {error}")),
    })
}

/// Writes a line to standard output.
///
/// # Errors
/// As for [`write()`].
pub fn print(text: impl std::fmt::Display) -> Result<(), Failure> {
    write(format!("{text}\n").as_bytes())
}

/// Writes a line to standard error, ignoring errors.
pub fn note(text: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints exactly one JSON object on one line, with `environment` (where and when it was measured) as its last member.
///
/// # Errors
/// As for [`write()`].
pub fn print_json(object: &impl Serialize) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Object<'a, T> {
        #[serde(flatten)]
        object: &'a T,
        environment: Environment,
    }
    print_message(&Object {
        object,
        environment: Environment::now(),
    })
}

/// Prints one JSON object on one line as it is, for another process of this command.
///
/// # Errors
/// As for [`write()`].
pub fn print_message(object: &impl Serialize) -> Result<(), Failure> {
    print(serde_json::to_string(object).map_err(Failure::new)?)
}

/// Creates a folder and checks that files can be created in it, so that this fails before minutes of work, not after
/// them.
///
/// # Errors
/// The system's error, with the folder's name.
pub fn folder(folder: &Path) -> Result<(), Failure> {
    let probe = folder.join(format!(".dunlin-{}", std::process::id()));
    let made = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::File::create_new(&probe))
        .and_then(|_| std::fs::remove_file(&probe));
    made.map_err(|error| Failure::new(format!("{}: {error}", folder.display())))
}

/// Writes a file.
///
/// # Errors
/// The system's error, with the file's name.
pub fn file(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    std::fs::write(path, contents)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// Prints a report as a JSON object or as a table.
///
/// # Errors
/// As for [`write()`].
pub fn print_report(report: &Report, json: bool) -> Result<(), Failure> {
    if json {
        print_json(report)?;
        return Ok(());
    }
    print(report_table(report))?;
    match &report.histogram_ns {
        Some(latencies) => print(histogram_table(latencies)),
        None => Ok(()),
    }
}

/// Length of the longest bar, in characters.
const BAR: f64 = 40.0;

fn histogram_table(latencies: &Latencies) -> Table {
    let counts = latencies.by_power_of_two();
    let most = counts.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let mut table = Table::new();
    table
        .load_style(UTF8_BORDERS_ONLY)
        .set_header(["latency from", "calls", "part", ""]);
    for (from, count) in counts {
        let part = count as f64 / latencies.count().max(1) as f64;
        let bar = (count as f64 / most.max(1) as f64 * BAR).ceil() as usize;
        table.add_row([
            nanoseconds(from as f64),
            count.to_string(),
            format!("{:.4} %", part * 100.0),
            "#".repeat(bar),
        ]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index < 3 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A table in this command's style, with all columns but the first aligned to the right.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_BORDERS_ONLY)
        .set_header(header.iter().copied());
    for (index, column) in table.column_iter_mut().enumerate() {
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn report_table(report: &Report) -> Table {
    let bounds = match &report.limits {
        Some(AnyLimits::Bounds(bounds)) => Some(bounds),
        _ => None,
    };
    let mut table = match bounds {
        Some(_) => {
            let beside = report.against.as_deref().unwrap_or("limit");
            table(&["", "measured", beside, "ratio"])
        }
        None => table(&["", "measured"]),
    };
    let latency = &report.latency_ns;
    let ratio = report.ratio;
    let mut row = |name: &str, measured: String, beside: Option<(String, f64)>| {
        let mut cells = vec![name.to_owned(), measured];
        if bounds.is_some() {
            let (limit, ratio) = beside.map_or_else(Default::default, |(limit, ratio)| {
                (limit, format!("{ratio:.2}"))
            });
            cells.extend([limit, ratio]);
        }
        table.add_row(cells);
    };
    let both = bounds.zip(ratio);
    row(
        "rate",
        rate(report.rate_per_s),
        both.map(|(b, r)| (rate(b.rate_per_s), r.rate)),
    );
    row(
        "bandwidth",
        bandwidth(report.bytes_per_s),
        both.map(|(b, r)| (bandwidth(b.bytes_per_s), r.bandwidth)),
    );
    row(
        "latency p50",
        nanoseconds(latency.p50 as f64),
        both.map(|(b, r)| (nanoseconds(b.latency_ns), r.latency)),
    );
    row("latency p99", nanoseconds(latency.p99 as f64), None);
    row("latency p99.9", tail(latency.p999), None);
    row("latency max", nanoseconds(latency.max as f64), None);
    row("errors", report.errors.to_string(), None);
    let setting = &report.setting;
    row("device", setting.device.clone(), None);
    row("preset", setting.preset.clone(), None);
    row(
        "threads x outstanding",
        format!("{} x {}", setting.threads, setting.outstanding),
        None,
    );
    row("size", format!("{} B", setting.size), None);
    if let Some(bytes) = setting.response_size {
        row("size of an answer", format!("{bytes} B"), None);
    }
    row("measured for", format!("{:.2} s", report.seconds), None);
    if let Some(pairs) = &report.pairs {
        let counted = match pairs.steady {
            true => format!("{} ({})", pairs.counted, pairs.discarded),
            false => format!("0 ({}): ratios of those", pairs.discarded),
        };
        row("pairs (discarded)", counted, None);
        let spread = |low: f64, high: f64| format!("{low:.2} to {high:.2}");
        row(
            "ratio of rate, spread",
            spread(pairs.low.rate, pairs.high.rate),
            None,
        );
        row(
            "ratio of latency, spread",
            spread(pairs.low.latency, pairs.high.latency),
            None,
        );
        row(
            "ratio of bandwidth, spread",
            spread(pairs.low.bandwidth, pairs.high.bandwidth),
            None,
        );
    }
    table
}

/// A progress bar on standard error if that is a terminal; `set_position` takes thousandths.
pub fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:20} {percent:>3} %  {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(1000).with_style(style)
}

fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    let (divisor, unit) = steps
        .iter()
        .rev()
        .find(|(divisor, _)| value.abs() >= *divisor)
        .or(steps.first())
        .copied()
        .unwrap_or((1.0, ""));
    let value = value / divisor;
    let digits = match value.abs() {
        small if small < 10.0 => 2,
        middle if middle < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

/// Formats a figure that may not have been measured.
pub fn measured(value: Option<f64>, shown: fn(f64) -> String) -> String {
    value.map_or_else(|| "not measured".to_owned(), shown)
}

/// Formats the 99.9th percentile, which few operations do not have.
pub fn tail(p999: Option<u64>) -> String {
    p999.map_or_else(|| "-".to_owned(), |ns| nanoseconds(ns as f64))
}

/// Formats a duration.
pub fn nanoseconds(value: f64) -> String {
    scaled(value, &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")])
}

/// Formats a rate in operations per second.
pub fn rate(value: f64) -> String {
    scaled(value, &[(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s")])
}

/// Formats a bandwidth in bytes per second.
pub fn bandwidth(value: f64) -> String {
    scaled(
        value,
        &[(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")],
    )
}

/// Formats a number of bytes.
pub fn bytes(value: f64) -> String {
    scaled(
        value,
        &[
            (1.0, "B"),
            (1024.0, "KiB"),
            (1_048_576.0, "MiB"),
            (1_073_741_824.0, "GiB"),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people() {
        assert_eq!(nanoseconds(170.0), "170 ns");
        assert_eq!(nanoseconds(8_400.0), "8.40 µs");
        assert_eq!(rate(68e6), "68.0 M/s");
        assert_eq!(bandwidth(24.2e9), "24.2 GB/s");
        assert_eq!(bytes(2_097_152.0), "2.00 MiB");
        assert_eq!(rate(0.0), "0.00 /s");
    }
}
