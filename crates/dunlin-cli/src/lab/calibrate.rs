//! `dunlin lab calibrate`: makes a parameter file for a user's NIC from the output of perftest.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use dunlin_lab::calibration::perftest::{self, Measured};
use dunlin_lab::calibration::{fit_nic, write_nic, Fitted, Line, Residual, Testbed};
use dunlin_lab::experiment::{CPU_NAMES, NIC_NAMES, SWITCH_NAMES};

use super::{runner, search, unknown};
use crate::commands::Failure;
use crate::output;

/// Make a parameter file for your own NIC from the output of perftest
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Runs of ib_write_lat, ib_read_lat, ib_write_bw and ib_read_bw over RC between two hosts are replayed on the model, \
and the parameters that they depend on are changed until both agree. Sweeps of sizes (-a) and of queue pairs (-q 1, \
16, 256) determine more than single runs. Parameters that no measurement determines stay as in --like, and are \
listed.\n\n\
Examples:\n  \
  for q in 1 4 16 64 256; do ib_read_bw -q $q -s 64 HOST; done | tee reads.txt\n  \
  ib_write_lat -a HOST > latency.txt; ib_write_bw -a HOST > writes.txt\n  \
  dunlin lab calibrate latency.txt writes.txt reads.txt --like connectx-5 --out my-nic.toml\n  \
  dunlin lab calibrate *.txt --hold-out              how well it predicts every other line\n\n\
In an experiment: nic_file = \"my-nic.toml\" (docs/experiments.md).")]
pub struct Args {
    /// Output of perftest; - for standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// NIC that yours is like: the fit starts there, and keeps what was not measured
    #[arg(long, default_value = "connectx-5", value_parser = PossibleValuesParser::new(NIC_NAMES))]
    like: String,
    /// Processors of both hosts
    #[arg(long, default_value = "xeon-gold-5118", value_parser = PossibleValuesParser::new(CPU_NAMES))]
    cpu: String,
    /// Switch between the hosts
    #[arg(long, default_value = "sb7890", value_parser = PossibleValuesParser::new(SWITCH_NAMES))]
    switch: String,
    /// Name of the NIC in the file
    #[arg(long, default_value = "mine")]
    name: String,
    /// File to which the parameters are written
    #[arg(long)]
    out: Option<PathBuf>,
    /// Exclude every other line from the fit, and report how well these lines are predicted
    #[arg(long)]
    hold_out: bool,
    #[command(flatten)]
    search: search::SearchArgs,
    /// Seed of the simulated runs and of the starts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Lines simulated at once [default: number of cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Fits, prints, and writes the file.
///
/// # Errors
/// When a file cannot be read or written, or is not output of perftest.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut measured = Vec::new();
    for file in &args.files {
        measured.extend(read(file)?);
    }
    if measured.is_empty() {
        return Err(Failure::usage("none of the measurements can be replayed")
            .help("use RC runs of ib_write_lat, ib_read_lat, ib_write_bw or ib_read_bw"));
    }
    let known = "the list of the option has no others";
    let like = dunlin_lab::experiment::nic_named(&args.like).expect(known);
    let bed = Testbed {
        host: dunlin_lab::experiment::cpu_named(&args.cpu).expect(known),
        switch: dunlin_lab::experiment::switch_named(&args.switch).expect(known),
        seed: args.seed,
        threads: runner::threads(args.threads),
    };
    let fitted = fit_nic(
        &like,
        &bed,
        &measured,
        args.search.search(args.seed),
        args.hold_out,
        search::tell,
    );
    if let Some(out) = &args.out {
        let source = format!(
            "fitted by `dunlin lab calibrate` to {} lines of perftest",
            measured.len()
        );
        let text = write_nic(&fitted, &args.name, &source);
        std::fs::write(out, text)
            .map_err(|error| Failure::new(format!("{}: {error}", out.display())))?;
    }
    match args.json {
        true => output::print_json(&as_json(&fitted)),
        false => print(&fitted, args.hold_out),
    }
}

fn read(file: &Path) -> Result<Vec<Measured>, Failure> {
    let mut text = String::new();
    let done = match file.as_os_str() == "-" {
        true => std::io::stdin().read_to_string(&mut text).map(drop),
        false => std::fs::read_to_string(file).map(|read| text = read),
    };
    done.map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    let found = perftest::read(&text)
        .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    for (test, why) in &found.passed_over {
        output::note(format_args!("{}: skipped {test}: {why}", file.display()));
    }
    Ok(found.measured)
}

/// Median and worst relative error of these lines; `None` without any.
fn errors<'a>(lines: impl Iterator<Item = &'a Line>) -> Option<(f64, f64)> {
    let mut errors: Vec<f64> = lines.map(|line| line.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    Some((*errors.get(errors.len() / 2)?, *errors.last()?))
}

fn print(fitted: &Fitted, hold_out: bool) -> Result<(), Failure> {
    output::print(format_args!(
        "{:54} {:>10} {:>10} {:>10}   error",
        "line", "measured", "before", "after"
    ))?;
    for line in &fitted.lines {
        output::print(format_args!(
            "{:54} {:10.3} {:10.3} {:10.3} {:+6.1} % {}",
            format!("{}, {}", line.label, line.unit),
            line.measured,
            line.before,
            line.after,
            line.error() * 100.0,
            if line.held_out { "held out" } else { "" }
        ))?;
    }
    for (name, before, after) in &fitted.fitted {
        output::print(format_args!("{name:22} {before:10.3} -> {after:10.3}"))?;
    }
    output::print(format_args!(
        "nothing measured tells of: {}",
        fitted.unknown.join(", ")
    ))?;
    search::print_end(
        (fitted.error, fitted.fresh_error),
        fitted.trials,
        fitted.cut_short,
    )?;
    unknown::print_open(fitted.error, &fitted.open)?;
    let rows: Vec<Residual> = fitted.lines.iter().map(Line::residual).collect();
    unknown::print_missed(&rows)?;
    let kinds = [("the fit has seen", false), ("were held out", true)];
    for (what, held_out) in &kinds[..1 + usize::from(hold_out)] {
        let lines = fitted
            .lines
            .iter()
            .filter(|line| line.held_out == *held_out);
        if let Some((median, worst)) = errors(lines) {
            output::print(format_args!(
                "lines that {what}: median error {:.1} %, worst {:.1} %",
                median * 100.0,
                worst * 100.0
            ))?;
        }
    }
    Ok(())
}

fn as_json(fitted: &Fitted) -> serde_json::Value {
    let line = |line: &Line| {
        serde_json::json!({
            "line": line.label, "unit": line.unit, "measured": line.measured, "before": line.before,
            "after": line.after, "error": line.error(), "held_out": line.held_out,
        })
    };
    let parameter = |fitted: &(String, f64, f64)| {
        let (name, before, after) = fitted;
        serde_json::json!({ "name": name, "before": before, "after": after })
    };
    let of = |held_out: bool| {
        let lines = fitted.lines.iter().filter(|line| line.held_out == held_out);
        errors(lines).map(|(median, worst)| serde_json::json!({ "median": median, "worst": worst }))
    };
    let rows: Vec<Residual> = fitted.lines.iter().map(Line::residual).collect();
    serde_json::json!({
        "lines": fitted.lines.iter().map(line).collect::<Vec<_>>(),
        "fitted": fitted.fitted.iter().map(parameter).collect::<Vec<_>>(),
        "unknown": fitted.unknown,
        "doubt": unknown::as_json(fitted.error, &fitted.open, &rows),
        "error": { "seen": of(false), "held_out": of(true), "fresh": fitted.fresh_error },
        "trials": fitted.trials,
        "cut_short": fitted.cut_short,
    })
}
