//! Reserves space in the process's table of file descriptors when a device is opened.

use std::os::fd::AsFd;

use rustix::io::{fcntl_dupfd_cloexec, Errno};
use rustix::process::{getrlimit, Resource};

/// Number of descriptors that fit without growing the table: several hundred connections, in 32 KiB of kernel memory.
const WANTED: u64 = 4096;

/// Grows the descriptor table now, in one step to the size that many connections need. When the table of a
/// multi-threaded process grows, the kernel waits for all cores, which takes seconds if there are polling threads: long
/// enough for all connections being made, and those that wait for the control thread, to time out.
pub(crate) fn make_room(any: impl AsFd) -> Result<(), Errno> {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(WANTED);
    let last = most.min(WANTED).saturating_sub(1);
    match fcntl_dupfd_cloexec(any, i32::try_from(last).unwrap_or(i32::MAX)) {
        // The descriptor is closed again, but the space remains. If the number is in use, there is already space.
        Ok(_) | Err(Errno::MFILE) => Ok(()),
        Err(errno) => Err(errno),
    }
}
