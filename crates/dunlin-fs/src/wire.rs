//! The messages between clients and servers: values encoded by postcard. A server decodes untrusted bytes: nothing is
//! allocated for data that has not arrived, and all numbers are checked where they are used.

use postcard::ser_flavors::Flavor;
use serde::ser::SerializeSeq;
use serde::{Deserialize, Serialize, Serializer};

use crate::types::{Attr, DataServer, Extent, Ino, SessionId};

/// The handlers of the metadata server.
pub mod meta {
    /// A query, answered on the polling thread.
    pub const ASK: u16 = 200;
    /// A query that waits until the state it has seen is on disk.
    pub const ASK_DURABLE: u16 = 201;
    /// A change.
    pub const CHANGE: u16 = 202;
    /// Begins a session.
    pub const HELLO: u16 = 203;
    /// Renews a session, and waits for leases that are recalled.
    pub const WATCH: u16 = 204;
}

/// The handlers of a data server.
pub mod data {
    /// Identifies the server.
    pub const DESCRIBE: u16 = 210;
    /// Writes extents to the file.
    pub const FLUSH: u16 = 211;
    /// Copies extents to other places.
    pub const COPY: u16 = 212;
}

/// A query, which changes nothing.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Ask<'a> {
    /// Get attributes.
    GetAttr { ino: Ino },
    /// Look up a name in a directory.
    Lookup { parent: Ino, name: &'a [u8] },
    /// Get the target of a symbolic link.
    ReadLink { ino: Ino },
    /// Get the names after `after`, about `bytes` of them.
    ReadDir {
        ino: Ino,
        after: &'a [u8],
        bytes: u32,
    },
    /// Get an extended attribute.
    GetXattr { ino: Ino, name: &'a [u8] },
    /// Get the names of the extended attributes.
    ListXattr { ino: Ino },
    /// Get a part of a file's map, from this extent on.
    Map { ino: Ino, from: u32 },
    /// List the data servers.
    Servers,
    /// Get the space.
    StatFs,
}

/// A change, of the namespace or of a lease.
#[allow(missing_docs)]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Change<'a> {
    /// Create a file of any kind; `lease` also requests the right to write it.
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
    /// Remove a name.
    Unlink { parent: Ino, name: &'a [u8] },
    /// Remove an empty directory.
    Rmdir { parent: Ino, name: &'a [u8] },
    /// Rename.
    Rename {
        parent: Ino,
        name: &'a [u8],
        new_parent: Ino,
        new_name: &'a [u8],
        flags: u32,
    },
    /// Add a name.
    Link {
        ino: Ino,
        parent: Ino,
        name: &'a [u8],
    },
    /// Set attributes; `None` leaves one unchanged.
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
    /// Set an extended attribute.
    SetXattr {
        ino: Ino,
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
    },
    /// Remove an extended attribute.
    RemoveXattr { ino: Ino, name: &'a [u8] },
    /// Request a lease; waits while others' leases conflict with it.
    Lease { ino: Ino, write: bool },
    /// Release a lease.
    Release { ino: Ino },
    /// Reserve extents for new content.
    Reserve { count: u32 },
    /// Commit a file's new state: extents from `cut` on are removed first, then `map` is added.
    Commit {
        ino: Ino,
        size: u64,
        mtime: Option<i64>,
        cut: Option<u32>,
        map: Vec<(u32, Extent)>,
    },
    /// No write of that session is in progress, nor will be: free what was held for it.
    Settle { ended: SessionId },
    /// End the session, with everything it has.
    Bye,
    /// Give up the right of a lease, but keep the file until [`Change::Release`]: it exists even without a name.
    Keep { ino: Ino },
}

/// A change with its number: it is executed once, however often it is sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Envelope<'a> {
    /// The session.
    pub session: SessionId,
    /// The client's slot: each has one outstanding change at a time.
    pub slot: u16,
    /// The number of the change in its slot, incremented each time.
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
    /// Bytes: a target, a value, or names that are each terminated by a zero.
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
        /// The extent of each index in the file.
        map: Vec<(u32, Extent)>,
        /// Whether there is no more.
        end: bool,
    },
    /// Extents for this session only.
    Extents(Vec<Extent>),
    /// The data servers.
    Servers(Vec<DataServer>),
    /// Space, in extents, and the number of files.
    StatFs {
        /// Total of all data servers.
        extents: u64,
        /// Number of free extents.
        free: u64,
        /// Number of extents that are quarantined until a data server restarts or the client that may still write them
        /// settles.
        quarantined: u64,
        /// Number of files.
        files: u64,
    },
}

/// The information that a session gets when it begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// The session's name.
    pub session: SessionId,
    /// Time that it lasts after it was last renewed, in milliseconds.
    pub lease_ms: u64,
    /// The start of the metadata server: leases to read belong to one start.
    pub epoch: u64,
}

/// A request to renew a session.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Watch {
    /// The session.
    pub session: SessionId,
    /// The start of the metadata server that the client knows: it has no lease to read from an earlier one.
    pub epoch: u64,
}

/// The answer to a watch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Watched {
    /// The start of the metadata server.
    pub epoch: u64,
    /// Leases for which others wait: commit, then release them.
    pub recalled: Vec<Ino>,
}

/// A data server's description of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// The id of its file.
    pub id: u64,
    /// The incarnation of this start.
    pub incarnation: u64,
    /// Number of extents.
    pub extents: u32,
}

/// Extents to be written to the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flush {
    /// The start of the server at which they were written: if it is another one they are lost.
    pub incarnation: u64,
    /// Their indices.
    pub extents: Vec<u32>,
}

/// Extents to be copied elsewhere and written to the file, as (from, to).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Copy {
    /// As for [`Flush`].
    pub incarnation: u64,
    /// Source and destination.
    pub pairs: Vec<(u32, u32)>,
}

/// The name of a data server's region at one start: an operation for another start finds no such region.
pub fn region_name(incarnation: u64) -> String {
    format!("dunlin-fs-{incarnation:016x}")
}

/// Space that is enough for most messages and records: attributes take about 60 bytes.
const ENCODED_BYTES: usize = 128;

/// Encodes a value.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // The values have no maps of unknown length, the only thing that postcard cannot encode.
    let room = Room(Vec::with_capacity(ENCODED_BYTES));
    postcard::serialize_with_flavor(value, room).unwrap_or_default()
}

/// A buffer to which bytes are appended in pieces; postcard's own starts without capacity.
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

/// Writes each name in one piece instead of byte by byte: the encoding is the same.
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

/// Decodes all of `bytes`; `None` if they are not a valid encoding, or there are extra bytes.
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
