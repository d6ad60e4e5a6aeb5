//! Sorting by processes, whole: what comes out is what went in, in order, whatever the keys and however little the
//! memory; and what is said when it cannot be. The workers are the example `sort`, started as such.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dunlin_shuffle::{
    check_file, sort, sort_alone, FileError, Generator, Phase, SortError, SortOptions, Sorted,
    Summary,
};
use rustix::process::{kill_process, Pid, Signal};

/// An example that cargo has built beside the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/sort")
}

fn options(workers: usize, memory: u64) -> SortOptions {
    let mut options = SortOptions::new(|| {
        let mut worker = Command::new(example());
        worker.arg("--worker");
        worker
    });
    options.workers = workers;
    options.memory = memory;
    options
}

/// A folder with an input, which goes with the test.
struct Folder {
    folder: tempfile::TempDir,
    made: Summary,
}

impl Folder {
    fn new(generator: Generator, records: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut file = BufWriter::new(File::create(folder.path().join("input")).unwrap());
        let made = generator.write(0..records, &mut file, |_| true).unwrap();
        file.flush().unwrap();
        Self { folder, made }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn sort(&self, options: &SortOptions) -> Result<Sorted, SortError> {
        sort(
            &self.path("input"),
            &self.path("output"),
            options,
            &mut |_| true,
        )
    }

    /// Nothing but these files.
    fn has_only(&self, names: &[&str]) {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let found: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        assert!(
            found
                .iter()
                .all(|name| names.contains(&name.to_str().unwrap())),
            "{found:?}"
        );
        assert_eq!(found.len(), names.len(), "{found:?}");
    }
}

fn assert_sorted(output: &Path, made: &Summary, sorted: &Sorted) {
    let found = check_file(output, |_| true).unwrap();
    assert!(
        found.is_sorted() && found.has_records_of(made),
        "{found:?} of {made:?}"
    );
    assert_eq!(
        found, sorted.output,
        "what the workers saw is what is there"
    );
    assert!(sorted.input.has_records_of(made));
    assert_eq!(sorted.partitions.iter().sum::<u64>(), made.records);
}

#[test]
fn all_that_fits_into_memory() {
    let folder = Folder::new(Generator::new(1), 200_000);
    let sorted = folder.sort(&options(4, 64 << 20)).unwrap();
    assert_sorted(&folder.path("output"), &folder.made, &sorted);
    assert_eq!(sorted.spilled_runs, 0);
    // By sampled splitters no part is far from a quarter.
    let mean = 50_000;
    assert!(
        sorted
            .partitions
            .iter()
            .all(|part| part.abs_diff(mean) < mean / 4),
        "{sorted:?}"
    );
    folder.has_only(&["input", "output"]);
    // One thread comes to the same keys.
    sort_alone(&folder.path("input"), &folder.path("alone")).unwrap();
    let alone = check_file(&folder.path("alone"), |_| true).unwrap();
    assert_eq!(alone, sorted.output);
}

#[test]
fn what_does_not_fit_is_spilled_and_merged() {
    let folder = Folder::new(Generator::new(2), 200_000);
    // 20 MB of records with 6 MiB of memory.
    let sorted = folder.sort(&options(3, 6 << 20)).unwrap();
    assert_sorted(&folder.path("output"), &folder.made, &sorted);
    assert!(sorted.spilled_runs >= 12, "{sorted:?}");
    assert!(sorted.spilled_bytes <= folder.made.records * 100);
    folder.has_only(&["input", "output"]);
}

#[test]
fn keys_that_are_all_the_same_or_few() {
    for (keys, memory) in [(1, 32 << 20), (3, 8 << 20)] {
        let folder = Folder::new(Generator::new(3).distinct_keys(keys), 60_000);
        let sorted = folder.sort(&options(4, memory)).unwrap();
        assert_sorted(&folder.path("output"), &folder.made, &sorted);
        assert_eq!(sorted.output.duplicates, 60_000 - keys);
    }
}

#[test]
fn few_records_or_none() {
    for records in [0, 1, 3] {
        let folder = Folder::new(Generator::new(4), records);
        let sorted = folder.sort(&options(4, 16 << 20)).unwrap();
        assert_sorted(&folder.path("output"), &folder.made, &sorted);
    }
}

#[test]
fn by_one_worker_and_onto_the_input_itself() {
    let folder = Folder::new(Generator::new(5), 20_000);
    let input = folder.path("input");
    let sorted = sort(&input, &input, &options(1, 16 << 20), &mut |_| true).unwrap();
    assert_sorted(&input, &folder.made, &sorted);
    folder.has_only(&["input"]);
}

#[test]
fn over_udp() {
    let folder = Folder::new(Generator::new(6), 30_000);
    let mut options = options(2, 16 << 20);
    options.device = "roce".into();
    let sorted = folder.sort(&options).unwrap();
    assert_sorted(&folder.path("output"), &folder.made, &sorted);
}

/// Does something to the second worker when some of the input was read.
fn harm(folder: &Folder, patience: Duration, signal: Signal) -> SortError {
    std::fs::write(folder.path("output"), "as before").unwrap();
    let mut options = options(3, 12 << 20);
    options.patience = patience;
    let mut harmed = None;
    let sorted = sort(
        &folder.path("input"),
        &folder.path("output"),
        &options,
        &mut |progress| {
            // The workers need the coordinator to go on behind the shuffle, and it is here.
            if harmed.is_none() && progress.phase == Phase::Shuffling && progress.mapped > 0 {
                let process = progress.processes[1];
                kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
                harmed = Some(process);
            }
            true
        },
    );
    let error = sorted.unwrap_err();
    let process = harmed.expect("it was harmed").to_string();
    assert!(
        error.to_string().contains(&process),
        "{error} is not about {process}"
    );
    // The output is as it was, and nothing is left.
    assert_eq!(std::fs::read(folder.path("output")).unwrap(), b"as before");
    folder.has_only(&["input", "output"]);
    error
}

#[test]
fn a_killed_worker_ends_the_sort_with_its_name() {
    let folder = Folder::new(Generator::new(7), 300_000);
    let error = harm(&folder, Duration::from_secs(60), Signal::KILL);
    assert!(
        matches!(error, SortError::Died { worker: 2, .. }),
        "{error}"
    );
    let words = error.to_string();
    assert!(words.contains("signal: 9"), "{words}");
    // It can be done again.
    let sorted = folder.sort(&options(3, 12 << 20)).unwrap();
    assert_sorted(&folder.path("output"), &folder.made, &sorted);
}

#[test]
fn a_worker_that_stands_still_is_noticed() {
    let folder = Folder::new(Generator::new(8), 300_000);
    let error = harm(&folder, Duration::from_secs(15), Signal::STOP);
    assert!(
        matches!(error, SortError::Silent { worker: 2, .. }),
        "{error}"
    );
}

#[test]
fn a_sort_can_be_given_up() {
    let folder = Folder::new(Generator::new(9), 50_000);
    let paths = (folder.path("input"), folder.path("output"));
    let sorted = sort(&paths.0, &paths.1, &options(2, 16 << 20), &mut |progress| {
        progress.phase == Phase::Starting
    });
    assert!(matches!(sorted, Err(SortError::Interrupted)), "{sorted:?}");
    folder.has_only(&["input"]);
}

#[test]
fn wrong_calls_are_refused_before_anything_is_done() {
    let folder = Folder::new(Generator::new(10), 10);
    let error = folder.sort(&options(0, 1 << 30)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid number of workers 0: it must be from 1 to 64"
    );
    let error = folder.sort(&options(8, 1 << 20)).unwrap_err();
    assert!(error.to_string().contains("--memory"), "{error}");
    let missing = sort(
        &folder.path("no"),
        &folder.path("output"),
        &options(1, 1 << 24),
        &mut |_| true,
    );
    assert!(missing.unwrap_err().to_string().contains("No such file"));
    std::fs::write(folder.path("odd"), [7; 250]).unwrap();
    let odd = sort(
        &folder.path("odd"),
        &folder.path("output"),
        &options(1, 1 << 24),
        &mut |_| true,
    );
    let odd = odd.unwrap_err();
    assert!(
        matches!(odd, SortError::File(FileError::Shape { bytes: 250, .. })),
        "{odd}"
    );
    let device = sort(
        Path::new("/dev/zero"),
        &folder.path("output"),
        &options(1, 1 << 24),
        &mut |_| true,
    );
    assert!(device
        .unwrap_err()
        .to_string()
        .contains("not a regular file"));
    folder.has_only(&["input", "odd"]);
    // A folder for spilling that is none is said by the worker that wanted it.
    let folder = Folder::new(Generator::new(11), 100_000);
    let mut options = options(2, 2 << 20);
    options.spill = Some(folder.path("nowhere"));
    let error = folder.sort(&options).unwrap_err();
    assert!(matches!(error, SortError::Failed { .. }), "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
    folder.has_only(&["input"]);
}

#[test]
fn the_example_runs() {
    let output = Command::new(example())
        .args(["20000", "2"])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{words}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        words.starts_with("20000 records in order, by 2 workers"),
        "{words}"
    );
}
