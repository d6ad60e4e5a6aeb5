//! The division of the memory that a worker may use.

use serde::{Deserialize, Serialize};

use crate::record::RECORD_BYTES;

/// Number of segments of the window that receives records: while one is sorted, others are filled.
pub(crate) const SEGMENTS: usize = 4;
/// Number of records in the shortest block, run buffer and chunk: below that an operation costs more than moving its
/// data.
const LEAST_RECORDS: u64 = 40;
/// Maximum length of a block that is sent, and of a chunk that is read or written: longer ones are no faster.
const MOST_BYTES: u64 = 1 << 20;
/// Maximum length of a segment: it is sorted while it is in a processor's last-level cache.
const SEGMENT_BYTES_MAX: u64 = 16 << 20;

/// Sizes derived from the memory of a worker.
///
/// Of 32 parts of it 20 are for sorted runs, 4 for the window, and 4 for blocks while records are sent or for reading
/// runs while they are merged; chunks are one part each, two while reading and three while writing. The rest is for the
/// index of the segment that is sorted, 16 bytes per record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Length of a segment of the window.
    pub(crate) segment_bytes: usize,
    /// Length of a block that is sent: there are three per partition (filled, waiting, being sent).
    pub(crate) block_bytes: usize,
    /// Length of a chunk of the input, of which there are two, of the output, of which there are three, and of a
    /// spilled file, of which there is one.
    pub(crate) chunk_bytes: usize,
    /// Bytes for sorted runs in memory.
    pub(crate) runs_bytes: usize,
    /// Bytes for reading spilled runs, in total.
    pub(crate) merge_bytes: usize,
}

/// There is not enough memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not enough memory: {memory} bytes for {workers} workers; give at least {least} bytes (--memory)"
)]
pub struct TooLittleMemory {
    /// Memory of all workers.
    pub memory: u64,
    /// Number of workers.
    pub workers: usize,
    /// Memory needed.
    pub least: u64,
}

fn whole_records(bytes: u64) -> usize {
    (bytes / RECORD_BYTES as u64) as usize * RECORD_BYTES
}

impl Plan {
    /// Computes the sizes for workers that may use this much memory together, over a device that registers this many
    /// bytes for each of them.
    pub(crate) fn new(
        memory: u64,
        workers: usize,
        registered_max: u64,
    ) -> Result<Self, TooLittleMemory> {
        let count = workers as u64;
        let own = memory / count;
        // Three blocks for each worker are an eighth. With few workers, a segment is still two blocks.
        let blocks = 8 * 3 * count.max(3);
        let least = blocks * LEAST_RECORDS * RECORD_BYTES as u64;
        if own < least {
            return Err(TooLittleMemory {
                memory,
                workers,
                least: least * count,
            });
        }
        // A worker's window is registered once by itself, and by each other worker once for calls and once for
        // transfers. A sixteenth is for rings.
        let window = registered_max / 16 * 15 / (2 * count - 1);
        let segment = (own / 32).min(SEGMENT_BYTES_MAX);
        let segment = segment.min(window / SEGMENTS as u64);
        let chunk = (own / 32).min(MOST_BYTES);
        // One more record, so that it reaches the length from which copies bypass the caches.
        let block = (own / blocks).min(MOST_BYTES + RECORD_BYTES as u64);
        let block = block.min(segment / 2);
        Ok(Self {
            segment_bytes: whole_records(segment),
            block_bytes: whole_records(block),
            chunk_bytes: whole_records(chunk),
            runs_bytes: whole_records(own / 32 * 20),
            merge_bytes: whole_records(own / 8),
        })
    }

    /// Maximum number of runs that can be merged.
    pub(crate) fn runs_max(&self) -> usize {
        self.merge_bytes / RECORD_BYTES / LEAST_RECORDS as usize
    }

    /// Length of the region into which others write records.
    pub(crate) fn region_bytes(&self) -> usize {
        self.segment_bytes * SEGMENTS
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn too_little_is_refused_with_what_is_enough() {
        let error = Plan::new(1 << 20, 8, 1 << 32).unwrap_err();
        assert!(Plan::new(error.least, 8, 1 << 32).is_ok());
        assert!(
            error.to_string().contains(&error.least.to_string()),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn all_of_it_fits_into_the_memory(
            workers in 1usize..=64, more in 0u64..1 << 40, registered_max in 1u64 << 30..1 << 40,
        ) {
            let least = Plan::new(0, workers, registered_max).unwrap_err().least;
            let memory = least + more;
            let plan = Plan::new(memory, workers, registered_max).unwrap();
            let index = plan.segment_bytes / RECORD_BYTES * 16;
            let held = plan.region_bytes() + plan.runs_bytes + index;
            let sending = 3 * plan.chunk_bytes + 3 * workers * plan.block_bytes;
            let merging = 3 * plan.chunk_bytes + plan.merge_bytes;
            let used = (held + sending.max(merging)) as u64;
            prop_assert!(used * workers as u64 <= memory, "{used} {plan:?}");
            let registered = (plan.region_bytes() * (2 * workers - 1)) as u64;
            prop_assert!(registered < registered_max);
            // Segments hold blocks, runs hold segments, and each block and chunk holds records.
            prop_assert!(plan.segment_bytes >= 2 * plan.block_bytes);
            prop_assert!(plan.runs_bytes >= 4 * plan.segment_bytes);
            prop_assert!(plan.block_bytes >= RECORD_BYTES && plan.chunk_bytes >= RECORD_BYTES);
            prop_assert!(plan.runs_max() >= 2);
        }
    }
}
