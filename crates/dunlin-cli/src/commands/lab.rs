//! `dunlin lab`: runs the papers' figures on the simulated cluster, judges the papers' claims by them, and runs users'
//! experiments.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use dunlin_lab::figures::{self, FigureFile};
use dunlin_lab::{freeze, report};

use super::Failure;
use crate::interrupt;
use crate::lab::{calibrate, experiment, fit, hunt, replaced, runner, sensitivity, speed};
use crate::output;

/// Reproduce the papers' figures on the simulated cluster and judge their claims
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dunlin lab run --quick --out report\n  dunlin lab run rb2-throughput\n  \
    dunlin lab run my.toml --set clients.threads=8\n  \
    dunlin lab show flock-9 > mine.toml\n  dunlin lab run flock-9 --nic my-nic.toml\n  \
    dunlin lab score --json | jq .summary\n  \
    dunlin lab hunt --seeds 1000\n  dunlin lab fit cx3 'context_sets!' context_miss_ns"
)]
pub enum Command {
    /// List the figures
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print the experiment file of a figure, to be changed and run (FLOCK's figures of RPC have one)
    Show {
        /// Name of the figure
        name: String,
    },
    /// Run figures, or an experiment described by a file
    #[command(after_help = EXAMPLE)]
    Run {
        /// Selection of figures and of how much of them to run
        #[command(flatten)]
        selection: Selection,
        /// Other NICs and parameters
        #[command(flatten)]
        replaced: replaced::Replaced,
        /// Folder to which CSV, SVG and, for figures, an HTML report are written
        #[arg(long)]
        out: Option<PathBuf>,
        /// Options of experiments only
        #[command(flatten)]
        experiment: experiment::Args,
    },
    /// Print every key and column that an experiment's file can have, as tables in Markdown
    Keys,
    /// Judge every claim of the papers
    Score {
        /// Selection of figures and of how much of them to run
        #[command(flatten)]
        selection: Selection,
        /// Other NICs and parameters
        #[command(flatten)]
        replaced: replaced::Replaced,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Compare the NIC model with the READ sweeps of FaSST's authors, and fit it to them
    Fit(fit::Args),
    /// Make a parameter file for your own NIC from the output of perftest
    Calibrate(calibrate::Args),
    /// Run random loads under random faults, and check invariants
    Hunt(hunt::Args),
    /// Halve and double guessed parameters, and show which verdicts change
    Sensitivity(sensitivity::Args),
    /// Measure how fast this machine simulates, and what larger clusters cost
    Speed(speed::Args),
    /// Print a manifest of parameters, simulator, prices and figures as they are now, to be reviewed and checked in
    Freeze {
        /// Date of the freeze
        date: String,
        /// What changed since the last freeze, and why
        why: String,
        /// Output of `dunlin lab score --json` of this program, for all calibrating figures
        #[arg(long, value_name = "FILE")]
        score: PathBuf,
        /// Freeze even though this calibrating row misses; the scorecard will say so
        #[arg(long, value_name = "ROW")]
        admit: Vec<String>,
    },
}

/// The end of `dunlin lab run --help`. A test runs the file.
const EXAMPLE: &str = r#"An experiment is a file in TOML. This one shows how many clients a server supports, by preset:

  # clients.toml
  [topology]
  switch = "z9264f"

  [[topology.hosts]]
  name = "server"

  [[topology.hosts]]
  name = "clients"
  count = 4

  [server]
  host = "server"
  pollers = 4

  [[clients]]
  hosts = "clients"
  request = "64B"

  [sweep]
  "clients.preset" = ["flock", "erpc"]
  "clients.threads" = [1, 4, 16]

  [plot]
  x = "clients.threads"

  dunlin lab run clients.toml --check
  dunlin lab run clients.toml --repeat 3 --out report
  dunlin lab run clients.toml --set clients.request=1KiB --set nic.tx_wqe_ns=30 --json

Every key, and more examples: docs/experiments.md, crates/dunlin-lab/experiments/."#;

/// The greatest first seed: those that follow it are still exact integers in the file of a figure.
const SEED_MOST: u64 = (1 << 53) - (1 << 16);

/// Which figures, and how much of them
#[derive(Debug, clap::Args)]
pub struct Selection {
    /// Figures, as listed by `dunlin lab list`; for `run` also an experiment, FILE.toml [default: all figures]
    figures: Vec<String>,
    /// Run fewer points with shorter windows: a minute for all figures; for an experiment, its table [quick]
    #[arg(long)]
    quick: bool,
    /// Points simulated at once [default: number of cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Seed of the first run; the others follow it [default: 1 for figures, the file's for an experiment]
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=SEED_MOST))]
    seed: Option<u64>,
    /// Runs of each figure, each with another seed [default: 3, or 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    seeds: Option<u16>,
}

impl Selection {
    /// The figures that were named, or all if none was.
    ///
    /// # Errors
    /// When a named figure does not exist.
    pub fn figures(&self) -> Result<Vec<&'static dunlin_lab::figure::Figure>, Failure> {
        if self.figures.is_empty() {
            return Ok(figures::ALL.iter().collect());
        }
        let find = |name: &String| {
            let found = figures::ALL.iter().find(|figure| figure.name == *name);
            found.ok_or_else(|| {
                Failure::usage(format!("no figure `{name}`"))
                    .help("`dunlin lab list` lists the figures")
            })
        };
        self.figures.iter().map(find).collect()
    }

    /// The file of an experiment, if one was named.
    ///
    /// # Errors
    /// When it was named together with something else, or with options of figures only.
    fn file(&self) -> Result<Option<&Path>, Failure> {
        let is_file = |name: &&String| Path::new(name).extension().is_some_and(|end| end == "toml");
        let Some(file) = self.figures.iter().find(is_file) else {
            return Ok(None);
        };
        if self.figures.len() > 1 {
            let words = format!("{file} is an experiment, which must run alone");
            return Err(Failure::usage(words).help("specify one file, or figures"));
        }
        self.no_seeds("use --repeat N for an experiment")?;
        Ok(Some(Path::new(file)))
    }

    /// Rejects `--seeds`.
    ///
    /// # Errors
    /// When it was given; the message names the alternative.
    pub fn no_seeds(&self, instead: &'static str) -> Result<(), Failure> {
        match self.seeds {
            None => Ok(()),
            Some(_) => Err(Failure::usage(
                "--seeds can only be used with figures that are run or scored",
            )
            .help(instead)),
        }
    }

    /// The single named figure that is described by a file, to be run as an experiment.
    ///
    /// # Errors
    /// When the figure is not described by a file, or is not the only one.
    fn figure_file(&self) -> Result<FigureFile, Failure> {
        let words = "--repeat, --cores, --json, --check and --set with keys can only be used with experiments";
        let files = figures::file_names().join(", ");
        let help = format!(
            "specify a file, or a figure that is one ({files}): `dunlin lab run FILE.toml`; use `dunlin lab score \
             --json` for figures"
        );
        let found = match self.figures.as_slice() {
            [name] => figures::file(name),
            _ => None,
        };
        self.no_seeds("use --repeat N for an experiment")?;
        found.ok_or_else(|| Failure::usage(words).help(help))
    }

    /// How much of the figures to run.
    pub fn effort(&self) -> dunlin_lab::figure::Effort {
        dunlin_lab::figure::Effort {
            seed: self.seed.unwrap_or(1),
            ..dunlin_lab::figure::Effort::new(self.quick, runner::threads(self.threads))
        }
    }

    /// The number of seeds.
    pub fn seeds(&self) -> u16 {
        self.seeds.unwrap_or(if self.quick { 1 } else { 3 })
    }
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// On incorrect usage, when a file cannot be written, parameters are not frozen, or the hunt found something.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::List { json: true } => {
                let figure = |figure: &dunlin_lab::figure::Figure| {
                    let (name, title) = (figure.name, figure.title);
                    let file = figures::file(name).is_some();
                    serde_json::json!({ "name": name, "title": title, "file": file })
                };
                let figures: Vec<_> = figures::ALL.iter().map(figure).collect();
                output::print_json(&serde_json::json!({ "figures": figures }))
            }
            Self::List { json: false } => {
                for figure in figures::ALL.iter() {
                    output::print(format_args!("{:18} {}", figure.name, figure.title))?;
                }
                Ok(())
            }
            Self::Show { name } => match figures::file(&name) {
                Some(file) => output::print(file.text.trim_end()),
                None if figures::ALL.iter().any(|figure| figure.name == name) => {
                    let files = figures::file_names().join(", ");
                    Err(
                        Failure::usage(format!("the figure `{name}` is a program and has no file"))
                            .help(format!(
                                "figures with files: {files}; docs/lab.md explains why others have none"
                            )),
                    )
                }
                None => Err(Failure::usage(format!("no figure `{name}`"))
                    .help("`dunlin lab list` lists the figures")),
            },
            Self::Run {
                selection,
                experiment,
                replaced,
                out,
            } => {
                let how = experiment::How {
                    seed: selection.seed,
                    threads: selection.threads,
                    quick: selection.quick,
                    replaced: &replaced,
                };
                if let Some(file) = selection.file()? {
                    return experiment.run((file, None), &how, out.as_ref());
                }
                if experiment.is_used() || replaced.sets_keys() {
                    selection.figures()?;
                    let FigureFile { name, text } = selection.figure_file()?;
                    return experiment.run((Path::new(name), Some(text)), &how, out.as_ref());
                }
                let effort = replaced.effort(selection.effort())?;
                if let Some(out) = &out {
                    output::folder(out)?;
                }
                let figures = selection.figures()?;
                interrupt::listen()?;
                let seeds = selection.seeds();
                let ran = runner::run(&figures, effort, seeds);
                let card = ran.score(&replaced, (effort.quick, seeds));
                if let Some(out) = out {
                    report::write(&out, &ran.results, &card)
                        .map_err(|error| Failure::new(format!("{}: {error}", out.display())))?;
                    output::note(out.join("report.html").display());
                }
                output::print(report::text(&ran.results))?;
                output::print(report::verdicts(&card))?;
                ran.check()?;
                interrupt::check()?;
                frozen(effort)
            }
            Self::Keys => output::print(dunlin_lab::experiment::reference().trim_end()),
            Self::Score {
                selection,
                replaced,
                json,
            } => {
                let figures = selection.figures()?;
                let effort = replaced.effort(selection.effort())?;
                interrupt::listen()?;
                let seeds = selection.seeds();
                let ran = runner::run(&figures, effort, seeds);
                let card = ran.score(&replaced, (effort.quick, seeds));
                if json {
                    output::print_json(&card)?;
                } else {
                    output::print(report::scorecard(&card))?;
                }
                ran.check()?;
                interrupt::check()?;
                frozen(effort)
            }
            Self::Calibrate(args) => runner::whole(move || calibrate::run(&args)),
            Self::Fit(args) => runner::whole(move || fit::run(&args)),
            Self::Hunt(args) => hunt::run(&args),
            Self::Sensitivity(args) => runner::whole(move || sensitivity::run(&args)),
            Self::Speed(args) => runner::whole(move || speed::run(&args)),
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
                        .help(
                            "run `dunlin lab score --json` with this program, for all calibrating figures; correct \
                             each row that misses, or name it with --admit",
                        )
                })?;
                if let Some(words) = freeze::of_other_protocols(&card) {
                    output::note(words);
                }
                output::print(freeze::renewed(&date, &why, &admit, &card))
            }
        }
    }
}

/// Fails when something that affects a figure was changed after the freeze. Where parameters are not the papers',
/// nothing is judged in any case.
///
/// # Errors
/// What was changed.
pub fn frozen(effort: dunlin_lab::figure::Effort) -> Result<(), Failure> {
    let freeze = freeze::check();
    if freeze.holds() || !effort.is_of_papers() {
        return Ok(());
    }
    Err(Failure::new(freeze).help(
        "predictions are not judged; `dunlin lab freeze` prints a manifest of the files as they are",
    ))
}
