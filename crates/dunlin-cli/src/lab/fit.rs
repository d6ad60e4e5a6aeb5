//! `dunlin lab fit`: compares the model with the READ sweeps, row by row, and fits named parameters to them.

use dunlin_lab::calibration::{
    self, open_changes, root_mean_square, Compared, Found, Knob, Model, Point, Residual, Runs,
};
use dunlin_sim::NicParameters;

use super::{runner, search, unknown};
use crate::commands::Failure;
use crate::output;

/// Compare the NIC model with the READ sweeps of FaSST's authors, and fit it to them
#[derive(Debug, clap::Args)]
pub struct Args {
    /// NIC to compare or fit
    nic: Nic,
    /// Parameters: NAME=VALUE sets one, NAME fits it, NAME! fits it in whole numbers
    parameters: Vec<String>,
    /// Exclude every other row from the fit, and report how well these rows are predicted
    #[arg(long)]
    hold_out: bool,
    /// Number of seeds, starting at 1, each of which determines which contexts collide; errors are their means
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    #[command(flatten)]
    search: search::SearchArgs,
    /// Seed of the starts
    #[arg(long, default_value_t = 1)]
    start_seed: u64,
    /// Operations of each machine measured for a point, after as many to warm up; with 1000 some points with many queue
    /// pairs are an eighth off
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    operations: u64,
    /// Points simulated at once [default: number of cores]
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
/// When a named parameter does not exist.
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
                .map_err(|_| Failure::usage(format!("{word}: {value} is not a number")))?;
            nic.set(name, value).map_err(Failure::usage)?;
        } else {
            let name = word.trim_end_matches('!').to_owned();
            let value = nic
                .get(&name)
                .ok_or_else(|| Failure::usage(format!("unknown parameter {name}")))?;
            let whole = word.ends_with('!');
            knobs.push(Knob { name, value, whole });
        }
    }
    let mut points = calibration::points();
    points.retain(|point| point.nic == nic.name);
    if !knobs.is_empty() {
        let every = if args.hold_out { 2 } else { 1 };
        let shown = Shown {
            points: points.iter().step_by(every).cloned().collect(),
            seeds: args.seeds,
            operations: args.operations,
            threads,
        };
        let all: Vec<usize> = (0..shown.rows()).collect();
        let Found {
            nic: best,
            knobs: found,
            error,
            fresh_error,
            trials,
            cut_short,
        } = calibration::fit(
            &nic,
            &knobs,
            args.search.search(args.start_seed),
            &shown,
            search::tell,
        );
        for knob in &found {
            output::print(format_args!("found {} = {}", knob.name, knob.value))?;
        }
        search::print_end((error, fresh_error), trials, cut_short)?;
        output::note("now what the points leave open, and all points");
        let (error, open) = open_changes(&best, &found, |nic| shown.replay(nic, &all, Runs::Fit));
        unknown::print_open(error, &open)?;
        nic = best;
    }
    let runs: Vec<Vec<Compared>> = (1..=args.seeds)
        .map(|seed| calibration::run(seed, &points, &nic, args.operations, threads))
        .collect();
    let mut rows: Vec<Residual> = Vec::new();
    for (point, row) in points.iter().zip(mean_rows(&runs)) {
        output::print(format_args!(
            "{:70} {:8.2} {:8.2} {:+6.1} %",
            row.label,
            row.paper,
            row.ours,
            row.error() * 100.0
        ))?;
        rows.push(point.residual(&row));
    }
    unknown::print_missed(&rows)?;
    if args.hold_out {
        let held_out = |run: &[Compared]| {
            let rows = run.iter().skip(1).step_by(2);
            let mut errors: Vec<f64> = rows.map(|row| row.error().abs() * 100.0).collect();
            errors.sort_by(f64::total_cmp);
            (errors[errors.len() / 2], errors[errors.len() - 1])
        };
        let errors: Vec<(f64, f64)> = runs.iter().map(|run| held_out(run)).collect();
        output::print(format_args!(
            "{} rows held out: median error {:.1} %, worst {:.1} %",
            runs[0].len() / 2,
            mean(errors.iter().map(|error| error.0)),
            mean(errors.iter().map(|error| error.1))
        ))?;
    }
    let kinds: [Kind; 3] = [
        ("sweep of queue pairs", of_pairs),
        ("sweep of sizes", |row| !of_pairs(row)),
        ("all rows", |_| true),
    ];
    for (what, kind) in kinds {
        let errors: Vec<f64> = runs
            .iter()
            .map(|run| {
                let rows: Vec<Compared> = run.iter().filter(|row| kind(row)).cloned().collect();
                root_mean_square(&rows) * 100.0
            })
            .collect();
        let count = runs[0].iter().filter(|row| kind(row)).count();
        output::print(format_args!(
            "{what}: root mean square error over {count} rows {}",
            of_seeds(&errors)
        ))?;
    }
    Ok(())
}

/// The points that a fit uses, run on the model.
struct Shown {
    points: Vec<Point>,
    seeds: u64,
    operations: u64,
    threads: usize,
}

impl Model for Shown {
    fn rows(&self) -> usize {
        self.points.len()
    }

    /// Each row is the mean of the seeds.
    fn replay(&self, nic: &NicParameters, rows: &[usize], runs: Runs) -> Vec<Compared> {
        let points: Vec<Point> = rows.iter().map(|&row| self.points[row].clone()).collect();
        let first = match runs {
            Runs::Fit => 1,
            Runs::Fresh => 1 + self.seeds,
        };
        let each: Vec<Vec<Compared>> = (first..first + self.seeds)
            .map(|seed| calibration::run(seed, &points, nic, self.operations, self.threads))
            .collect();
        mean_rows(&each)
    }
}

/// The rows of several runs, each the mean of them.
fn mean_rows(runs: &[Vec<Compared>]) -> Vec<Compared> {
    let rows = runs[0].iter().enumerate();
    rows.map(|(place, row)| Compared {
        ours: mean(runs.iter().map(|run| run[place].ours)),
        ..row.clone()
    })
    .collect()
}

/// A group of rows and its name.
type Kind = (&'static str, fn(&Compared) -> bool);

fn of_pairs(row: &Compared) -> bool {
    row.label.ends_with(" 32 B")
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// Errors by seed in words: `5.0 %`, or the mean with median, least and greatest.
fn of_seeds(errors: &[f64]) -> String {
    let mut sorted = errors.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    match sorted[..] {
        [one] => format!("{one:.2} %"),
        _ => format!(
            "{:.2} % (mean of {count} seeds; median {:.2}, {:.2} to {:.2})",
            mean(sorted.iter().copied()),
            (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
            sorted[0],
            sorted[count - 1]
        ),
    }
}
