//! Unmounts on signals, retrying on each, since the folder may be busy.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{exit, Command};
use std::time::Instant;

use rustix::io::Errno;
use rustix::mount::{unmount, UnmountFlags};

use crate::commands::INTERRUPTED;
use crate::{interrupt, output};

/// What the next signal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Unmounts, unless something uses the file system.
    Unmount,
    /// Detaches it from the folder, even while it is in use.
    Detach,
    /// Ends the process; programs that still use the file system get errors.
    Exit,
    /// The session is about to end.
    Nothing,
}

/// Unmounts a folder. fuser's own handle does it once, and forgets the mount even where that failed.
#[derive(Debug)]
pub(crate) struct Unmounter {
    folder: PathBuf,
    next: Next,
    /// When handling of the last signal ended.
    last: Option<Instant>,
}

impl Unmounter {
    /// For what is mounted on this folder. The path has no links and does not depend on the working directory.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            next: Next::Unmount,
            last: None,
        }
    }

    /// Handles a signal.
    pub(crate) fn signalled(&mut self) {
        if self
            .last
            .is_some_and(|last| last.elapsed() <= interrupt::ONCE)
        {
            return;
        }
        self.step();
        self.last = Some(Instant::now());
    }

    fn step(&mut self) {
        let folder = self.folder.display();
        match self.next {
            Next::Unmount => match self.unmount(UnmountFlags::NOFOLLOW) {
                Ok(()) => self.next = Next::Nothing,
                Err(why) => {
                    output::note(format_args!(
                        "cannot unmount {folder}: {why}; press Ctrl-C again to detach it"
                    ));
                    self.next = Next::Detach;
                }
            },
            Next::Detach => {
                match self.unmount(UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
                    Ok(()) => output::note(format_args!(
                        "{folder} is detached: the command ends when its files are no longer in use; press Ctrl-C \
                         again to end it now"
                    )),
                    Err(why) => output::note(format_args!(
                        "cannot detach {folder}: {why}; press Ctrl-C again to end the command and leave the folder to \
                         `umount -l`"
                    )),
                }
                self.next = Next::Exit;
            }
            Next::Exit => exit(INTERRUPTED.into()),
            Next::Nothing => {}
        }
    }

    fn unmount(&self, flags: UnmountFlags) -> Result<(), String> {
        match unmount(&self.folder, flags) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err("it is busy".to_owned()),
            // Whoever is not root has mounted with this program, which may.
            Err(Errno::PERM) => self.fusermount(flags.contains(UnmountFlags::DETACH)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn fusermount(&self, detach: bool) -> Result<(), String> {
        let options = if detach { "-uz" } else { "-u" };
        let run = |program: &str| {
            let arguments = [
                OsStr::new(options),
                OsStr::new("--"),
                self.folder.as_os_str(),
            ];
            Command::new(program).args(arguments).output()
        };
        let ended = run("fusermount3").or_else(|_| run("fusermount"));
        let ended = ended.map_err(|error| format!("fusermount3: {error}"))?;
        match ended.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&ended.stderr).trim().to_owned()),
        }
    }
}
