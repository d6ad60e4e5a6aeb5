//! The sending half of a worker: records of its part of the input are read, collected into one block per partition, and
//! sent. One thread reads ahead, one partitions by key, and each partition has one that sends, so that a slow receiver
//! delays the others only when two of its blocks wait.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel, Receiver, Sender, SyncSender};
use std::sync::Arc;
use std::thread;

use crate::error::{FileError, WorkError};
use crate::intake::Intake;
use crate::messages::Job;
use crate::record::{Key, RECORD_BYTES};
use crate::send::{send_here, send_there, Blocks, Reach};
use crate::splitters::Splitters;
use crate::summary::{self, Checker};
use crate::Summary;

/// Number of chunks of the input: one is read while the other is partitioned.
const CHUNKS: usize = 2;
/// Number of blocks of a partition: one is filled, one waits, one is sent.
const BLOCKS: usize = 3;

/// The destination of a partition's records.
struct Outlet {
    /// The block being filled.
    block: Vec<u8>,
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
}

impl Outlet {
    fn new(block_bytes: usize) -> (Self, Blocks) {
        let (to_sender, full) = sync_channel(1);
        let (give_back, empty) = channel();
        for _ in 1..BLOCKS {
            // Cannot fail: both ends exist.
            let _ = give_back.send(Vec::with_capacity(block_bytes));
        }
        let outlet = Self {
            block: Vec::with_capacity(block_bytes),
            full: to_sender,
            empty,
        };
        let blocks = Blocks {
            full,
            empty: give_back,
        };
        (outlet, blocks)
    }

    /// Adds a record; returns whether its sender still exists.
    fn add(&mut self, record: &[u8], block_bytes: usize) -> bool {
        self.block.extend_from_slice(record);
        self.block.len() < block_bytes || self.send()
    }

    #[cold]
    fn send(&mut self) -> bool {
        if self.block.is_empty() {
            return true;
        }
        let full = std::mem::take(&mut self.block);
        let sent = self.full.send(full).is_ok();
        let empty = sent.then(|| self.empty.recv().ok()).flatten();
        let there = empty.is_some();
        self.block = empty.unwrap_or_default();
        there
    }
}

/// Reads the job's part of the input into chunks, which are returned empty.
fn read(
    job: &Job,
    file: &File,
    full: &SyncSender<Vec<u8>>,
    empty: &Receiver<Vec<u8>>,
) -> io::Result<()> {
    let mut at = job.records.start * RECORD_BYTES as u64;
    let end = job.records.end * RECORD_BYTES as u64;
    while at < end {
        let Ok(mut chunk) = empty.recv() else { break };
        chunk.resize((end - at).min(job.plan.chunk_bytes as u64) as usize, 0);
        file.read_exact_at(&mut chunk, at)?;
        at += chunk.len() as u64;
        if full.send(chunk).is_err() {
            break;
        }
    }
    Ok(())
}

/// Counts the records of a chunk and adds each to its partition, until `add` returns that this one accepts no more.
pub(crate) fn distribute(
    chunk: &[u8],
    splitters: &Splitters,
    checker: &mut Checker,
    mut add: impl FnMut(usize, &[u8]) -> bool,
) -> bool {
    chunk.chunks_exact(RECORD_BYTES).all(|record| {
        checker.count(record);
        add(splitters.partition(Key::of(record)), record)
    })
}

/// Brings all records to their outlets. Returns `None` if a sender has ended early.
fn partition(
    job: &Job,
    outlets: &mut [Outlet],
    (chunks, give_back): (Receiver<Vec<u8>>, Sender<Vec<u8>>),
    mapped: &AtomicU64,
) -> Option<Summary> {
    let mut checker = Checker::default();
    for chunk in chunks {
        let taken = distribute(&chunk, &job.splitters, &mut checker, |partition, record| {
            outlets[partition].add(record, job.plan.block_bytes)
        });
        if !taken {
            return None;
        }
        mapped.store(checker.summary().records, Ordering::Relaxed);
        // If nobody receives it the reader has ended.
        let _ = give_back.send(chunk);
    }
    let sent = outlets.iter_mut().all(Outlet::send);
    sent.then(|| checker.summary())
}

/// Maps the records of a job and sends them to the workers at `addresses`; returns a summary of the input.
pub(crate) fn map(
    job: &Job,
    intake: &Arc<Intake>,
    (addresses, reach): (&[String], &Reach),
    mapped: &AtomicU64,
) -> Result<Summary, WorkError> {
    let (file, _) = summary::open(&job.input)?;
    thread::scope(|scope| {
        let mut outlets = Vec::new();
        let mut senders = Vec::new();
        for (number, address) in addresses.iter().enumerate() {
            let (outlet, blocks) = Outlet::new(job.plan.block_bytes);
            outlets.push(outlet);
            let named = thread::Builder::new().name(format!("dunlin-send-{}", number + 1));
            let sending = named.spawn_scoped(scope, move || {
                if number == job.number {
                    return send_here(intake, number, blocks);
                }
                send_there(reach, (number + 1, address), job.number, blocks)
            });
            senders.push(sending.map_err(WorkError::Thread)?);
        }
        let (to_partition, chunks) = sync_channel(1);
        let (give_back, empty) = channel();
        for _ in 0..CHUNKS {
            let _ = give_back.send(Vec::with_capacity(job.plan.chunk_bytes));
        }
        let file = &file;
        let reading = thread::Builder::new().name("dunlin-read".into());
        let reading = reading.spawn_scoped(scope, move || read(job, file, &to_partition, &empty));
        let reading = reading.map_err(WorkError::Thread)?;
        let summary = partition(job, &mut outlets, (chunks, give_back), mapped);
        // The senders then report the end to the workers.
        drop(outlets);
        let read = reading.join().map_err(|_| WorkError::Panicked)?;
        let sent = senders.into_iter().map(|sender| sender.join());
        let sent: Vec<_> = sent
            .map(|one| one.unwrap_or(Err(WorkError::Panicked)))
            .collect();
        sent.into_iter().collect::<Result<(), _>>()?;
        read.map_err(|source| FileError::of(&job.input, source))?;
        summary.ok_or(WorkError::Panicked)
    })
}
