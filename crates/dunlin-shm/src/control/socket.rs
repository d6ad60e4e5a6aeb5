//! Sockets of sessions: messages with descriptors, never blocking.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
};

use super::message::{Message, MESSAGE_BYTES};
use crate::closer::Foreign;
use crate::wake::holds_plain;

/// Maximum number of descriptors in a message that we send.
const DESCRIPTORS_MAX: usize = 3;
/// Maximum number of descriptors in any message, as limited by the kernel. There is space for all: otherwise the rest
/// would be closed in the receiving thread.
const DESCRIPTORS_POSSIBLE: usize = 253;
/// Maximum number of messages of one session that are handled before the others get their turn.
pub(super) const MESSAGES_PER_ROUND: usize = 16;
/// Maximum number of messages queued for a peer that does not read, before it is disconnected.
const OUTGOING_MAX: usize = 4096;

/// The session cannot go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Broken;

/// A session's socket.
#[derive(Debug)]
pub(super) struct Socket {
    file: Foreign,
    outgoing: VecDeque<(Message, Vec<OwnedFd>)>,
}

/// The address on which the device with this identifier listens.
pub(crate) fn address(uid: [u8; 16]) -> Result<SocketAddrUnix, Errno> {
    let name = format!("dunlin-shm-{:032x}", u128::from_be_bytes(uid));
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

/// The user of the process at the other end, if it is an allowed one: under a name that anyone can take (`by_folder` is
/// not set), only our own.
pub(super) fn user_of(file: BorrowedFd<'_>, by_folder: bool) -> Result<u32, Errno> {
    let user = peer_user(file)?;
    match by_folder || user == rustix::process::geteuid().as_raw() {
        true => Ok(user),
        false => Err(Errno::ACCESS),
    }
}

/// The user of the process at the other end. Does not use `rustix`, whose type cannot represent process number zero, by
/// which the kernel denotes a process that is not visible in this process namespace.
fn peer_user(file: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of plain integers to `credentials`, which is as long and is not
    // accessed meanwhile, and the length that it wrote to `length`.
    let outcome = unsafe {
        libc::getsockopt(
            file.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    match outcome {
        0 => Ok(credentials.uid),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

impl Socket {
    pub(super) fn new(file: Foreign) -> Self {
        Self {
            file,
            outgoing: VecDeque::new(),
        }
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether messages wait for space in the socket.
    pub(super) fn wants_write(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Sends a message, or queues it.
    pub(super) fn send(&mut self, message: &Message, files: Vec<OwnedFd>) -> Result<(), Broken> {
        if self.outgoing.len() >= OUTGOING_MAX {
            return Err(Broken);
        }
        self.outgoing.push_back((*message, files));
        self.flush()
    }

    /// Sends queued messages, as far as there is space.
    pub(super) fn flush(&mut self) -> Result<(), Broken> {
        while let Some((message, files)) = self.outgoing.front_mut() {
            let bytes = message.encode();
            let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !borrowed.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
                return Err(Broken);
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.file, &[IoSlice::new(&bytes)], &mut control, flags) {
                Ok(_) => drop(self.outgoing.pop_front()),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::TOOMANYREFS) => match *message {
                    // Descriptors that were sent and not yet received are limited per user, whichever process does not
                    // receive them: that must not end this session.
                    Message::Port { request, .. } | Message::Region { request, .. } => {
                        *message = Message::Refused { request };
                        files.clear();
                    }
                    _ => return Err(Broken),
                },
                Err(_) => return Err(Broken),
            }
        }
        Ok(())
    }

    /// The next request, if there is one, from a peer that has no descriptors to send. While a peer does not read
    /// answers, its requests are not read: each queued answer holds descriptors of ours.
    pub(super) fn receive(&self) -> Result<Option<Message>, Broken> {
        if self.wants_write() || !holds_plain(self.file()).map_err(|_| Broken)? {
            return Ok(None);
        }
        let received = self.receive_with_files()?;
        Ok(received.map(|(message, _)| message))
    }

    /// The next message, if there is one, and the descriptors that came with it: all, or none if there is no space for
    /// one of them.
    pub(super) fn receive_with_files(&self) -> Result<Option<(Message, Vec<Foreign>)>, Broken> {
        // One byte more than a message, to detect longer ones.
        let mut bytes = [0; MESSAGE_BYTES + 1];
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_POSSIBLE))];
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
                files.extend(rights.map(Foreign::from));
            }
        }
        if received.bytes == 0 || files.len() > DESCRIPTORS_MAX {
            return Err(Broken);
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            // We have no space for one of them, which is not the session's fault: the message is delivered without any,
            // and the request is refused.
            tracing::debug!("no free file descriptor for a peer's answer");
            files.clear();
        }
        let message = bytes.get(..received.bytes).ok_or(Broken)?;
        match Message::decode(message) {
            Ok(message) => Ok(Some((message, files))),
            Err(_) => Err(Broken),
        }
    }
}

/// Calls `handle` for the sessions whose sockets are ready; removes and returns those that cannot continue.
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
