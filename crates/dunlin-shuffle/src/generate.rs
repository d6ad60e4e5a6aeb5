//! Generates input for sorting from a seed: records in gensort's binary layout, each a function of the seed and its
//! number, so that any part of a file can be generated separately.

use std::io::{self, Write};
use std::ops::Range;

use crate::record::{KEY_BYTES, RECORD_BYTES};
use crate::summary::Checker;
use crate::Summary;

/// Generates records. The keys differ from gensort's, which come from a generator whose seed cannot be chosen.
#[derive(Clone, Copy, Debug)]
pub struct Generator {
    seed: u64,
    /// Number of different keys, if limited.
    keys: Option<u64>,
}

/// Number of records generated before they are written.
const BATCH: u64 = 4096;

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// The mixing step of SplitMix64.
fn mix(mut number: u64) -> u64 {
    number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

impl Generator {
    /// Generates uniform keys.
    pub fn new(seed: u64) -> Self {
        Self { seed, keys: None }
    }

    /// Limits the number of different keys, to at least one; all are equally frequent.
    #[must_use]
    pub fn distinct_keys(self, keys: u64) -> Self {
        let keys = Some(keys.max(1));
        Self { keys, ..self }
    }

    /// Returns the record with this number.
    pub fn record(&self, number: u64) -> [u8; RECORD_BYTES] {
        let drawn = mix(mix(self.seed) ^ number);
        let source = self.keys.map_or(drawn, |keys| mix(drawn % keys));
        let mut record = [0; RECORD_BYTES];
        record[..8].copy_from_slice(&source.to_be_bytes());
        record[8..KEY_BYTES].copy_from_slice(&mix(source).to_be_bytes()[..2]);
        record[10..12].copy_from_slice(&[0x00, 0x11]);
        record[12..28].fill(b'0');
        for (index, digit) in record[28..44].iter_mut().enumerate() {
            *digit = DIGITS[(number >> (4 * (15 - index))) as usize & 15];
        }
        record[44..48].copy_from_slice(&[0x88, 0x99, 0xaa, 0xbb]);
        for (index, four) in record[48..96].chunks_exact_mut(4).enumerate() {
            four.fill(DIGITS[(drawn >> (4 * index)) as usize & 15]);
        }
        record[96..].copy_from_slice(&[0xcc, 0xdd, 0xee, 0xff]);
        record
    }

    /// Writes records, and returns their summary. `report` is called from time to time with the number so far; when it
    /// returns `false`, writing stops.
    ///
    /// # Errors
    /// The system's error.
    pub fn write(
        &self,
        numbers: Range<u64>,
        to: &mut impl Write,
        mut report: impl FnMut(u64) -> bool,
    ) -> io::Result<Summary> {
        let mut checker = Checker::default();
        let mut batch = Vec::with_capacity(BATCH as usize * RECORD_BYTES);
        let mut next = numbers.start;
        while next < numbers.end && report(next - numbers.start) {
            let end = numbers.end.min(next + BATCH);
            batch.clear();
            (next..end).for_each(|number| batch.extend_from_slice(&self.record(number)));
            checker.take_all(&batch);
            to.write_all(&batch)?;
            next = end;
        }
        Ok(checker.summary())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_layout_of_gensort() {
        let record = Generator::new(7).record(0xbeef);
        assert_eq!(record[10..12], [0x00, 0x11]);
        assert_eq!(&record[12..44], b"0000000000000000000000000000BEEF");
        assert_eq!(record[44..48], [0x88, 0x99, 0xaa, 0xbb]);
        assert_eq!(record[96..], [0xcc, 0xdd, 0xee, 0xff]);
        assert!(record[48..96].iter().all(u8::is_ascii_hexdigit));
    }

    #[test]
    fn a_seed_says_all() {
        let whole = |seed, numbers: [Range<u64>; 2]| {
            let mut bytes = Vec::new();
            for numbers in numbers {
                let generator = Generator::new(seed);
                generator.write(numbers, &mut bytes, |_| true).unwrap();
            }
            bytes
        };
        assert_eq!(whole(1, [0..10_000, 0..0]), whole(1, [0..77, 77..10_000]));
        assert_ne!(whole(1, [0..9, 0..0]), whole(2, [0..9, 0..0]));
    }

    #[test]
    fn keys_are_as_many_as_asked_for() {
        let generator = Generator::new(3).distinct_keys(5);
        let records = (0..1000).map(|number| generator.record(number));
        let mut keys: Vec<_> = records.map(|record| record[..KEY_BYTES].to_vec()).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 5);
    }
}
