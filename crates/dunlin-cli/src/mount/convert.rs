//! Converts Dunlin's values to the kernel's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin_fs::types::{Attr, EXTENT_BYTES, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFSOCK};
use dunlin_fs::FsError;
use fuser::{Errno, FileAttr, FileType, INodeNo, ReplyXattr, TimeOrNow};

/// Blocks in which `stat` counts space.
const BLOCK_BYTES: u64 = 512;

pub(super) fn errno_of(error: &FsError) -> Errno {
    if !matches!(error, FsError::Refused(_)) {
        tracing::warn!(%error, "an operation of the kernel failed");
    }
    Errno::from_i32(i32::from(error.errno().0))
}

pub(super) fn kind_of(kind: u32) -> FileType {
    match kind {
        S_IFDIR => FileType::Directory,
        S_IFLNK => FileType::Symlink,
        S_IFIFO => FileType::NamedPipe,
        S_IFSOCK => FileType::Socket,
        S_IFCHR => FileType::CharDevice,
        S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn time_of(nanoseconds: i64) -> SystemTime {
    let since = Duration::from_nanos(nanoseconds.unsigned_abs());
    match nanoseconds {
        0.. => UNIX_EPOCH + since,
        _ => UNIX_EPOCH - since,
    }
}

pub(super) fn nanoseconds(time: TimeOrNow) -> i64 {
    let time = match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    };
    let bounded = |since: Duration| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => bounded(since),
        Err(before) => -bounded(before.duration()),
    }
}

pub(super) fn attr_of(attr: &Attr) -> FileAttr {
    let mtime = time_of(attr.mtime);
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: u64::from(attr.extents) * EXTENT_BYTES / BLOCK_BYTES,
        atime: time_of(attr.atime),
        mtime,
        ctime: time_of(attr.ctime),
        crtime: mtime,
        kind: kind_of(attr.kind()),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: EXTENT_BYTES as u32,
        flags: 0,
    }
}

/// An entry that does not exist: its number is 0, and the rest is ignored.
pub(super) fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: EXTENT_BYTES as u32,
        flags: 0,
    }
}

/// The bytes, or how many they are where nothing else was asked.
pub(super) fn answer_xattr(found: Result<Vec<u8>, FsError>, room: u32, reply: ReplyXattr) {
    match found {
        Ok(bytes) if room == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() <= room as usize => reply.data(&bytes),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(error) => reply.error(errno_of(&error)),
    }
}
