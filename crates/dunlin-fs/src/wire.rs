//! What crosses between clients and servers: values in postcard's encoding. A server decodes bytes that a stranger may
//! have written: nothing is allocated for a length that is not there, and all numbers are checked where they are used.

use postcard::ser_flavors::Flavor;
use serde::ser::SerializeSeq;
use serde::{Deserialize, Serialize, Serializer};

use crate::types::{Attr, DataServer, Extent, Ino, SessionId};

/// Handlers of the metadata server.
pub mod meta {
    /// A question, answered on the polling thread.
    pub const ASK: u16 = 200;
    /// A question that waits until what it saw is on disk.
    pub const ASK_DURABLE: u16 = 201;
    /// A change.
    pub const CHANGE: u16 = 202;
    /// A new session.
    pub const HELLO: u16 = 203;
    /// Renews a session, and waits for leases that are called back.
    pub const WATCH: u16 = 204;
}

/// Handlers of a data server.
pub mod data {
    /// Who it is.
    pub const DESCRIBE: u16 = 210;
    /// Extents into the file.
    pub const FLUSH: u16 = 211;
    /// Extents to other places.
    pub const COPY: u16 = 212;
}

/// What changes nothing.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Ask<'a> {
    /// Attributes.
    GetAttr { ino: Ino },
    /// A name in a directory.
    Lookup { parent: Ino, name: &'a [u8] },
    /// Target of a symbolic link.
    ReadLink { ino: Ino },
    /// Names behind `after`, about `bytes` of them.
    ReadDir {
        ino: Ino,
        after: &'a [u8],
        bytes: u32,
    },
    /// An extended attribute.
    GetXattr { ino: Ino, name: &'a [u8] },
    /// Their names.
    ListXattr { ino: Ino },
    /// Part of a file's map, from this extent on.
    Map { ino: Ino, from: u32 },
    /// The data servers.
    Servers,
    /// Space.
    StatFs,
}

/// What changes something, or a lease.
#[allow(missing_docs)]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Change<'a> {
    /// A file of any kind; `lease` asks for the right to write it with it.
    Make {
        parent: Ino,
        name: &'a [u8],
        mode: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        target: &'a [u8],
        lease: bool,
    },
    /// Takes a name away.
    Unlink { parent: Ino, name: &'a [u8] },
    /// Takes an empty directory away.
    Rmdir { parent: Ino, name: &'a [u8] },
    /// Another name.
    Rename {
        parent: Ino,
        name: &'a [u8],
        new_parent: Ino,
        new_name: &'a [u8],
        flags: u32,
    },
    /// One more name.
    Link {
        ino: Ino,
        parent: Ino,
        name: &'a [u8],
    },
    /// Attributes; `None` leaves one as it is.
    SetAttr {
        ino: Ino,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        atime: Option<i64>,
        mtime: Option<i64>,
        /// See [`crate::types::without_privileges`].
        clear_privileges: bool,
    },
    /// Sets an extended attribute.
    SetXattr {
        ino: Ino,
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
    },
    /// Takes one away.
    RemoveXattr { ino: Ino, name: &'a [u8] },
    /// A lease; waits while others' stand against it.
    Lease { ino: Ino, write: bool },
    /// Gives it back.
    Release { ino: Ino },
    /// Extents to write new content into.
    Reserve { count: u32 },
    /// What a file is from now on: extents from `cut` on go first, then `map` comes.
    Commit {
        ino: Ino,
        size: u64,
        mtime: Option<i64>,
        cut: Option<u32>,
        map: Vec<(u32, Extent)>,
    },
    /// No write of that session is under way any more, nor will be: what was kept from use for its sake is free.
    Settle { ended: SessionId },
    /// The session ends, with all it has.
    Bye,
}

/// A change and its name: the same one is done once, however often it is sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Envelope<'a> {
    /// Whose.
    pub session: SessionId,
    /// Which of the client's slots: one has one change out at a time.
    pub slot: u16,
    /// Number of the change in its slot; one more each time.
    pub sequence: u32,
    /// The change.
    #[serde(borrow)]
    pub change: Change<'a>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Done.
    Done,
    /// Attributes.
    Attr(Attr),
    /// Bytes: a target, a value, or names that end with a zero each.
    Bytes(Vec<u8>),
    /// Entries of a directory.
    Entries {
        /// Name, number, kind.
        #[serde(serialize_with = "names_whole")]
        entries: Vec<(Vec<u8>, Ino, u32)>,
        /// Whether there are no more.
        end: bool,
    },
    /// A part of a map.
    Map {
        /// Which extent of the file is where.
        map: Vec<(u32, Extent)>,
        /// Whether there is no more.
        end: bool,
    },
    /// Extents for this session alone.
    Extents(Vec<Extent>),
    /// The data servers.
    Servers(Vec<DataServer>),
    /// Space, in extents, and files.
    StatFs {
        /// Of all data servers.
        extents: u64,
        /// Free ones.
        free: u64,
        /// Kept from use until a data server starts anew or the client that may still write them has spoken.
        quarantined: u64,
        /// Files there are.
        files: u64,
    },
}

/// What a session is told at its begin.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// Its name.
    pub session: SessionId,
    /// How long it lasts after it was last renewed, in milliseconds.
    pub lease_ms: u64,
    /// Start of the metadata server: leases to read are of one start.
    pub epoch: u64,
}

/// Renews a session.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Watch {
    /// Which.
    pub session: SessionId,
    /// The start of the metadata server that the client knows: it has no lease to read of an earlier one.
    pub epoch: u64,
}

/// What a watch brings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Watched {
    /// The start of the metadata server.
    pub epoch: u64,
    /// Leases that others wait for: commit, then give them back.
    pub recalled: Vec<Ino>,
}

/// What a data server says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// Of its file.
    pub id: u64,
    /// Of this start.
    pub incarnation: u64,
    /// Extents.
    pub extents: u32,
}

/// Extents whose bytes go into the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flush {
    /// Start of the server at which they were written: of another one they are lost.
    pub incarnation: u64,
    /// Which.
    pub extents: Vec<u32>,
}

/// Extents whose bytes go elsewhere and into the file, as (from, to).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Copy {
    /// As for [`Flush`].
    pub incarnation: u64,
    /// From where, whereto.
    pub pairs: Vec<(u32, u32)>,
}

/// The name of a data server's region at one start: an operation for another start finds no such region.
pub fn region_name(incarnation: u64) -> String {
    format!("dunlin-fs-{incarnation:016x}")
}

/// Room that most messages and records need: attributes have some 60 bytes.
const ENCODED_BYTES: usize = 128;

/// Encodes.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // What is written here has no maps of unknown length, the one thing that postcard refuses.
    let room = Room(Vec::with_capacity(ENCODED_BYTES));
    postcard::serialize_with_flavor(value, room).unwrap_or_default()
}

/// Bytes that are appended in pieces; postcard's own begins without room.
struct Room(Vec<u8>);

impl Flavor for Room {
    type Output = Vec<u8>;

    #[inline]
    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    #[inline]
    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.0)
    }
}

/// Writes each name in one piece, and not byte by byte: the bytes are the same.
fn names_whole<S: Serializer>(
    entries: &[(Vec<u8>, Ino, u32)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    struct Whole<'a>(&'a [u8]);
    impl Serialize for Whole<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(self.0)
        }
    }
    let mut sequence = serializer.serialize_seq(Some(entries.len()))?;
    for (name, ino, kind) in entries {
        sequence.serialize_element(&(Whole(name), ino, kind))?;
    }
    sequence.end()
}

/// Decodes all of `bytes`; `None` where they are nothing of the kind, or more.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_one_piece_are_the_same_bytes() {
        let entries = vec![
            (b"dunlin".to_vec(), 7, 0o100_000),
            (vec![0xff; 200], 300, 0),
        ];
        let expected = [vec![3], encode(&entries), vec![1]].concat();
        let answer = Answer::Entries { entries, end: true };
        assert_eq!(encode(&answer), expected);
        assert_eq!(decode::<Answer>(&expected), Some(answer));
    }
}
