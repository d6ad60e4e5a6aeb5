//! Sessions' sockets: messages with descriptors, never blocking.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
};

use super::message::{Message, MESSAGE_BYTES};

/// Descriptors beside one message at most.
const DESCRIPTORS_MAX: usize = 3;
/// Messages that wait for a peer that does not read, before it is cut off.
const OUTGOING_MAX: usize = 4096;

/// The session cannot go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken;

/// A session's socket.
#[derive(Debug)]
pub(super) struct Socket {
    file: OwnedFd,
    outgoing: VecDeque<([u8; MESSAGE_BYTES], Vec<OwnedFd>)>,
}

/// The address where the device of this identifier listens.
pub(super) fn address(uid: [u8; 16]) -> Result<SocketAddrUnix, Errno> {
    let name = format!("dunlin-shm-{:032x}", u128::from_be_bytes(uid));
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

/// Whether the process at the other end runs as our user.
pub(super) fn same_user(file: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_peercred(file)
        .is_ok_and(|credentials| credentials.uid == rustix::process::geteuid())
}

impl Socket {
    pub(super) fn new(file: OwnedFd) -> Self {
        Self {
            file,
            outgoing: VecDeque::new(),
        }
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether messages wait for room.
    pub(super) fn wants_write(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends a message now or later.
    pub(super) fn send(&mut self, message: &Message, files: Vec<OwnedFd>) -> Result<(), Broken> {
        if self.outgoing.len() >= OUTGOING_MAX {
            return Err(Broken);
        }
        self.outgoing.push_back((message.encode(), files));
        self.flush()
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self) -> Result<(), Broken> {
        while let Some((bytes, files)) = self.outgoing.front() {
            let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
                return Err(Broken);
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.file, &[IoSlice::new(bytes)], &mut control, flags) {
                Ok(_) => drop(self.outgoing.pop_front()),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Broken),
            }
        }
        Ok(())
    }

    /// The next message, if one is there.
    pub(super) fn receive(&self) -> Result<Option<(Message, Vec<OwnedFd>)>, Broken> {
        // One byte more than a message, so that a longer one is noticed.
        let mut bytes = [0; MESSAGE_BYTES + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = match recvmsg(
            &self.file,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            flags,
        ) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(_) => return Err(Broken),
        };
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        if received.bytes == 0 || received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Broken);
        }
        let message = bytes.get(..received.bytes).ok_or(Broken)?;
        match Message::decode(message) {
            Ok(message) => Ok(Some((message, files))),
            Err(_) => Err(Broken),
        }
    }
}

/// Has `handle` deal with the sessions whose sockets are ready; takes those out that cannot go on.
pub(super) fn handle_ready<S>(
    sessions: &mut Vec<S>,
    ready: &[bool],
    mut handle: impl FnMut(&mut S) -> Result<(), Broken>,
) -> Vec<S> {
    let mut lost = Vec::new();
    for index in (0..ready.len()).rev().filter(|&index| ready[index]) {
        if handle(&mut sessions[index]).is_err() {
            lost.push(sessions.swap_remove(index));
        }
    }
    lost
}
