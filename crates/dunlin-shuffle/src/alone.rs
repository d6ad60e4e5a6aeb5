//! The same sort, and a mapper's computation, in one thread of one process, in memory and without a network: baselines
//! for the distributed sort.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::FileError;
use crate::map::distribute;
use crate::record::{Entry, Key, RECORD_BYTES};
use crate::runs::GROUP;
use crate::splitters::{sample, Splitters};
use crate::summary::{self, Checker};
use crate::Summary;

/// Number of bytes read and written at once.
const CHUNK_BYTES: usize = 10_000 * RECORD_BYTES;

/// Reads `input` into memory, sorts its keys by `sort_unstable`, and writes the records to `output`; returns the time
/// that this took. It does not verify the output.
///
/// # Errors
/// When a file cannot be used.
pub fn sort_alone(input: &Path, output: &Path) -> Result<Duration, FileError> {
    let began = Instant::now();
    let (file, records) = summary::open(input)?;
    let read_of = |source| FileError::of(input, source);
    if u32::try_from(records).is_err() {
        let words = "too many records for one process: the limit is 2^32";
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

/// Reads this many records, counts them, and copies each into the block of its partition.
fn distributed(
    mut file: &File,
    records: u64,
    (splitters, partitions): (&Splitters, usize),
) -> io::Result<(Vec<Vec<u8>>, Summary)> {
    let mut left = records as usize * RECORD_BYTES;
    // With uniform keys, partitions are at most about 10 % larger than the mean.
    let block = || Vec::with_capacity(left / partitions / 8 * 9);
    let mut blocks: Vec<Vec<u8>> = std::iter::repeat_with(block).take(partitions).collect();
    let mut checker = Checker::default();
    let mut chunk = vec![0; CHUNK_BYTES];
    while left > 0 {
        chunk.truncate(left);
        file.read_exact(&mut chunk)?;
        distribute(&chunk, splitters, &mut checker, |partition, record| {
            blocks[partition].extend_from_slice(record);
            true
        });
        left -= chunk.len();
    }
    Ok((blocks, checker.summary()))
}

/// Maps `input` like a worker, but keeps the records: reads them, counts them, and copies each into the block of its
/// partition, of which there are `partitions`, until these contain everything that a mapper would send. Returns a
/// summary of the input, and the time that this took; the keys that separate partitions are sampled before.
///
/// # Errors
/// When the file cannot be used.
pub fn map_alone(input: &Path, partitions: usize) -> Result<(Summary, Duration), FileError> {
    let (file, records) = summary::open(input)?;
    let of = |source| FileError::of(input, source);
    let partitions = partitions.max(1);
    let drawn = sample(&file, records, partitions).map_err(of)?;
    let splitters = Splitters::new(drawn, partitions);
    let began = Instant::now();
    let (blocks, summary) = distributed(&file, records, (&splitters, partitions)).map_err(of)?;
    let took = began.elapsed();
    black_box(blocks);
    Ok((summary, took))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Generator;

    #[test]
    fn a_mapper_brings_each_record_to_its_partition() {
        const RECORDS: u64 = 25_000;
        let file = tempfile::NamedTempFile::new().unwrap();
        let made = Generator::new(7).write(0..RECORDS, &mut file.as_file(), |_| true);
        let (opened, records) = summary::open(file.path()).unwrap();
        let splitters = Splitters::new(sample(&opened, records, 30).unwrap(), 30);
        let (blocks, summary) = distributed(&opened, records, (&splitters, 30)).unwrap();
        assert!(summary.has_records_of(&made.unwrap()));
        assert_eq!(blocks.concat().len(), RECORDS as usize * RECORD_BYTES);
        for (partition, block) in blocks.iter().enumerate() {
            assert!(!block.is_empty(), "partition {partition}");
            let mut keys = block.chunks_exact(RECORD_BYTES).map(Key::of);
            assert!(keys.all(|key| splitters.partition(key) == partition));
        }
        // This is what is measured.
        let (measured, _) = map_alone(file.path(), 30).unwrap();
        assert_eq!(measured, summary);
    }
}
