//! What bounds the log: of a file that is mostly out of date the rest is appended anew, and then the file goes.

use std::fs;

use super::segment::{GROUP_HEAD, SEGMENT_BYTES};
use super::writer::Writer;
use crate::server::state::{Place, State};
use crate::server::{lock, BlockServerError};
use crate::types::BLOCK_BYTES;
use crate::wire::{Head, Kind, Record};

/// Files beyond twice what is live before one is cleaned: a small log is left alone.
const SPARE_FILES: u64 = 4;

/// A block of a record that is needed still, and where its own record begins in the group.
struct Moved {
    volume: u64,
    block: u64,
    from: Place,
    at: u32,
}

impl Writer {
    /// Cleans a file, if one is due; whether it did.
    pub(super) fn clean_one(&mut self) -> Result<bool, BlockServerError> {
        let state = lock(&self.state);
        let files = state.segments.iter();
        let (total, live) = files.fold((0, 0), |(total, live), (_, file)| {
            (total + file.length, live + file.live)
        });
        let due = total > 2 * live + SPARE_FILES * SEGMENT_BYTES;
        let current = self.segments.current;
        let others = state
            .segments
            .iter()
            .filter(|(number, _)| **number != current);
        let least = others.min_by_key(|(_, file)| file.live).filter(|_| due);
        let Some((number, file)) = least else {
            return Ok(false);
        };
        let (number, path, length) = (*number, file.path.clone(), file.length);
        drop(state);
        let bytes = fs::read(&path).map_err(|error| BlockServerError::at(&path, error))?;
        let mut group = vec![0; GROUP_HEAD];
        let (moved, end) = self.collect(number, &bytes, &mut group);
        if end != length {
            let why = "it was whole when it was written";
            return Err(BlockServerError::Damaged {
                file: path,
                offset: end,
                why,
            });
        }
        if group.len() > GROUP_HEAD {
            let (segment, offset) = self.append(&mut group)?;
            let mut state = lock(&self.state);
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

    /// Appends to the group what is needed of a file, one record for each block or run of zeros. Says where the whole
    /// groups of the file end.
    fn collect(&self, number: u32, bytes: &[u8], group: &mut Vec<u8>) -> (Vec<Moved>, u64) {
        let mut moved = Vec::new();
        let end = super::segment::each_record(bytes, |record, at| {
            let state = lock(&self.state);
            match record.head.kind {
                Kind::Data => collect_data(&state, (number, at), record, group, &mut moved),
                Kind::Zeros => collect_zeros(&state, record, group),
            }
        });
        (moved, end)
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

/// Zeros are needed as long as they are the newest: without them an older record of a file that was not cleaned would
/// count again at the next start.
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
