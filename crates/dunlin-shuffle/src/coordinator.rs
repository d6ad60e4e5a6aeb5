//! The coordinator: cuts the input into parts and its keys into partitions, has workers do the rest, and puts the
//! output in its place when all of it is right.

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

/// Workers at most: each has a connection, and a thread that sends, for each other.
pub const WORKERS_MAX: usize = 64;

/// How a sort is done.
pub struct SortOptions {
    /// Processes, from 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// Bytes of memory for records and their order, for all workers together; what does not fit is spilled to files.
    /// Rings, connections and programs take more.
    pub memory: u64,
    /// Folder for what does not fit into memory; that of the output if there is none.
    pub spill: Option<PathBuf>,
    /// The device by which workers reach each other.
    pub device: String,
    /// The preset of their connections.
    pub preset: Preset,
    /// How long a worker may say nothing, or leave another one's question unanswered.
    pub patience: Duration,
    /// What starts a worker: a process that does [`crate::work`]. Its standard input and output are set here.
    pub worker: Box<dyn Fn() -> Command>,
}

impl SortOptions {
    /// Four workers, 1 GiB of memory, over shared memory, which are patient for two minutes.
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

/// How far a sort is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'p> {
    /// What is being done.
    pub phase: Phase,
    /// Records of the input.
    pub records: u64,
    /// That were read and brought to their partition.
    pub mapped: u64,
    /// That are in the output.
    pub written: u64,
    /// The workers' processes, as the system numbers them.
    pub processes: &'p [u32],
}

impl Progress<'_> {
    /// How much of all is done, from 0 to 1: a record is read once and written once.
    pub fn part(&self) -> f64 {
        let done = (self.mapped + self.written) as f64;
        done / (2 * self.records).max(1) as f64
    }
}

/// What was done.
#[derive(Clone, Debug)]
pub struct Sorted {
    /// What was read: count and checksum; the order is that of the workers' parts.
    pub input: Summary,
    /// What was written, as the workers saw it on its way to the file.
    pub output: Summary,
    /// Records of each partition.
    pub partitions: Vec<u64>,
    /// Sorted runs that did not fit into memory.
    pub spilled_runs: u64,
    /// Their bytes.
    pub spilled_bytes: u64,
    /// Until all workers were there.
    pub starting: Duration,
    /// Until all records were where they belong.
    pub shuffling: Duration,
    /// Until all were in the output.
    pub merging: Duration,
}

impl Sorted {
    /// From the first to the last.
    pub fn took(&self) -> Duration {
        self.starting + self.shuffling + self.merging
    }
}

/// Bytes that a process can register with a device. Of one that cannot be used the workers will tell.
fn registered_max(device: &str) -> u64 {
    let devices = dunlin::available().into_iter();
    let mut named = devices.filter(|report| report.name == device);
    let attributes = named.find_map(|report| report.attributes.ok());
    attributes.map_or(u64::MAX, |attributes| {
        attributes.max_registered_bytes as u64
    })
}

/// What the workers prove to each other to know: 32 random bytes in hexadecimal.
fn draw_secret(output: &Path) -> Result<String, FileError> {
    let mut bytes = [0; 32];
    let drawn = getrandom::fill(&mut bytes).map_err(std::io::Error::other);
    drawn.map_err(|source| FileError::of(output, source))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A file beside the output that becomes it, or goes.
fn begin_output(output: &Path, bytes: u64) -> Result<NamedTempFile, FileError> {
    let of = |source| FileError::of(output, source);
    let begun = tempfile::Builder::new()
        .prefix(".dunlin-sort-")
        // As for any new file: less what the process' mask takes away.
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

/// Sorts the records of the file `input` into the file `output`, by key; equal keys are in any order. An output that is
/// there is replaced when all is done, and may be the input itself. `watch` is called many times a second, and ends the
/// sort by saying `false`.
///
/// # Errors
/// See [`SortError`]. Then the output is as it was.
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

/// What was read, and what came. A worker may have received all before others have read all.
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
