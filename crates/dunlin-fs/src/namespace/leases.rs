//! Leases: one session writes a file, or several read it; and the commits of a writer.

use std::collections::HashSet;

use super::record::Key;
use super::{Body, Namespace, Now};
use crate::types::{
    refuse, Attr, Errno, Extent, Ino, Outcome, SessionId, EXTENT_BYTES, FILE_BYTES, S_IFREG,
};
use crate::wire::{Answer, Change};

/// Maximum number of extents that a session gets at once: an answer of at most 32 KiB.
pub(super) const RESERVED_AT_ONCE: u32 = 4096;

#[derive(Debug, Default)]
pub(super) struct Lease {
    writer: Option<SessionId>,
    readers: HashSet<SessionId>,
    /// Sessions that have the file open and perhaps no right to it: it exists for them even without a name.
    keepers: HashSet<SessionId>,
}

impl Lease {
    fn is_unused(&self) -> bool {
        self.writer.is_none() && self.readers.is_empty() && self.keepers.is_empty()
    }
}

/// A lease request conflicts with other leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// The file.
    pub ino: Ino,
    /// The sessions that have to release theirs.
    pub holders: Vec<SessionId>,
}

impl Namespace {
    pub(super) fn lease(
        &mut self,
        session: SessionId,
        ino: Ino,
        write: bool,
    ) -> Outcome<Result<Attr, Waits>> {
        let node = self.node(ino)?;
        if node.attr(ino).kind() != S_IFREG {
            return refuse(Errno::INVAL);
        }
        let attr = node.attr(ino);
        let lease = self.leases.entry(ino).or_default();
        let mine = lease.writer == Some(session);
        let mut holders: Vec<_> = lease.writer.filter(|_| !mine).into_iter().collect();
        if write {
            holders.extend(lease.readers.iter().filter(|reader| **reader != session));
        }
        let unheard = write && !mine && !self.unheard.is_empty();
        if !holders.is_empty() || unheard {
            // Two readers that both want to write would wait for each other: a session that waits loses its lease to
            // read. If it had the file open, the file stays for it.
            if lease.readers.remove(&session) {
                lease.keepers.insert(session);
            }
            if lease.is_unused() {
                self.leases.remove(&ino);
            }
            return Ok(Err(Waits { ino, holders }));
        }
        match write {
            true => self.grant_write(session, ino),
            false if mine => {}
            false => {
                lease.readers.insert(session);
            }
        }
        Ok(Ok(attr))
    }

    /// Whether a session has a lease on a file.
    pub fn holds(&self, session: SessionId, ino: Ino) -> bool {
        let lease = self.leases.get(&ino);
        lease.is_some_and(|l| l.writer == Some(session) || l.readers.contains(&session))
    }

    fn keeps(&self, session: SessionId, ino: Ino) -> bool {
        let lease = self.leases.get(&ino);
        lease.is_some_and(|lease| lease.keepers.contains(&session))
    }

    /// Whether a session other than this one has the file open without a right to it.
    pub(super) fn is_kept_beside(&self, session: SessionId, ino: Ino) -> bool {
        let lease = self.leases.get(&ino);
        lease.is_some_and(|lease| lease.keepers.iter().any(|keeper| *keeper != session))
    }

    pub(super) fn grant_write(&mut self, session: SessionId, ino: Ino) {
        let lease = self.leases.entry(ino).or_default();
        lease.readers.remove(&session);
        if lease.writer.replace(session) != Some(session) {
            self.records.push(Key::Lease(ino).put(&session));
        }
    }

    pub(super) fn writes(&self, session: SessionId, ino: Ino) -> bool {
        let lease = self.leases.get(&ino);
        lease.is_some_and(|lease| lease.writer == Some(session))
    }

    pub(super) fn leases_of(&self, session: SessionId) -> Vec<Ino> {
        let all = self.leases.keys().copied();
        let has = |ino: &Ino| self.holds(session, *ino) || self.keeps(session, *ino);
        let mut files: Vec<_> = all.filter(has).collect();
        files.sort_unstable();
        files
    }

    pub(super) fn written_leases(&self) -> impl Iterator<Item = (SessionId, Ino)> + '_ {
        let writer = |(ino, lease): (&Ino, &Lease)| Some((lease.writer?, *ino));
        self.leases.iter().filter_map(writer)
    }

    pub(super) fn release(&mut self, session: SessionId, ino: Ino) {
        self.drop_lease(session, ino, None);
    }

    /// Ends the right of a session's lease; the file stays for it. Does nothing without a lease: the file may be gone.
    pub(super) fn keep(&mut self, session: SessionId, ino: Ino) {
        let Some(lease) = self.leases.get_mut(&ino) else {
            return;
        };
        let read = lease.readers.remove(&session);
        let wrote = lease.writer == Some(session);
        if wrote {
            lease.writer = None;
            self.records.push(Key::Lease(ino).take());
        }
        if read || wrote {
            lease.keepers.insert(session);
        }
    }

    /// Ends a session's lease on a file; with `quarantine` its writes may still arrive.
    pub(super) fn drop_lease(
        &mut self,
        session: SessionId,
        ino: Ino,
        quarantine: Option<SessionId>,
    ) {
        let Some(lease) = self.leases.get_mut(&ino) else {
            return;
        };
        lease.readers.remove(&session);
        lease.keepers.remove(&session);
        if lease.writer == Some(session) {
            lease.writer = None;
            self.records.push(Key::Lease(ino).take());
        }
        if lease.is_unused() {
            self.leases.remove(&ino);
            self.drop_unless_used(ino, quarantine);
        }
    }

    pub(super) fn reserve(&mut self, session: SessionId, count: u32) -> Outcome<Answer> {
        let count = count.min(RESERVED_AT_ONCE) as usize;
        let extents = self.space.reserve(session, count, None, &mut self.records);
        match extents.is_empty() && count > 0 {
            true => refuse(Errno::NOSPC),
            false => Ok(Answer::Extents(extents)),
        }
    }

    pub(super) fn commit(
        &mut self,
        session: SessionId,
        change: &Change<'_>,
        now: Now,
    ) -> Outcome<Attr> {
        let &Change::Commit {
            ino,
            size,
            mtime,
            cut,
            map: ref added,
        } = change
        else {
            return refuse(Errno::INVAL);
        };
        if !self.writes(session, ino) {
            return refuse(Errno::STALE);
        }
        if size > FILE_BYTES {
            return refuse(Errno::FBIG);
        }
        let Some(node) = self.nodes.get_mut(&ino) else {
            return refuse(Errno::NOENT);
        };
        let Body::File(map) = &mut node.body else {
            return refuse(Errno::INVAL);
        };
        let mut seen = HashSet::new();
        let places = size.div_ceil(EXTENT_BYTES);
        for (index, extent) in added {
            if u64::from(*index) >= places || !seen.insert(*extent) {
                return refuse(Errno::INVAL);
            }
            // A client that has given up on an answer commits again under another number: then it is already done.
            let is_there = map.get(index) == Some(extent);
            if !is_there && !self.space.is_reserved(*extent, session) {
                return refuse(Errno::STALE);
            }
        }
        // What is behind the end does not belong to the file, whatever the client says.
        let first = u64::from(cut.unwrap_or(u32::MAX)).min(places) as u32;
        let mut gone: Vec<Extent> = Vec::new();
        for (index, extent) in map.split_off(&first) {
            self.records.push(Key::Map(ino, index).take());
            gone.push(extent);
        }
        for (index, extent) in added {
            gone.extend(map.insert(*index, *extent));
            self.space.give(*extent, &mut self.records);
            self.records.push(Key::Map(ino, *index).put(extent));
        }
        gone.retain(|extent| !seen.contains(extent));
        for extent in gone {
            self.space.free(extent);
        }
        node.inode.size = size;
        node.inode.mtime = mtime.unwrap_or(node.inode.mtime);
        node.inode.ctime = now.wall;
        let attr = node.attr(ino);
        self.write_down(ino);
        Ok(attr)
    }
}
