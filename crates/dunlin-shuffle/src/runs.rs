//! Sorted runs: records in order, in memory of this process or in a file.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;

use dunlin::Memory;

use crate::record::{Entry, Key, RECORD_BYTES};

/// Records whose keys are read together: they stay in a core's cache.
const LOOK_BYTES: usize = 640 * RECORD_BYTES;
/// Number of records prefetched together.
pub(crate) const GROUP: usize = 64;

/// Returns the records of a segment, which begins at `start`, in order. They are copied: afterwards the segment is
/// free, and no peer can change them.
pub(crate) fn sort(memory: &Memory, start: usize, bytes: usize) -> Vec<u8> {
    let mut index = Vec::with_capacity(bytes / RECORD_BYTES);
    let mut look = vec![0; LOOK_BYTES.min(bytes)];
    let mut at = 0;
    while at < bytes {
        let part = &mut look[..LOOK_BYTES.min(bytes - at)];
        memory.read(start + at, part);
        for record in part.chunks_exact(RECORD_BYTES) {
            index.push(Entry::new(Key::of(record), index.len() as u32));
        }
        at += part.len();
    }
    index.sort_unstable();
    let mut sorted = vec![0; bytes];
    let groups = sorted.chunks_mut(GROUP * RECORD_BYTES);
    for (entries, group) in index.chunks(GROUP).zip(groups) {
        let places = entries.iter();
        let places = places.map(|entry| start + entry.place() * RECORD_BYTES);
        touch(memory, places.clone());
        for (place, record) in places.zip(group.chunks_exact_mut(RECORD_BYTES)) {
            memory.read(place, record);
        }
    }
    sorted
}

/// Loads the first and the last byte of the records at these places, which are scattered: the loads do not depend on
/// each other, so a core waits for several at a time. When the records are then copied, they are in the cache.
#[inline]
fn touch(memory: &Memory, places: impl Iterator<Item = usize>) {
    let mut seen = 0;
    for place in places {
        for at in [place, place + RECORD_BYTES - 1] {
            let mut byte = [0];
            memory.read(at, &mut byte);
            seen ^= byte[0];
        }
    }
    // Otherwise the loads would be optimized away.
    black_box(seen);
}

/// Records in a file, in order.
#[derive(Debug)]
pub(crate) struct FileRun {
    pub(crate) file: File,
    pub(crate) bytes: u64,
}

/// The runs of a partition.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    pub(crate) in_memory: Vec<Vec<u8>>,
    pub(crate) in_files: Vec<FileRun>,
}

/// A run that is read in order.
#[derive(Debug)]
pub(crate) enum Reader<'r> {
    Memory {
        records: &'r [u8],
    },
    File {
        run: &'r FileRun,
        buffer: Vec<u8>,
        /// Offset of the first byte in the buffer that has not been taken.
        at: usize,
        /// Offset in the file of the first byte after the buffer.
        next: u64,
    },
}

impl<'r> Reader<'r> {
    pub(crate) fn in_memory(records: &'r [u8]) -> Self {
        Self::Memory { records }
    }

    /// `buffer_bytes` must be whole records, at least one.
    pub(crate) fn in_file(run: &'r FileRun, buffer_bytes: usize) -> io::Result<Self> {
        let mut reader = Self::File {
            run,
            buffer: vec![0; buffer_bytes],
            at: buffer_bytes,
            next: 0,
        };
        reader.refill()?;
        Ok(reader)
    }

    /// The key of the next record.
    #[inline]
    pub(crate) fn key(&self) -> Option<Key> {
        let left = match self {
            Self::Memory { records } => records,
            Self::File { buffer, at, .. } => &buffer[*at..],
        };
        (!left.is_empty()).then(|| Key::of(left))
    }

    /// Takes the next record, of which there must be one.
    #[inline]
    pub(crate) fn take(&mut self, record: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Memory { records } => {
                let (next, left) = records.split_at(RECORD_BYTES);
                record.copy_from_slice(next);
                *records = left;
            }
            Self::File { buffer, at, .. } => {
                record.copy_from_slice(&buffer[*at..*at + RECORD_BYTES]);
                *at += RECORD_BYTES;
                if *at == buffer.len() {
                    return self.refill();
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn refill(&mut self) -> io::Result<()> {
        let Self::File {
            run,
            buffer,
            at,
            next,
        } = self
        else {
            return Ok(());
        };
        let left = run.bytes - *next;
        buffer.truncate(left.min(buffer.len() as u64) as usize);
        run.file.read_exact_at(buffer, *next)?;
        *next += buffer.len() as u64;
        *at = 0;
        Ok(())
    }
}
