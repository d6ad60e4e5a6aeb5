//! Wake-ups between processes: a pair of sockets for each peer process and completion channel, of which the peer has
//! one end.
//!
//! An eventfd would be one object less, but its flags and its counter are shared by all who have it: whoever was sent
//! it can make the others' reads and writes block, or take what was meant for them. Here each peer has an object of its
//! own, either side's calls are told not to block one by one, and what a peer takes, fills or shuts down is its own way
//! to wake us.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    recv, recvmsg, send, shutdown, socketpair, AddressFamily, RecvAncillaryBuffer, RecvFlags,
    ReturnFlags, SendFlags, Shutdown, SocketFlags, SocketType,
};

use crate::closer::Foreign;

/// Packets taken from one peer before the others' turn; what is left is found by the next look.
const PACKETS_PER_LOOK: usize = 64;

/// The end by which we wake a peer.
#[derive(Debug)]
pub(crate) struct Waker(Foreign);

impl Waker {
    /// Checks what a peer sent.
    pub(crate) fn new(file: Foreign) -> Result<Self, Errno> {
        // A lock of the socket decides whether other families' calls block, and other holders have it in their hands.
        if rustix::net::sockopt::socket_domain(&file)? != AddressFamily::UNIX
            || rustix::net::sockopt::socket_type(&file)? != SocketType::SEQPACKET
        {
            return Err(Errno::PROTOTYPE);
        }
        Ok(Self(file))
    }

    /// Wakes the peer. Nothing can be done about a failure, and a full queue is a wake-up too.
    pub(crate) fn wake(&self) {
        let _ = send(&self.0, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        // It is closed some time; the peer may know now.
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

/// The end by which a peer wakes us.
#[derive(Debug)]
pub(crate) struct End(Foreign);

/// Our end, and the one to send.
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
    /// Takes wake-ups; `false` when no more will come: the peer has closed its end, or does what no good peer does.
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

/// Whether the next packet of a socket that only we read is there; an error when there will be none, or when
/// descriptors are with it. These must not be received where they are not wanted: the kernel would close them in the
/// receiving thread, see [`Foreign`].
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
        // No room was given for descriptors: there are some.
        Ok(received) if received.flags.contains(ReturnFlags::CTRUNC) => Err(Errno::BADMSG),
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}
