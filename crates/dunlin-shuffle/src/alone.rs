//! The same sort by one thread of one process, in memory and without a network: what a sort by several is compared
//! with.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::FileError;
use crate::record::{Entry, Key, RECORD_BYTES};
use crate::runs::GROUP;
use crate::summary;

/// Bytes that are read and written at once.
const CHUNK_BYTES: usize = 10_000 * RECORD_BYTES;

/// Reads `input` into memory, sorts its keys by `sort_unstable`, and writes the records to `output`; says how long that
/// took. It does not look at its own work.
///
/// # Errors
/// When a file cannot be used.
pub fn sort_alone(input: &Path, output: &Path) -> Result<Duration, FileError> {
    let began = Instant::now();
    let (file, records) = summary::open(input)?;
    let read_of = |source| FileError::of(input, source);
    if u32::try_from(records).is_err() {
        let words = "more records than one process sorts here: 2^32";
        return Err(read_of(io::Error::other(words)));
    }
    let mut all = vec![0; records as usize * RECORD_BYTES];
    let mut file = BufReader::with_capacity(CHUNK_BYTES, file);
    file.read_exact(&mut all).map_err(read_of)?;
    let numbered = all.chunks_exact(RECORD_BYTES).zip(0..);
    let mut index: Vec<_> = numbered
        .map(|(one, place)| Entry::new(Key::of(one), place))
        .collect();
    index.sort_unstable();
    let write_of = |source| FileError::of(output, source);
    let mut file = File::create(output).map_err(write_of)?;
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    for part in index.chunks(CHUNK_BYTES / RECORD_BYTES) {
        chunk.clear();
        for group in part.chunks(GROUP) {
            let record = |entry: &Entry| &all[entry.place() * RECORD_BYTES..][..RECORD_BYTES];
            // As the workers do it.
            let ends = group
                .iter()
                .map(|entry| record(entry)[0] ^ record(entry)[RECORD_BYTES - 1]);
            black_box(ends.fold(0, |seen, byte| seen ^ byte));
            for entry in group {
                chunk.extend_from_slice(record(entry));
            }
        }
        file.write_all(&chunk).map_err(write_of)?;
    }
    Ok(began.elapsed())
}
