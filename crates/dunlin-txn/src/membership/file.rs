//! The membership of machines that are processes of one host, in a directory: for tests, for first experiments, and for
//! databases that must survive the end of a process but not of a host.
//!
//! No file is locked, so a stopped process blocks no other. A configuration is a file of its own, named by its
//! revision, and created by `link`, which fails if it exists. A machine is a file with the end of its lease by
//! `CLOCK_MONOTONIC`, which all processes of a host share. To leave a machine out, its file is *first* renamed, and
//! *then* the end of its lease is awaited: a renewal that writes after the renaming finds no file of that name, and an
//! earlier one is seen.
//!
//! Decisions survive a restart of the host, too: configurations are synced. A lease belongs to one boot of the host,
//! since the clock restarts with each.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{clock_gettime, ClockId};

use super::{Configuration, Membership, MembershipError, Observed, Registration};
use crate::types::MachineId;
use crate::wire::{Reader, WireError};

/// Bytes in a machine's file before its address: the end of its lease, whether it is whole, whether it succeeds a life
/// and which, and the boot of the host.
const HEAD: usize = 8 + 1 + 1 + 8 + 8;
/// Maximum length of a file that is read: a configuration of thousands of machines.
const LONGEST: u64 = 1 << 20;

/// A membership in a directory.
#[derive(Debug)]
pub struct FileMembership {
    directory: PathBuf,
    /// The file of this machine, once it exists.
    mine: Option<File>,
    /// The file of the life that this machine succeeds has been removed.
    has_succeeded: bool,
}

impl FileMembership {
    /// Opens the membership in this directory, which is created if it does not exist.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, MembershipError> {
        let directory = directory.into();
        fs::create_dir_all(&directory).map_err(|e| error(&directory, &e))?;
        Ok(Self {
            directory,
            mine: None,
            has_succeeded: false,
        })
    }

    fn machine_file(&self, machine: MachineId, incarnation: u64) -> PathBuf {
        let name = format!("machine-{}-{incarnation:016x}", machine.0);
        self.directory.join(name)
    }

    /// Records that the lease lasts until this time. The file must still have its name afterwards.
    fn renew(&mut self, registration: &Registration, until: u64) -> io::Result<()> {
        let path = self.machine_file(registration.machine, registration.incarnation);
        let mut head = until.to_le_bytes().to_vec();
        head.push(u8::from(registration.whole));
        head.push(u8::from(registration.succeeds.is_some()));
        head.extend_from_slice(&registration.succeeds.unwrap_or_default().to_le_bytes());
        head.extend_from_slice(&boot().to_le_bytes());
        match &self.mine {
            Some(file) => file.write_all_at(&head, 0)?,
            None => {
                let temporary = self.temporary(registration.incarnation);
                let mut all = head;
                all.extend(registration.address.as_bytes());
                fs::write(&temporary, &all)?;
                // It appears complete or not at all, and never a second time.
                fs::hard_link(&temporary, &path)?;
                fs::remove_file(&temporary)?;
                self.mine = Some(OpenOptions::new().write(true).open(&path)?);
            }
        }
        if registration.whole && !self.has_succeeded {
            if let Some(before) = registration.succeeds {
                // The life before is over, and its lease with it: no other machine needs to wait for that. It is
                // removed only when this one is registered and whole, or the machine would seem to be gone.
                let before = self.machine_file(registration.machine, before);
                match fs::remove_file(&before) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    other => other?,
                }
            }
            self.has_succeeded = true;
        }
        fs::metadata(&path).map(drop)
    }

    fn temporary(&self, name: u64) -> PathBuf {
        let process = std::process::id();
        self.directory.join(format!("new-{process}-{name:016x}"))
    }

    fn observe(&self) -> io::Result<Observed> {
        // Read before the leases: a member that appears to have no lease then really has none.
        let mut observed = Observed {
            configuration: self.configuration()?,
            alive: Vec::new(),
        };
        let now = now();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_name().map(|name| name.to_string_lossy());
            let Some(name) = name.as_deref() else {
                continue;
            };
            let Some((machine, incarnation)) = machine_of(name) else {
                continue;
            };
            // It may have been removed since it was listed.
            let Ok(file) = read(&path).map(|bytes| machine_in(&bytes)) else {
                continue;
            };
            if file.until > now {
                observed.alive.push(Registration {
                    machine,
                    incarnation,
                    address: file.address,
                    whole: file.whole,
                    succeeds: file.succeeds,
                });
            }
        }
        observed
            .alive
            .sort_by_key(|one| (one.machine, one.incarnation));
        Ok(observed)
    }

    fn configuration(&self) -> io::Result<Option<(u64, Configuration)>> {
        let mut last = None;
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let revision = name.to_string_lossy();
            let revision = revision.strip_prefix("configuration-");
            let revision = revision.and_then(|revision| revision.parse::<u64>().ok());
            last = last.max(revision);
        }
        let Some(revision) = last else {
            return Ok(None);
        };
        let bytes = read(&self.configuration_file(revision))?;
        let decoded = Configuration::decode(&bytes).map_err(io::Error::other)?;
        Ok(Some((revision, decoded)))
    }

    fn configuration_file(&self, revision: u64) -> PathBuf {
        self.directory.join(format!("configuration-{revision}"))
    }

    fn has_lease(&self, machine: MachineId, incarnation: u64) -> io::Result<bool> {
        match read(&self.machine_file(machine, incarnation)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            other => Ok(machine_in(&other?).until > now()),
        }
    }

    /// Renames a machine's file, and returns when its lease is over: it may just have been renewed.
    fn leave_out(&self, machine: MachineId, incarnation: u64) -> io::Result<()> {
        let path = self.machine_file(machine, incarnation);
        let name = format!("gone-{}-{incarnation:016x}", machine.0);
        let gone = self.directory.join(name);
        match fs::rename(&path, &gone) {
            // Another process has renamed it, and may not have waited.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        match read(&gone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(bytes) => {
                let until = machine_in(&bytes).until;
                std::thread::sleep(Duration::from_nanos(until.saturating_sub(now())));
                Ok(())
            }
        }
    }
}

impl Membership for FileMembership {
    fn beat(
        &mut self,
        registration: &Registration,
        lease: Duration,
    ) -> Result<Observed, MembershipError> {
        let until = now().saturating_add(lease.as_nanos() as u64);
        let path = self.machine_file(registration.machine, registration.incarnation);
        self.renew(registration, until)
            .map_err(|e| MembershipError {
                is_final: e.kind() == io::ErrorKind::NotFound,
                ..error(&path, &e)
            })?;
        self.observe().map_err(|e| error(&self.directory, &e))
    }

    fn look(&mut self) -> Result<Observed, MembershipError> {
        self.observe().map_err(|e| error(&self.directory, &e))
    }

    fn replace(
        &mut self,
        revision: u64,
        next: &Configuration,
        absent: &[(MachineId, u64)],
    ) -> Result<bool, MembershipError> {
        let replace = || {
            let is_current =
                || Ok::<_, io::Error>(self.configuration()?.map_or(0, |(now, _)| now) == revision);
            // A proposal that is too late must not leave anyone out: its proposer may itself have been left out by the
            // others.
            if !is_current()? {
                return Ok(false);
            }
            for (machine, incarnation) in absent {
                if self.has_lease(*machine, *incarnation)? {
                    return Ok(false);
                }
            }
            for (machine, incarnation) in absent {
                self.leave_out(*machine, *incarnation)?;
            }
            if !is_current()? {
                return Ok(false);
            }
            let temporary = self.temporary(next.epoch.0);
            fs::write(&temporary, next.encode())?;
            File::open(&temporary)?.sync_all()?;
            let linked = fs::hard_link(&temporary, self.configuration_file(revision + 1));
            fs::remove_file(&temporary)?;
            File::open(&self.directory)?.sync_all()?;
            match linked {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                other => other.map(|()| true),
            }
        };
        replace().map_err(|e: io::Error| error(&self.directory, &e))
    }
}

fn error(path: &Path, error: &io::Error) -> MembershipError {
    MembershipError {
        why: format!("{}: {error}", path.display()),
        is_final: false,
    }
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn machine_of(name: &str) -> Option<(MachineId, u64)> {
    let (number, incarnation) = name.strip_prefix("machine-")?.split_once('-')?;
    let incarnation = u64::from_str_radix(incarnation, 16).ok()?;
    Some((MachineId(number.parse().ok()?), incarnation))
}

/// The contents of a machine's file.
#[derive(Debug, Default)]
struct MachineFile {
    until: u64,
    whole: bool,
    succeeds: Option<u64>,
    address: String,
}

/// A file that is truncated, or from another boot of the host, contains no lease.
fn machine_in(bytes: &[u8]) -> MachineFile {
    let head = || -> Result<MachineFile, WireError> {
        let mut from = Reader::new(bytes);
        let (until, whole) = (from.u64()?, from.flag()?);
        let succeeds = (from.flag()?, from.u64()?);
        let until = match from.u64()? == boot() {
            true => until,
            false => 0,
        };
        Ok(MachineFile {
            until,
            whole,
            succeeds: succeeds.0.then_some(succeeds.1),
            address: String::new(),
        })
    };
    let address = bytes.get(HEAD..).unwrap_or_default();
    MachineFile {
        address: String::from_utf8_lossy(address).into_owned(),
        ..head().unwrap_or_default()
    }
}

/// A number of this boot of the host; the same for all boots if the system does not provide one.
fn boot() -> u64 {
    static BOOT: OnceLock<u64> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = id
            .chars()
            .filter(char::is_ascii_hexdigit)
            .take(16)
            .collect();
        u64::from_str_radix(&digits, 16).unwrap_or_default()
    })
}
