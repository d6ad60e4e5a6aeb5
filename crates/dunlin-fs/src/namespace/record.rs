//! The persistent form of the namespace: records of a key and a value, as few as possible. A group of changes is a list
//! of records to put or to remove; the latest records of all keys are the whole state.
//!
//! | key | value |
//! |---|---|
//! | `c` | a bound above all inode numbers that were given |
//! | `d` directory, name | inode |
//! | `e` extent | who holds it, where that is no file |
//! | `i` inode | kind, permissions, owner, size, times, target, extended attributes |
//! | `l` inode | the session that may write it |
//! | `m` inode, extent of the file | extent |
//! | `r` session, slot | number of its last change, answer |
//! | `s` session | whether it has ended |
//! | `v` data server | what is known of it |

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::types::{Attr, Extent, Ino, SessionId};
use crate::wire::encode;

/// A record that is put, or removed if it is `None`.
pub type Record = (Vec<u8>, Option<Vec<u8>>);

/// The part of an inode that is stored in one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Inode {
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    pub(super) size: u64,
    pub(super) atime: i64,
    pub(super) mtime: i64,
    pub(super) ctime: i64,
    pub(super) target: Vec<u8>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Inode {
    pub(super) fn attr(&self, ino: Ino, extents: usize) -> Attr {
        Attr {
            ino,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size: self.size,
            extents: extents as u32,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
        }
    }
}

/// The holder of an extent that belongs to no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Held {
    /// A session may write new content there.
    Reserved(SessionId),
    /// A session that has ended may still write there.
    Quarantined(SessionId),
}

/// A decoded key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Key<'a> {
    Bound,
    Entry(Ino, &'a [u8]),
    Held(Extent),
    Inode(Ino),
    Lease(Ino),
    Map(Ino, u32),
    Slot(SessionId, u16),
    Session(SessionId),
    Server(u16),
}

impl<'a> Key<'a> {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(16);
        match *self {
            Self::Bound => key.push(b'c'),
            Self::Entry(parent, name) => {
                key.push(b'd');
                key.extend(parent.to_be_bytes());
                key.extend(name);
            }
            Self::Held(extent) => {
                key.push(b'e');
                key.extend(extent.server.to_be_bytes());
                key.extend(extent.index.to_be_bytes());
            }
            Self::Inode(ino) => {
                key.push(b'i');
                key.extend(ino.to_be_bytes());
            }
            Self::Lease(ino) => {
                key.push(b'l');
                key.extend(ino.to_be_bytes());
            }
            Self::Map(ino, index) => {
                key.push(b'm');
                key.extend(ino.to_be_bytes());
                key.extend(index.to_be_bytes());
            }
            Self::Slot(session, slot) => {
                key.push(b'r');
                key.extend(session.to_be_bytes());
                key.extend(slot.to_be_bytes());
            }
            Self::Session(session) => {
                key.push(b's');
                key.extend(session.to_be_bytes());
            }
            Self::Server(server) => {
                key.push(b'v');
                key.extend(server.to_be_bytes());
            }
        }
        key
    }

    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        let number = || Some(u64::from_be_bytes(rest.try_into().ok()?));
        Some(match kind {
            b'c' if rest.is_empty() => Self::Bound,
            b'd' => {
                let (parent, name) = rest.split_first_chunk()?;
                Self::Entry(u64::from_be_bytes(*parent), name)
            }
            b'e' => {
                let (server, index) = rest.split_first_chunk()?;
                Self::Held(Extent {
                    server: u16::from_be_bytes(*server),
                    index: u32::from_be_bytes(index.try_into().ok()?),
                })
            }
            b'i' => Self::Inode(number()?),
            b'l' => Self::Lease(number()?),
            b'm' => {
                let (ino, index) = rest.split_first_chunk()?;
                let index = u32::from_be_bytes(index.try_into().ok()?);
                Self::Map(u64::from_be_bytes(*ino), index)
            }
            b'r' => {
                let (session, slot) = rest.split_first_chunk()?;
                let slot = u16::from_be_bytes(slot.try_into().ok()?);
                Self::Slot(u64::from_be_bytes(*session), slot)
            }
            b's' => Self::Session(number()?),
            b'v' => Self::Server(u16::from_be_bytes(rest.try_into().ok()?)),
            _ => return None,
        })
    }

    pub(super) fn put<T: Serialize>(&self, value: &T) -> Record {
        (self.bytes(), Some(encode(value)))
    }

    pub(super) fn take(&self) -> Record {
        (self.bytes(), None)
    }
}
