//! What a client knows of one file: its lease, its map, and what was written and is not committed yet.

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

/// Of which session, and of which start of the metadata server, a right is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reign {
    pub(super) session: u64,
    pub(super) epoch: u64,
}

#[derive(Debug)]
pub(super) struct FileState {
    pub(super) right: Right,
    /// The metadata server may have a lease of this session, also one that gives no right here: whose answer or map
    /// did not come, or whose writes are lost. It is to be given back.
    pub(super) leased: bool,
    pub(super) reign: Reign,
    pub(super) size: u64,
    /// As the metadata server has it.
    pub(super) map: BTreeMap<u32, Extent>,
    /// Extents that are to be committed.
    pub(super) fresh: BTreeMap<u32, Extent>,
    /// A commit of them has not succeeded, as far as is known: they may be the file's all the same.
    pub(super) doubtful: bool,
    /// Written and not synced: at which start of its server.
    pub(super) dirty: BTreeMap<Extent, u64>,
    /// Extents from here on are to go with the next commit.
    pub(super) cut: Option<u32>,
    /// Time of the last write that the metadata server does not have.
    pub(super) mtime: Option<i64>,
    /// The same, whether it has it or not, unless another time was set since.
    pub(super) written: Option<i64>,
    /// Size or map are not what the metadata server has.
    pub(super) changed: bool,
    /// When the oldest change was made that is not committed.
    pub(super) since: Instant,
    /// What the next sync has to say: writes that were lost.
    pub(super) error: Option<Errno>,
    pub(super) handles: u32,
    /// When it was last used.
    pub(super) used: Instant,
    /// It left the table of files: who still has it looks again.
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

    /// The lease came, with the file as it is now.
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

    /// The lease is over: nothing that is known counts any more. What was not committed is lost.
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

    /// The server was told that the lease is over.
    pub(super) fn give_back(&mut self) {
        self.forget();
        self.leased = false;
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.is_uncommitted() || !self.dirty.is_empty()
    }

    /// The metadata server does not have all: size, map or time.
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

    /// Gives it another size.
    pub(super) fn resize(&mut self, size: u64) {
        self.changed |= self.size != size;
        self.size = size;
    }

    /// Takes out the extents from this one on that were to be committed, and returns those that no commit has named.
    /// The others stay reserved, or are the file's: another file must not get them.
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

    /// Makes it shorter. Extents that were never committed are given back.
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

    /// Puts what this session alone knows, because it writes the file, over what the metadata server said at any time
    /// of that lease. `false` where it does not write it.
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
    /// Which extent of the file.
    pub(super) index: u32,
    /// First byte in it.
    pub(super) start: u64,
    /// Bytes.
    pub(super) length: usize,
}

/// A stretch of a file, extent by extent.
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
