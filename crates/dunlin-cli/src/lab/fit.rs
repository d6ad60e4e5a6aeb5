//! `dunlin lab fit`: the model against the READ sweeps, row by row, and the fit of named parameters to them.

use dunlin_lab::calibration::{self, root_mean_square, Knob, Point};
use dunlin_sim::NicParameters;

use super::runner;
use crate::commands::Failure;
use crate::output;

/// Operations of a machine that a point is measured for: while fitting, and for the comparison at the end.
const OPERATIONS: (u64, u64) = (1_000, 4_000);

/// Compare the NIC model with the READ sweeps of FaSST's authors, and fit it to them
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The NIC
    nic: Nic,
    /// NAME=VALUE sets a parameter, NAME fits it, NAME! fits it in whole numbers
    parameters: Vec<String>,
    /// Keep every other row from the fit, and say how well these are predicted
    #[arg(long)]
    hold_out: bool,
    /// Points worked on at once; as many as there are cores
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Nic {
    /// ConnectX-3
    Cx3,
    /// Connect-IB
    Cib,
}

/// Compares, and fits.
///
/// # Errors
/// When there is no parameter of a name.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut nic = match args.nic {
        Nic::Cx3 => NicParameters::connectx_3(),
        Nic::Cib => NicParameters::connect_ib(),
    };
    let threads = runner::threads(args.threads);
    let mut knobs = Vec::new();
    for word in &args.parameters {
        if let Some((name, value)) = word.split_once('=') {
            let value = value
                .parse()
                .map_err(|_| Failure::usage(format!("{word}: {value} is no number")))?;
            nic.set(name, value).map_err(Failure::usage)?;
        } else {
            let name = word.trim_end_matches('!').to_owned();
            let value = nic
                .get(&name)
                .ok_or_else(|| Failure::usage(format!("no parameter {name}")))?;
            let whole = word.ends_with('!');
            knobs.push(Knob { name, value, whole });
        }
    }
    let mut points = calibration::points();
    points.retain(|point| point.nic == nic.name);
    if !knobs.is_empty() {
        // A third of the points says nearly what all of them do.
        let every = if args.hold_out { 2 } else { 3 };
        let some: Vec<Point> = points.iter().step_by(every).cloned().collect();
        let error = |nic: &NicParameters| {
            root_mean_square(&calibration::run(&some, nic, OPERATIONS.0, threads))
        };
        let tell = |name: &str, value: f64, error: f64| {
            output::note(format_args!("{name} = {value}: {:.2} %", error * 100.0));
        };
        let (best, found) = calibration::fit(&nic, &knobs, 3, error, tell);
        for knob in found {
            output::print(format_args!("found {} = {}", knob.name, knob.value))?;
        }
        nic = best;
    }
    let rows = calibration::run(&points, &nic, OPERATIONS.1, threads);
    for row in &rows {
        let error = (row.ours / row.paper - 1.0) * 100.0;
        output::print(format_args!(
            "{:70} {:8.2} {:8.2} {error:+6.1} %",
            row.label, row.paper, row.ours
        ))?;
    }
    if args.hold_out {
        let mut errors: Vec<f64> = rows
            .iter()
            .skip(1)
            .step_by(2)
            .map(|row| (row.ours / row.paper - 1.0).abs() * 100.0)
            .collect();
        errors.sort_by(f64::total_cmp);
        output::print(format_args!(
            "{} rows held out: median error {:.1} %, worst {:.1} %",
            errors.len(),
            errors[errors.len() / 2],
            errors[errors.len() - 1]
        ))?;
    }
    let all = root_mean_square(&rows) * 100.0;
    let (pairs, sizes): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .partition(|row| row.label.ends_with(" 32 B"));
    for (what, rows) in [("queue pairs", pairs), ("sizes", sizes)] {
        let error = root_mean_square(&rows) * 100.0;
        let count = rows.len();
        output::print(format_args!(
            "sweep of {what}: root mean square {error:.1} % over {count} rows"
        ))?;
    }
    output::print(format_args!("all rows: {all:.1} %"))?;
    Ok(())
}
