//! Bounds the length of the log: the live rest of a file that is mostly out of date is appended again, and then the
//! file is removed.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use super::segment::{GROUP_HEAD, SEGMENT_BYTES};
use super::writer::Writer;
use crate::server::state::{Place, State};
use crate::server::{lock, BlockServerError};
use crate::types::BLOCK_BYTES;
use crate::wire::{Head, Kind, Record};

/// Number of files beyond twice the live data before one is cleaned: a small log is left alone.
const SPARE_FILES: u64 = 4;

/// A block of a record that is still live, and the start of its new record in the group.
struct Moved {
    volume: u64,
    block: u64,
    from: Place,
    at: u32,
}

/// The live part of a file.
#[derive(Default)]
struct Kept {
    moved: Vec<Moved>,
    /// Bytes of records of zeros.
    zeros: u64,
}

impl Writer {
    /// Cleans a file, if one is due; returns whether it did.
    pub(super) fn clean_one(&mut self) -> Result<bool, BlockServerError> {
        let state = lock(&self.state);
        let files = state.segments.iter().filter(|(_, file)| !file.damaged);
        // Zeros are moved from file to file, so a log of little else must not be cleaned for ever.
        let (total, live) = files.fold((0, 0), |(total, live), (_, file)| {
            (total + file.length, live + file.live + file.zeros)
        });
        let due = total > 2 * live + SPARE_FILES * SEGMENT_BYTES;
        let current = self.segments.current;
        let others = state
            .segments
            .iter()
            .filter(|(number, file)| **number != current && !file.damaged);
        let least = others.min_by_key(|(_, file)| file.live + file.zeros);
        let least = least.filter(|_| due);
        let Some((number, file)) = least else {
            return Ok(false);
        };
        let (number, path, length) = (*number, file.path.clone(), file.length);
        drop(state);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.leave(number, &path, &error);
                return Ok(true);
            }
        };
        let mut group = vec![0; GROUP_HEAD];
        let (Kept { moved, zeros }, end) = self.collect(number, &bytes, &mut group);
        if end != length {
            self.leave(number, &path, &format_args!("at offset {end}"));
            return Ok(true);
        }
        if group.len() > GROUP_HEAD {
            let (segment, offset) = self.append(&mut group)?;
            let mut state = lock(&self.state);
            if let Some(file) = state.segments.get_mut(&segment) {
                file.zeros += zeros;
            }
            for Moved {
                volume,
                block,
                from,
                at,
            } in moved
            {
                let to = Place::Log {
                    segment,
                    offset: offset + at,
                };
                state.moved(volume, block, from, to);
            }
        }
        lock(&self.state).segments.remove(&number);
        fs::remove_file(&path).map_err(|error| BlockServerError::at(&path, error))?;
        Ok(true)
    }

    /// Leaves a damaged file as it is. What is behind the damage cannot be moved, but writes need not end for that: its
    /// blocks that can be read are read there.
    fn leave(&self, number: u32, path: &Path, why: &dyn Display) {
        tracing::error!(
            file = %path.display(),
            %why,
            "a file of the log is damaged and stays as it is: the next start of this server will refuse it; move the \
             log's folder away then, and the copy is rebuilt from the others"
        );
        if let Some(file) = lock(&self.state).segments.get_mut(&number) {
            file.damaged = true;
        }
    }

    /// Appends the live part of a file to the group, one record for each block or run of zeros. Returns the end of the
    /// file's complete groups.
    fn collect(&self, number: u32, bytes: &[u8], group: &mut Vec<u8>) -> (Kept, u64) {
        let mut kept = Kept::default();
        let end = super::segment::each_record(bytes, |record, at| {
            let state = lock(&self.state);
            match record.head.kind {
                Kind::Data => collect_data(&state, (number, at), record, group, &mut kept.moved),
                Kind::Zeros => {
                    let before = group.len();
                    collect_zeros(&state, record, group);
                    kept.zeros += (group.len() - before) as u64;
                }
            }
        });
        (kept, end)
    }
}

fn collect_data(
    state: &State,
    (segment, at): (u32, u32),
    record: &Record<'_>,
    group: &mut Vec<u8>,
    moved: &mut Vec<Moved>,
) {
    let Some(copy) = state.copies.get(&record.head.volume) else {
        return;
    };
    for nth in 0..record.head.count {
        let block = record.head.first + u64::from(nth);
        let offset = at + record.head.data_at(nth) as u32;
        let from = Place::Log { segment, offset };
        let Some(bytes) = record
            .block(nth)
            .filter(|_| copy.entry(block).place == from)
        else {
            continue;
        };
        let head = Head {
            first: block,
            count: 1,
            ..record.head
        };
        head.encode(bytes, group);
        let at = (group.len() - BLOCK_BYTES) as u32;
        moved.push(Moved {
            volume: head.volume,
            block,
            from,
            at,
        });
    }
}

/// Zeros are live as long as they are the newest version: without them an older record in a file that was not cleaned
/// would count again at the next start.
fn collect_zeros(state: &State, record: &Record<'_>, group: &mut Vec<u8>) {
    let Some(copy) = state.copies.get(&record.head.volume) else {
        return;
    };
    let Head {
        version,
        first,
        count,
        ..
    } = record.head;
    let is_newest = |block: u64| copy.has(block, 1) && copy.entry(block).version == version;
    let mut from = first;
    let end = first.saturating_add(u64::from(count));
    while from < end {
        let run = (from..end).take_while(|block| is_newest(*block)).count() as u32;
        if run > 0 {
            Head {
                first: from,
                count: run,
                ..record.head
            }
            .encode(&[], group);
        }
        from += u64::from(run).max(1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::server::log::{Log, Segments};
    use crate::server::state::Copy;
    use crate::server::Durability;
    use crate::types::{Shape, Version};
    use crate::wire::{Described, RECORD_HEAD};

    /// Number of records in one group.
    const RECORDS: u64 = 200_000;

    /// A server of one volume, in this folder.
    fn writer(folder: &std::path::Path, blocks: u64) -> Writer {
        let shape = Shape {
            id: 1,
            name: "birds".into(),
            blocks,
            chunk_blocks: 1 << 16,
            copies: 1,
            servers: 1,
        };
        let described = Described {
            shape,
            place: 0,
            epoch: 1,
            owner: 1,
            whole: true,
            settled: 0,
        };
        let mut state = State {
            copies: HashMap::from([(1, Copy::new(described))]),
            ..State::default()
        };
        let segments = Segments::open(folder, &mut state).unwrap();
        let state = Arc::new(Mutex::new(state));
        Writer::new(
            &Arc::new(Log::default()),
            &state,
            segments,
            Durability::Process,
        )
    }

    fn trims(writer: &mut Writer, blocks: std::ops::Range<u64>, version: u64) {
        let mut group = vec![0; GROUP_HEAD];
        for first in blocks {
            let head = Head {
                volume: 1,
                version: Version::new(1, version),
                first,
                count: 1,
                kind: Kind::Zeros,
            };
            head.encode(&[], &mut group);
        }
        let (segment, offset) = writer.append(&mut group).unwrap();
        let mut state = lock(&writer.state);
        for at in (GROUP_HEAD..group.len()).step_by(RECORD_HEAD) {
            let record = Record::parse(&group[at..]).unwrap();
            state.apply(&record, Some((segment, offset + at as u32)));
        }
    }

    fn length(writer: &Writer) -> u64 {
        lock(&writer.state)
            .segments
            .values()
            .map(|file| file.length)
            .sum()
    }

    /// A log of trims that are all the newest, above its bound, and then of some of them again.
    #[test]
    fn a_log_of_zeros_is_not_cleaned_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let blocks = (SPARE_FILES * SEGMENT_BYTES + SEGMENT_BYTES / 2) / RECORD_HEAD as u64;
        let mut writer = writer(folder.path(), blocks);
        for (until, version) in [(blocks, 1), (blocks / 4, 2)] {
            for first in (0..until).step_by(RECORDS as usize) {
                trims(&mut writer, first..(first + RECORDS).min(until), version);
                let mut cleaned = 0;
                while writer.clean_one().unwrap() {
                    cleaned += 1;
                    assert!(cleaned < 2 * SPARE_FILES, "it is never tidy");
                }
            }
        }
        let needed = blocks * RECORD_HEAD as u64;
        let most = 2 * needed + (SPARE_FILES + 2) * SEGMENT_BYTES;
        assert!(length(&writer) < most, "{} bytes", length(&writer));
    }
}
