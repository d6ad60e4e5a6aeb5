//! `dunlin perf rpc --sweep`: measures one size after the other.

use dunlin::Client;
use serde::Serialize;

use super::{setting, Args};
use crate::affinity;
use crate::commands::perf::load::{in_slices, SLICE};
use crate::commands::Failure;
use crate::interrupt;
use crate::output;
use crate::report::{check_errors, Report};

/// Powers of two, from 8 B to 4 MiB.
const SIZES: std::ops::RangeInclusive<u32> = 3..=22;

/// Measures all sizes up to the server's longest, or until Ctrl-C.
pub(super) fn run(args: &Args, client: &Client, longest: usize) -> Result<Vec<Report>, Failure> {
    let sizes: Vec<u32> = SIZES
        .map(|power| 1 << power)
        .filter(|size| *size as usize <= longest)
        .collect();
    let bar = output::progress_bar();
    bar.set_message("perf rpc --sweep");
    let mut reports = Vec::new();
    for (at, size) in sizes.iter().enumerate() {
        if interrupt::came() {
            break;
        }
        let shape = args.shape(*size);
        let threads = args.start(std::slice::from_ref(client), shape, affinity::cores())?;
        let progress =
            |done: f64| bar.set_position(((at as f64 + done) * 1000.0 / sizes.len() as f64) as u64);
        let tally = in_slices(&threads, args.seconds / 10, SLICE, progress)?;
        reports.push(Report::new(setting(client, shape, threads.len()), &tally));
    }
    bar.finish_and_clear();
    Ok(reports)
}

/// Prints one line for each size.
pub(super) fn print(reports: &[Report], json: bool) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Object<'a> {
        sweep: &'a [Report],
    }
    if json {
        output::print_json(&Object { sweep: reports })?;
    } else {
        let header = [
            "size",
            "answer",
            "rate",
            "bandwidth",
            "latency p50",
            "p99",
            "p99.9",
            "max",
        ];
        let mut table = output::table(&header);
        for report in reports {
            let latency = &report.latency_ns;
            let answer = report.setting.response_size.unwrap_or(report.setting.size);
            let shown = |ns: u64| output::nanoseconds(ns as f64);
            table.add_row([
                output::bytes(report.setting.size as f64),
                output::bytes(answer as f64),
                output::rate(report.rate_per_s),
                output::bandwidth(report.bytes_per_s),
                shown(latency.p50),
                shown(latency.p99),
                output::tail(latency.p999),
                shown(latency.max),
            ]);
        }
        output::print(table)?;
    }
    let errors: u64 = reports.iter().map(|report| report.errors).sum();
    let first = reports
        .iter()
        .find_map(|report| report.first_error.as_ref());
    check_errors(errors, "calls", first)?;
    interrupt::check()
}
