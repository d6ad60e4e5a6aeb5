//! Experiments as files: a cluster, a server, clients, faults and a sweep in TOML, run with the same RPC code as the
//! figures.
//!
//! - `keys` is the list of all keys, `schema` defines what a key is; `tree`, `mistake`, `unit`, `path` and `check` read
//!   a file and report errors with their place;
//! - `model` is a point that can be run, with `parameters` (NICs, processors, switches), `network` (the file of another
//!   simulator), `fault` and `column`;
//! - `sweep` makes points of a file, and `cases` of keys that change together;
//! - `load` puts the server and the clients on hosts, `caller` is one of their threads; `flows` adds WRITEs and `verbs`
//!   raw verbs; `point` runs all of it;
//! - `observed` shows the first run to an observer, from which the command makes a capture or a trace;
//! - `window` has the measured values, `outcome` the results: means, intervals, rows; `plot` is the chart, `expression`
//!   evaluates expressions over columns, `expect` compares them with expectations, `beside` with recorded results of
//!   others;
//! - `figure` runs a file as a figure of a paper;
//! - `reference` makes the tables of the page from the list of keys.
//!
//! `docs/experiments.md` is the reference. Everything that affects a figure that is a file is covered by the freeze of
//! predictions: `build.rs` names it.

mod beside;
mod caller;
mod cases;
mod check;
mod column;
mod expect;
mod expression;
mod fault;
#[cfg(test)]
mod fault_tests;
mod figure;
#[cfg(test)]
mod figure_tests;
mod flows;
mod keys;
#[cfg(test)]
mod latency_tests;
mod load;
mod mistake;
mod model;
mod network;
mod observed;
mod outcome;
#[cfg(test)]
mod page_tests;
mod parameters;
mod path;
mod plot;
mod point;
mod reference;
#[cfg(test)]
mod rises_tests;
mod schema;
mod sweep;
mod tree;
mod unit;
mod verbs;
mod window;
#[cfg(test)]
mod wrong_tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use beside::{Comparison, Recorded, RecordedError};
pub use expect::Judged;
pub(crate) use figure::figure;
pub use flows::FlowTime;
pub use load::RunError;
pub use mistake::WrongFile;
pub use outcome::{Outcome, OutcomePoint, Piece, Statistic};
pub use parameters::{
    cpu_named, nic_named, parameter, switch_named, CPU_NAMES, NIC_NAMES, SWITCH_NAMES,
};
pub use reference::reference;
pub use unit::time;

use dunlin_sim::{NicParameters, Observer};
use expect::{Expected, Which};
use mistake::{Mistake, Place, Sources};
use model::Point;
use plot::Plot;
use sweep::Axis;
use tree::{Node, Table, Value};

use crate::figure::Setting;
use crate::parallel;

/// Settings in addition to a file.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `KEY=VALUE`, as after `--set`.
    pub set: Vec<String>,
    /// Replaces the seed.
    pub seed: Option<u64>,
    /// Replaces the number of repeats.
    pub repeats: Option<u64>,
    /// Number of cores among which each run is divided; one if `None`. The results do not depend on it.
    pub cores: Option<usize>,
    /// Runs only the quick points of the file.
    pub quick: bool,
    /// NIC of all hosts, whatever the file says.
    pub nic: Option<NicParameters>,
    /// Parameters of NICs, processors and switches by their names, applied before the changes of the file.
    pub parameters: Vec<Setting>,
}

/// Context of reading a file: where it finds other files, and the settings applied before its own.
#[derive(Clone, Debug, Default)]
struct Around {
    folder: PathBuf,
    nic: Option<NicParameters>,
    parameters: Vec<Setting>,
}

/// An experiment that can be run.
#[derive(Clone, Debug)]
pub struct Experiment {
    title: String,
    says: Option<String>,
    axes: Vec<Axis>,
    points: Vec<(Vec<usize>, Point)>,
    plot: Option<Plot>,
    expected: Vec<Expected>,
    cores: usize,
}

/// Results of the runs of an experiment that have ended, by index.
#[derive(Debug, Default)]
pub struct Runs(Mutex<BTreeMap<usize, Result<point::Shown, RunError>>>);

impl Runs {
    /// Whether the first run is among them.
    pub fn has_first(&self) -> bool {
        lock(&self.0).contains_key(&0)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// Path of the file.
        path: String,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The experiment cannot be run as written.
    #[error(transparent)]
    Wrong(#[from] WrongFile),
}

impl Experiment {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or describes something that cannot be run.
    pub fn load(path: &Path, settings: &Settings) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| LoadError::Read {
            path: name.clone(),
            source,
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Ok(Self::parse(&name, &text, folder, settings)?)
    }

    /// Parses the text of a file. Parameter files are found in `folder`.
    ///
    /// # Errors
    /// When it describes something that cannot be run: all points of a sweep are checked.
    pub fn parse(
        name: &str,
        text: &str,
        folder: &Path,
        settings: &Settings,
    ) -> Result<Self, WrongFile> {
        let mut sets = settings.set.clone();
        sets.extend(settings.seed.map(|seed| format!("run.seed={seed}")));
        sets.extend(
            settings
                .repeats
                .map(|repeats| format!("run.repeats={repeats}")),
        );
        let sources = Sources {
            name: name.to_owned(),
            text: text.to_owned(),
            sets,
        };
        let title = Path::new(name)
            .file_stem()
            .map_or(name.into(), std::ffi::OsStr::to_string_lossy);
        let around = Around {
            folder: folder.to_owned(),
            nic: settings.nic.clone(),
            parameters: settings.parameters.clone(),
        };
        let read = Self::read(&sources, &title, settings.quick, &around);
        let mut experiment = read.map_err(|mistake| sources.wrong(mistake))?;
        experiment.cores = settings.cores.unwrap_or(1);
        Ok(experiment)
    }

    fn read(sources: &Sources, title: &str, quick: bool, around: &Around) -> Result<Self, Mistake> {
        let mut root = tree::parse(&sources.text)?;
        let mut changes = if quick { quickly(&root)? } else { Vec::new() };
        for (number, set) in sources.sets.iter().enumerate() {
            let at = Place::Set(number);
            let Some((key, value)) = set.split_once('=') else {
                return Err(Mistake::new(at, "it must be KEY=VALUE"));
            };
            changes.push((key.trim().to_owned(), tree::scalar(value.trim(), at)));
        }
        let (mut fixed, mut swept_anew) = (Vec::new(), false);
        for (key, node) in &changes {
            match key.split_once('.') {
                Some(("sweep", swept)) => {
                    sweep::set(&mut root, swept, node.clone())?;
                    swept_anew = true;
                }
                Some((cases::TABLES, key)) => cases::set(&mut root, key, node)?,
                _ => {
                    path::set(&mut root, key, node, node.place)?;
                    cases::without(&mut root, key);
                    // One value replaces those of the sweep.
                    if sweep::remove(&mut root, key) {
                        fixed.push(key.as_str());
                    }
                }
            }
        }
        plot::without(&mut root, &fixed);
        let which = match (quick, fixed.is_empty(), swept_anew) {
            (true, _, _) => Which::Quick,
            (false, true, false) => Which::All,
            (false, true, true) => Which::Possible,
            (false, false, _) => Which::None,
        };
        Self::of(root, title, around, which)
    }

    /// Makes an experiment of a tree with its settings applied.
    fn of(root: Table, title: &str, around: &Around, which: Which) -> Result<Self, Mistake> {
        let top = check::root(&root)?;
        let title = top.text("title").unwrap_or_else(|| title.to_owned());
        let cases = cases::read(&root)?;
        let axes = sweep::axes(&root, &cases)?;
        // First without the sweep, so that errors of the file itself are reported as such.
        let whole = Point::read(&root, around)?;
        let point = |places: Vec<usize>| {
            let tree = sweep::at(&root, (&cases, &axes), &places)?;
            Point::read(&tree, around).map(|point| (places, point))
        };
        let points = sweep::places(&axes).into_iter().map(point);
        let points = points.collect::<Result<Vec<_>, Mistake>>()?;
        let columns = whole.columns.iter();
        let columns: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
        Ok(Self {
            plot: Plot::read(&root, (&cases, &axes), &whole, which)?,
            expected: expect::read(&root, which, &axes, &columns)?,
            says: top.text("says"),
            points,
            title,
            axes,
            cores: 1,
        })
    }

    /// Title of the experiment.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// What is stated about it elsewhere.
    pub fn says(&self) -> Option<&str> {
        self.says.as_deref()
    }

    /// Number of points of the sweep, and of runs of each.
    pub fn size(&self) -> (usize, usize) {
        let repeats = self.points.iter().map(|(_, point)| point.run.repeats).max();
        (self.points.len(), repeats.unwrap_or(1))
    }

    /// Number of runs of all points.
    pub fn runs(&self) -> usize {
        self.points.iter().map(|(_, point)| point.run.repeats).sum()
    }

    /// Runs all points on this many real threads; the outcome does not depend on the number. `stop` is called before
    /// each run and returns whether to skip the rest.
    ///
    /// # Errors
    /// When the RPC refuses a point.
    pub fn run(&self, threads: usize, stop: impl Fn() -> bool + Sync) -> Result<Outcome, RunError> {
        let runs = Runs::default();
        self.run_into(&runs, threads, stop, None);
        self.outcome(&runs)
    }

    /// The runs, by point and seed.
    fn points_and_seeds(&self) -> Vec<(usize, u64)> {
        self.points
            .iter()
            .enumerate()
            .flat_map(|(number, (_, point))| {
                let seeds = (0..point.run.repeats as u64).map(|more| point.run.seed + more);
                seeds.map(move |seed| (number, seed))
            })
            .collect()
    }

    /// Like [`Experiment::run`], but stores the results of each run in `runs` as soon as it has ended, for callers that
    /// do not wait for all. `observer` observes the first run, as in [`Experiment::run_observed`].
    pub fn run_into(
        &self,
        runs: &Runs,
        threads: usize,
        stop: impl Fn() -> bool + Sync,
        observer: Option<Box<dyn Observer>>,
    ) {
        let waiting = Mutex::new(observer);
        let all: Vec<_> = self.points_and_seeds().into_iter().enumerate().collect();
        parallel::map(threads, &all, |&(place, (number, seed))| {
            let point = &self.points[number].1;
            let observer = (place == 0).then(|| lock(&waiting).take()).flatten();
            if !stop() {
                let shown = point::run(point, (seed, self.cores), observer);
                lock(&runs.0).insert(place, shown);
            }
        });
    }

    /// Takes the results of the runs that have ended, and summarizes them.
    ///
    /// # Errors
    /// When the RPC refused one of them.
    pub fn outcome(&self, runs: &Runs) -> Result<Outcome, RunError> {
        let mut shown = std::mem::take(&mut *lock(&runs.0));
        let mut of_points: Vec<Vec<point::Shown>> =
            self.points.iter().map(|_| Vec::new()).collect();
        for (place, (number, _)) in self.points_and_seeds().into_iter().enumerate() {
            if let Some(shown) = shown.remove(&place) {
                of_points[number].push(shown?);
            }
        }
        Ok(Outcome::new(self, of_points))
    }
}

/// The changes for the quick points of a file.
fn quickly(root: &Table) -> Result<Vec<(String, Node)>, Mistake> {
    let Some(node) = root.get("quick") else {
        let words = "there are no quick points: it has no table [quick]";
        return Err(Mistake::new(Place::Nowhere, words));
    };
    let Value::Table(table) = &node.value else {
        let words = "`quick` is not a table: it must be [quick], with KEY = VALUE";
        return Err(Mistake::new(node.place, words));
    };
    let mut changes = Vec::new();
    for entry in &table.entries {
        cases::flatten(&entry.key, &entry.node, &mut changes);
    }
    Ok(changes)
}
