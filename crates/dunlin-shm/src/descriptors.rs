//! Room in the process's table of file descriptors, made when a device opens.

use std::os::fd::AsFd;

use rustix::io::{fcntl_dupfd_cloexec, Errno};
use rustix::process::{getrlimit, Resource};

/// Descriptors that find room without the table growing: some hundred connections, in 32 KiB of the kernel's memory.
const WANTED: u64 = 4096;

/// Lets the table of descriptors grow now, at once to what many connections need. The kernel waits for all cores when
/// the table of a process with several threads grows, which takes seconds beside threads that poll: long enough for
/// every connection that is being made, and for those that wait for the control thread, to be given up.
pub(crate) fn make_room(any: impl AsFd) -> Result<(), Errno> {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(WANTED);
    let last = most.min(WANTED).saturating_sub(1);
    match fcntl_dupfd_cloexec(any, i32::try_from(last).unwrap_or(i32::MAX)) {
        // It is closed again; the room stays. In use already: then there is room.
        Ok(_) | Err(Errno::MFILE) => Ok(()),
        Err(errno) => Err(errno),
    }
}
