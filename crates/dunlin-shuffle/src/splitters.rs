//! Where one partition ends and the next begins, by a sample of the keys.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use crate::record::{Key, KEY_BYTES, RECORD_BYTES};

/// Keys that are looked at for each partition: with 1000 of them the largest of a few partitions of uniform keys is
/// some 10 % larger than the mean at most.
const SAMPLES: u64 = 1000;

/// The first key of each partition but the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Splitters(Vec<Key>);

impl Splitters {
    /// Cuts a sample into equal parts.
    pub(crate) fn new(mut sample: Vec<Key>, partitions: usize) -> Self {
        sample.sort_unstable();
        let at = |part: usize| sample.get(part * sample.len() / partitions).copied();
        Self((1..partitions).filter_map(at).collect())
    }

    /// The partition of a key.
    #[inline]
    pub(crate) fn partition(&self, key: Key) -> usize {
        self.0.partition_point(|first| *first <= key)
    }
}

/// Keys at places that are spread over the whole file, each anywhere in its stretch, so that what recurs in the input
/// does not recur in the sample.
pub(crate) fn sample(file: &File, records: u64, partitions: usize) -> io::Result<Vec<Key>> {
    let count = records.min(SAMPLES * partitions as u64);
    let mut keys = Vec::with_capacity(count as usize);
    let mut bytes = [0; KEY_BYTES];
    for number in 0..count {
        let place =
            |number: u64| (u128::from(number) * u128::from(records) / u128::from(count)) as u64;
        let (start, end) = (place(number), place(number + 1));
        // Knuth's multiplicative hash: any fixed scatter will do.
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
