//! The thread that writes groups, and the threads that wait for them.
//!
//! Polling threads append under a lock that is never held during a write. While one group is being written the next one
//! is filled, so the more transactions there are, the more of them share an `fdatasync`.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::directory::{io_error, Directory};
use super::{frame, Append, Entry, LogError};

/// A group is closed once it is longer than this, so that it is in memory once, not twice.
const GROUP_BYTES: usize = 16 << 20;

/// Called when a group is on the disk. Dropped without being called if that can no longer happen.
pub(crate) type Then = Box<dyn FnOnce() + Send>;

/// A log that is being written. When the value is dropped, everything appended is first written to the disk.
#[derive(Debug)]
pub(crate) struct LogFile {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the writing thread shares with all others.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// For the writing thread: there is something to write.
    filled: Condvar,
    /// For threads that block until a group is durable.
    safe: Condvar,
    /// For the thread that makes snapshots: one is due.
    due: Condvar,
}

/// Statistics of what was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Number of groups, each with one `fdatasync`.
    pub groups: u64,
    /// Number of entries in them.
    pub entries: u64,
    /// Number of bytes in them.
    pub bytes: u64,
    /// Number of bytes since the last snapshot.
    pub since_snapshot: u64,
}

struct State {
    /// Groups still to be written, the last of which may be open.
    groups: VecDeque<Group>,
    /// The number of the next group to be begun.
    next: u64,
    /// All groups up to this number are on the disk.
    safe: u64,
    /// Callbacks, in the order of their groups.
    waiting: VecDeque<(u64, Then)>,
    resting: bool,
    ends: bool,
    failed: bool,
    /// A snapshot is due when this many bytes were written since the last one.
    due: u64,
    statistics: LogStatistics,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("next", &self.next)
            .field("safe", &self.safe)
            .field("waiting", &self.waiting.len())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

struct Group {
    number: u64,
    frame: Vec<u8>,
    entries: u64,
    /// No more entries are added to it.
    closed: bool,
    /// It begins a new file.
    begins_file: bool,
}

impl LogFile {
    /// Starts writing in a directory with the group of this number. When the disk fails, `failed` is called, once;
    /// nothing that was appended and is not durable by then ever will be.
    pub(crate) fn begin(
        directory: &Arc<Directory>,
        next: u64,
        snapshot_bytes: u64,
        failed: impl FnOnce() + Send + 'static,
    ) -> Result<LogFile, LogError> {
        let state = State {
            groups: VecDeque::new(),
            next,
            safe: next - 1,
            waiting: VecDeque::new(),
            resting: false,
            ends: false,
            failed: false,
            due: snapshot_bytes,
            statistics: LogStatistics::default(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            filled: Condvar::new(),
            safe: Condvar::new(),
            due: Condvar::new(),
        });
        let (writes, directory) = (Arc::clone(&shared), Arc::clone(directory));
        let thread = std::thread::Builder::new().name("dunlin-log".into());
        let thread = thread.spawn(move || {
            // Callbacks for durable groups are not the log's own code.
            let written = catch_unwind(AssertUnwindSafe(|| writes.write(&directory)));
            // Nothing that is appended from now on will be written, and waiting threads are notified of that.
            writes.fail();
            match written {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::error!(%error, "cannot write the log: the machine shuts down");
                    failed();
                }
                Err(_) => {
                    tracing::error!("the thread of the log panicked: the machine shuts down");
                    failed();
                }
            }
        });
        Ok(LogFile {
            shared,
            thread: Some(thread.map_err(LogError::Thread)?),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Threads that still share the state are notified that nothing more is written.
        self.shared.fail();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds encoded entries to the open group, and returns its number.
    fn push(&self, encoded: &[u8], entries: u64) -> u64 {
        let mut state = self.state();
        let is_open = |group: &Group| !group.closed && group.frame.len() < GROUP_BYTES;
        if !state.groups.back().is_some_and(is_open) {
            state.begin_group();
        }
        let number = state.next - 1;
        if let Some(group) = state.groups.back_mut() {
            group.frame.extend(encoded);
            group.entries += entries;
        }
        let wake = std::mem::take(&mut state.resting);
        drop(state);
        if wake {
            self.filled.notify_one();
        }
        number
    }

    /// The number of the last non-empty group.
    pub(crate) fn appended(&self) -> u64 {
        let state = self.state();
        match state.groups.back() {
            Some(group) if group.entries == 0 => group.number - 1,
            _ => state.next - 1,
        }
    }

    /// Closes the open group and lets the next non-empty one begin a new file. Returns its number.
    pub(crate) fn rotate(&self) -> u64 {
        let mut state = self.state();
        state.statistics.since_snapshot = 0;
        let is_empty = |group: &Group| !group.closed && group.entries == 0;
        if !state.groups.back().is_some_and(is_empty) {
            state.begin_group();
        }
        if let Some(group) = state.groups.back_mut() {
            group.begins_file = true;
        }
        state.next - 1
    }

    /// Calls `then` when this group is on the disk: immediately if it already is, on the writing thread otherwise.
    pub(crate) fn when_safe(&self, number: u64, then: Then) {
        let mut state = self.state();
        if state.safe >= number {
            drop(state);
            return then();
        }
        if state.failed {
            drop(state);
            return drop(then);
        }
        let at = state.waiting.partition_point(|(other, _)| *other <= number);
        state.waiting.insert(at, (number, then));
    }

    /// Whether this group is on the disk.
    pub(crate) fn is_safe(&self, number: u64) -> bool {
        self.state().safe >= number
    }

    /// Blocks until this group is on the disk. Returns whether it is: if not, it never will be.
    pub(crate) fn wait(&self, number: u64) -> bool {
        let waits = |state: &mut State| state.safe < number && !state.failed;
        let waited = self.safe.wait_while(self.state(), waits);
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        state.safe >= number
    }

    pub(crate) fn statistics(&self) -> LogStatistics {
        self.state().statistics
    }

    /// Ends the log: what was appended is written, and nothing more is begun.
    pub(crate) fn end(&self) {
        self.state().ends = true;
        self.filled.notify_one();
        self.due.notify_all();
    }

    /// Whether it is ending or has failed.
    pub(crate) fn is_ending(&self) -> bool {
        let state = self.state();
        state.ends || state.failed
    }

    /// Blocks until a snapshot is due; returns `false` if the log ends before.
    pub(crate) fn wait_due(&self) -> bool {
        let waits = |state: &mut State| {
            state.statistics.since_snapshot < state.due && !state.ends && !state.failed
        };
        let waited = self.due.wait_while(self.state(), waits);
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        !state.ends && !state.failed
    }

    /// Sets the number of bytes since the last snapshot at which the next is due.
    pub(crate) fn set_due(&self, bytes: u64) {
        self.state().due = bytes;
    }

    /// Writes groups until the log is ending and none are left.
    fn write(&self, directory: &Directory) -> Result<(), LogError> {
        let mut current: Option<(PathBuf, File)> = None;
        while let Some(mut group) = self.next_group() {
            let (path, file) = match &mut current {
                Some(open) if !group.begins_file => open,
                none => none.insert(directory.segment(group.number)?),
            };
            frame::seal(&mut group.frame, group.number);
            file.write_all(&group.frame)
                .map_err(io_error(path, "write"))?;
            file.sync_data().map_err(io_error(path, "sync"))?;
            self.written(&group);
        }
        Ok(())
    }

    fn next_group(&self) -> Option<Group> {
        let mut state = self.state();
        loop {
            // An empty group that begins a file waits for its first entry.
            let is_filled = |group: &Group| group.entries > 0 || group.closed;
            if state.groups.front().is_some_and(is_filled) {
                return state.groups.pop_front();
            }
            if state.ends {
                return None;
            }
            state.resting = true;
            let waited = self.filled.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn written(&self, group: &Group) {
        let mut state = self.state();
        state.safe = group.number;
        let statistics = &mut state.statistics;
        statistics.groups += 1;
        statistics.entries += group.entries;
        statistics.bytes += group.frame.len() as u64;
        statistics.since_snapshot += group.frame.len() as u64;
        let count = state
            .waiting
            .partition_point(|(number, _)| *number <= group.number);
        let done: Vec<(u64, Then)> = state.waiting.drain(..count).collect();
        let is_due = state.statistics.since_snapshot >= state.due;
        drop(state);
        if is_due {
            self.due.notify_all();
        }
        self.safe.notify_all();
        done.into_iter().for_each(|(_, then)| then());
    }

    /// Stops all writing.
    fn fail(&self) {
        let mut state = self.state();
        state.failed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.safe.notify_all();
        self.due.notify_all();
        drop(waiting);
    }
}

impl State {
    fn begin_group(&mut self) {
        if let Some(group) = self.groups.back_mut() {
            group.closed = true;
        }
        let mut frame = Vec::new();
        frame::begin(&mut frame);
        self.groups.push_back(Group {
            number: self.next,
            frame,
            entries: 0,
            closed: false,
            begins_file: false,
        });
        self.next += 1;
    }
}

/// Appends entries to the log.
#[derive(Debug)]
pub(crate) struct Appender {
    shared: Arc<Shared>,
    encoded: Vec<u8>,
}

impl Appender {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            encoded: Vec::new(),
        }
    }
}

impl Append for Appender {
    fn append(&mut self, entry: &Entry) -> u64 {
        self.encoded.clear();
        entry.encode(&mut self.encoded);
        self.shared.push(&self.encoded, 1)
    }
}
