//! Loads a namespace from its records, as kept by a store. Records that do not fit are faults, and are left out.

use std::collections::{HashMap, HashSet};

use super::check::Fault;
use super::record::{Held, Inode, Key};
use super::sessions::{Session, MOVER};
use super::{Body, Namespace, Node, Now};
use crate::types::{DataServer, Extent, Ino, SessionId, ROOT};
use crate::wire::decode;

impl Namespace {
    /// Creates a namespace from all its records, each key once, in any order; also returns the faults found. Sessions
    /// that had not ended have until `expires_ms` to renew themselves.
    pub fn load(
        records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>,
        expires_ms: u64,
    ) -> (Self, Vec<Fault>) {
        let mut namespace = Self {
            sequence: 1,
            last_gone: 1,
            ..Self::default()
        };
        let mut faults = Vec::new();
        // Inodes come before the records that refer to them.
        let mut later = Vec::new();
        for (key, value) in records {
            let known = match Key::parse(&key) {
                Some(Key::Inode(ino)) => namespace.load_inode(ino, &value),
                Some(Key::Bound) => decode(&value).map(|bound| namespace.ino_bound = bound),
                Some(Key::Session(session)) => namespace.load_session(session, &value, expires_ms),
                Some(_) => {
                    later.push((key, value));
                    continue;
                }
                None => None,
            };
            if known.is_none() {
                faults.push(Fault::Unreadable(key));
            }
        }
        namespace.next_ino = namespace.ino_bound.max(ROOT);
        // Servers come last by their keys, but extents need them.
        later.sort_by_key(|(key, _)| (key.first() != Some(&b'v'), key.clone()));
        for (key, value) in later {
            match Key::parse(&key).map(|parsed| namespace.load_record(parsed, &value)) {
                Some(Ok(())) => {}
                Some(Err(Some(fault))) => faults.push(fault),
                Some(Err(None)) | None => faults.push(Fault::Unreadable(key)),
            }
        }
        namespace
            .space
            .quarantine_reserved(MOVER, &mut namespace.records);
        let live = namespace.sessions.iter().filter(|(_, known)| !known.ended);
        namespace.unheard = live.map(|(session, _)| *session).collect();
        (namespace, faults)
    }

    /// After a start: removes files without names that nobody can have open any more.
    pub fn begin(&mut self, now: Now) {
        self.end_expired(now);
        if self.unheard.is_empty() {
            let nameless = self.nodes.iter().filter(|(_, node)| node.inode.nlink == 0);
            for ino in nameless.map(|(ino, _)| *ino).collect::<Vec<_>>() {
                self.drop_unless_used(ino, None);
            }
        }
    }

    fn load_inode(&mut self, ino: Ino, value: &[u8]) -> Option<()> {
        let inode: Inode = decode(value)?;
        self.nodes.insert(ino, Node::new(inode, ROOT, 1));
        Some(())
    }

    fn load_session(&mut self, session: SessionId, value: &[u8], expires_ms: u64) -> Option<()> {
        let known = Session {
            expires_ms,
            ended: decode(value)?,
            slots: HashMap::new(),
        };
        self.sessions.insert(session, known);
        Some(())
    }

    /// Loads any other record; `Err(None)` if it cannot be decoded.
    fn load_record(&mut self, key: Key<'_>, value: &[u8]) -> Result<(), Option<Fault>> {
        match key {
            Key::Server(place) => {
                let about: DataServer = decode(value).ok_or(None)?;
                match self.space.load_server(place, about) {
                    true => Ok(()),
                    false => Err(Some(Fault::NoServer(place))),
                }
            }
            Key::Entry(parent, name) => {
                let ino: Ino = decode(value).ok_or(None)?;
                if let Some(child) = self.nodes.get_mut(&ino) {
                    if let Body::Directory { parent: above, .. } = &mut child.body {
                        *above = parent;
                    }
                }
                let known = self.nodes.contains_key(&ino);
                match self.nodes.get_mut(&parent).map(|node| &mut node.body) {
                    Some(Body::Directory { entries, .. }) if known => {
                        entries.insert(name.to_vec(), ino);
                        Ok(())
                    }
                    _ => Err(Some(Fault::Entry {
                        parent,
                        name: name.to_vec(),
                        ino,
                    })),
                }
            }
            Key::Held(extent) => {
                let held: Held = decode(value).ok_or(None)?;
                self.load_extent(extent, Some(held))
            }
            Key::Map(ino, index) => {
                let extent: Extent = decode(value).ok_or(None)?;
                match self.nodes.get_mut(&ino).map(|node| &mut node.body) {
                    Some(Body::File(map)) => {
                        map.insert(index, extent);
                        self.load_extent(extent, None)
                    }
                    _ => Err(Some(Fault::MapOfNoFile { ino, index })),
                }
            }
            Key::Lease(ino) => {
                let session: SessionId = decode(value).ok_or(None)?;
                if !self.sessions.contains_key(&session) || !self.nodes.contains_key(&ino) {
                    return Err(Some(Fault::LeaseOfNobody { ino }));
                }
                self.grant_write(session, ino);
                self.records.pop();
                Ok(())
            }
            Key::Slot(session, slot) => {
                let kept: (u32, Vec<u8>) = decode(value).ok_or(None)?;
                let known = self.sessions.get_mut(&session);
                let known = known.ok_or(Some(Fault::SlotOfNobody { session }))?;
                known.slots.insert(slot, kept);
                Ok(())
            }
            Key::Inode(_) | Key::Bound | Key::Session(_) => Ok(()),
        }
    }

    fn load_extent(&mut self, extent: Extent, held: Option<Held>) -> Result<(), Option<Fault>> {
        match self.space.contains(extent) {
            false => Err(Some(Fault::Beyond(extent))),
            true if self.space.load_used(extent, held) => Ok(()),
            true => Err(Some(Fault::Twice(extent))),
        }
    }

    /// All directories that are reachable from the root.
    pub(super) fn reachable(&self) -> HashSet<Ino> {
        let mut seen = HashSet::from([ROOT]);
        let mut left = vec![ROOT];
        while let Some(ino) = left.pop() {
            let Some(Body::Directory { entries, .. }) = self.nodes.get(&ino).map(|n| &n.body)
            else {
                continue;
            };
            left.extend(entries.values().filter(|child| seen.insert(**child)));
        }
        seen
    }
}
