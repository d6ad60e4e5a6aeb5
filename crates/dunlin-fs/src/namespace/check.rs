//! Whether a namespace holds together: what `dunlin fsck` says.

use std::collections::HashMap;
use std::fmt;

use super::record::Held;
use super::{Body, Namespace};
use crate::types::{Extent, Ino, SessionId, EXTENT_BYTES, ROOT};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A record that cannot be read.
    Unreadable(Vec<u8>),
    /// No root directory.
    NoRoot,
    /// A data server's record that does not stand where the list goes on.
    NoServer(u16),
    /// A name that leads nowhere, or stands in no directory.
    Entry {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Vec<u8>,
        /// Where it leads.
        ino: Ino,
    },
    /// A part of a map of what is no file.
    MapOfNoFile {
        /// The inode.
        ino: Ino,
        /// Which extent of it.
        index: u32,
    },
    /// A part of a map that is behind the end of its file.
    MapBehindEnd {
        /// The inode.
        ino: Ino,
        /// Which extent of it.
        index: u32,
    },
    /// An extent that its data server does not have.
    Beyond(Extent),
    /// An extent that is used twice.
    Twice(Extent),
    /// Extents that are neither free nor used by anybody.
    Leaked {
        /// How many.
        extents: u64,
    },
    /// A count of links that is not the number of names.
    Links {
        /// The inode.
        ino: Ino,
        /// What it says.
        said: u32,
        /// What was counted.
        counted: u32,
    },
    /// A file that no path leads to, though it has names.
    Unreachable(Ino),
    /// A lease of no session, or on no file.
    LeaseOfNobody {
        /// The file.
        ino: Ino,
    },
    /// An answer that is kept for no session.
    SlotOfNobody {
        /// The session.
        session: SessionId,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(key) => write!(f, "a record cannot be read: {}", key.escape_ascii()),
            Self::NoRoot => write!(f, "there is no root directory"),
            Self::NoServer(place) => write!(f, "data server {place} is out of its order"),
            Self::Entry { parent, name, ino } => {
                let name = name.escape_ascii();
                write!(
                    f,
                    "the name '{name}' in directory {parent} leads to {ino}, which is not there"
                )
            }
            Self::MapOfNoFile { ino, index } => {
                write!(f, "extent {index} of {ino}, which is no file")
            }
            Self::MapBehindEnd { ino, index } => {
                write!(f, "extent {index} of file {ino} is behind its end")
            }
            Self::Beyond(extent) => write!(f, "{extent:?} is not there"),
            Self::Twice(extent) => write!(f, "{extent:?} is used twice"),
            Self::Leaked { extents } => write!(f, "{extents} extents are lost"),
            Self::Links { ino, said, counted } => {
                write!(f, "inode {ino} says it has {said} links, and has {counted}")
            }
            Self::Unreachable(ino) => write!(f, "no path leads to inode {ino}"),
            Self::LeaseOfNobody { ino } => write!(f, "a lease on {ino} belongs to nobody"),
            Self::SlotOfNobody { session } => {
                write!(
                    f,
                    "an answer is kept for session {session:x}, which is not there"
                )
            }
        }
    }
}

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// What must not be.
    pub faults: Vec<Fault>,
    /// Directories.
    pub directories: u64,
    /// All other files.
    pub files: u64,
    /// Files without names that some session still has.
    pub nameless: u64,
    /// Sessions.
    pub sessions: u64,
    /// Extents of the data servers.
    pub extents: u64,
    /// In files.
    pub mapped: u64,
    /// Reserved by sessions.
    pub reserved: u64,
    /// Kept from use until a data server starts anew.
    pub quarantined: u64,
    /// Free.
    pub free: u64,
}

impl Namespace {
    /// Checks everything against everything.
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
