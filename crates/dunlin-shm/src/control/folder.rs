//! A folder through which devices of other network namespaces, containers or users are reached: each has a socket in
//! it. The owner, group and mode of the folder determine who reaches whom: whoever may create a socket in it is a peer,
//! and whoever may write the folder may connect to the sockets.

use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dunlin_verbs::VerbsError;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::mapping::system;

/// Prefix of the sockets' names.
const PREFIX: &str = "shm-";
/// Maximum length of a folder's path: the system allows 107 bytes, of which the name takes 37 with its slash.
const PATH_BYTES_MAX: usize = 70;
/// Maximum number of entries of the folder that are checked when it is swept.
const SWEPT_MAX: usize = 1024;
/// A socket that is younger may not be listening yet.
const GRACE: Duration = Duration::from_secs(10);

/// The address of a device's socket in a folder.
pub(super) fn address(folder: &Path, uid: [u8; 16]) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new(path(folder, uid))
}

fn path(folder: &Path, uid: [u8; 16]) -> PathBuf {
    folder.join(format!("{PREFIX}{:032x}", u128::from_be_bytes(uid)))
}

/// The name of a device's socket, which is removed with it.
#[derive(Debug)]
pub(super) struct Name(PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        // A process that is killed leaves it behind; the next one of its user removes it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Binds a socket to its name in a folder; whoever may write the folder may connect to it.
pub(super) fn bind(socket: impl AsFd, folder: &Path, uid: [u8; 16]) -> Result<Name, VerbsError> {
    let wrong = |why: String| VerbsError::Invalid {
        argument: "folder",
        why: format!("{}: {why}", folder.display()),
    };
    let bytes = folder.as_os_str().len();
    if !folder.is_absolute() || bytes > PATH_BYTES_MAX {
        return Err(wrong(format!(
            "the path has {bytes} bytes: it must be absolute and have at most {PATH_BYTES_MAX} bytes, to leave room \
             for the names of sockets"
        )));
    }
    let metadata = std::fs::metadata(folder).map_err(|error| wrong(error.to_string()))?;
    if !metadata.is_dir() {
        return Err(wrong("not a directory".to_owned()));
    }
    sweep(folder);
    let own = path(folder, uid);
    address(folder, uid)
        .and_then(|address| rustix::net::bind(socket, &address))
        .map_err(|errno| wrong(std::io::Error::from(errno).to_string()))?;
    let name = Name(own);
    // Connecting requires write access, so that is granted to those who may write the folder.
    let writers = Mode::from_raw_mode(metadata.mode()) & (Mode::WGRP | Mode::WOTH);
    let mode = Mode::RUSR | Mode::WUSR | writers;
    rustix::fs::chmod(&name.0, mode).map_err(system("chmod of the device's socket"))?;
    Ok(name)
}

/// Removes sockets of this user that were left behind by their processes.
fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let ours = rustix::process::geteuid().as_raw();
    for entry in entries.flatten().take(SWEPT_MAX) {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        let is_named = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes());
        let is_old = metadata
            .modified()
            .ok()
            .and_then(|time| time.elapsed().ok())
            .is_some_and(|age| age > GRACE);
        let is_candidate =
            is_named && is_old && metadata.file_type().is_socket() && metadata.uid() == ours;
        if is_candidate && is_left_behind(&entry.path()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Whether nobody listens on it.
fn is_left_behind(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (Ok(socket), Ok(address)) = (socket, SocketAddrUnix::new(path)) else {
        return false;
    };
    matches!(
        rustix::net::connect(&socket, &address),
        Err(Errno::CONNREFUSED)
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use dunlin_verbs::{Device, EndpointAddress, PeerConfirmation};

    use super::*;
    use crate::{ShmConfig, ShmDevice};

    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str, mode: u32) -> Self {
            let path = format!("/tmp/dunlin-folder-{name}-{}", std::process::id());
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            Self(path.into())
        }

        fn sockets(&self) -> Vec<PathBuf> {
            let all = std::fs::read_dir(&self.0).unwrap();
            all.map(|entry| entry.unwrap().path()).collect()
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn open(folder: &Path) -> Result<ShmDevice, VerbsError> {
        ShmDevice::open(ShmConfig {
            folder: Some(folder.to_owned()),
            ..ShmConfig::default()
        })
    }

    #[test]
    fn whoever_may_write_the_folder_may_connect_and_the_socket_goes_with_its_device() {
        for (mode, expected) in [(0o700, 0o600), (0o770, 0o620), (0o1777, 0o622)] {
            let folder = Temporary::new(&format!("{mode:o}"), mode);
            let device = open(&folder.0).unwrap();
            let [socket] = &folder.sockets()[..] else {
                panic!("one socket");
            };
            let mode = std::fs::metadata(socket).unwrap().mode() & 0o777;
            assert_eq!(mode, expected);
            drop(device);
            assert!(folder.sockets().is_empty());
        }
    }

    #[test]
    fn a_device_that_is_found_by_the_folder_confirms_its_user() {
        let folder = Temporary::new("confirm", 0o700);
        let (ours, theirs) = (open(&folder.0).unwrap(), open(&folder.0).unwrap());
        let user = Some(rustix::process::geteuid().as_raw());
        let domain = theirs.create_protection_domain().unwrap();
        let queue = theirs.create_completion_queue(16, None).unwrap();
        let config = dunlin_verbs::QueuePairConfig {
            transport: dunlin_verbs::Transport::ReliableConnection,
            send_completions: &queue,
            receive_completions: &queue,
            send_requests: 4,
            receive_queue: dunlin_verbs::ReceiveQueue::Own(4),
            segments: 1,
            inline_bytes: 0,
        };
        let pair = theirs.create_queue_pair(&domain, &config).unwrap();
        let address = dunlin_verbs::QueuePair::address(&pair);
        let patience = Duration::from_secs(60);
        assert_eq!(
            ours.confirm_peer(&address, patience).unwrap(),
            PeerConfirmation::Confirmed { user }
        );
        let stranger = EndpointAddress {
            gid: [9; 16],
            ..address
        };
        assert!(ours.confirm_peer(&stranger, patience).is_err());
    }

    #[test]
    fn what_was_left_behind_is_taken_away_and_what_lives_stays() {
        let folder = Temporary::new("sweep", 0o700);
        let living = open(&folder.0).unwrap();
        let dead = path(&folder.0, [7; 16]);
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&dead).unwrap()).unwrap();
        drop(socket);
        let other = folder.0.join("shm-is no socket");
        std::fs::write(&other, b"").unwrap();
        let old = std::time::SystemTime::now() - 2 * GRACE;
        let times = rustix::fs::Timestamps {
            last_access: timestamp(old),
            last_modification: timestamp(old),
        };
        for path in folder.sockets() {
            let flags = rustix::fs::AtFlags::empty();
            rustix::fs::utimensat(rustix::fs::CWD, &path, &times, flags).unwrap();
        }
        let newer = open(&folder.0).unwrap();
        assert!(!dead.exists() && other.exists());
        assert_eq!(folder.sockets().len(), 3);
        drop((living, newer));
    }

    fn timestamp(time: std::time::SystemTime) -> rustix::fs::Timespec {
        let since = time.duration_since(std::time::UNIX_EPOCH).unwrap();
        rustix::fs::Timespec {
            tv_sec: since.as_secs() as i64,
            tv_nsec: 0,
        }
    }

    #[test]
    fn a_folder_that_does_not_do_is_named() {
        for (folder, words) in [
            ("/nowhere/at/all", "/nowhere/at/all: No such file"),
            ("/proc/version", "not a directory"),
            ("here", "must be absolute"),
            (&*format!("/tmp/{}", "x".repeat(80)), "has 85 bytes"),
        ] {
            let error = open(Path::new(folder)).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
