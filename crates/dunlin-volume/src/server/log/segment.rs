//! Files of the log.
//!
//! A file begins with a header, which contains a random number; then come groups, each written at once: a header with
//! that number, and records. A group is written only when the previous one is on the disk, so only the last one of the
//! last file can be torn. An invalid group before it is damage, and the server refuses to start.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::server::state::State;
use crate::server::BlockServerError;
use crate::wire::{checksum, Record};

/// A file that is longer than this is followed by the next.
pub(super) const SEGMENT_BYTES: u64 = 32 << 20;
const MAGIC: &[u8; 16] = b"dunlin-volume 1\n";
const FILE_HEAD: usize = 24;
const MARK: [u8; 4] = *b"DVGr";
/// Mark, length of the records, the file's number, the group's number, checksum.
pub(super) const GROUP_HEAD: usize = 4 + 4 + 8 + 8 + 4;
const UNFINISHED: &str = ".unfinished";

/// One file.
#[derive(Debug)]
pub(in crate::server) struct Segment {
    pub(in crate::server) file: Arc<File>,
    pub(super) path: PathBuf,
    /// Length in bytes.
    pub(super) length: u64,
    /// Bytes of blocks that are live in this file.
    pub(in crate::server) live: u64,
    /// Bytes of records of zeros that were live when a file was cleaned, and were moved here. Some may no longer be.
    pub(in crate::server) zeros: u64,
    /// It was found to be damaged, and cannot be cleaned.
    pub(super) damaged: bool,
}

/// The folder with its files.
#[derive(Debug)]
pub(in crate::server) struct Segments {
    folder: PathBuf,
    /// The number of the file to which groups are appended.
    pub(super) current: u32,
    /// The random number of that file.
    drawn: u64,
    /// The number of the next group.
    next: u64,
}

fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix("log")?.parse().ok()
}

fn path_of(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("log{number:010}"))
}

/// Writes the header of a group, whose records follow it.
pub(super) fn seal_group(group: &mut [u8], drawn: u64, number: u64) {
    let length = (group.len() - GROUP_HEAD) as u32;
    group[..4].copy_from_slice(&MARK);
    group[4..8].copy_from_slice(&length.to_le_bytes());
    group[8..16].copy_from_slice(&drawn.to_le_bytes());
    group[16..24].copy_from_slice(&number.to_le_bytes());
    let sum = checksum(&group[..24]);
    group[24..28].copy_from_slice(&sum.to_le_bytes());
}

/// The length of the records of the group that begins here, and its number.
fn group_at(bytes: &[u8], drawn: u64) -> Option<(usize, u64)> {
    let (head, _) = bytes.split_first_chunk::<GROUP_HEAD>()?;
    let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| head[at + n]));
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let fits = head[..4] == MARK && long(8) == drawn && checksum(&head[..24]) == word(24);
    fits.then(|| (word(4) as usize, long(16)))
}

impl Segments {
    /// Reads all files and applies their records. A torn tail is cut off.
    pub(in crate::server) fn open(
        folder: &Path,
        state: &mut State,
    ) -> Result<Self, BlockServerError> {
        let failed = |error: io::Error| BlockServerError::at(folder, error);
        let mut numbers = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_string_lossy();
            if name.ends_with(UNFINISHED) {
                fs::remove_file(folder.join(&*name)).map_err(failed)?;
            }
            numbers.extend(number_of(&name));
        }
        numbers.sort_unstable();
        let mut next = 1;
        for (nth, number) in numbers.iter().enumerate() {
            let is_last = nth + 1 == numbers.len();
            read_file(folder, *number, is_last, &mut next, state)?;
        }
        let mut segments = Self {
            folder: folder.to_owned(),
            current: numbers.last().copied().unwrap_or(0),
            drawn: 0,
            next,
        };
        let segment = segments.begin_file()?;
        state.segments.insert(segments.current, segment);
        Ok(segments)
    }

    /// Begins a new file, to which groups are appended from now on.
    pub(super) fn begin_file(&mut self) -> Result<Segment, BlockServerError> {
        let number = self.current + 1;
        let path = path_of(&self.folder, number);
        let drawn = crate::random().map_err(|error| BlockServerError::at(&path, error))?;
        let made = || -> io::Result<File> {
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path)?;
            let mut head = [0; FILE_HEAD];
            head[..16].copy_from_slice(MAGIC);
            head[16..].copy_from_slice(&drawn.to_le_bytes());
            file.write_all_at(&head, 0)?;
            file.sync_all()?;
            sync_folder(&self.folder)?;
            Ok(file)
        };
        let file = made().map_err(|error| BlockServerError::at(&path, error))?;
        let segment = Segment {
            file: Arc::new(file),
            path,
            length: FILE_HEAD as u64,
            live: 0,
            zeros: 0,
            damaged: false,
        };
        (self.current, self.drawn) = (number, drawn);
        Ok(segment)
    }

    /// Writes the header of a group in place, for the current file.
    pub(super) fn seal(&mut self, group: &mut [u8]) {
        seal_group(group, self.drawn, self.next);
        self.next += 1;
    }
}

/// Makes the current names in a folder durable.
pub(in crate::server) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Returns the end of the complete groups of a file, after passing each to `take` with its position.
fn groups(
    bytes: &[u8],
    drawn: u64,
    next: &mut u64,
    mut take: impl FnMut(&Record<'_>, u32),
) -> (usize, bool) {
    let mut at = FILE_HEAD;
    'groups: while let Some((length, number)) = group_at(&bytes[at..], drawn) {
        let start = at + GROUP_HEAD;
        let Some(group) = bytes.get(start..start + length) else {
            break;
        };
        let (mut from, mut records) = (0, Vec::new());
        while from < length {
            match Record::parse(&group[from..]) {
                Ok(record) => {
                    records.push((record, (start + from) as u32));
                    from += record.bytes().len();
                }
                Err(_) => break 'groups,
            }
        }
        records.iter().for_each(|(record, at)| take(record, *at));
        at = start + length;
        *next = (*next).max(number + 1);
    }
    let rest = &bytes[at..];
    let follows = (1..rest.len()).any(|from| group_at(&rest[from..], drawn).is_some());
    (at, follows)
}

/// Passes on each record of a file that was read or written before, with its position. Returns the end of the complete
/// groups.
pub(super) fn each_record(bytes: &[u8], take: impl FnMut(&Record<'_>, u32)) -> u64 {
    let Some((head, _)) = bytes.split_first_chunk::<FILE_HEAD>() else {
        return 0;
    };
    let drawn = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|n| head[16 + n]));
    groups(bytes, drawn, &mut 0, take).0 as u64
}

fn read_file(
    folder: &Path,
    number: u32,
    is_last: bool,
    next: &mut u64,
    state: &mut State,
) -> Result<(), BlockServerError> {
    let path = path_of(folder, number);
    let failed = |error: io::Error| BlockServerError::at(&path, error);
    let damaged = |offset: usize, why: &'static str| BlockServerError::Damaged {
        file: path.clone(),
        offset: offset as u64,
        why,
    };
    let bytes = fs::read(&path).map_err(failed)?;
    let head = bytes.split_first_chunk::<FILE_HEAD>();
    let Some((head, _)) = head.filter(|(head, _)| head[..16] == MAGIC[..]) else {
        if is_last && bytes.len() <= FILE_HEAD {
            // It was created, and nothing was written to it.
            return fs::remove_file(&path).map_err(failed);
        }
        return Err(damaged(0, "not a log file of a block server"));
    };
    let drawn = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|n| head[16 + n]));
    let file = File::open(&path).map_err(failed)?;
    let segment = Segment {
        file: Arc::new(file),
        path: path.clone(),
        length: 0,
        live: 0,
        zeros: 0,
        damaged: false,
    };
    state.segments.insert(number, segment);
    let (end, follows) = groups(&bytes, drawn, next, |record, at| {
        state.apply(record, Some((number, at)));
    });
    if end < bytes.len() && (follows || !is_last) {
        return Err(damaged(end, "incomplete group, followed by others"));
    }
    if bytes.len() == FILE_HEAD {
        // Each start creates one, which stays empty if nothing is written.
        state.segments.remove(&number);
        return fs::remove_file(&path).map_err(failed);
    }
    if is_last {
        // Its last group can be read, but may never have reached the disk: the process ended before the sync, or the
        // sync failed, after which another sync of the same pages proves nothing.
        let file = rewrite(&path, &bytes[..end]).map_err(failed)?;
        if let Some(segment) = state.segments.get_mut(&number) {
            segment.file = Arc::new(file);
        }
        if end < bytes.len() {
            let cut = bytes.len() - end;
            tracing::info!(path = %path.display(), cut, "removed an incomplete write at the end of the log");
        }
    }
    if let Some(segment) = state.segments.get_mut(&number) {
        segment.length = end as u64;
    }
    Ok(())
}

fn rewrite(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut unfinished = path.to_owned().into_os_string();
    unfinished.push(UNFINISHED);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    let file = options.open(&unfinished)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    sync_folder(path.parent().unwrap_or(Path::new(".")))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Version;
    use crate::wire::{Head, Kind};
    use proptest::prelude::*;

    const DRAWN: u64 = 77;

    /// A file of groups with these numbers of records, and the end of each group.
    fn file(groups: &[u32]) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(DRAWN.to_le_bytes());
        let mut ends = vec![bytes.len()];
        for (records, number) in groups.iter().zip(1..) {
            let mut group = vec![0; GROUP_HEAD];
            for first in 0..*records {
                let version = Version::new(1, number);
                let first = u64::from(first);
                let head = Head {
                    volume: 1,
                    version,
                    first,
                    count: 1,
                    kind: Kind::Zeros,
                };
                head.encode(&[], &mut group);
            }
            seal_group(&mut group, DRAWN, number);
            bytes.extend(group);
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    fn read(bytes: &[u8]) -> (usize, bool, u32) {
        let mut taken = 0;
        let (end, follows) = groups(bytes, DRAWN, &mut 1, |_, _| taken += 1);
        (end, follows, taken)
    }

    proptest! {
        #[test]
        fn what_is_cut_anywhere_is_a_torn_tail(of in prop::collection::vec(1..4_u32, 1..4)) {
            let (bytes, ends) = file(&of);
            for length in FILE_HEAD..=bytes.len() {
                let whole = ends.iter().filter(|end| **end <= length).count() - 1;
                let taken = of[..whole].iter().sum();
                prop_assert_eq!(read(&bytes[..length]), (ends[whole], false, taken));
            }
        }

        #[test]
        fn a_flipped_bit_is_damage_where_a_group_follows(
            of in prop::collection::vec(1..4_u32, 1..4),
            at in any::<prop::sample::Index>(),
            bit in 0..8_u32,
        ) {
            let (mut bytes, ends) = file(&of);
            let at = FILE_HEAD + at.index(bytes.len() - FILE_HEAD);
            bytes[at] ^= 1_u8 << bit;
            let whole = ends.iter().filter(|end| **end <= at).count() - 1;
            let taken = of[..whole].iter().sum();
            prop_assert_eq!(read(&bytes), (ends[whole], whole + 1 < of.len(), taken));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(tail in prop::collection::vec(any::<u8>(), 0..200)) {
            let (mut bytes, _) = file(&[]);
            bytes.extend(tail);
            prop_assert!(read(&bytes).0 <= bytes.len());
        }
    }

    #[test]
    fn blocks_that_look_like_groups_are_none() {
        // A group of another file, as a client could have written it into a block.
        let (other, _) = file(&[1]);
        let (mut bytes, ends) = file(&[1]);
        let mut foreign = other[FILE_HEAD..].to_vec();
        foreign[8] ^= 1;
        bytes.extend([0; 5]);
        bytes.extend(foreign);
        assert_eq!(read(&bytes), (ends[1], false, 1));
    }
}
