//! Who is on the same host: the question behind the choice of shared memory.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;

use hmac_sha256::Hash as Sha256;
use serde::{Deserialize, Serialize};

/// Names a running kernel, a network namespace and a user. Two processes can share memory only where it is equal.
///
/// It is a hash, so a stranger who is shown one learns nothing but whether it equals its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HostId([u8; 16]);

impl HostId {
    /// The one of this process.
    ///
    /// # Errors
    /// When `/proc` is not there or cannot be read.
    pub fn of_this_process() -> io::Result<Self> {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id")?;
        let namespace = std::fs::metadata("/proc/self/ns/net")?;
        let mut hash = Sha256::new();
        hash.update(b"dunlin host id 1");
        hash.update((boot.len() as u64).to_le_bytes());
        hash.update(&boot);
        hash.update(namespace.dev().to_le_bytes());
        hash.update(namespace.ino().to_le_bytes());
        hash.update(rustix::process::geteuid().as_raw().to_le_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&hash.finalize()[..16]);
        Ok(Self(id))
    }

    /// One with these bytes.
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
}
