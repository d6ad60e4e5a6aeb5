//! The boundaries between partitions, from a sample of the keys.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use crate::record::{Key, KEY_BYTES, RECORD_BYTES};

/// Sampled keys per partition: with 1000 of them the largest of a few partitions of uniform keys is at most about 10 %
/// larger than the mean.
const SAMPLES: u64 = 1000;

/// The first key of each partition except the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Splitters(Vec<Key>);

impl Splitters {
    /// Divides a sample into equal parts.
    pub(crate) fn new(mut sample: Vec<Key>, partitions: usize) -> Self {
        sample.sort_unstable();
        let at = |part: usize| sample.get(part * sample.len() / partitions).copied();
        Self((1..partitions).filter_map(at).collect())
    }

    /// Returns the partition of a key.
    #[inline]
    pub(crate) fn partition(&self, key: Key) -> usize {
        self.0.partition_point(|first| *first <= key)
    }
}

/// Samples keys at positions spread over the whole file, each at an arbitrary position in its section, so that a
/// pattern that repeats in the input does not repeat in the sample.
pub(crate) fn sample(file: &File, records: u64, partitions: usize) -> io::Result<Vec<Key>> {
    let count = records.min(SAMPLES * partitions as u64);
    let mut keys = Vec::with_capacity(count as usize);
    let mut bytes = [0; KEY_BYTES];
    for number in 0..count {
        let place =
            |number: u64| (u128::from(number) * u128::from(records) / u128::from(count)) as u64;
        let (start, end) = (place(number), place(number + 1));
        // Knuth's multiplicative hash: any fixed scatter would do.
        let within = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let record = start + within % (end - start).max(1);
        file.read_exact_at(&mut bytes, record * RECORD_BYTES as u64)?;
        keys.push(Key::of(&bytes));
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(number: u64) -> Key {
        let mut bytes = [0; KEY_BYTES];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        Key::of(&bytes)
    }

    #[test]
    fn parts_are_about_equal() {
        let splitters = Splitters::new((0..1000).map(key).collect(), 4);
        let mut counts = [0; 4];
        (0..1000).for_each(|number| counts[splitters.partition(key(number))] += 1);
        assert_eq!(counts, [250; 4]);
    }

    proptest! {
        #[test]
        fn partitions_are_in_order(
            sample in prop::collection::vec(0u64..20, 0..50), partitions in 1usize..9, keys: Vec<u8>,
        ) {
            let splitters = Splitters::new(sample.into_iter().map(key).collect(), partitions);
            let mut keys: Vec<_> = keys.into_iter().map(|number| key(number.into())).collect();
            keys.sort_unstable();
            let found: Vec<_> = keys.iter().map(|key| splitters.partition(*key)).collect();
            prop_assert!(found.is_sorted() && found.iter().all(|part| *part < partitions));
        }
    }
}
