//! Queries, which change nothing.

use super::{Body, Namespace};
use crate::types::{refuse, Errno, Ino, Outcome};
use crate::wire::{Answer, Ask};

/// Maximum number of bytes of names in one answer, whatever was requested.
const NAMES_BYTES: u32 = 1 << 20;
/// Map entries in one answer: at most 36 KiB.
const MAP_ENTRIES: usize = 4096;

impl Namespace {
    /// Answers a query, and returns the change on which the answer depends: before anyone else learns of the answer,
    /// that must be in the journal.
    pub fn ask(&self, ask: &Ask<'_>) -> (Outcome<Answer>, u64) {
        let outcome = self.answer(ask);
        let changed = |ino: Ino| {
            self.nodes
                .get(&ino)
                .map_or(self.last_gone, |node| node.changed)
        };
        let rests_on = match (*ask, &outcome) {
            // A name's inode was changed when it got the name; if there is none, its directory was.
            (Ask::Lookup { .. }, Ok(Answer::Attr(attr))) => changed(attr.ino),
            (Ask::Lookup { parent, .. }, _) => changed(parent),
            (
                Ask::GetAttr { ino }
                | Ask::ReadLink { ino }
                | Ask::ReadDir { ino, .. }
                | Ask::GetXattr { ino, .. }
                | Ask::ListXattr { ino }
                | Ask::Map { ino, .. },
                _,
            ) => changed(ino),
            (Ask::Servers, _) => self.sequence,
            (Ask::StatFs, _) => 0,
        };
        (outcome, rests_on)
    }

    fn answer(&self, ask: &Ask<'_>) -> Outcome<Answer> {
        match *ask {
            Ask::GetAttr { ino } => Ok(Answer::Attr(self.node(ino)?.attr(ino))),
            Ask::Lookup { parent, name } => {
                let found = match name {
                    b"." => Some(parent),
                    b".." => match &self.node(parent)?.body {
                        Body::Directory { parent, .. } => Some(*parent),
                        _ => return refuse(Errno::NOTDIR),
                    },
                    _ => self.find(parent, name)?,
                };
                match found {
                    Some(ino) => Ok(Answer::Attr(self.node(ino)?.attr(ino))),
                    None => refuse(Errno::NOENT),
                }
            }
            Ask::ReadLink { ino } => match &self.node(ino)?.inode {
                inode if inode.target.is_empty() => refuse(Errno::INVAL),
                inode => Ok(Answer::Bytes(inode.target.clone())),
            },
            Ask::ReadDir { ino, after, bytes } => self.read_directory(ino, after, bytes),
            Ask::GetXattr { ino, name } => match self.node(ino)?.inode.xattrs.get(name) {
                Some(value) => Ok(Answer::Bytes(value.clone())),
                None => refuse(Errno::NODATA),
            },
            Ask::ListXattr { ino } => {
                let mut names = Vec::new();
                for name in self.node(ino)?.inode.xattrs.keys() {
                    names.extend_from_slice(name);
                    names.push(0);
                }
                Ok(Answer::Bytes(names))
            }
            Ask::Map { ino, from } => match &self.node(ino)?.body {
                Body::File(map) => {
                    let mut rest = map.range(from..);
                    let part = rest.by_ref().take(MAP_ENTRIES);
                    Ok(Answer::Map {
                        map: part.map(|(index, extent)| (*index, *extent)).collect(),
                        end: rest.next().is_none(),
                    })
                }
                _ => refuse(Errno::INVAL),
            },
            Ask::Servers => Ok(Answer::Servers(self.servers())),
            Ask::StatFs => {
                let (extents, free, quarantined) = self.space.count();
                Ok(Answer::StatFs {
                    extents,
                    free,
                    quarantined,
                    files: self.nodes.len() as u64,
                })
            }
        }
    }

    fn read_directory(&self, ino: Ino, after: &[u8], bytes: u32) -> Outcome<Answer> {
        use std::ops::Bound::{Excluded, Unbounded};
        let Body::Directory { entries, .. } = &self.node(ino)?.body else {
            return refuse(Errno::NOTDIR);
        };
        // The empty name sorts before all others.
        let mut rest = entries.range::<[u8], _>((Excluded(after), Unbounded));
        let mut room = bytes.clamp(1, NAMES_BYTES) as usize;
        let mut part = Vec::new();
        let end = loop {
            let Some((name, child)) = rest.next() else {
                break true;
            };
            let kind = self.node(*child)?.attr(*child).kind();
            part.push((name.clone(), *child, kind));
            room = match room.checked_sub(name.len() + 12) {
                Some(left) if left > 0 => left,
                _ => break rest.next().is_none(),
            };
        };
        Ok(Answer::Entries { entries: part, end })
    }
}
