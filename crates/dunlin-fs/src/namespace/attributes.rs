//! Attributes and extended attributes.

use super::{Namespace, Now};
use crate::types::{
    refuse, without_privileges, Attr, Errno, Ino, Outcome, S_IFMT, XATTR_BYTES, XATTR_CREATE,
    XATTR_NAME_BYTES, XATTR_REPLACE, XATTR_VALUE_BYTES,
};
use crate::wire::{Answer, Change};

impl Namespace {
    pub(super) fn set_attributes(&mut self, change: &Change<'_>, now: Now) -> Outcome<Attr> {
        let &Change::SetAttr {
            ino,
            mode,
            uid,
            gid,
            atime,
            mtime,
            clear_privileges,
        } = change
        else {
            return refuse(Errno::INVAL);
        };
        let node = self.node_mut(ino)?;
        let inode = &mut node.inode;
        if let Some(mode) = mode {
            inode.mode = inode.mode & S_IFMT | mode & !S_IFMT & 0o7777;
        }
        if clear_privileges {
            inode.mode = without_privileges(inode.mode);
        }
        inode.uid = uid.unwrap_or(inode.uid);
        inode.gid = gid.unwrap_or(inode.gid);
        inode.atime = atime.unwrap_or(inode.atime);
        inode.mtime = mtime.unwrap_or(inode.mtime);
        inode.ctime = now.wall;
        let attr = node.attr(ino);
        self.write_down(ino);
        Ok(attr)
    }

    pub(super) fn set_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: u32,
        now: Now,
    ) -> Outcome<Answer> {
        if name.is_empty() || name.len() > XATTR_NAME_BYTES || name.contains(&0) {
            return refuse(Errno::RANGE);
        }
        if value.len() > XATTR_VALUE_BYTES {
            return refuse(Errno::NOSPC);
        }
        let inode = &mut self.node_mut(ino)?.inode;
        let there = inode.xattrs.contains_key(name);
        match flags {
            XATTR_CREATE if there => return refuse(Errno::EXIST),
            XATTR_REPLACE if !there => return refuse(Errno::NODATA),
            0 | XATTR_CREATE | XATTR_REPLACE => {}
            _ => return refuse(Errno::INVAL),
        }
        let others = inode.xattrs.iter().filter(|(other, _)| *other != name);
        let bytes: usize = others.map(|(name, value)| name.len() + value.len()).sum();
        if bytes + name.len() + value.len() > XATTR_BYTES {
            return refuse(Errno::NOSPC);
        }
        inode.xattrs.insert(name.to_vec(), value.to_vec());
        inode.ctime = now.wall;
        self.write_down(ino);
        Ok(Answer::Done)
    }

    pub(super) fn remove_xattr(&mut self, ino: Ino, name: &[u8], now: Now) -> Outcome<Answer> {
        let inode = &mut self.node_mut(ino)?.inode;
        if inode.xattrs.remove(name).is_none() {
            return refuse(Errno::NODATA);
        }
        inode.ctime = now.wall;
        self.write_down(ino);
        Ok(Answer::Done)
    }
}
