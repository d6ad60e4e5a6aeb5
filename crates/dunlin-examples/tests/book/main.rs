//! Runs the book: every block of `docs/book/src` is run, included from a program that is run, or marked `not-here` with
//! what cannot be had on this machine. What the book shows of an output is compared with what comes.
//!
//! `cargo test -p dunlin-examples --test book -- streams` runs the chapters whose file has that in its name. The
//! command `dunlin` of the book is this program started again ([`COMMAND`]), and `cargo run` finds the examples that
//! Cargo has built beside it.

mod blocks;
mod chapter;
mod expected;
mod links;
mod ports;
mod processes;
mod tools;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use chapter::Report;

/// Set in the environment of what the book runs: this program is the command `dunlin` then.
const COMMAND: &str = "DUNLIN_BOOK_COMMAND";

/// Examples that no line of the book runs, and who does: `compare` needs a feature and has a test of its own.
const NOT_IN_THE_BOOK: [&str; 1] = ["compare"];

fn main() -> ExitCode {
    if std::env::var_os(COMMAND).is_some() {
        end_with_parent();
        return dunlin_cli::commands::main();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    match run(filter.map(String::as_str)) {
        0 => ExitCode::SUCCESS,
        failures => {
            println!("book: {failures} failures");
            ExitCode::FAILURE
        }
    }
}

/// The command ends when who started it is gone, so that a test that was killed leaves no server behind.
fn end_with_parent() {
    let parent = std::os::unix::process::parent_id();
    std::thread::spawn(move || {
        while std::os::unix::process::parent_id() == parent {
            std::thread::sleep(Duration::from_millis(500));
        }
        std::process::exit(1);
    });
}

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs chapters, prints what was not run, and says how many failures there were.
fn run(filter: Option<&str>) -> usize {
    let book = root().join("docs/book/src");
    let summary = std::fs::read_to_string(book.join("SUMMARY.md")).expect("the book has a summary");
    let files = blocks::links(&summary);
    let mut all = Report::default();
    for file in unlisted(&book, &files) {
        all.fail(format!("{file} is not in SUMMARY.md"));
    }
    let began = Instant::now();
    let tools = tools::Tools::new();
    for file in &files {
        if filter.is_some_and(|filter| !file.contains(filter)) {
            continue;
        }
        let began = Instant::now();
        let report = chapter::run(&book, file, &tools);
        let (failures, seconds) = (report.failures.len(), began.elapsed().as_secs_f32());
        let word = if failures == 0 { "ok" } else { "FAILED" };
        println!("{file}: {} blocks, {seconds:.1} s, {word}", report.blocks);
        all.add(report);
    }
    if filter.is_none() {
        check_programs(&mut all);
    }
    for failure in &all.failures {
        println!("\n{failure}");
    }
    for place in &all.not_here {
        println!("not here: {place}");
    }
    if let Some(filter) = filter.filter(|_| all.blocks == 0) {
        println!("book: no chapter has '{filter}' in its name");
    }
    println!(
        "book: {} blocks, of which {} cannot run here; {:.1} s",
        all.blocks,
        all.not_here.len(),
        began.elapsed().as_secs_f32()
    );
    all.failures.len()
}

/// Files of the book that its summary does not name.
fn unlisted(book: &Path, files: &[String]) -> Vec<String> {
    let there = std::fs::read_dir(book).expect("the book is there");
    let names = there.map(|file| file.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md" && !files.contains(name))
        .collect()
}

/// What is shown must be run, and every example of this crate must be run by a line of the book.
fn check_programs(all: &mut Report) {
    for (program, place) in &all.shown.clone() {
        if !all.ran.contains(program) {
            all.fail(format!("{place}: {program} is shown, and no line runs it"));
        }
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin");
    let sources = std::fs::read_dir(sources).expect("the examples are there");
    let programs: BTreeSet<String> = sources
        .filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    for program in programs {
        if !all.ran.contains(&program) && !NOT_IN_THE_BOOK.contains(&program.as_str()) {
            all.fail(format!("the example {program} is in no chapter"));
        }
    }
}
