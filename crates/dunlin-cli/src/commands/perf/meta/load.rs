//! One client of the load, and what it does in each phase.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use dunlin_fs::client::MetaClient;
use dunlin_fs::types::{Attr, Ino, ROOT, S_IFDIR, S_IFREG};
use dunlin_fs::wire::{Ask, Change};
use dunlin_fs::FsError;

use crate::histogram::Latencies;
use crate::interrupt;

/// The place of its files.
pub(super) enum Place {
    /// At a metadata server, in its own session.
    Server { meta: MetaClient, directory: Ino },
    /// In a folder, through system calls.
    Folder(PathBuf),
}

pub(super) struct Load {
    pub(super) place: Place,
    pub(super) number: u16,
    pub(super) files: u32,
    /// Number of files created: fewer after Ctrl-C.
    made: AtomicU32,
}

impl Load {
    pub(super) fn new(place: Place, number: u16, files: u32) -> Self {
        Self {
            place,
            number,
            files,
            made: AtomicU32::new(0),
        }
    }

    /// Connects this thread.
    pub(super) fn begin(&self) -> std::io::Result<()> {
        match &self.place {
            Place::Server { meta, .. } => meta.ask(&Ask::GetAttr { ino: ROOT }).map(drop)?,
            Place::Folder(_) => {}
        }
        Ok(())
    }

    /// Runs a phase, or a part of it on Ctrl-C; returns the number of operations or entries. What was created is
    /// removed in any case.
    pub(super) fn run(&self, phase: &str, latencies: &mut Latencies) -> std::io::Result<u64> {
        if phase == "readdir" {
            let began = Instant::now();
            let entries = match &self.place {
                Place::Server { meta, directory } => meta.read_dir(*directory)?.len(),
                Place::Folder(folder) => std::fs::read_dir(folder)?.count(),
            };
            latencies.record(began.elapsed().as_nanos() as u64);
            return Ok(entries as u64);
        }
        let all = match phase {
            "create" => self.files,
            _ => self.made.load(Ordering::Relaxed),
        };
        let mut done = 0;
        while done < all && (phase == "remove" || !interrupt::came()) {
            let name = format!("file.{}.{done}", self.number);
            let began = Instant::now();
            self.one(phase, &name)?;
            latencies.record(began.elapsed().as_nanos() as u64);
            done += 1;
            if phase == "create" {
                self.made.store(done, Ordering::Relaxed);
            }
        }
        Ok(done.into())
    }

    fn one(&self, phase: &str, name: &str) -> std::io::Result<()> {
        match &self.place {
            Place::Server { meta, directory } => {
                let (parent, name) = (*directory, name.as_bytes());
                match phase {
                    "create" => make(meta, parent, name, S_IFREG).map(drop)?,
                    "stat" => meta.ask_attr(&Ask::Lookup { parent, name }).map(drop)?,
                    _ => meta.change(Change::Unlink { parent, name }).map(drop)?,
                }
                Ok(())
            }
            Place::Folder(folder) => {
                let path = folder.join(name);
                match phase {
                    "create" => std::fs::File::create_new(path).map(drop),
                    "stat" => std::fs::symlink_metadata(path).map(drop),
                    _ => std::fs::remove_file(path),
                }
            }
        }
    }
}

pub(super) fn make(
    meta: &MetaClient,
    parent: Ino,
    name: &[u8],
    kind: u32,
) -> Result<Attr, FsError> {
    let executable = if kind == S_IFDIR { 0o755 } else { 0o644 };
    meta.change_attr(Change::Make {
        parent,
        name,
        mode: kind | executable,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: &[],
        lease: false,
    })
}
