//! The types that both ends use: inodes, attributes, extents, errors. Numbers of errors and of file types are those of
//! Linux.

use serde::{Deserialize, Serialize};

/// A file's number. Never reused.
pub type Ino = u64;
/// A client's session at the metadata server: a random number, so that only its client knows it.
pub type SessionId = u64;
/// The root directory.
pub const ROOT: Ino = 1;
/// Length of an extent in bytes, the unit of space allocation: a small file costs this much, and a file of a gigabyte
/// has a map of 32,768 entries.
pub const EXTENT_BYTES: u64 = 32 << 10;
/// Maximum length of a name in a directory, as in Linux.
pub const NAME_BYTES: usize = 255;
/// Maximum length of a symbolic link's target.
pub const TARGET_BYTES: usize = 4095;
/// Maximum length of an extended attribute's name.
pub const XATTR_NAME_BYTES: usize = 255;
/// Maximum length of an extended attribute's value, as in Linux.
pub const XATTR_VALUE_BYTES: usize = 64 << 10;
/// Maximum bytes of all extended attributes of one file, names and values: they are one record of the journal.
pub const XATTR_BYTES: usize = 256 << 10;
/// Maximum length of a file: its extents are counted in 32 bits.
pub const FILE_BYTES: u64 = EXTENT_BYTES * (u32::MAX as u64);
/// Maximum number of outstanding changes of a session: the answer of each is kept.
pub const SLOTS: u16 = 256;
/// Maximum number of links to a file.
pub const LINKS: u32 = 65_000;

/// The bits of a mode that are the kind of file.
pub const S_IFMT: u32 = 0o170_000;
/// A directory.
pub const S_IFDIR: u32 = 0o040_000;
/// A regular file.
pub const S_IFREG: u32 = 0o100_000;
/// A symbolic link.
pub const S_IFLNK: u32 = 0o120_000;
/// A named pipe.
pub const S_IFIFO: u32 = 0o010_000;
/// A socket.
pub const S_IFSOCK: u32 = 0o140_000;
/// A character device.
pub const S_IFCHR: u32 = 0o020_000;
/// A block device.
pub const S_IFBLK: u32 = 0o060_000;
/// New files in a directory with this bit belong to its group.
pub const S_ISGID: u32 = 0o2000;

/// Rename: fail if the new name exists.
pub const RENAME_NOREPLACE: u32 = 1;
/// Rename: exchange both names.
pub const RENAME_EXCHANGE: u32 = 2;

/// Extended attribute: fail if it exists.
pub const XATTR_CREATE: u32 = 1;
/// Extended attribute: fail if it does not exist.
pub const XATTR_REPLACE: u32 = 2;

/// The location of an extent's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// The data server, by its index in the metadata server's list.
    pub server: u16,
    /// The index of the extent on it.
    pub index: u32,
}

impl Extent {
    /// Its first byte in the server's region.
    pub fn offset(self) -> u64 {
        u64::from(self.index) * EXTENT_BYTES
    }
}

/// The result of `stat`. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// The number.
    pub ino: Ino,
    /// Kind and permissions.
    pub mode: u32,
    /// Number of names; for a directory 2 plus its subdirectories.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Number of allocated extents.
    pub extents: u32,
    /// Time of the last read, as set by `utimens`: reading does not change it.
    pub atime: i64,
    /// Time of the last change of the content.
    pub mtime: i64,
    /// Time of the last change of anything.
    pub ctime: i64,
}

/// Returns kind and permissions of a file without the bits that a write by an unprivileged user, or a new owner,
/// clears. The set-group-ID bit of a file that its group may not execute has another meaning, and stays.
pub fn without_privileges(mode: u32) -> u32 {
    const SET_USER_ID: u32 = 0o4000;
    const SET_GROUP_ID: u32 = 0o2000;
    const GROUP_MAY_RUN: u32 = 0o10;
    match (mode & S_IFMT == S_IFREG, mode & GROUP_MAY_RUN) {
        (false, _) => mode,
        (true, 0) => mode & !SET_USER_ID,
        (true, _) => mode & !(SET_USER_ID | SET_GROUP_ID),
    }
}

impl Attr {
    /// The kind, one of the `S_IF` values.
    pub fn kind(&self) -> u32 {
        self.mode & S_IFMT
    }
}

/// The metadata server's information about a data server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataServer {
    /// The id in its file: another file is another server.
    pub id: u64,
    /// A random number drawn when it was started: the memory of another start is different memory.
    pub incarnation: u64,
    /// Number of extents.
    pub extents: u32,
    /// Its address.
    pub address: String,
}

/// Why an operation was refused: an error number of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[error("{} (errno {})", .0.words(), .0.0)]
pub struct Refused(pub Errno);

impl std::fmt::Debug for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// An error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Errno(pub u16);

macro_rules! errnos {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        impl Errno {
            $(#[doc = $words] pub const $name: Errno = Errno($number);)*

            /// The meaning of the number.
            pub fn words(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                    _ => "refused",
                }
            }
        }
    };
}

errnos! {
    PERM = 1, "operation not permitted";
    NOENT = 2, "no such file or directory";
    IO = 5, "input/output error";
    BADF = 9, "bad file descriptor";
    EXIST = 17, "file exists";
    NOTDIR = 20, "not a directory";
    ISDIR = 21, "is a directory";
    INVAL = 22, "invalid argument";
    FBIG = 27, "file too large";
    NOSPC = 28, "no space left on the data servers";
    MLINK = 31, "too many links";
    RANGE = 34, "result too large";
    NAMETOOLONG = 36, "name too long";
    NOTEMPTY = 39, "directory not empty";
    NODATA = 61, "no such extended attribute";
    STALE = 116, "the session or the lease has expired";
    AGAIN = 11, "would block: use the call that waits";
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Self(errno)
    }
}

/// The outcome of an operation.
pub type Outcome<T> = Result<T, Refused>;

/// Returns an error.
pub(crate) fn refuse<T>(errno: Errno) -> Outcome<T> {
    Err(Refused(errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_write_takes_away() {
        for (before, after) in [
            (0o755, 0o755),
            (0o6755, 0o755),
            (0o6745, 0o2745),
            (0o2745, 0o2745),
        ] {
            assert_eq!(without_privileges(S_IFREG | before), S_IFREG | after);
        }
        assert_eq!(without_privileges(S_IFDIR | 0o6755), S_IFDIR | 0o6755);
    }
}
