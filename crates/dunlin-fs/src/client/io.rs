//! The content of files: READs and WRITEs that bypass the data servers' processors, and the commits that make them part
//! of the file.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::MutexGuard;
use std::time::Instant;

use super::file_state::{pieces, FileState, Piece, Right};
use super::{FileSystem, FsError};
use crate::types::{Attr, Errno, Extent, Ino, SessionId, EXTENT_BYTES, FILE_BYTES};
use crate::wire::{Answer, Ask, Change};

/// Number of extents reserved at once: 4 MiB.
const RESERVED_AT_ONCE: u32 = 128;
/// Bytes of one READ or WRITE.
const STEP_BYTES: usize = 1 << 20;
/// Map entries in one commit.
const COMMITTED_AT_ONCE: usize = 16_384;
/// Extents synced by one call.
const FLUSHED_AT_ONCE: usize = 16_384;

/// What a commit must bring into the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sync {
    /// Size, map and time.
    All,
    /// What is needed to find the bytes again: size and map.
    Data,
}

/// A range of one region, and the position of its bytes in the caller's buffer.
#[derive(Clone, Copy, Debug)]
struct Run {
    extent: Extent,
    start: u64,
    at: usize,
    length: usize,
}

/// Merges pieces that are adjacent in both region and file into one operation.
fn runs(parts: impl Iterator<Item = (Option<Extent>, Piece)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut at = 0;
    for (extent, piece) in parts {
        if let Some(extent) = extent {
            let follows = |run: &&mut Run| {
                run.extent.server == extent.server
                    && run.extent.offset() + run.start + run.length as u64
                        == extent.offset() + piece.start
                    && run.at + run.length == at
                    && run.length + piece.length <= STEP_BYTES
            };
            match runs.last_mut().filter(follows) {
                Some(run) => run.length += piece.length,
                None => runs.push(Run {
                    extent,
                    start: piece.start,
                    at,
                    length: piece.length,
                }),
            }
        }
        at += piece.length;
    }
    runs
}

/// The extents of a range in one region, starting at a byte of the first.
fn neighbours(first: Extent, start: u64, length: usize) -> impl Iterator<Item = Extent> {
    let count = (start + length as u64).div_ceil(EXTENT_BYTES) as u32;
    let server = first.server;
    (first.index..first.index + count).map(move |index| Extent { server, index })
}

impl FileSystem {
    /// Runs a function on the state of a file, with a lease.
    pub(super) fn with_right<T>(
        &self,
        ino: Ino,
        right: Right,
        act: impl Fn(&mut MutexGuard<'_, FileState>) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let began = Instant::now();
        loop {
            let file = self.file(ino);
            let mut state = file.lock();
            if state.gone {
                continue;
            }
            self.acquire(ino, &mut state, right)?;
            state.used = Instant::now();
            match act(&mut state) {
                // The session ended meanwhile. In the next one the written data is lost, and the sync will report it.
                Err(FsError::Refused(refused))
                    if refused.0 == Errno::STALE && began.elapsed() < self.patience() =>
                {
                    drop(state);
                    self.wait_for_session()?;
                }
                other => return other,
            }
        }
    }

    /// Makes sure that the session has the lease, and knows the map.
    fn acquire(&self, ino: Ino, state: &mut FileState, right: Right) -> Result<(), FsError> {
        let reign = self.reign();
        if state.right == Right::Read && state.reign != reign
            || state.right == Right::Write && state.reign.session != reign.session
        {
            state.forget();
        }
        if state.right >= right {
            return Ok(());
        }
        // A session that waits for another right has none meanwhile, and without an answer the server may have revoked
        // it, too.
        state.forget();
        state.leased = true;
        let write = right == Right::Write;
        let attr = loop {
            match self.meta().change_attr(Change::Lease { ino, write }) {
                Err(FsError::Refused(refused)) if refused.0 == Errno::STALE => {
                    self.wait_for_session()?;
                }
                other => break other?,
            }
        };
        if self.reign() != reign {
            // It is unknown to which session the lease belongs.
            return self.acquire(ino, state, right);
        }
        // The lease is valid only with the whole map: missing parts of it would be holes.
        let map = self.map_of(&attr)?;
        state.take(right, reign, &attr, map);
        Ok(())
    }

    /// Returns all extents of a file.
    fn map_of(&self, attr: &Attr) -> Result<BTreeMap<u32, Extent>, FsError> {
        let mut map = BTreeMap::new();
        let (ino, mut from) = (attr.ino, 0);
        let mut more = attr.extents > 0;
        while more {
            let Answer::Map { map: part, end } = self.meta().ask(&Ask::Map { ino, from })? else {
                return Err(Errno::IO.into());
            };
            from = part.last().map_or(u32::MAX, |(index, _)| index + 1);
            map.extend(part);
            more = !end && from != u32::MAX;
        }
        Ok(map)
    }

    /// Reads up to `length` bytes from `offset`: fewer at the end of the file.
    ///
    /// # Errors
    /// See [`FsError`].
    pub fn read(&self, ino: Ino, offset: u64, length: usize) -> Result<Vec<u8>, FsError> {
        self.with_right(ino, Right::Read, |state| {
            let left = state.size.saturating_sub(offset);
            let length = length.min(usize::try_from(left).unwrap_or(usize::MAX));
            let mut bytes = vec![0; length];
            let found = pieces(offset, length).map(|piece| (state.extent(piece.index), piece));
            for run in runs(found) {
                let target = &mut bytes[run.at..run.at + run.length];
                self.read_run(run, target)?;
            }
            // Only what was read while the lease was valid counts.
            self.wait_for_session()?;
            let reign = self.reign();
            let writes = state.right == Right::Write && state.reign.session == reign.session;
            match writes || state.reign == reign {
                true => Ok(bytes),
                false => Err(Errno::STALE.into()),
            }
        })
    }

    fn read_run(&self, run: Run, target: &mut [u8]) -> Result<(), FsError> {
        let offset = run.extent.offset() + run.start;
        let reading = |link: &super::link::Link| link.region.read(offset, run.length);
        let (reply, _) = self
            .links()
            .operate(self.meta(), run.extent.server, reading)?;
        target.copy_from_slice(&reply);
        Ok(())
    }

    /// Writes; the file is extended if necessary. The data belongs to the file after a sync.
    ///
    /// # Errors
    /// See [`FsError`].
    pub fn write(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        let end = offset.checked_add(bytes.len() as u64);
        let end = end.filter(|end| *end <= FILE_BYTES).ok_or(Errno::FBIG)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.with_right(ino, Right::Write, |state| {
            self.clear_behind_end(state, offset)?;
            self.put(state, offset, bytes)?;
            let size = state.size.max(end);
            state.resize(size);
            state.touch(super::wall_now());
            Ok(())
        })
    }

    /// The bytes behind the end of a file in its last extent do not belong to it: they are zeroed when the file is
    /// extended to `until` or beyond.
    fn clear_behind_end(&self, state: &mut FileState, until: u64) -> Result<(), FsError> {
        let end = state.size.next_multiple_of(EXTENT_BYTES).min(until);
        let index = (state.size / EXTENT_BYTES) as u32;
        if end > state.size && state.extent(index).is_some() {
            let zeros = vec![0; (end - state.size) as usize];
            self.put(state, state.size, &zeros)?;
        }
        Ok(())
    }

    /// Writes bytes into the file's extents, in place or into new ones. New ones are added to the file only when all
    /// are written: otherwise it would expose their previous contents.
    fn put(&self, state: &mut FileState, offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        let mut added = BTreeMap::new();
        for piece in pieces(offset, bytes.len()) {
            if state.extent(piece.index).is_some() {
                continue;
            }
            match self.take_extent(state.reign.session) {
                Ok(extent) => added.insert(piece.index, extent),
                Err(error) => {
                    // Nothing was written there. In reverse order, so that they are taken in order again.
                    self.give_extents(state, added.into_values().rev());
                    return Err(error);
                }
            };
        }
        let mut unanswered = BTreeSet::new();
        if let Err(error) = self.write_pieces(state, (&added, &mut unanswered), offset, bytes) {
            for extent in added.values() {
                state.dirty.remove(extent);
            }
            // A WRITE without a known result may still land: its extents stay reserved, and are given to no other file.
            let done = |extent: &Extent| !unanswered.contains(extent);
            self.give_extents(state, added.into_values().rev().filter(done));
            return Err(error);
        }
        state.changed |= !added.is_empty();
        state.fresh.extend(added);
        Ok(())
    }

    /// WRITEs bytes into the file's extents and into the new ones; records where a WRITE was begun that was not
    /// answered.
    fn write_pieces(
        &self,
        state: &mut FileState,
        (added, unanswered): (&BTreeMap<u32, Extent>, &mut BTreeSet<Extent>),
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), FsError> {
        let mut at = 0;
        let mut found = Vec::new();
        for piece in pieces(offset, bytes.len()) {
            let part = &bytes[at..at + piece.length];
            at += piece.length;
            let new = added.get(&piece.index).copied();
            if let Some(extent) = new.filter(|_| piece.length as u64 != EXTENT_BYTES) {
                // The previous contents are unknown.
                let mut whole = vec![0; EXTENT_BYTES as usize];
                whole[piece.start as usize..][..piece.length].copy_from_slice(part);
                let incarnation = self.write_at(state, (extent, 0), &whole, unanswered)?;
                state.dirty.insert(extent, incarnation);
            }
            found.push((new.or_else(|| state.extent(piece.index)), piece));
        }
        for run in runs(found.into_iter()) {
            let part = &bytes[run.at..run.at + run.length];
            let incarnation = self.write_at(state, (run.extent, run.start), part, unanswered)?;
            for extent in neighbours(run.extent, run.start, run.length) {
                // The start at which its oldest byte was written: if that is over, the byte is lost.
                state.dirty.entry(extent).or_insert(incarnation);
            }
        }
        Ok(())
    }

    /// Performs one WRITE, from a byte of an extent on, while the session is valid; repeated if it is not answered.
    fn write_at(
        &self,
        state: &FileState,
        (first, start): (Extent, u64),
        bytes: &[u8],
        unanswered: &mut BTreeSet<Extent>,
    ) -> Result<u64, FsError> {
        let unsure = Cell::new(false);
        let writing = |link: &super::link::Link| {
            let Some(_open) = self.write_gate(state.reign.session) else {
                return Ok(None);
            };
            let written = link.region.write(first.offset() + start, bytes);
            // An answer to a later one proves nothing about an earlier one.
            unsure.set(unsure.get() || written.is_err());
            written.map(Some)
        };
        let written = self.links().operate(self.meta(), first.server, writing);
        if unsure.get() {
            unanswered.extend(neighbours(first, start, bytes.len()));
        }
        match written? {
            (Some(()), incarnation) => Ok(incarnation),
            (None, _) => Err(Errno::STALE.into()),
        }
    }

    /// Takes an extent of a session; ESTALE if the session is over.
    fn take_extent(&self, session: SessionId) -> Result<Extent, FsError> {
        let mut reserved = self.reserved();
        if reserved.session() == session {
            if let Some(extent) = reserved.take() {
                return Ok(extent);
            }
            let count = RESERVED_AT_ONCE;
            match self.meta().change_in_session(Change::Reserve { count }) {
                (made_in, Ok(Answer::Extents(extents))) => {
                    reserved.begin(made_in);
                    // Adjacent extents first, so that they are adjacent in the file.
                    reserved.give(made_in, extents.into_iter().rev());
                }
                (_, Ok(other)) => return Err(self.meta().strange(&other)),
                (_, Err(error)) => return Err(error),
            }
        }
        match reserved.session() == session {
            true => Ok(reserved.take().ok_or(Errno::NOSPC)?),
            false => Err(Errno::STALE.into()),
        }
    }

    /// Puts extents back that a file does not need and that nobody writes: they are reused in their session.
    pub(super) fn give_extents(&self, state: &FileState, unused: impl IntoIterator<Item = Extent>) {
        self.reserved().give(state.reign.session, unused);
    }

    /// Shortens or extends a file.
    ///
    /// # Errors
    /// See [`FsError`].
    pub fn truncate(&self, ino: Ino, size: u64) -> Result<(), FsError> {
        if size > FILE_BYTES {
            return Err(Errno::FBIG.into());
        }
        self.with_right(ino, Right::Write, |state| {
            if size > state.size {
                self.clear_behind_end(state, size)?;
                state.resize(size);
            } else if size < state.size {
                let unused = state.cut_to(size);
                self.give_extents(state, unused);
            }
            state.touch(super::wall_now());
            Ok(())
        })
    }

    /// Syncs everything that was written to the data servers' files, and then to the journal.
    ///
    /// # Errors
    /// EIO if earlier writes were lost; it is reported once.
    pub fn sync(&self, ino: Ino) -> Result<(), FsError> {
        self.bring(ino, Sync::All)
    }

    /// The same without the time of the last write, which follows within a second: if only bytes in place have changed,
    /// it need not wait for the journal.
    ///
    /// # Errors
    /// See [`FileSystem::sync`].
    pub fn sync_data(&self, ino: Ino) -> Result<(), FsError> {
        self.bring(ino, Sync::Data)
    }

    fn bring(&self, ino: Ino, what: Sync) -> Result<(), FsError> {
        let Some(file) = self.known_file(ino) else {
            return Ok(());
        };
        let mut state = file.lock();
        if state.right == Right::Write && state.reign.session != self.reign().session {
            state.forget();
        }
        let committed = self.commit(ino, &mut state, what);
        match state.error.take() {
            Some(errno) => Err(errno.into()),
            None => committed,
        }
    }

    /// Commits the changes in a state. Losses are recorded in it.
    pub(super) fn commit(
        &self,
        ino: Ino,
        state: &mut FileState,
        what: Sync,
    ) -> Result<(), FsError> {
        if state.right != Right::Write || !state.is_dirty() {
            return Ok(());
        }
        if !self.flush(state)? {
            self.lose(ino, state);
            return Ok(());
        }
        let mut rest: Vec<_> = state
            .fresh
            .iter()
            .map(|(index, at)| (*index, *at))
            .collect();
        while state.changed || what == Sync::All && state.mtime.is_some() {
            let later = rest.split_off(rest.len().min(COMMITTED_AT_ONCE));
            let commit = Change::Commit {
                ino,
                size: state.size,
                mtime: state.mtime,
                cut: state.cut,
                map: rest.clone(),
            };
            let committed = self.meta().change(commit);
            // Whatever prevented the answer, the extents may belong to the file.
            state.doubtful |= committed.is_err();
            match committed {
                Ok(_) => {}
                Err(FsError::Refused(refused)) if refused.0 == Errno::STALE => {
                    self.lose(ino, state);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            state.cut = None;
            for (index, extent) in &rest {
                state.fresh.remove(index);
                state.map.insert(*index, *extent);
            }
            rest = later;
            if rest.is_empty() {
                (state.mtime, state.changed, state.doubtful) = (None, false, false);
            }
        }
        Ok(())
    }

    /// Syncs the data servers; returns `false` if bytes are lost.
    fn flush(&self, state: &mut FileState) -> Result<bool, FsError> {
        let mut by_start = BTreeMap::<(u16, u64), Vec<u32>>::new();
        for (extent, incarnation) in &state.dirty {
            let link = self.links().link(self.meta(), extent.server)?;
            if link.incarnation != *incarnation {
                return Ok(false);
            }
            by_start
                .entry((extent.server, *incarnation))
                .or_default()
                .push(extent.index);
        }
        for (start, extents) in by_start {
            for part in extents.chunks(FLUSHED_AT_ONCE) {
                if !self.links().flush(self.meta(), start, part.to_vec())? {
                    return Ok(false);
                }
            }
        }
        state.dirty.clear();
        Ok(true)
    }

    /// Written data is lost: the file reverts to what was last committed, and the next sync reports it. Extents that
    /// were to be added stay reserved, and are reused if no commit has named them.
    fn lose(&self, ino: Ino, state: &mut FileState) {
        tracing::warn!(ino, "writes that were not synced have been lost");
        let unused = state.take_fresh(0);
        self.give_extents(state, unused);
        state.error = Some(Errno::IO);
        state.forget();
    }
}
