//! Identifies hosts, to decide whether two processes can use shared memory.

use std::fmt;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hmac_sha256::Hash as Sha256;
use serde::{Deserialize, Serialize};

/// Identifies a running kernel, and the part of it within which a process can share memory: a network namespace and a
/// user, or a folder. Two processes can share memory only if their ids are equal.
///
/// It consists of hashes, so an unauthenticated peer that receives one learns only which parts equal its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostId([u8; 16]);

/// The bytes of each part: the kernel; the network namespace; the user. A folder takes the place of the last two.
const KERNEL: Range<usize> = 0..8;
const NAMESPACE: Range<usize> = 8..12;
const USER: Range<usize> = 12..16;
const FOLDER: Range<usize> = 8..16;

/// The parts in which two processes that cannot share memory differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDifference {
    /// They run on different kernels: hosts or virtual machines.
    pub host: bool,
    /// They have different network namespaces, as containers do.
    pub namespace: bool,
    /// They run as different users.
    pub user: bool,
}

impl HostDifference {
    /// Describes the difference within one host; `None` if the hosts differ, or nothing does.
    pub fn on_one_host(self) -> Option<&'static str> {
        match (self.host, self.namespace, self.user) {
            (true, ..) | (false, false, false) => None,
            (false, true, false) => Some("same host, another network namespace"),
            (false, false, true) => Some("same host, another user"),
            (false, true, true) => Some("same host, another network namespace and another user"),
        }
    }
}

/// A hash of what identifies a part, on this kernel.
fn part(boot: &[u8], kind: &[u8], numbers: &[u64]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"dunlin host id 2");
    for piece in [boot, kind] {
        hash.update((piece.len() as u64).to_le_bytes());
        hash.update(piece);
    }
    for number in numbers {
        hash.update(number.to_le_bytes());
    }
    hash.finalize()
}

fn boot() -> io::Result<Vec<u8>> {
    std::fs::read("/proc/sys/kernel/random/boot_id")
}

impl HostId {
    /// Returns the id of this process.
    ///
    /// # Errors
    /// When `/proc` does not exist or cannot be read.
    pub fn of_this_process() -> io::Result<Self> {
        let boot = boot()?;
        let namespace = std::fs::metadata("/proc/self/ns/net")?;
        let user = rustix::process::geteuid().as_raw().into();
        let mut id = [0; 16];
        let mut put = |range: Range<usize>, kind: &[u8], numbers: &[u64]| {
            let hash = part(&boot, kind, numbers);
            let length = range.len();
            id[range].copy_from_slice(&hash[..length]);
        };
        put(KERNEL, b"kernel", &[]);
        put(NAMESPACE, b"namespace", &[namespace.dev(), namespace.ino()]);
        put(USER, b"user", &[user]);
        Ok(Self(id))
    }

    /// Returns the id of all processes of this kernel that have a folder, wherever it is mounted for each.
    ///
    /// # Errors
    /// When `/proc` or the folder does not exist or cannot be read.
    pub fn of_folder(folder: &Path) -> io::Result<Self> {
        let boot = boot()?;
        let metadata = std::fs::metadata(folder)?;
        let mut id = [0; 16];
        id[KERNEL].copy_from_slice(&part(&boot, b"kernel", &[])[..KERNEL.len()]);
        let numbers = [metadata.dev(), metadata.ino()];
        id[FOLDER].copy_from_slice(&part(&boot, b"folder", &numbers)[..FOLDER.len()]);
        Ok(Self(id))
    }

    /// Returns the parts in which two processes differ, comparing their ids without a folder.
    pub fn difference(&self, other: &Self) -> HostDifference {
        let differs = |range: Range<usize>| self.0[range.clone()] != other.0[range];
        HostDifference {
            host: differs(KERNEL),
            namespace: differs(NAMESPACE),
            user: differs(USER),
        }
    }

    /// Creates an id from its bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostId({:032x})", u128::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_on_the_host_of_itself() {
        let first = HostId::of_this_process().unwrap();
        assert_eq!(first, HostId::of_this_process().unwrap());
        assert_ne!(first, HostId::from_bytes([0; 16]));
    }

    #[test]
    fn what_differs_is_known_by_its_part() {
        let ours = HostId::of_this_process().unwrap();
        let changed = |at: usize| {
            let mut bytes = *ours.as_bytes();
            bytes[at] ^= 1;
            ours.difference(&HostId::from_bytes(bytes))
        };
        assert!(changed(0).host && changed(0).on_one_host().is_none());
        let namespace = changed(8).on_one_host().unwrap();
        assert!(
            namespace.ends_with("another network namespace"),
            "{namespace}"
        );
        assert_eq!(changed(15).on_one_host(), Some("same host, another user"));
        assert_eq!(ours.difference(&ours).on_one_host(), None);
    }

    #[test]
    fn a_folder_is_known_by_itself_and_not_by_its_path() {
        let tmp = HostId::of_folder(Path::new("/tmp")).unwrap();
        assert_eq!(tmp, HostId::of_folder(Path::new("/tmp/.")).unwrap());
        assert_ne!(tmp, HostId::of_folder(Path::new("/")).unwrap());
        assert_ne!(tmp, HostId::of_this_process().unwrap());
        assert!(!tmp.difference(&HostId::of_this_process().unwrap()).host);
    }
}
