//! The coordinator: divides the input into parts and its keys into partitions, has workers do the rest, and moves the
//! output into place once it is verified.

use std::fmt;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use dunlin::Preset;
use tempfile::NamedTempFile;

use crate::error::{FileError, SortError};
use crate::messages::{Answer, Job, Order, Received};
use crate::plan::Plan;
use crate::processes::{Phase, Workers};
use crate::record::RECORD_BYTES;
use crate::splitters::{sample, Splitters};
use crate::summary::{self, Summary};

/// Maximum number of workers: each has a connection, and a sending thread, for each other.
pub const WORKERS_MAX: usize = 64;

/// The options of a sort.
pub struct SortOptions {
    /// Number of processes, from 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// Bytes of memory for records and their order, for all workers together; what does not fit is spilled to files.
    /// Rings, connections and programs need additional memory.
    pub memory: u64,
    /// Folder for spilled files; by default that of the output.
    pub spill: Option<PathBuf>,
    /// The device over which workers reach each other.
    pub device: String,
    /// The preset of their connections.
    pub preset: Preset,
    /// Time that a worker may be silent, or leave a request of another one unanswered.
    pub patience: Duration,
    /// Returns the command that starts a worker: a process that calls [`crate::work`]. Its standard input and output
    /// are set here.
    pub worker: Box<dyn Fn() -> Command>,
}

impl SortOptions {
    /// Four workers, 1 GiB of memory, over shared memory, with a patience of two minutes.
    pub fn new(worker: impl Fn() -> Command + 'static) -> Self {
        Self {
            workers: 4,
            memory: 1 << 30,
            spill: None,
            device: "shm".into(),
            preset: Preset::default(),
            patience: Duration::from_secs(120),
            worker: Box::new(worker),
        }
    }
}

impl fmt::Debug for SortOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SortOptions")
            .field("workers", &self.workers)
            .field("memory", &self.memory)
            .field("spill", &self.spill)
            .field("device", &self.device)
            .field("preset", &self.preset)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// The progress of a sort.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'p> {
    /// The current phase.
    pub phase: Phase,
    /// Number of records in the input.
    pub records: u64,
    /// Number of records that were read and brought to their partition.
    pub mapped: u64,
    /// Number of records in the output.
    pub written: u64,
    /// The process ids of the workers.
    pub processes: &'p [u32],
}

impl Progress<'_> {
    /// The completed fraction, from 0 to 1: a record is read once and written once.
    pub fn part(&self) -> f64 {
        let done = (self.mapped + self.written) as f64;
        done / (2 * self.records).max(1) as f64
    }
}

/// The result of a sort.
#[derive(Clone, Debug)]
pub struct Sorted {
    /// Summary of the input: count and checksum; the order is that of the workers' parts.
    pub input: Summary,
    /// Summary of the output, as computed by the workers while they wrote it.
    pub output: Summary,
    /// Number of records in each partition.
    pub partitions: Vec<u64>,
    /// Number of sorted runs that did not fit into memory.
    pub spilled_runs: u64,
    /// Bytes in these runs.
    pub spilled_bytes: u64,
    /// Time until all workers had started.
    pub starting: Duration,
    /// Time until all records were in their partitions.
    pub shuffling: Duration,
    /// Time until all were in the output.
    pub merging: Duration,
}

impl Sorted {
    /// The total time.
    pub fn took(&self) -> Duration {
        self.starting + self.shuffling + self.merging
    }
}

/// Maximum number of bytes that a process can register with a device. If the device cannot be used the workers report
/// it.
fn registered_max(device: &str) -> u64 {
    let devices = dunlin::available().into_iter();
    let mut named = devices.filter(|report| report.name == device);
    let attributes = named.find_map(|report| report.attributes.ok());
    attributes.map_or(u64::MAX, |attributes| {
        attributes.max_registered_bytes as u64
    })
}

/// Draws the secret of the workers: 32 random bytes in hexadecimal.
fn draw_secret(output: &Path) -> Result<String, FileError> {
    let mut bytes = [0; 32];
    let drawn = getrandom::fill(&mut bytes).map_err(std::io::Error::other);
    drawn.map_err(|source| FileError::of(output, source))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Creates a temporary file beside the output, which replaces it in the end, or is removed.
fn begin_output(output: &Path, bytes: u64) -> Result<NamedTempFile, FileError> {
    let of = |source| FileError::of(output, source);
    let begun = tempfile::Builder::new()
        .prefix(".dunlin-sort-")
        // As for any new file: subject to the process's umask.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder_of(output))
        .map_err(of)?;
    begun.as_file().set_len(bytes).map_err(of)?;
    Ok(begun)
}

fn folder_of(output: &Path) -> &Path {
    let folder = output
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Sorts the records of the file `input` into the file `output`, by key; equal keys are in any order. An existing
/// output is replaced when everything is done, and may be the input itself. `watch` is called many times a second, and
/// ends the sort by returning `false`.
///
/// # Errors
/// See [`SortError`]. The output is then unchanged.
pub fn sort(
    input: &Path,
    output: &Path,
    options: &SortOptions,
    watch: &mut dyn FnMut(&Progress<'_>) -> bool,
) -> Result<Sorted, SortError> {
    let count = options.workers;
    if !(1..=WORKERS_MAX).contains(&count) {
        return Err(SortError::Workers(count));
    }
    let began = Instant::now();
    let (file, records) = summary::open(input)?;
    let bytes = records * RECORD_BYTES as u64;
    let plan = Plan::new(options.memory, count, registered_max(&options.device))?;
    let sampled = sample(&file, records, count);
    let sampled = sampled.map_err(|source| FileError::of(input, source))?;
    let splitters = Splitters::new(sampled, count);
    let target = begin_output(output, bytes)?;
    let spill = options.spill.as_deref().unwrap_or(folder_of(output));
    let secret = draw_secret(output)?;

    let mut workers = Workers::start(options, records, watch)?;
    let part = |number: usize| records * number as u64 / count as u64;
    for number in 0..count {
        let job = Job {
            number,
            input: input.to_owned(),
            records: part(number)..part(number + 1),
            output: target.path().to_owned(),
            spill: spill.to_owned(),
            plan,
            splitters: splitters.clone(),
            workers: count,
            device: options.device.clone(),
            preset: options.preset.to_string(),
            secret: secret.clone(),
            patience_ms: options.patience.as_millis() as u64,
        };
        workers.tell(number, &Order::Prepare(Box::new(job)))?;
    }
    let addresses = workers.gather(|answer| match answer {
        Answer::Listening(address) => Ok(address),
        other => Err(other),
    })?;
    let starting = began.elapsed();

    workers.enter(Phase::Shuffling);
    for number in 0..count {
        workers.tell(number, &Order::Map(addresses.clone()))?;
    }
    let (mapped, received) = shuffle(&mut workers)?;
    let shuffling = began.elapsed() - starting;

    let input = in_order(&mapped);
    let counted: u64 = received.iter().map(|one| one.records).sum();
    if (input.records, counted) != (records, records) {
        let output = Summary {
            records: counted,
            ..Summary::default()
        };
        return Err(wrong(input, output));
    }
    workers.enter(Phase::Merging);
    let mut first = 0;
    for (number, one) in received.iter().enumerate() {
        workers.tell(number, &Order::Merge(first))?;
        first += one.records;
    }
    let written = workers.gather(|answer| match answer {
        Answer::Written(summary) => Ok(summary),
        other => Err(other),
    })?;
    workers.finish();

    let written = in_order(&written);
    if !written.is_sorted() || !written.has_records_of(&input) {
        return Err(wrong(input, written));
    }
    let persisted = target.persist(output);
    persisted.map_err(|error| FileError::of(output, error.error))?;
    Ok(Sorted {
        input,
        output: written,
        partitions: received.iter().map(|one| one.records).collect(),
        spilled_runs: received.iter().map(|one| one.spilled_runs).sum(),
        spilled_bytes: received.iter().map(|one| one.spilled_bytes).sum(),
        starting,
        shuffling,
        merging: began.elapsed() - starting - shuffling,
    })
}

/// Returns what each worker read, and what it received. A worker may have received everything before others have read
/// everything.
fn shuffle(workers: &mut Workers<'_>) -> Result<(Vec<Summary>, Vec<Received>), SortError> {
    let mapped = workers.gather(|answer| match answer {
        Answer::Mapped(summary) => Ok(summary),
        other => Err(other),
    })?;
    let received = workers.gather(|answer| match answer {
        Answer::Received(received) => Ok(received),
        other => Err(other),
    })?;
    Ok((mapped, received))
}

fn in_order(parts: &[Summary]) -> Summary {
    parts
        .iter()
        .fold(Summary::default(), |all, part| all.then(part))
}

fn wrong(input: Summary, output: Summary) -> SortError {
    SortError::Wrong {
        input: Box::new(input),
        output: Box::new(output),
    }
}
