//! Merging the runs of a partition into the output. One thread merges while another verifies and writes what was merged
//! before.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};

use crate::plan::Plan;
use crate::record::{Key, RECORD_BYTES};
use crate::runs::{FileRun, Reader, Runs};
use crate::summary::Checker;
use crate::Summary;

/// Number of chunks of the output: one is merged, one waits, one is written.
const CHUNKS: usize = 3;

/// Runs that are merged, the one with the smallest record first.
struct Merge<'r> {
    readers: Vec<Reader<'r>>,
    order: BinaryHeap<Reverse<(Key, usize)>>,
}

impl<'r> Merge<'r> {
    fn new(runs: &'r Runs, plan: &Plan) -> io::Result<Self> {
        let files = runs.in_files.len().max(1);
        let records = plan.merge_bytes / files / RECORD_BYTES;
        let buffer_bytes = records.max(1) * RECORD_BYTES;
        let buffer_bytes = buffer_bytes.min(plan.chunk_bytes);
        let in_memory = runs.in_memory.iter();
        let in_memory = in_memory.map(|run| Ok(Reader::in_memory(run)));
        let in_files = runs.in_files.iter();
        let in_files = in_files.map(|run| Reader::in_file(run, buffer_bytes));
        let readers: Vec<_> = in_memory.chain(in_files).collect::<io::Result<_>>()?;
        let keys = readers.iter().enumerate();
        let order = keys.filter_map(|(number, reader)| Some(Reverse((reader.key()?, number))));
        Ok(Self {
            order: order.collect(),
            readers,
        })
    }

    /// Fills a chunk as far as there are records, and returns the number of bytes.
    fn fill(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        for record in chunk.chunks_exact_mut(RECORD_BYTES) {
            let Some(mut least) = self.order.peek_mut() else {
                break;
            };
            let Reverse((_, number)) = *least;
            let reader = &mut self.readers[number];
            reader.take(record)?;
            match reader.key() {
                Some(key) => *least = Reverse((key, number)),
                None => drop(PeekMut::pop(least)),
            }
            filled += RECORD_BYTES;
        }
        Ok(filled)
    }
}

/// Merges the runs in memory into one in an unnamed file, which is removed when it is dropped.
pub(crate) fn spill(in_memory: Vec<Vec<u8>>, folder: &Path, plan: &Plan) -> io::Result<FileRun> {
    let mut file = tempfile::tempfile_in(folder)?;
    let runs = Runs {
        in_memory,
        in_files: Vec::new(),
    };
    let mut merge = Merge::new(&runs, plan)?;
    let mut chunk = vec![0; plan.chunk_bytes];
    let mut bytes = 0;
    loop {
        let filled = merge.fill(&mut chunk)?;
        if filled == 0 {
            break Ok(FileRun { file, bytes });
        }
        file.write_all(&chunk[..filled])?;
        bytes += filled as u64;
    }
}

/// Merges `runs` into `output` from byte `offset` on, and returns a summary of what was written.
pub(crate) fn write(
    runs: &Runs,
    plan: &Plan,
    (output, offset): (&File, u64),
    written: &AtomicU64,
) -> io::Result<Summary> {
    let mut merge = Merge::new(runs, plan)?;
    let (to_writer, chunks) = sync_channel::<(Vec<u8>, usize)>(1);
    let (give_back, empty) = channel::<Vec<u8>>();
    std::thread::scope(|scope| {
        let writing = scope.spawn(move || {
            let mut checker = Checker::default();
            let mut at = offset;
            for (chunk, filled) in chunks {
                let records = &chunk[..filled];
                output.write_all_at(records, at)?;
                checker.take_all(records);
                at += filled as u64;
                written.store(checker.summary().records, Ordering::Relaxed);
                // If nobody receives it the merging thread has ended.
                let _ = give_back.send(chunk);
            }
            Ok(checker.summary())
        });
        let mut fresh = CHUNKS;
        let merged = loop {
            let chunk = if fresh > 0 {
                fresh -= 1;
                Some(vec![0; plan.chunk_bytes])
            } else {
                empty.recv().ok()
            };
            // Without a chunk the writing thread has ended, and reports why.
            let Some(mut chunk) = chunk else { break Ok(()) };
            match merge.fill(&mut chunk) {
                Ok(0) => break Ok(()),
                Ok(filled) if to_writer.send((chunk, filled)).is_err() => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        drop(to_writer);
        let written = writing
            .join()
            .map_err(|_| io::Error::other("the writing thread panicked"));
        merged.and(written?)
    })
}
