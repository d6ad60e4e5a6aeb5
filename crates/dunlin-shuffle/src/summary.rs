//! Whether an output is its input in order, by valsort's rule: keys do not decrease, the number of records is the same,
//! and so is the sum of their checksums. Adjacent equal keys are counted.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::FileError;
use crate::record::{Key, RECORD_BYTES};

/// Number of bytes read at once.
const BATCH_BYTES: usize = 4096 * RECORD_BYTES;

/// A summary of a sequence of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of records.
    pub records: u64,
    /// The sum of the CRC-32 of each, modulo 2^64, which does not depend on the order.
    pub checksum: u64,
    /// Number of records whose key equals the previous one.
    pub duplicates: u64,
    /// Number of records whose key is less than the previous one.
    pub unordered: u64,
    /// The number of the first such record.
    pub first_unordered: Option<u64>,
    /// The first key.
    pub first: Option<Key>,
    /// The last key.
    pub last: Option<Key>,
}

impl Summary {
    /// Whether no key is less than the previous one.
    pub fn is_sorted(&self) -> bool {
        self.unordered == 0
    }

    /// Whether these are the same records, in any order.
    pub fn has_records_of(&self, other: &Self) -> bool {
        (self.records, self.checksum) == (other.records, other.checksum)
    }

    /// The summary of these records followed by others.
    #[must_use]
    pub fn then(&self, next: &Self) -> Self {
        let (mut duplicates, mut unordered) = (0, 0);
        let mut at_seam = None;
        if let (Some(last), Some(first)) = (self.last, next.first) {
            duplicates = u64::from(first == last);
            unordered = u64::from(first < last);
            at_seam = (first < last).then_some(self.records);
        }
        let later = next.first_unordered.map(|number| self.records + number);
        Self {
            records: self.records + next.records,
            checksum: self.checksum.wrapping_add(next.checksum),
            duplicates: self.duplicates + duplicates + next.duplicates,
            unordered: self.unordered + unordered + next.unordered,
            first_unordered: self.first_unordered.or(at_seam).or(later),
            first: self.first.or(next.first),
            last: next.last.or(self.last),
        }
    }
}

/// Summarizes a sequence of records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checker(Summary);

impl Checker {
    /// Adds a record.
    ///
    /// # Panics
    /// When it is shorter than a key.
    #[inline]
    pub fn take(&mut self, record: &[u8]) {
        let key = Key::of(record);
        let summary = &mut self.0;
        if let Some(last) = summary.last {
            summary.duplicates += u64::from(key == last);
            if key < last {
                summary.unordered += 1;
                summary.first_unordered.get_or_insert(summary.records);
            }
        }
        summary.first.get_or_insert(key);
        summary.last = Some(key);
        self.count(record);
    }

    /// Adds a record whose order does not matter.
    #[inline]
    pub(crate) fn count(&mut self, record: &[u8]) {
        self.0.records += 1;
        let checksum = crc32fast::hash(record);
        self.0.checksum = self.0.checksum.wrapping_add(checksum.into());
    }

    /// Adds whole records.
    pub fn take_all(&mut self, records: &[u8]) {
        for record in records.chunks_exact(RECORD_BYTES) {
            self.take(record);
        }
    }

    /// Returns the summary.
    pub fn summary(&self) -> Summary {
        self.0
    }
}

/// Returns the number of records in a file of this many bytes.
pub(crate) fn records_of(path: &Path, bytes: u64) -> Result<u64, FileError> {
    if bytes % RECORD_BYTES as u64 != 0 {
        return Err(FileError::Shape {
            path: path.to_owned(),
            bytes,
        });
    }
    Ok(bytes / RECORD_BYTES as u64)
}

/// Opens a file of records and returns their number.
pub(crate) fn open(path: &Path) -> Result<(File, u64), FileError> {
    let of = |source| FileError::of(path, source);
    let file = File::open(path).map_err(of)?;
    let metadata = file.metadata().map_err(of)?;
    if !metadata.is_file() {
        let words = "not a regular file: a sort needs random access to its input";
        return Err(of(io::Error::new(io::ErrorKind::InvalidInput, words)));
    }
    let records = records_of(path, metadata.len())?;
    Ok((file, records))
}

/// Summarizes a file of records. `report` is called from time to time with the number so far; when it returns `false`,
/// reading stops.
///
/// # Errors
/// When it cannot be read, or is not a whole number of records.
pub fn check_file(path: &Path, mut report: impl FnMut(u64) -> bool) -> Result<Summary, FileError> {
    let (mut file, records) = open(path)?;
    let mut checker = Checker::default();
    let mut batch = vec![0; BATCH_BYTES];
    let mut left = records;
    while left > 0 && report(records - left) {
        let count = left.min((BATCH_BYTES / RECORD_BYTES) as u64);
        let part = &mut batch[..count as usize * RECORD_BYTES];
        file.read_exact(part)
            .map_err(|source| FileError::of(path, source))?;
        checker.take_all(part);
        left -= count;
    }
    Ok(checker.summary())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records(keys: &[u8]) -> Vec<u8> {
        let record = |key: &u8| {
            let mut record = [0; RECORD_BYTES];
            record[0] = *key;
            record
        };
        keys.iter().flat_map(record).collect()
    }

    fn summary(keys: &[u8]) -> Summary {
        let mut checker = Checker::default();
        checker.take_all(&records(keys));
        checker.summary()
    }

    #[test]
    fn order_and_duplicates_are_counted() {
        let found = summary(&[1, 1, 2, 2, 2, 3, 1, 5, 4]);
        assert_eq!((found.duplicates, found.unordered), (3, 2));
        assert_eq!(found.first_unordered, Some(6));
        assert!(!found.is_sorted());
        assert!(summary(&[1, 2, 2]).is_sorted() && summary(&[]).is_sorted());
        assert!(summary(&[1, 2, 3]).has_records_of(&summary(&[3, 1, 2])));
        assert!(!summary(&[1, 2, 3]).has_records_of(&summary(&[3, 1, 1])));
        assert!(!summary(&[1, 2]).has_records_of(&summary(&[1, 2, 2])));
    }

    proptest! {
        #[test]
        fn parts_are_the_whole(keys: Vec<u8>, cut: prop::sample::Index) {
            let cut = cut.index(keys.len() + 1);
            let parts = summary(&keys[..cut]).then(&summary(&keys[cut..]));
            prop_assert_eq!(parts, summary(&keys));
        }
    }
}
