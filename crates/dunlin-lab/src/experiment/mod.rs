//! Experiments as files: a cluster, a server, clients, faults and a sweep in TOML, run by the RPC that the figures run.
//!
//! - `keys` is the list of all keys, `schema` what a key is; `tree`, `mistake`, `unit`, `path` and `check` read a file
//!   by them and say what is wrong and where;
//! - `model` is a point that can be run, with `parameters` (NICs, processors, switches), `network` (the file of another
//!   simulator), `fault` and `column`;
//! - `sweep` makes points of a file, and `cases` of keys that change together;
//! - `load` puts the server and the clients on hosts, `caller` is one of their threads, `flows` are WRITEs and `verbs`
//!   raw verbs beside them; `point` runs all of it;
//! - `observed` shows the first run to an observer, which the command makes a capture or a trace of;
//! - `window` is what was seen, `outcome` what came out: means, intervals, rows; `plot` is its chart, `expression` what
//!   is made of columns, `expect` what they are to be, `beside` what others have of the same;
//! - `figure` runs a file as a figure of a paper;
//! - `reference` are the tables of the page, from the list of keys.
//!
//! `docs/experiments.md` is the reference. What moves a figure that is a file is covered by the freeze of predictions:
//! `build.rs` names it.

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

/// What is asked for beside a file.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `KEY=VALUE`, as after `--set`.
    pub set: Vec<String>,
    /// Another seed.
    pub seed: Option<u64>,
    /// Other repeats.
    pub repeats: Option<u64>,
    /// Cores that each run is divided among; one when none. Runs show the same with any.
    pub cores: Option<usize>,
    /// The quick points that the file has.
    pub quick: bool,
    /// The NIC of all hosts, whatever the file says.
    pub nic: Option<NicParameters>,
    /// Parameters of NICs, processors and switches by their names, before the file changes any.
    pub parameters: Vec<Setting>,
}

/// What a file is read with: where it finds others, and what goes before what it says.
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

/// What the runs of an experiment that have ended showed, by their places.
#[derive(Debug, Default)]
pub struct Runs(Mutex<BTreeMap<usize, Result<point::Shown, RunError>>>);

impl Runs {
    /// Whether the first of them is among them.
    pub fn has_first(&self) -> bool {
        lock(&self.0).contains_key(&0)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What it says cannot be run.
    #[error(transparent)]
    Wrong(#[from] WrongFile),
}

impl Experiment {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or says what cannot be run.
    pub fn load(path: &Path, settings: &Settings) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| LoadError::Read {
            path: name.clone(),
            source,
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Ok(Self::parse(&name, &text, folder, settings)?)
    }

    /// Reads the text of a file. `folder`: where it finds parameter files.
    ///
    /// # Errors
    /// When it says what cannot be run: all points of a sweep are looked at.
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
                    // One value instead of those of the sweep.
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

    /// Of a tree in which settings have been made.
    fn of(root: Table, title: &str, around: &Around, which: Which) -> Result<Self, Mistake> {
        let top = check::root(&root)?;
        let title = top.text("title").unwrap_or_else(|| title.to_owned());
        let cases = cases::read(&root)?;
        let axes = sweep::axes(&root, &cases)?;
        // First without the sweep: what is wrong with the file itself is said of the file.
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

    /// What it is called.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// What is said of it elsewhere.
    pub fn says(&self) -> Option<&str> {
        self.says.as_deref()
    }

    /// Points of the sweep, and runs of each.
    pub fn size(&self) -> (usize, usize) {
        let repeats = self.points.iter().map(|(_, point)| point.run.repeats).max();
        (self.points.len(), repeats.unwrap_or(1))
    }

    /// Runs of all points together.
    pub fn runs(&self) -> usize {
        self.points.iter().map(|(_, point)| point.run.repeats).sum()
    }

    /// Runs all of it on so many real threads; the outcome does not depend on how many. `stop` is asked before each
    /// run whether the rest is to be left out.
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

    /// As [`Experiment::run`], but leaves what each run shows in `runs` as soon as it has ended: whoever does not wait
    /// for the others has it. `observer` is shown the first run, as by [`Experiment::run_observed`].
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

    /// What the runs that have ended showed, and takes it.
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

/// What changes for the quick points of a file.
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
