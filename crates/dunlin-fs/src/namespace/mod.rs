//! The tree of files, its space and its sessions: a state machine over values. It does no I/O and reads no clock; each
//! change produces records that describe it ([`record`]), and the records are sufficient to create the same namespace
//! again.

mod ask;
mod attributes;
mod check;
mod leases;
mod load;
#[cfg(test)]
mod model_tests;
pub mod record;
mod sessions;
mod space;
mod tree;

use std::collections::{BTreeMap, HashMap, HashSet};

pub use check::{Fault, Findings};
pub use leases::Waits;
pub use record::Record;

use crate::types::{
    refuse, Attr, DataServer, Errno, Extent, Ino, Outcome, SessionId, ROOT, S_IFDIR, S_IFREG,
};
use crate::wire::{encode, Answer, Change, Envelope};
use leases::Lease;
use record::{Inode, Key};
use sessions::Session;
use space::Space;

/// Inode numbers are journalled ahead in steps of this many, so that most new files need no record for them.
const NUMBERS_AHEAD: u64 = 4096;

/// The time, as provided by the driver of the namespace.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Nanoseconds since 1970, for files.
    pub wall: i64,
    /// Milliseconds of a monotonic clock, for sessions.
    pub steady_ms: u64,
}

/// The result of a change.
#[derive(Debug, PartialEq, Eq)]
pub enum Done {
    /// The encoded answer, to be sent once the journal has the change on which it depends.
    Answered {
        /// An [`Outcome`] of an [`Answer`].
        answer: Vec<u8>,
        /// The sequence number of the latest change on which it depends.
        rests_on: u64,
    },
    /// A lease request has to wait.
    Waits(Waits),
}

/// The whole state of a metadata server.
#[derive(Debug, Default)]
pub struct Namespace {
    nodes: HashMap<Ino, Node>,
    next_ino: Ino,
    ino_bound: Ino,
    space: Space,
    sessions: HashMap<SessionId, Session>,
    leases: HashMap<Ino, Lease>,
    /// After a start: sessions that may have leases to read from before it.
    unheard: HashSet<SessionId>,
    /// Time that a session lasts after a change.
    lease_ms: u64,
    /// Number of changes so far.
    sequence: u64,
    /// The change that last removed an inode.
    last_gone: u64,
    records: Vec<Record>,
}

#[derive(Debug)]
struct Node {
    inode: Inode,
    body: Body,
    /// Its last change.
    changed: u64,
}

#[derive(Debug)]
enum Body {
    Directory {
        parent: Ino,
        entries: BTreeMap<Vec<u8>, Ino>,
    },
    File(BTreeMap<u32, Extent>),
    Other,
}

impl Node {
    /// Creates an empty node of any type; `parent` is that of a directory.
    fn new(inode: Inode, parent: Ino, changed: u64) -> Self {
        let body = match inode.mode & crate::types::S_IFMT {
            S_IFDIR => Body::Directory {
                parent,
                entries: BTreeMap::new(),
            },
            S_IFREG => Body::File(BTreeMap::new()),
            _ => Body::Other,
        };
        Self {
            inode,
            body,
            changed,
        }
    }

    fn attr(&self, ino: Ino) -> Attr {
        let extents = match &self.body {
            Body::File(map) => map.len(),
            _ => 0,
        };
        self.inode.attr(ino, extents)
    }

    fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory { .. })
    }
}

impl Namespace {
    /// Creates an empty tree: a root directory that belongs to root.
    pub fn new(now: Now) -> Self {
        let mut namespace = Self {
            next_ino: ROOT,
            ..Self::default()
        };
        namespace.sequence = 1;
        let root = Inode {
            mode: S_IFDIR | 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            atime: now.wall,
            mtime: now.wall,
            ctime: now.wall,
            target: Vec::new(),
            xattrs: BTreeMap::new(),
        };
        namespace.add(root, ROOT);
        namespace
    }

    /// Sets how long a session lasts after its last request. Zero until this is called.
    pub fn set_lease_ms(&mut self, lease_ms: u64) {
        self.lease_ms = lease_ms;
    }

    /// Returns the records of the changes since the last call, in order.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// The number of the last change.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Executes a change, unless it was executed before: then the answer is the same.
    pub fn change(&mut self, envelope: &Envelope<'_>, now: Now) -> Done {
        let Envelope {
            session,
            slot,
            sequence,
            ref change,
        } = *envelope;
        match self.known(session, slot, sequence, now) {
            Ok(None) => {}
            Ok(Some(answer)) => {
                let rests_on = self.sequence;
                return Done::Answered { answer, rests_on };
            }
            Err(refused) => {
                return Done::Answered {
                    answer: encode(&Outcome::<Answer>::Err(refused)),
                    rests_on: self.sequence,
                }
            }
        }
        self.sequence += 1;
        if let Change::Lease { ino, write } = *change {
            return self.change_lease(session, ino, write);
        }
        let outcome = self.apply(session, change, now);
        let answer = encode(&outcome);
        // Releasing a lease twice has no further effect.
        let is_release = matches!(change, Change::Release { .. } | Change::Keep { .. });
        if outcome.is_ok() && !is_release {
            self.remember(session, slot, sequence, &answer);
        }
        Done::Answered {
            answer,
            rests_on: self.sequence,
        }
    }

    /// A lease to read is not recorded: it depends only on the file. Requesting one twice grants it twice.
    fn change_lease(&mut self, session: SessionId, ino: Ino, write: bool) -> Done {
        let outcome = match self.lease(session, ino, write) {
            Ok(Ok(attr)) => Ok(Answer::Attr(attr)),
            Ok(Err(waits)) => return Done::Waits(waits),
            Err(refused) => Err(refused),
        };
        let known = self.nodes.get(&ino).filter(|_| !write);
        Done::Answered {
            answer: encode(&outcome),
            rests_on: known.map_or(self.sequence, |node| node.changed),
        }
    }

    fn apply(&mut self, session: SessionId, change: &Change<'_>, now: Now) -> Outcome<Answer> {
        match *change {
            Change::Make { lease, .. } => {
                let attr = self.make(change, now)?;
                if lease && attr.kind() == S_IFREG {
                    self.grant_write(session, attr.ino);
                }
                Ok(Answer::Attr(attr))
            }
            Change::Unlink { parent, name } => self.unlink(parent, name, now).map(Answer::Attr),
            Change::Rmdir { parent, name } => self.rmdir(parent, name, now).map(|()| Answer::Done),
            Change::Rename {
                parent,
                name,
                new_parent,
                new_name,
                flags,
            } => self.rename((parent, name), (new_parent, new_name), flags, now),
            Change::Link { ino, parent, name } => {
                self.link(ino, parent, name, now).map(Answer::Attr)
            }
            Change::SetAttr { .. } => self.set_attributes(change, now).map(Answer::Attr),
            Change::SetXattr {
                ino,
                name,
                value,
                flags,
            } => self.set_xattr(ino, name, value, flags, now),
            Change::RemoveXattr { ino, name } => self.remove_xattr(ino, name, now),
            Change::Lease { .. } => refuse(Errno::INVAL),
            Change::Release { ino } => {
                self.release(session, ino);
                Ok(Answer::Done)
            }
            Change::Keep { ino } => {
                self.keep(session, ino);
                Ok(Answer::Done)
            }
            Change::Reserve { count } => self.reserve(session, count),
            Change::Commit { .. } => self.commit(session, change, now).map(Answer::Attr),
            Change::Settle { ended } => {
                self.settle(ended);
                Ok(Answer::Done)
            }
            Change::Bye => {
                self.settle(session);
                Ok(Answer::Done)
            }
        }
    }

    /// Stores a data server's description of itself; returns its index in the list.
    pub fn know_server(&mut self, about: DataServer) -> Option<u16> {
        self.sequence += 1;
        self.space.know(about, &mut self.records)
    }

    /// The data servers, in the order of [`Extent::server`].
    pub fn servers(&self) -> Vec<DataServer> {
        self.space.servers().cloned().collect()
    }

    fn node(&self, ino: Ino) -> Outcome<&Node> {
        self.nodes.get(&ino).ok_or(Errno::NOENT.into())
    }

    fn node_mut(&mut self, ino: Ino) -> Outcome<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(Errno::NOENT.into())
    }

    /// Adds an inode with the next number, as `parent`'s child if it is a directory.
    fn add(&mut self, inode: Inode, parent: Ino) -> Ino {
        let ino = self.next_ino;
        self.next_ino += 1;
        if self.next_ino > self.ino_bound {
            self.ino_bound = self.next_ino + NUMBERS_AHEAD;
            self.records.push(Key::Bound.put(&self.ino_bound));
        }
        self.nodes
            .insert(ino, Node::new(inode, parent, self.sequence));
        self.write_down(ino);
        ino
    }

    /// Journals the record of an inode that has changed.
    fn write_down(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.changed = self.sequence;
            self.records.push(Key::Inode(ino).put(&node.inode));
        }
    }

    /// Removes a file without names, once no session reads or writes it; `quarantine` is the session whose writes may
    /// still arrive.
    fn drop_unless_used(&mut self, ino: Ino, quarantine: Option<SessionId>) {
        let nameless = self
            .nodes
            .get(&ino)
            .is_some_and(|node| node.inode.nlink == 0);
        let used = self.leases.contains_key(&ino) || !self.unheard.is_empty();
        if !nameless || used {
            return;
        }
        let Some(node) = self.nodes.remove(&ino) else {
            return;
        };
        self.last_gone = self.sequence;
        self.records.push(Key::Inode(ino).take());
        if let Body::File(map) = node.body {
            for (index, extent) in map {
                self.records.push(Key::Map(ino, index).take());
                match quarantine {
                    Some(session) => self.space.quarantine(extent, session, &mut self.records),
                    None => self.space.free(extent),
                }
            }
        }
    }
}
