//! Names: files are created, removed and renamed. Errors are those of Linux.

use std::collections::BTreeMap;

use super::record::{Inode, Key};
use super::{Body, Namespace, Node, Now};
use crate::types::{
    refuse, Attr, Errno, Ino, Outcome, LINKS, NAME_BYTES, RENAME_EXCHANGE, RENAME_NOREPLACE, ROOT,
    S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, S_ISGID, TARGET_BYTES,
};
use crate::wire::{Answer, Change};

/// The bits of a mode that are not the kind.
const PERMISSIONS: u32 = 0o7777;

/// Whether a name is valid in a directory.
fn check_name(name: &[u8]) -> Outcome<()> {
    match name {
        [] | b"." | b".." => refuse(Errno::INVAL),
        _ if name.len() > NAME_BYTES => refuse(Errno::NAMETOOLONG),
        _ if name.contains(&b'/') || name.contains(&0) => refuse(Errno::INVAL),
        _ => Ok(()),
    }
}

impl Namespace {
    /// The inode of a name, if there is one; an error if `parent` is not a directory.
    pub(super) fn find(&self, parent: Ino, name: &[u8]) -> Outcome<Option<Ino>> {
        match &self.node(parent)?.body {
            Body::Directory { .. } if name.len() > NAME_BYTES => refuse(Errno::NAMETOOLONG),
            Body::Directory { entries, .. } => Ok(entries.get(name).copied()),
            _ => refuse(Errno::NOTDIR),
        }
    }

    fn existing(&self, parent: Ino, name: &[u8]) -> Outcome<Ino> {
        self.find(parent, name)?.ok_or(Errno::NOENT.into())
    }

    pub(super) fn make(&mut self, change: &Change<'_>, now: Now) -> Outcome<Attr> {
        let &Change::Make {
            parent,
            name,
            mode,
            uid,
            gid,
            rdev,
            target,
            ..
        } = change
        else {
            return refuse(Errno::INVAL);
        };
        if self.find(parent, name)?.is_some() {
            return refuse(Errno::EXIST);
        }
        check_name(name)?;
        let kind = mode & S_IFMT;
        match kind {
            S_IFLNK if target.is_empty() => return refuse(Errno::NOENT),
            S_IFLNK if target.len() > TARGET_BYTES => return refuse(Errno::NAMETOOLONG),
            S_IFLNK | S_IFREG | S_IFDIR | S_IFIFO | S_IFSOCK | S_IFCHR | S_IFBLK => {}
            _ => return refuse(Errno::INVAL),
        }
        let above = &self.node(parent)?.inode;
        if above.nlink == 0 {
            return refuse(Errno::NOENT);
        }
        let inherits = above.mode & S_ISGID != 0;
        let gid = if inherits { above.gid } else { gid };
        let bit = match inherits && kind == S_IFDIR {
            true => S_ISGID,
            false => 0,
        };
        let target = match kind {
            S_IFLNK => target,
            _ => &[],
        };
        let inode = Inode {
            mode: kind | mode & PERMISSIONS | bit,
            nlink: if kind == S_IFDIR { 2 } else { 1 },
            uid,
            gid,
            rdev,
            size: target.len() as u64,
            atime: now.wall,
            mtime: now.wall,
            ctime: now.wall,
            target: target.to_vec(),
            xattrs: Default::default(),
        };
        let ino = self.add(inode, parent);
        self.bind(parent, name, ino, now);
        Ok(self.node(ino)?.attr(ino))
    }

    /// Adds a name to a directory that does not have it.
    fn bind(&mut self, parent: Ino, name: &[u8], ino: Ino, now: Now) {
        let mut links = 0;
        if let Some(child) = self.nodes.get_mut(&ino) {
            if let Body::Directory { parent: above, .. } = &mut child.body {
                (*above, links) = (parent, 1);
            }
        }
        self.records.push(Key::Entry(parent, name).put(&ino));
        self.change_entries(parent, now, links, |entries| {
            entries.insert(name.to_vec(), ino);
        });
    }

    /// Removes a name from a directory.
    fn unbind(&mut self, parent: Ino, name: &[u8], ino: Ino, now: Now) {
        let directory = self.nodes.get(&ino).is_some_and(Node::is_directory);
        self.records.push(Key::Entry(parent, name).take());
        self.change_entries(parent, now, -i32::from(directory), |entries| {
            entries.remove(name);
        });
    }

    fn change_entries(
        &mut self,
        parent: Ino,
        now: Now,
        links: i32,
        change: impl FnOnce(&mut BTreeMap<Vec<u8>, Ino>),
    ) {
        let Some(node) = self.nodes.get_mut(&parent) else {
            return;
        };
        if let Body::Directory { entries, .. } = &mut node.body {
            change(entries);
        }
        (node.inode.mtime, node.inode.ctime) = (now.wall, now.wall);
        node.inode.nlink = node.inode.nlink.saturating_add_signed(links);
        self.write_down(parent);
    }

    /// Handles the removal of one name of a file; returns its new attributes.
    fn lose_name(&mut self, ino: Ino, now: Now) -> Outcome<Attr> {
        let node = self.node_mut(ino)?;
        node.inode.nlink = match node.is_directory() {
            true => 0,
            false => node.inode.nlink.saturating_sub(1),
        };
        node.inode.ctime = now.wall;
        let attr = node.attr(ino);
        self.write_down(ino);
        self.drop_unless_used(ino, None);
        Ok(attr)
    }

    pub(super) fn unlink(&mut self, parent: Ino, name: &[u8], now: Now) -> Outcome<Attr> {
        let ino = self.existing(parent, name)?;
        if self.node(ino)?.is_directory() {
            return refuse(Errno::ISDIR);
        }
        self.unbind(parent, name, ino, now);
        self.lose_name(ino, now)
    }

    pub(super) fn rmdir(&mut self, parent: Ino, name: &[u8], now: Now) -> Outcome<()> {
        let ino = self.existing(parent, name)?;
        self.check_empty(ino)?;
        self.unbind(parent, name, ino, now);
        self.lose_name(ino, now).map(drop)
    }

    fn check_empty(&self, ino: Ino) -> Outcome<()> {
        match &self.node(ino)?.body {
            Body::Directory { entries, .. } if entries.is_empty() => Ok(()),
            Body::Directory { .. } => refuse(Errno::NOTEMPTY),
            _ => refuse(Errno::NOTDIR),
        }
    }

    pub(super) fn link(&mut self, ino: Ino, parent: Ino, name: &[u8], now: Now) -> Outcome<Attr> {
        let node = self.node(ino)?;
        let (directory, links) = (node.is_directory(), node.inode.nlink);
        if directory {
            return refuse(Errno::PERM);
        }
        if links == 0 {
            return refuse(Errno::NOENT);
        }
        if links >= LINKS {
            return refuse(Errno::MLINK);
        }
        if self.find(parent, name)?.is_some() {
            return refuse(Errno::EXIST);
        }
        check_name(name)?;
        if self.node(parent)?.inode.nlink == 0 {
            return refuse(Errno::NOENT);
        }
        let node = self.node_mut(ino)?;
        (node.inode.nlink, node.inode.ctime) = (links + 1, now.wall);
        let attr = node.attr(ino);
        self.write_down(ino);
        self.bind(parent, name, ino, now);
        Ok(attr)
    }

    pub(super) fn rename(
        &mut self,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        flags: u32,
        now: Now,
    ) -> Outcome<Answer> {
        let ino = self.existing(parent, name)?;
        let other = self.find(new_parent, new_name)?;
        check_name(new_name)?;
        if !matches!(flags, 0 | RENAME_NOREPLACE | RENAME_EXCHANGE) {
            return refuse(Errno::INVAL);
        }
        if self.node(new_parent)?.inode.nlink == 0 {
            return refuse(Errno::NOENT);
        }
        if self.is_below(new_parent, ino) {
            return refuse(Errno::INVAL);
        }
        if other == Some(ino) {
            return Ok(Answer::Done);
        }
        match other {
            Some(_) if flags == RENAME_NOREPLACE => return refuse(Errno::EXIST),
            Some(other) if flags == RENAME_EXCHANGE => {
                if self.is_below(parent, other) {
                    return refuse(Errno::INVAL);
                }
                self.unbind(new_parent, new_name, other, now);
                self.unbind(parent, name, ino, now);
                self.bind(parent, name, other, now);
                self.node_mut(other)?.inode.ctime = now.wall;
                self.write_down(other);
            }
            None if flags == RENAME_EXCHANGE => return refuse(Errno::NOENT),
            Some(other) => {
                match (
                    self.node(ino)?.is_directory(),
                    self.node(other)?.is_directory(),
                ) {
                    (true, true) => self.check_empty(other)?,
                    (true, false) => return refuse(Errno::NOTDIR),
                    (false, true) => return refuse(Errno::ISDIR),
                    (false, false) => {}
                }
                self.unbind(parent, name, ino, now);
                self.unbind(new_parent, new_name, other, now);
                self.lose_name(other, now)?;
            }
            None => self.unbind(parent, name, ino, now),
        }
        self.bind(new_parent, new_name, ino, now);
        self.node_mut(ino)?.inode.ctime = now.wall;
        self.write_down(ino);
        Ok(Answer::Done)
    }

    /// Whether a directory is `above` or a descendant of it.
    fn is_below(&self, mut directory: Ino, above: Ino) -> bool {
        while directory != above {
            match self.nodes.get(&directory).map(|node| &node.body) {
                Some(Body::Directory { parent, .. }) if directory != ROOT => directory = *parent,
                _ => return false,
            }
        }
        true
    }
}
