//! A client's state of one file: its lease, its map, and what was written and is not committed yet.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::types::{Attr, Errno, Extent, EXTENT_BYTES};

/// What a session may do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Right {
    None,
    Read,
    Write,
}

/// The session, and the start of the metadata server, to which a right belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reign {
    pub(super) session: u64,
    pub(super) epoch: u64,
}

#[derive(Debug)]
pub(super) struct FileState {
    pub(super) right: Right,
    /// The metadata server may consider this session the holder of a lease, even one that gives no right here, because
    /// its answer or map did not arrive, or its writes are lost, or keep the file for it while it is open. It has to be
    /// released.
    pub(super) leased: bool,
    pub(super) reign: Reign,
    pub(super) size: u64,
    /// As stored by the metadata server.
    pub(super) map: BTreeMap<u32, Extent>,
    /// Extents to be committed.
    pub(super) fresh: BTreeMap<u32, Extent>,
    /// A commit of them is not known to have succeeded: they may belong to the file all the same.
    pub(super) doubtful: bool,
    /// Extents written and not synced, with the start of their server.
    pub(super) dirty: BTreeMap<Extent, u64>,
    /// Extents from this one on are removed by the next commit.
    pub(super) cut: Option<u32>,
    /// Time of the last write, if the metadata server does not have it.
    pub(super) mtime: Option<i64>,
    /// The same, whether the server has it or not, unless another time was set since.
    pub(super) written: Option<i64>,
    /// Size or map differ from the metadata server's.
    pub(super) changed: bool,
    /// When the oldest uncommitted change was made.
    pub(super) since: Instant,
    /// The error that the next sync has to report: writes were lost.
    pub(super) error: Option<Errno>,
    pub(super) handles: u32,
    /// When it was last used.
    pub(super) used: Instant,
    /// It was removed from the table of files: threads that still hold it look the file up again.
    pub(super) gone: bool,
}

impl FileState {
    pub(super) fn new(reign: Reign) -> Self {
        Self {
            right: Right::None,
            leased: false,
            reign,
            size: 0,
            map: BTreeMap::new(),
            fresh: BTreeMap::new(),
            doubtful: false,
            dirty: BTreeMap::new(),
            cut: None,
            mtime: None,
            written: None,
            changed: false,
            since: Instant::now(),
            error: None,
            handles: 0,
            used: Instant::now(),
            gone: false,
        }
    }

    /// Takes the lease, with the current state of the file.
    pub(super) fn take(
        &mut self,
        right: Right,
        reign: Reign,
        attr: &Attr,
        map: BTreeMap<u32, Extent>,
    ) {
        (self.right, self.reign, self.size) = (right, reign, attr.size);
        self.map = map;
    }

    /// The lease is over: everything known is invalid. What was not committed is lost.
    pub(super) fn forget(&mut self) {
        if self.is_dirty() {
            self.error = Some(Errno::IO);
        }
        self.right = Right::None;
        self.map.clear();
        self.fresh.clear();
        self.doubtful = false;
        self.dirty.clear();
        (self.cut, self.mtime, self.changed) = (None, None, false);
        self.written = None;
    }

    /// The lease has been released at the server.
    pub(super) fn give_back(&mut self) {
        self.forget();
        self.leased = false;
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.is_uncommitted() || !self.dirty.is_empty()
    }

    /// Whether the metadata server lacks something: size, map or time.
    pub(super) fn is_uncommitted(&self) -> bool {
        self.changed || self.mtime.is_some()
    }

    pub(super) fn extent(&self, index: u32) -> Option<Extent> {
        self.fresh
            .get(&index)
            .or_else(|| self.map.get(&index))
            .copied()
    }

    pub(super) fn touch(&mut self, now: i64) {
        if !self.is_dirty() {
            self.since = Instant::now();
        }
        (self.mtime, self.written) = (Some(now), Some(now));
    }

    /// Sets the size.
    pub(super) fn resize(&mut self, size: u64) {
        self.changed |= self.size != size;
        self.size = size;
    }

    /// Removes the extents from this one on that were to be committed, and returns those that no commit has named. The
    /// others stay reserved, or belong to the file: another file must not get them.
    pub(super) fn take_fresh(&mut self, first: u32) -> Vec<Extent> {
        let taken: Vec<_> = self.fresh.split_off(&first).into_values().collect();
        for extent in &taken {
            self.dirty.remove(extent);
        }
        match self.doubtful {
            true => Vec::new(),
            false => taken,
        }
    }

    /// Shortens the file. Returns extents that were never committed.
    pub(super) fn cut_to(&mut self, size: u64) -> Vec<Extent> {
        let first = size.div_ceil(EXTENT_BYTES) as u32;
        self.cut = Some(self.cut.map_or(first, |cut| cut.min(first)));
        for extent in self.map.split_off(&first).into_values() {
            self.dirty.remove(&extent);
        }
        let unused = self.take_fresh(first);
        self.resize(size);
        unused
    }

    /// Replaces in `attr` what only this session knows, because it writes the file. `attr` may be from any time of the
    /// lease. Returns `false` if the session does not write the file.
    pub(super) fn overlay(&self, attr: &mut Attr, reign: Reign) -> bool {
        if self.right != Right::Write || self.reign.session != reign.session {
            return false;
        }
        attr.size = self.size;
        attr.mtime = self.written.unwrap_or(attr.mtime);
        attr.ctime = attr.ctime.max(self.written.unwrap_or(attr.ctime));
        attr.extents = (self.map.len() + self.fresh.len()) as u32;
        true
    }
}

/// A part of a file in one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Index of the extent in the file.
    pub(super) index: u32,
    /// The first byte in it.
    pub(super) start: u64,
    /// Length in bytes.
    pub(super) length: usize,
}

/// Splits a range of a file at its extents.
pub(super) fn pieces(offset: u64, length: usize) -> impl Iterator<Item = Piece> {
    let end = offset + length as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        let left = end.checked_sub(at).filter(|left| *left > 0)?;
        let start = at % EXTENT_BYTES;
        let length = left.min(EXTENT_BYTES - start);
        let index = (at / EXTENT_BYTES) as u32;
        at += length;
        Some(Piece {
            index,
            start,
            length: length as usize,
        })
    })
}
