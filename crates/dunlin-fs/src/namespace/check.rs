//! Consistency checks of a namespace, as reported by `dunlin fsck`.

use std::collections::HashMap;
use std::fmt;

use super::record::Held;
use super::{Body, Namespace};
use crate::types::{Extent, Ino, SessionId, EXTENT_BYTES, ROOT};

/// An inconsistency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A record that cannot be decoded.
    Unreadable(Vec<u8>),
    /// There is no root directory.
    NoRoot,
    /// A data server's record that is not the next in the list.
    NoServer(u16),
    /// A name that refers to no inode, or is in no directory.
    Entry {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// The inode to which it refers.
        ino: Ino,
    },
    /// A part of a map whose inode is not a file.
    MapOfNoFile {
        /// The inode.
        ino: Ino,
        /// Index of the extent in it.
        index: u32,
    },
    /// A part of a map that is behind the end of its file.
    MapBehindEnd {
        /// The inode.
        ino: Ino,
        /// Index of the extent in it.
        index: u32,
    },
    /// An extent that its data server does not have.
    Beyond(Extent),
    /// An extent that is used twice.
    Twice(Extent),
    /// Extents that are neither free nor in use.
    Leaked {
        /// Number of extents.
        extents: u64,
    },
    /// A link count that differs from the number of names.
    Links {
        /// The inode.
        ino: Ino,
        /// The recorded count.
        said: u32,
        /// The number of names.
        counted: u32,
    },
    /// A file that has names but is not reachable by any path.
    Unreachable(Ino),
    /// A lease of a session or on a file that does not exist.
    LeaseOfNobody {
        /// The file.
        ino: Ino,
    },
    /// An answer that is kept for a session that does not exist.
    SlotOfNobody {
        /// The session.
        session: SessionId,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(key) => write!(f, "cannot read a record: {}", key.escape_ascii()),
            Self::NoRoot => write!(f, "missing root directory"),
            Self::NoServer(place) => write!(f, "data server {place} is out of order"),
            Self::Entry { parent, name, ino } => {
                let name = name.escape_ascii();
                write!(
                    f,
                    "the name '{name}' in directory {parent} refers to inode {ino}, which does not exist"
                )
            }
            Self::MapOfNoFile { ino, index } => {
                write!(f, "extent {index} belongs to {ino}, which is not a file")
            }
            Self::MapBehindEnd { ino, index } => {
                write!(f, "extent {index} of file {ino} is beyond its end")
            }
            Self::Beyond(extent) => write!(f, "{extent:?} does not exist"),
            Self::Twice(extent) => write!(f, "{extent:?} is used twice"),
            Self::Leaked { extents } => write!(f, "{extents} extents are leaked"),
            Self::Links { ino, said, counted } => {
                write!(f, "inode {ino} records {said} links, but has {counted}")
            }
            Self::Unreachable(ino) => write!(f, "no path leads to inode {ino}"),
            Self::LeaseOfNobody { ino } => write!(f, "a lease on {ino} has no owner"),
            Self::SlotOfNobody { session } => {
                write!(
                    f,
                    "an answer is kept for session {session:x}, which does not exist"
                )
            }
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The inconsistencies.
    pub faults: Vec<Fault>,
    /// Number of directories.
    pub directories: u64,
    /// Number of all other files.
    pub files: u64,
    /// Number of files without names that a session still has open.
    pub nameless: u64,
    /// Number of sessions.
    pub sessions: u64,
    /// Number of extents of the data servers.
    pub extents: u64,
    /// Extents in files.
    pub mapped: u64,
    /// Extents reserved by sessions.
    pub reserved: u64,
    /// Extents quarantined until a data server restarts.
    pub quarantined: u64,
    /// Free extents.
    pub free: u64,
}

impl Namespace {
    /// Checks everything.
    pub fn check(&self) -> Findings {
        let mut findings = Findings {
            sessions: self.sessions.len() as u64,
            ..Findings::default()
        };
        if !self.nodes.get(&ROOT).is_some_and(super::Node::is_directory) {
            findings.faults.push(Fault::NoRoot);
        }
        let mut names = HashMap::<Ino, u32>::new();
        let mut subdirectories = HashMap::<Ino, u32>::new();
        for (ino, node) in &self.nodes {
            let Body::Directory { entries, .. } = &node.body else {
                continue;
            };
            for child in entries.values() {
                *names.entry(*child).or_default() += 1;
                if self.nodes.get(child).is_some_and(super::Node::is_directory) {
                    *subdirectories.entry(*ino).or_default() += 1;
                }
            }
        }
        let reachable = self.reachable();
        for (&ino, node) in &self.nodes {
            let named = names.get(&ino).copied().unwrap_or(0);
            let said = node.inode.nlink;
            match &node.body {
                Body::Directory { .. } => findings.directories += 1,
                _ => findings.files += 1,
            }
            let counted = match &node.body {
                Body::Directory { .. } if named > 0 || ino == ROOT => {
                    2 + subdirectories.get(&ino).copied().unwrap_or(0)
                }
                _ => named,
            };
            if said != counted {
                findings.faults.push(Fault::Links { ino, said, counted });
            }
            if said == 0 {
                findings.nameless += 1;
            } else if !reachable.contains(&ino) {
                findings.faults.push(Fault::Unreachable(ino));
            }
            if let Body::File(map) = &node.body {
                findings.mapped += map.len() as u64;
                let places = node.inode.size.div_ceil(EXTENT_BYTES);
                let behind = map.keys().filter(|index| u64::from(**index) >= places);
                let fault = |&index: &u32| Fault::MapBehindEnd { ino, index };
                findings.faults.extend(behind.map(fault));
            }
        }
        for (_, held) in self.space.every_held() {
            match held {
                Held::Reserved(_) => findings.reserved += 1,
                Held::Quarantined(_) => findings.quarantined += 1,
            }
        }
        (findings.extents, findings.free, _) = self.space.count();
        let known = findings.mapped + findings.reserved + findings.quarantined;
        if let Some(extents @ 1..) = self.space.used().checked_sub(known) {
            findings.faults.push(Fault::Leaked { extents });
        }
        findings
    }
}
