//! A machine's log on its disk: how a life of the machine starts from it, which answers wait for it, and when snapshots
//! are made.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dunlin_rpc::OwnedResponder;

use super::member::{in_pieces, lock_all, Guard, Participants};
use super::{StoreConfig, TableSpec};
use crate::log::{
    Append, Appender, Directory, Entry, Identity, LogError, LogFile, Shared, Unsynced,
};
use crate::membership::Configuration;
use crate::participant::{NotReplayed, Participant, Replay};
use crate::placement::Placement;
use crate::recovery::{database_of, Begins, CannotBegin};
use crate::store::Store;
use crate::types::MachineId;
use crate::wire::Body;

/// A log on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFolder {
    /// A directory for this machine alone, which is created if it does not exist.
    pub path: PathBuf,
    /// A snapshot is made when this many bytes were logged since the last one, and at least as many as the snapshot is
    /// long: a start then reads at most about this much more than the data itself.
    pub snapshot_bytes: u64,
}

impl LogFolder {
    /// 64 MiB.
    pub const SNAPSHOT_BYTES: u64 = 64 << 20;

    /// Creates the settings of a log in this directory.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            snapshot_bytes: Self::SNAPSHOT_BYTES,
        }
    }
}

/// The owner of the log. A machine with other tables is another owner: the items may not fit.
fn identity(of: &StoreConfig) -> Identity {
    let table = |one: &TableSpec| {
        let (id, name) = (one.id, one.name.escape_debug());
        format!("{id} '{name}' ({} of {} bytes)", one.rows, one.value_bytes)
    };
    let tables: Vec<String> = of.tables.iter().map(table).collect();
    let (machine, machines, copies) = (of.machine, of.machines, of.replicas);
    let tables = tables.join(", ");
    Identity(format!(
        "machine {machine} of {machines}, {copies} copies, tables {tables}"
    ))
}

/// The part of the log that handlers and the member's thread share.
#[derive(Debug)]
pub(super) struct Disk {
    shared: Arc<Shared>,
    own: Mutex<Appender>,
    /// The position of the last entry that the machine as a whole, not a participant, has appended.
    appended: AtomicU64,
    /// The number of the database, or 0 before it has begun.
    database: AtomicU64,
    /// Changes that readers may see although they are not on the disk yet.
    unsynced: Arc<Mutex<Unsynced>>,
    /// The log's directory.
    directory: PathBuf,
}

impl Disk {
    fn new(shared: &Arc<Shared>, database: u64, directory: PathBuf) -> Self {
        Self {
            directory,
            shared: Arc::clone(shared),
            own: Mutex::new(Appender::new(shared)),
            appended: AtomicU64::new(0),
            database: AtomicU64::new(database),
            unsynced: Arc::default(),
        }
    }

    /// Returns an appender for a participant.
    pub(super) fn appender(&self) -> Box<dyn Append> {
        Box::new(Noting {
            appender: Appender::new(&self.shared),
            shared: Arc::clone(&self.shared),
            unsynced: Arc::clone(&self.unsynced),
        })
    }

    /// Appends an action of the machine as a whole.
    pub(super) fn append(&self, entry: &Entry) {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        self.appended.store(own.append(entry), Ordering::Release);
    }

    /// The position of the last such action.
    pub(super) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Waits until it is on the disk.
    pub(super) fn wait(&self) -> Result<(), LogError> {
        match self.shared.wait(self.appended()) {
            true => Ok(()),
            false => Err(LogError::Failed {
                directory: self.directory.clone(),
            }),
        }
    }

    /// Whether it is on the disk.
    pub(super) fn is_durable(&self) -> bool {
        self.shared.is_safe(self.appended())
    }

    /// Records that an epoch of this database serves.
    pub(super) fn serves(&self, database: u64) {
        self.database.store(database, Ordering::Release);
    }

    /// The position that must be on the disk before a request is answered, by a participant that has appended up to
    /// `appended`.
    pub(super) fn needed(&self, body: &Body, appended: u64) -> u64 {
        match body {
            // Also for a duplicate: the first request's changes may not be on the disk yet.
            Body::Replicate { .. } | Body::Commit(_) => appended,
            _ => {
                let unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
                unsynced.needed(body, |position| self.shared.is_safe(position))
            }
        }
    }

    /// Answers when that position is on the disk, without waiting for it. A caller whose answer can never be sent gets
    /// an error when the log ends.
    pub(super) fn answer(&self, needed: u64, responder: OwnedResponder, bytes: Vec<u8>) {
        match needed {
            0 => responder.reply(bytes),
            _ => {
                let then = Box::new(move || responder.reply(bytes));
                self.shared.when_safe(needed, then);
            }
        }
    }

    /// Whether it accepts no more entries: the disk has failed.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.is_ending()
    }

    /// Calls `then` when the last entry appended so far is on the disk.
    pub(super) fn afterwards(&self, then: impl FnOnce() + Send + 'static) {
        self.shared.when_safe(self.appended(), Box::new(then));
    }
}

/// Appends for a participant, and records the changed keys.
#[derive(Debug)]
struct Noting {
    appender: Appender,
    shared: Arc<Shared>,
    unsynced: Arc<Mutex<Unsynced>>,
}

impl Append for Noting {
    fn append(&mut self, entry: &Entry) -> u64 {
        let position = self.appender.append(entry);
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        unsynced.note(entry, position, |position| self.shared.is_safe(position));
        position
    }
}

/// The log of a running machine, with the thread that makes snapshots. Dropping the value ends it.
#[derive(Debug)]
pub(super) struct Running {
    file: LogFile,
    snapshots: Option<JoinHandle<()>>,
}

impl Running {
    pub(super) fn file(&self) -> &LogFile {
        &self.file
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.file.shared().end();
        if let Some(thread) = self.snapshots.take() {
            let _ = thread.join();
        }
    }
}

/// A machine's directory, until its log runs.
#[derive(Debug)]
pub(super) struct Opened {
    folder: LogFolder,
    directory: Arc<Directory>,
    begins: Begins,
    /// The number of the next group.
    next: u64,
    /// The lives of the machine whose changes are in the log, including the last one.
    lives: Vec<Entry>,
    /// The number of the database to which it is known to belong, or 0.
    database: u64,
}

impl Opened {
    /// Opens the directory for another life of the machine, with the membership's current configuration.
    pub(super) fn new(
        folder: LogFolder,
        config: &StoreConfig,
        of: Option<&Configuration>,
        incarnation: u64,
    ) -> Result<Opened, LogError> {
        let directory = Directory::open(&folder.path, &identity(config))?;
        let heads = directory.heads()?;
        let tells = |entry: &Entry| matches!(entry, Entry::Life { .. } | Entry::Serve { .. });
        let mut told: Vec<Entry> = heads.entries.into_iter().filter(tells).collect();
        if database_of(&told) == 0 && !told.is_empty() {
            // There was one life. Whether it served is recorded in a later entry.
            directory.read(&mut |group| {
                let serves = |entry: &Entry| matches!(entry, Entry::Serve { .. });
                told.extend(group.into_iter().filter(serves));
                Ok(true)
            })?;
        }
        let begins = Begins::of(&told, MachineId(config.machine), of);
        let begins = begins.map_err(|why| {
            let directory = folder.path.clone();
            match why {
                CannotBegin::NoDatabase => LogError::NoDatabase { directory },
                CannotBegin::OtherDatabase => LogError::OtherDatabase { directory },
            }
        })?;
        let database = database_of(&told);
        let is_life = |entry: &Entry| matches!(entry, Entry::Life { .. });
        let mut lives: Vec<Entry> = told.into_iter().filter(is_life).collect();
        let loaded = match lives.first() {
            Some(Entry::Life { loaded, .. }) => *loaded,
            _ => begins == Begins::First,
        };
        lives.push(Entry::Life {
            incarnation,
            loaded,
            database,
        });
        let mut opened = Opened {
            folder,
            directory: Arc::new(directory),
            begins,
            next: heads.unused,
            lives,
            database,
        };
        if begins == Begins::Empty {
            opened.forget();
        }
        Ok(opened)
    }

    /// The initial state of this life.
    pub(super) fn begins(&self) -> Begins {
        self.begins
    }

    /// Whether the machine started with the database's initial contents.
    pub(super) fn is_loaded(&self) -> bool {
        matches!(self.lives.first(), Some(Entry::Life { loaded: true, .. }))
    }

    /// The machine has been left out by the others: the data in the directory is out of date, and the life starts
    /// without data.
    pub(super) fn forget(&mut self) {
        self.begins = Begins::Empty;
        self.database = 0;
        self.lives.drain(..self.lives.len().saturating_sub(1));
        for life in &mut self.lives {
            if let Entry::Life {
                loaded, database, ..
            } = life
            {
                (*loaded, *database) = (false, 0);
            }
        }
    }

    /// Replays the log with the participants, as long as `is_worth_it` says so. Returns whether it was replayed
    /// completely.
    pub(super) fn replay<S: Store>(
        &mut self,
        participants: &mut [Participant<S>],
        place: (MachineId, &Placement),
        is_worth_it: &dyn Fn() -> bool,
    ) -> Result<bool, LogError> {
        let began = Instant::now();
        let mut replay = Replay::begin(participants, place);
        let failed = |error: NotReplayed| LogError::Replay {
            directory: self.directory.path().to_owned(),
            why: error.to_string(),
        };
        let end = self.directory.read(&mut |group| {
            let done = group.into_iter().try_for_each(|entry| replay.take(entry));
            done.map_err(failed)?;
            Ok(is_worth_it())
        })?;
        let took = began.elapsed();
        let Some(end) = end else {
            tracing::info!(
                ?took,
                "the other machines have continued: the log is not read"
            );
            return Ok(false);
        };
        if end.cut > 0 {
            let bytes = end.cut;
            tracing::warn!(bytes, "discarded an incomplete write at the end of the log");
        }
        let entries = replay.end().map_err(failed)?;
        tracing::info!(entries, ?took, "the log was replayed");
        self.next = end.next;
        Ok(true)
    }

    /// Starts logging. When it returns, the initial state of the life is on the disk. `failed` is called when the disk
    /// fails.
    pub(super) fn run(
        self,
        participants: Participants,
        failed: impl FnOnce() + Send + 'static,
    ) -> Result<(Running, Arc<Disk>, Arc<Participants>), LogError> {
        let least = self.folder.snapshot_bytes;
        let goes_on = matches!(self.begins, Begins::Continues(_));
        if !goes_on {
            // Replaces the previous contents of the directory.
            let heads = captured(&lock_all(&participants));
            let parts = (&self.lives[..], &heads[..]);
            write(&self.directory, self.next, parts, &participants, &|| true)?;
        }
        let file = LogFile::begin(&self.directory, self.next, least, failed)?;
        let shared = file.shared();
        let disk = Arc::new(Disk::new(shared, self.database, self.folder.path));
        if let Some(life) = self.lives.last().filter(|_| goes_on) {
            disk.append(life);
            disk.wait()?;
        }
        let logging = participants.into_iter().map(|one| {
            let one = one.into_inner().unwrap_or_else(PoisonError::into_inner);
            Mutex::new(one.logging(disk.appender()))
        });
        let participants: Arc<Participants> = Arc::new(logging.collect());
        let (shared, all) = (Arc::clone(shared), Arc::clone(&participants));
        let knows = Arc::clone(&disk);
        let (directory, lives) = (self.directory, self.lives);
        let thread = std::thread::Builder::new().name("dunlin-snapshot".into());
        let thread = thread.spawn(move || {
            while shared.wait_due() {
                let database = knows.database.load(Ordering::Acquire);
                match snapshot(&directory, &lives_of(&lives, database), &shared, &all) {
                    Ok(Some(bytes)) => {
                        tracing::info!(
                            bytes,
                            "wrote a snapshot, which limits the length of the log"
                        );
                        shared.set_due(bytes.max(least));
                    }
                    // The machine is still copying; try again later.
                    Ok(None) => std::thread::sleep(AGAIN),
                    Err(error) => {
                        tracing::error!(%error, "cannot write a snapshot: the log keeps growing");
                        shared.set_due(shared.statistics().since_snapshot + least);
                    }
                }
            }
        });
        let running = Running {
            file,
            snapshots: Some(thread.map_err(LogError::Thread)?),
        };
        Ok((running, disk, participants))
    }
}

/// The same lives, with the number of this database.
fn lives_of(lives: &[Entry], of: u64) -> Vec<Entry> {
    let mut lives = lives.to_vec();
    for life in &mut lives {
        if let Entry::Life { database, .. } = life {
            *database = of;
        }
    }
    lives
}

/// Interval between two checks whether a machine that copies is complete.
const AGAIN: Duration = Duration::from_millis(100);

/// Makes a snapshot while requests are served. Returns its length, or `None` while the machine copies: it lacks
/// deletions that happened meanwhile.
fn snapshot(
    directory: &Directory,
    lives: &[Entry],
    shared: &Shared,
    participants: &Participants,
) -> Result<Option<u64>, LogError> {
    let (at, heads) = {
        let all = lock_all(participants);
        if all.first().is_none_or(|one| one.store().is_learning()) {
            return Ok(None);
        }
        // No participant appends meanwhile, so their state is that after all groups before this one.
        let at = shared.rotate();
        (at, captured(&all))
    };
    // The items may be newer: their changes are then replayed up to their last versions, and all of those are on the
    // disk before the snapshot becomes valid.
    let is_safe = || !shared.is_ending() && shared.wait(shared.appended());
    write(directory, at, (lives, &heads), participants, &is_safe)
}

/// The participants' part of a snapshot.
fn captured(all: &[Guard<'_>]) -> Vec<Entry> {
    let each = (0..).zip(all);
    each.flat_map(|(n, one)| one.captured(n)).collect()
}

/// Writes a snapshot, which becomes valid if `is_safe` returns true at its end.
fn write(
    directory: &Directory,
    at: u64,
    (lives, heads): (&[Entry], &[Entry]),
    participants: &Participants,
    is_safe: &dyn Fn() -> bool,
) -> Result<Option<u64>, LogError> {
    let mut snapshot = directory.snapshot(at)?;
    snapshot.put(lives)?;
    snapshot.put(heads)?;
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        let (items, next) = in_pieces(participants, from, |all, from, bytes| {
            let items = all.first().map(|one| one.items(from, bytes));
            items.unwrap_or_default()
        });
        snapshot.put(&[Entry::Items(items)])?;
        cursor = next;
    }
    match is_safe() {
        true => snapshot.finish().map(Some),
        false => Ok(None),
    }
}
