//! TUN interfaces: IP packets that a host sends there are read here, and what is written here arrives there.

use std::fs::{File, OpenOptions};
use std::io::{Error, Read, Result, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

/// An interface that lasts as long as this.
#[derive(Debug)]
pub(crate) struct Tun(File);

impl Tun {
    /// Makes an interface in this process's network namespace. It takes no packets that the kernel is to cut up or to
    /// compute checksums for, so each packet is one of the wire.
    pub(crate) fn create(name: &str) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        // SAFETY: an integer and arrays of integers, for which zeros are values.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= request.ifr_name.len() {
            return Err(Error::other(format!("{name}: too long for an interface")));
        }
        for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *place = byte as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the descriptor is open, and the request is what this call reads and writes.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if result != 0 {
            return Err(Error::last_os_error());
        }
        Ok(Self(file))
    }

    /// The next packet.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        (&self.0).read(buffer)
    }

    /// Sends a packet.
    pub(crate) fn write(&self, packet: &[u8]) -> Result<usize> {
        (&self.0).write(packet)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
