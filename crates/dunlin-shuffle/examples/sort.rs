//! Makes records, sorts them by worker processes and looks at the output: the library's whole face in one program,
//! which is its own worker.
//!
//! `cargo run --release -p dunlin-shuffle --example sort -- 1000000 4` for so many records and workers.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::Command;

use dunlin_shuffle::{check_file, sort, work, Generator, SortOptions};

/// The argument that makes this program a worker.
const WORKER: &str = "--worker";

type Failure = Box<dyn std::error::Error>;

fn number(at: usize, default: usize) -> Result<usize, Failure> {
    let given = std::env::args().nth(at);
    Ok(given.map_or(Ok(default), |text| text.parse())?)
}

fn run() -> Result<(), Failure> {
    let (records, workers) = (number(1, 1_000_000)?, number(2, 4)?);
    let folder = tempfile::tempdir()?;
    let (input, output) = (folder.path().join("input"), folder.path().join("output"));

    let mut file = BufWriter::new(File::create(&input)?);
    let made = Generator::new(2023).write(0..records as u64, &mut file, |_| true)?;
    file.flush()?;

    let program = std::env::current_exe()?;
    let mut options = SortOptions::new(move || {
        let mut worker = Command::new(&program);
        worker.arg(WORKER);
        worker
    });
    options.workers = workers;
    options.memory = 2 << 30;
    let sorted = sort(&input, &output, &options, &mut |_| true)?;

    // Not what the workers say that they have written, but what is there.
    let found = check_file(&output, |_| true)?;
    assert!(found.is_sorted() && found.has_records_of(&made));
    let rate = (sorted.output.records * 100) as f64 / sorted.took().as_secs_f64() / 1e9;
    println!(
        "{records} records in order, by {workers} workers, {rate:.2} GB/s: {:?} starting, {:?} shuffling, {:?} merging",
        sorted.starting, sorted.shuffling, sorted.merging
    );
    Ok(())
}

fn main() -> Result<(), Failure> {
    if std::env::args().nth(1).as_deref() == Some(WORKER) {
        work();
        return Ok(());
    }
    run()
}
