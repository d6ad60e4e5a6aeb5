//! The thread that appends groups, and the requests that wait for them.
//!
//! Polling threads append under a lock that is never held during a write. While one group is being written the next one
//! is filled, so the more writes there are, the more of them share an `fdatasync`.

use std::os::unix::fs::FileExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use dunlin::{HandlerError, OwnedResponder};

use super::segment::{Segments, GROUP_HEAD, SEGMENT_BYTES};
use crate::server::state::State;
use crate::server::{lock, BlockServerError, Durability};
use crate::wire::{code, Record};

/// The state that the thread shares with all others.
#[derive(Debug, Default)]
pub(in crate::server) struct Log {
    queue: Mutex<Queue>,
    /// For the thread: there is something to write.
    filled: Condvar,
    /// For threads that wait until all records before theirs are applied.
    applied: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Space for the group's header, and records.
    group: Vec<u8>,
    /// The start of each record, and the request that waits for it.
    waiting: Vec<(usize, OwnedResponder)>,
    /// Number of records accepted; the next field has the number applied.
    pushed: u64,
    applied: u64,
    resting: bool,
    ends: bool,
    failed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Queue");
        shown
            .field("pushed", &self.pushed)
            .field("applied", &self.applied);
        shown.field("failed", &self.failed).finish_non_exhaustive()
    }
}

#[cold]
fn no_log() -> HandlerError {
    HandlerError::new(
        code::LOG,
        "cannot write the log any more: see the server's own log",
    )
}

impl Log {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a record; its request is answered when the record is as durable as configured.
    pub(in crate::server) fn push(&self, record: &[u8], responder: OwnedResponder) {
        let mut queue = self.queue();
        if queue.failed || queue.ends {
            drop(queue);
            return responder.fail(no_log());
        }
        if queue.group.is_empty() {
            queue.group.resize(GROUP_HEAD, 0);
        }
        let at = queue.group.len();
        queue.group.extend_from_slice(record);
        queue.waiting.push((at, responder));
        queue.pushed += 1;
        if queue.resting {
            self.filled.notify_one();
        }
    }

    /// Number of records accepted so far.
    pub(in crate::server) fn position(&self) -> u64 {
        self.queue().pushed
    }

    /// Waits until this many are applied.
    pub(in crate::server) fn wait(&self, position: u64) -> Result<(), HandlerError> {
        let mut queue = self.queue();
        while queue.applied < position && !queue.failed {
            queue = self
                .applied
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if queue.failed {
            Err(no_log())
        } else {
            Ok(())
        }
    }

    /// The next group to be written, with its waiting requests. `None` after the end; an empty group if nothing has
    /// arrived and there is something else to do.
    fn next(&self, room: Vec<u8>, may_rest: bool) -> Option<Group> {
        let mut queue = self.queue();
        while queue.waiting.is_empty() {
            if queue.ends {
                return None;
            }
            if !may_rest {
                break;
            }
            queue.resting = true;
            queue = self
                .filled
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
            queue.resting = false;
        }
        let bytes = std::mem::replace(&mut queue.group, room);
        let waiting = std::mem::take(&mut queue.waiting);
        Some(Group { bytes, waiting })
    }

    fn fail(&self) {
        let mut queue = self.queue();
        queue.failed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        self.applied.notify_all();
        drop(queue);
        waiting
            .into_iter()
            .for_each(|(_, responder)| responder.fail(no_log()));
    }
}

struct Group {
    bytes: Vec<u8>,
    waiting: Vec<(usize, OwnedResponder)>,
}

/// The thread; when the value is dropped everything accepted is written and the thread ends.
#[derive(Debug)]
pub(in crate::server) struct LogThread {
    log: Arc<Log>,
    thread: Option<JoinHandle<()>>,
}

impl LogThread {
    pub(in crate::server) fn start(
        log: &Arc<Log>,
        state: &Arc<Mutex<State>>,
        segments: Segments,
        durability: Durability,
    ) -> std::io::Result<Self> {
        let mut writer = Writer::new(log, state, segments, durability);
        let thread = std::thread::Builder::new().name("dunlin-blocks".into());
        let thread = thread.spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| writer.run()));
            let why = match ended {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "its thread panicked".into(),
            };
            tracing::error!(why, "cannot write the log of the blocks any more");
            writer.log.fail();
        })?;
        let log = Arc::clone(log);
        Ok(Self {
            log,
            thread: Some(thread),
        })
    }
}

impl Drop for LogThread {
    fn drop(&mut self) {
        self.log.queue().ends = true;
        self.log.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

pub(super) struct Writer {
    log: Arc<Log>,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) segments: Segments,
    durability: Durability,
}

impl Writer {
    pub(super) fn new(
        log: &Arc<Log>,
        state: &Arc<Mutex<State>>,
        segments: Segments,
        durability: Durability,
    ) -> Self {
        Self {
            log: Arc::clone(log),
            state: Arc::clone(state),
            segments,
            durability,
        }
    }

    fn run(&mut self) -> Result<(), BlockServerError> {
        let (mut room, mut is_tidy) = (Vec::new(), false);
        while let Some(mut group) = self.log.next(room, is_tidy) {
            if !group.waiting.is_empty() {
                if let Err(error) = self.write_group(&mut group) {
                    let waiting = group.waiting.drain(..);
                    waiting.for_each(|(_, responder)| responder.fail(no_log()));
                    return Err(error);
                }
            }
            room = group.bytes;
            room.clear();
            is_tidy = !self.clean_one()?;
        }
        Ok(())
    }

    fn write_group(&mut self, group: &mut Group) -> Result<(), BlockServerError> {
        let (segment, offset) = self.append(&mut group.bytes)?;
        let mut state = lock(&self.state);
        for (at, _) in &group.waiting {
            if let Some(record) = Record::known(&group.bytes[*at..]) {
                state.apply(&record, Some((segment, offset + *at as u32)));
            }
        }
        drop(state);
        let mut queue = self.log.queue();
        queue.applied += group.waiting.len() as u64;
        self.log.applied.notify_all();
        drop(queue);
        group
            .waiting
            .drain(..)
            .for_each(|(_, responder)| responder.reply(Vec::new()));
        Ok(())
    }

    /// Appends a group, which has space for its header, and returns its position.
    pub(super) fn append(&mut self, group: &mut [u8]) -> Result<(u32, u32), BlockServerError> {
        if lock(&self.state).segments[&self.segments.current].length > SEGMENT_BYTES {
            let file = self.segments.begin_file()?;
            let mut state = lock(&self.state);
            state.segments.insert(self.segments.current, file);
        }
        let number = self.segments.current;
        let state = lock(&self.state);
        let current = &state.segments[&number];
        let (file, path, offset) = (current.file.clone(), current.path.clone(), current.length);
        drop(state);
        self.segments.seal(group);
        let written = file
            .write_all_at(group, offset)
            .and_then(|()| match self.durability {
                Durability::Power => file.sync_data(),
                Durability::Process => Ok(()),
            });
        written.map_err(|error| BlockServerError::at(&path, error))?;
        if let Some(current) = lock(&self.state).segments.get_mut(&number) {
            current.length += group.len() as u64;
        }
        Ok((number, offset as u32))
    }
}
