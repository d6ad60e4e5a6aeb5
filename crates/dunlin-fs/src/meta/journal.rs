//! Group commit: one thread takes all changes that have arrived meanwhile, writes them as one group, and answers them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::OwnedResponder;

use super::store::{Durability, Store};
use crate::namespace::Record;
use crate::types::{Errno, Outcome, Refused};
use crate::wire::{encode, Answer};

/// Maximum number of records in one group: later ones wait for the next.
const GROUP: usize = 16_384;

/// The changes of one operation, and the request to be answered when they are written.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) records: Vec<Record>,
    /// The change that this is or depends on.
    pub(super) rests_on: u64,
    pub(super) answer: Option<(OwnedResponder, Vec<u8>)>,
}

/// The journal's progress.
#[derive(Debug, Default)]
pub(super) struct Progress {
    kept: AtomicU64,
    failed: AtomicBool,
}

impl Progress {
    pub(super) fn has(&self, change: u64) -> bool {
        self.kept.load(Ordering::Acquire) >= change
    }

    /// The journal cannot be written: the state in memory will not be there after a restart.
    pub(super) fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Waits until the journal has a change; returns `false` if it has not got that far in time.
    pub(super) fn wait_for(&self, change: u64, most: Duration) -> bool {
        let began = Instant::now();
        while !self.has(change) {
            if self.failed() || began.elapsed() > most {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

/// The sending side of the journal. Entries are in the order of their changes: they are sent under the namespace's
/// lock.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    entries: Sender<Entry>,
    pub(super) progress: Arc<Progress>,
}

impl Journal {
    pub(super) fn start(
        store: Store,
        durability: Durability,
        kept: u64,
    ) -> std::io::Result<(Self, std::thread::JoinHandle<()>)> {
        let (entries, receiver) = std::sync::mpsc::channel();
        let progress = Arc::new(Progress::default());
        progress.kept.store(kept, Ordering::Release);
        let told = Arc::clone(&progress);
        let thread = std::thread::Builder::new()
            .name("dunlin-fs-journal".into())
            .spawn(move || run(&store, durability, &receiver, &told))?;
        Ok((Self { entries, progress }, thread))
    }

    /// Writes the changes, then answers. An answer that depends on nothing new is sent at once.
    pub(super) fn keep(&self, entry: Entry) {
        let nothing = entry.records.is_empty() && self.progress.has(entry.rests_on);
        if nothing {
            reply(entry, self.progress.failed());
        } else if let Err(std::sync::mpsc::SendError(entry)) = self.entries.send(entry) {
            reply(entry, true);
        }
    }
}

fn reply(entry: Entry, failed: bool) {
    if let Some((responder, answer)) = entry.answer {
        let lost = || encode(&Outcome::<Answer>::Err(Refused(Errno::IO)));
        responder.reply(if failed { lost() } else { answer });
    }
}

fn run(store: &Store, durability: Durability, entries: &Receiver<Entry>, progress: &Progress) {
    while let Ok(first) = entries.recv() {
        let mut group = vec![first];
        let mut size = group[0].records.len();
        while size < GROUP {
            let Ok(entry) = entries.try_recv() else { break };
            size += entry.records.len();
            group.push(entry);
        }
        let records = group
            .iter_mut()
            .map(|entry| std::mem::take(&mut entry.records));
        let records: Vec<_> = records.flatten().collect();
        // A query that only waited for earlier changes has no records.
        if !records.is_empty() && !progress.failed() {
            if let Err(error) = store.keep(records, durability) {
                tracing::error!(%error, "cannot write the journal: all changes are rejected");
                progress.failed.store(true, Ordering::Release);
            }
        }
        let failed = progress.failed();
        if !failed {
            let last = group.iter().map(|entry| entry.rests_on).max();
            progress.kept.fetch_max(last.unwrap_or(0), Ordering::AcqRel);
        }
        for entry in group {
            reply(entry, failed);
        }
    }
}
