//! Wake-ups between processes: a socket pair for each peer process and completion channel, of which the peer has one
//! end.
//!
//! An eventfd would be one object less, but its flags and its counter are shared by all processes that hold it: each of
//! them can make the others' reads and writes block, or consume their events. Here each peer has an object of its own,
//! each call of either side is made non-blocking individually, and by consuming, filling or shutting down the socket a
//! peer harms only its own means to wake us.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    recv, recvmsg, send, shutdown, socketpair, AddressFamily, RecvAncillaryBuffer, RecvFlags,
    ReturnFlags, SendFlags, Shutdown, SocketFlags, SocketType,
};

use crate::closer::Foreign;

/// Number of packets taken from one peer before the others get their turn; the rest is found by the next poll.
const PACKETS_PER_LOOK: usize = 64;

/// The end by which we wake a peer.
#[derive(Debug)]
pub(crate) struct Waker(Foreign);

impl Waker {
    /// Checks a descriptor that a peer sent.
    pub(crate) fn new(file: Foreign) -> Result<Self, Errno> {
        // In other address families, a lock of the socket, which other holders can take, may make calls block.
        if rustix::net::sockopt::socket_domain(&file)? != AddressFamily::UNIX
            || rustix::net::sockopt::socket_type(&file)? != SocketType::SEQPACKET
        {
            return Err(Errno::PROTOTYPE);
        }
        Ok(Self(file))
    }

    /// Wakes the peer. A failure is ignored, and a full queue is a wake-up too.
    pub(crate) fn wake(&self) {
        let _ = send(&self.0, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        // The descriptor is closed some time later; the peer may learn of it now.
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

/// The end by which a peer wakes us.
#[derive(Debug)]
pub(crate) struct End(Foreign);

/// Creates our end, and the one to send.
pub(crate) fn pair() -> Result<(End, OwnedFd), Errno> {
    let kind = SocketType::SEQPACKET;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    Ok((End(ours.into()), theirs))
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl End {
    /// Consumes wake-ups; `false` if there will be no more: the peer has closed its end, or violates the protocol.
    pub(crate) fn drain(&self) -> bool {
        for _ in 0..PACKETS_PER_LOOK {
            match next(self.as_fd()) {
                Ok(true) => {}
                Ok(false) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

fn next(end: BorrowedFd<'_>) -> Result<bool, Errno> {
    if !holds_plain(end)? {
        return Ok(false);
    }
    match recv(end, &mut [0u8; 8], RecvFlags::DONTWAIT) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// Whether the next packet of a socket that only we read is available; an error if there will be none, or if it carries
/// descriptors. These must not be received where they are not wanted: the kernel would close them in the receiving
/// thread, see [`Foreign`].
pub(crate) fn holds_plain(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut bytes = [0; 1];
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut RecvAncillaryBuffer::default(),
        RecvFlags::PEEK | RecvFlags::DONTWAIT,
    );
    match received {
        Ok(received) if received.bytes == 0 => Err(Errno::PIPE),
        // The message had descriptors, for which no space was provided.
        Ok(received) if received.flags.contains(ReturnFlags::CTRUNC) => Err(Errno::BADMSG),
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}
