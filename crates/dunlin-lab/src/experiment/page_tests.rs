//! Tests of the page and the examples: they describe what the program does.

use std::path::{Path, PathBuf};

use super::expect::Which;
use super::keys::SECTIONS;
use super::mistake::{Place, Sources};
use super::reference::{columns, keys};
use super::sweep;
use super::tree::{self, Table};
use super::{Around, Experiment, LoadError, Settings};

const PAGE: &str = include_str!("../../../../docs/experiments.md");

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments")
}

/// The experiments in the folder; it also has lists of flows.
fn examples() -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder()).expect("the examples");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "toml"));
    files.sort();
    files
}

/// The TOML blocks of the page.
fn blocks() -> impl Iterator<Item = &'static str> {
    let pieces = PAGE.split("```toml\n").skip(1);
    pieces.map(|piece| piece.split("```").next().unwrap_or_default())
}

#[test]
fn every_key_is_on_the_page() {
    for section in SECTIONS {
        let table = keys(section);
        assert!(PAGE.contains(&table), "not on the page:\n{table}");
    }
    assert!(PAGE.contains(&columns()), "not on the page:\n{}", columns());
}

#[test]
fn what_the_page_shows_can_be_run() {
    let first = blocks().next().expect("a first example");
    let mut fragments = 0;
    for block in blocks() {
        let whole = block.contains("[topology]") && block.contains("[print]");
        let text = match whole {
            true => block.to_owned(),
            false => {
                fragments += 1;
                with(first, block)
            }
        };
        let parsed = Experiment::parse("page.toml", &text, &folder(), &Settings::default());
        assert!(parsed.is_ok(), "{}\n{text}", parsed.unwrap_err());
    }
    assert!(fragments >= 3);
}

/// The first example with the tables of a fragment, and without its sweep and plot, which belong together.
fn with(first: &str, fragment: &str) -> String {
    let kept = first.split("[sweep]").next().unwrap_or_default();
    format!("{kept}\n{fragment}")
}

#[test]
fn every_example_is_on_the_page_and_says_what_it_shows() {
    let files = examples();
    assert!(files.len() >= 12);
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(PAGE.contains(&format!("| `{name}` |")), "{name}");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("# "), "{name} says nothing first");
        let whole = Experiment::load(&file, &Settings::default());
        assert!(whole.is_ok(), "{}", whole.unwrap_err());
    }
}

/// An example with tiny durations and a reduced sweep: the first and the last value of each key instead of all.
fn tiny(text: &str) -> Experiment {
    let mut root = tree::parse(text).expect("TOML");
    shorten(&mut root);
    let sources = Sources {
        name: "tiny.toml".to_owned(),
        text: text.to_owned(),
        sets: Vec::new(),
    };
    let around = Around {
        folder: folder(),
        ..Around::default()
    };
    let experiment = Experiment::of(root, "tiny", &around, Which::None);
    experiment.unwrap_or_else(|mistake| panic!("{}", sources.wrong(mistake)))
}

fn shorten(root: &mut Table) {
    let mut set = |key: &str, value: &str| {
        let node = tree::scalar(value, Place::Nowhere);
        super::path::set(root, key, &node, Place::Nowhere).expect("a key");
    };
    set("run.warm_up", "20us");
    // Long enough for calls to be answered also with the largest number of clients.
    set("run.duration", "200us");
    let axes = sweep::axes(root, &[]).expect("a sweep");
    let mut table = Table::default();
    for axis in axes {
        let ends = [axis.values.first(), axis.values.last()];
        let node = tree::Node {
            value: tree::Value::List(ends.into_iter().flatten().cloned().collect()),
            place: Place::Nowhere,
        };
        table.set(&axis.key, node);
    }
    let node = tree::Node {
        value: tree::Value::Table(table),
        place: Place::Nowhere,
    };
    root.set("sweep", node);
}

#[test]
fn every_example_runs() {
    for file in examples() {
        let text = std::fs::read_to_string(&file).unwrap();
        let experiment = tiny(&text);
        let outcome = experiment.run(2, || false).expect("it runs");
        let name = file.display();
        assert_eq!(outcome.points.len(), experiment.size().0, "{name}");
        for point in &outcome.points {
            assert!(point.events > 0, "{name}");
            let answered = point.columns.iter().any(|column| column.mean > 0.0);
            assert!(answered, "{name}: nothing but zeros at {:?}", point.at);
        }
        assert_eq!(outcome.rows().len(), outcome.points.len());
        assert_eq!(outcome.csv().lines().count(), outcome.points.len() + 1);
        let charted = outcome
            .chart
            .as_ref()
            .is_none_or(|chart| chart.contains("polyline"));
        assert!(charted, "{name}");
    }
}

#[test]
fn one_thread_and_two_give_the_same() {
    let first = blocks().next().expect("a first example");
    let outcome = |threads| tiny(first).run(threads, || false).expect("it runs");
    let (one, two) = (outcome(1), outcome(2));
    assert_eq!(one, two);
    let mut other = Settings {
        set: vec!["run.warm_up=20us".into(), "run.duration=60us".into()],
        ..Settings::default()
    };
    let by_seed = |settings: &Settings| {
        let parsed = Experiment::parse("first.toml", first, Path::new(""), settings);
        parsed.expect("right").run(2, || false).expect("it runs")
    };
    let one = by_seed(&other);
    other.seed = Some(2);
    let two = by_seed(&other);
    assert_ne!(one.digest, two.digest);
    // Another seed for repeats is among the settings.
    other.seed = Some(1);
    other.repeats = Some(2);
    let both = by_seed(&other);
    assert_eq!(
        both.points[0].digests,
        [&one.points[0].digests[0][..], &two.points[0].digests[0]]
    );
    assert!(both.points[0].columns[0].interval.is_some());
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let missing = Experiment::load(Path::new("no/such.toml"), &Settings::default());
    let Err(LoadError::Read { path, .. }) = missing else {
        panic!("{missing:?}");
    };
    assert_eq!(path, "no/such.toml");
}
