//! `dunlin lab`: the papers' figures on the simulated cluster, and their claims against what the figures show.

use std::path::PathBuf;

use clap::Subcommand;
use dunlin_lab::{figures, freeze, report, speed};

use super::Failure;
use crate::interrupt;
use crate::lab::{fit, hunt, runner, sensitivity};
use crate::output;

/// The papers' figures on the simulated cluster, and their claims
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dunlin lab run --quick --out report\n  dunlin lab run rb2-throughput\n  dunlin lab score --json | jq .summary\n  \
    dunlin lab hunt --seeds 1000\n  dunlin lab fit cx3 'context_sets!' context_miss_ns"
)]
pub enum Command {
    /// Name the figures
    List,
    /// Run figures: their lines, and the claims they answer
    Run {
        /// Which figures and how much of them
        #[command(flatten)]
        selection: Selection,
        /// Write CSV, SVG and an HTML report into this folder
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Judge every claim of the papers
    Score {
        /// Which figures and how much of them
        #[command(flatten)]
        selection: Selection,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Compare the NIC model with the READ sweeps of FaSST's authors, and fit it to them
    Fit(fit::Args),
    /// Random loads under random faults, with invariants checked
    Hunt(hunt::Args),
    /// Halve and double guessed parameters: which verdicts move?
    Sensitivity(sensitivity::Args),
    /// Events a second of this machine, on one core
    Speed,
    /// Print a manifest for parameters, simulator, prices and figures as they are now, to be checked in after thought
    Freeze {
        /// The day
        date: String,
        /// What changed since the last freeze, and why
        why: String,
        /// What `dunlin lab score --json` of this program printed, for all calibrating figures
        #[arg(long, value_name = "FILE")]
        score: PathBuf,
        /// Freeze although this calibrating row misses; the scorecard will say so
        #[arg(long, value_name = "ROW")]
        admit: Vec<String>,
    },
}

/// Which figures, and how much of them
#[derive(Debug, clap::Args)]
pub struct Selection {
    /// Figures, as `dunlin lab list` names them; all of them without any
    figures: Vec<String>,
    /// Fewer points and shorter windows: a minute for all of them
    #[arg(long)]
    quick: bool,
    /// Points worked on at once; as many as there are cores
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Seed of the first run; the others follow it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs of each figure, each by another seed: three, and one with --quick
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    seeds: Option<u16>,
}

impl Selection {
    /// The figures that were named, all without a name.
    ///
    /// # Errors
    /// When there is no figure of a name.
    pub fn figures(&self) -> Result<Vec<&'static dunlin_lab::figure::Figure>, Failure> {
        if self.figures.is_empty() {
            return Ok(figures::ALL.iter().collect());
        }
        let find = |name: &String| {
            let found = figures::ALL.iter().find(|figure| figure.name == *name);
            found.ok_or_else(|| {
                Failure::usage(format!("no figure `{name}`"))
                    .help("`dunlin lab list` names the figures")
            })
        };
        self.figures.iter().map(find).collect()
    }

    /// How much of them.
    pub fn effort(&self) -> dunlin_lab::figure::Effort {
        dunlin_lab::figure::Effort {
            seed: self.seed,
            ..dunlin_lab::figure::Effort::new(self.quick, runner::threads(self.threads))
        }
    }

    /// By how many seeds.
    pub fn seeds(&self) -> u16 {
        self.seeds.unwrap_or(if self.quick { 1 } else { 3 })
    }
}

impl Command {
    /// Does it.
    ///
    /// # Errors
    /// When it was called wrongly, a file cannot be written, parameters are not frozen, or the hunt found something.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::List => {
                for figure in figures::ALL {
                    output::print(format_args!("{:18} {}", figure.name, figure.title))?;
                }
                Ok(())
            }
            Self::Run { selection, out } => {
                if let Some(out) = &out {
                    output::folder(out)?;
                }
                let figures = selection.figures()?;
                interrupt::listen()?;
                let results = runner::run(&figures, selection.effort(), selection.seeds());
                let card = runner::score(&results);
                if let Some(out) = out {
                    report::write(&out, &results, &card)
                        .map_err(|error| Failure::new(format!("{}: {error}", out.display())))?;
                    output::note(out.join("report.html").display());
                }
                output::print(report::text(&results))?;
                output::print(report::scorecard(&card))?;
                frozen()?;
                interrupt::check()
            }
            Self::Score { selection, json } => {
                let figures = selection.figures()?;
                interrupt::listen()?;
                let results = runner::run(&figures, selection.effort(), selection.seeds());
                let card = runner::score(&results);
                if json {
                    output::print_json(&card)?;
                } else {
                    output::print(report::scorecard(&card))?;
                }
                frozen()?;
                interrupt::check()
            }
            Self::Fit(args) => fit::run(&args),
            Self::Hunt(args) => hunt::run(&args),
            Self::Sensitivity(args) => sensitivity::run(&args),
            Self::Speed => {
                let loads = [
                    ("verbs", speed::verbs as fn() -> speed::Speed),
                    ("calls", speed::calls),
                ];
                for (name, run) in loads {
                    let (events, time) = run();
                    let seconds = time.as_secs_f64();
                    let rate = events as f64 / seconds / 1e6;
                    output::print(format_args!(
                        "{name}: {events} events in {seconds:.2} s: {rate:.2} M events/s"
                    ))?;
                }
                Ok(())
            }
            Self::Freeze {
                date,
                why,
                score,
                admit,
            } => {
                let failed = |what: &dyn std::fmt::Display| {
                    Failure::new(format!("{}: {what}", score.display()))
                };
                let text = std::fs::read_to_string(&score).map_err(|error| failed(&error))?;
                let card = serde_json::from_str(&text).map_err(|error| failed(&error))?;
                freeze::allowed(&card, &admit).map_err(|reasons| {
                    failed(&reasons.join("; "))
                        .help("run `dunlin lab score --json` with this program; a row that misses is for mending, or named by --admit")
                })?;
                output::print(freeze::renewed(&date, &why, &admit))
            }
        }
    }
}

/// Fails when what moves a figure was changed after the freeze.
fn frozen() -> Result<(), Failure> {
    let freeze = freeze::check();
    if freeze.holds() {
        return Ok(());
    }
    Err(Failure::new(freeze).help(
        "no prediction was judged; `dunlin lab freeze` prints a manifest for the files as they are",
    ))
}
