//! Sending a train whose payload stays where it is: the kernel gathers headers and pieces of registered memory by itself,
//! so that long messages are copied once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use dunlin_verbs::Memory;
use socket2::SockAddr;

use super::train::MAX_SEGMENTS;
use crate::memory::RegionCore;

/// Room for the length of the segments.
const CONTROL_BYTES: usize = 32;
/// Headers, and payload, of each packet.
const MAX_PARTS: usize = 2 * MAX_SEGMENTS;

/// Payload that is not in a train's buffer.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Where in the buffer it would be.
    at: usize,
    /// Where in the region it is.
    offset: usize,
    bytes: usize,
}

/// The payload of a train that stays where it is: pieces of one region.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    region: Option<Arc<RegionCore>>,
    pieces: Vec<Piece>,
    bytes: usize,
}

/// Aligned as control messages are.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

impl Gathered {
    /// Bytes of all pieces.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a piece of that region can be added.
    pub(super) fn takes(&self, region: &Arc<RegionCore>) -> bool {
        let same = |mine: &Arc<RegionCore>| Arc::ptr_eq(mine, region);
        self.region.as_ref().is_none_or(same)
    }

    pub(super) fn clear(&mut self) {
        self.region = None;
        self.pieces.clear();
        self.bytes = 0;
    }

    /// Adds a piece behind the bytes of the buffer before `at`.
    pub(super) fn add(&mut self, at: usize, region: &Arc<RegionCore>, offset: usize, bytes: usize) {
        self.region.get_or_insert_with(|| Arc::clone(region));
        self.pieces.push(Piece { at, offset, bytes });
        self.bytes += bytes;
    }

    /// Sends the train; `None` when the registration has ended meanwhile.
    pub(super) fn send(
        &self,
        socket: BorrowedFd<'_>,
        buffer: &[u8],
        destination: SocketAddr,
        segment_bytes: Option<usize>,
    ) -> Option<io::Result<()>> {
        self.access(|memory| self.send_from(memory, socket, buffer, destination, segment_bytes))
    }

    /// All in one piece; `None` when the registration has ended meanwhile.
    pub(super) fn copy(&self, buffer: &[u8]) -> Option<Vec<u8>> {
        self.access(|memory| {
            let mut whole = Vec::with_capacity(buffer.len() + self.bytes);
            let mut from = 0;
            for piece in &self.pieces {
                whole.extend_from_slice(&buffer[from..piece.at]);
                from = piece.at;
                let start = whole.len();
                whole.resize(start + piece.bytes, 0);
                memory.read(piece.offset, &mut whole[start..]);
            }
            whole.extend_from_slice(&buffer[from..]);
            whole
        })
    }

    /// Does something with the region, which is in force meanwhile and has all pieces inside.
    fn access<T>(&self, action: impl FnOnce(&Memory) -> T) -> Option<T> {
        let region = self.region.as_ref()?;
        let inside = |memory: &Memory| {
            let mut pieces = self.pieces.iter();
            pieces.all(|piece| memory.contains(piece.offset, piece.bytes))
        };
        region.access(0, 0, |memory| inside(memory).then(|| action(memory)))?
    }

    fn send_from(
        &self,
        memory: &Memory,
        socket: BorrowedFd<'_>,
        buffer: &[u8],
        destination: SocketAddr,
        segment_bytes: Option<usize>,
    ) -> io::Result<()> {
        // SAFETY: zeros are a value of this plain structure.
        let mut parts: [libc::iovec; MAX_PARTS + 1] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        let mut part = |start: *const u8, bytes: usize| {
            if bytes > 0 {
                parts[count].iov_base = start.cast_mut().cast();
                parts[count].iov_len = bytes;
                count += 1;
            }
        };
        let mut from = 0;
        for piece in &self.pieces {
            part(buffer[from..].as_ptr(), piece.at - from);
            from = piece.at;
            // SAFETY: the caller has checked that the piece is inside.
            let start = unsafe { memory.start().as_ptr().add(piece.offset) };
            part(start, piece.bytes);
        }
        part(buffer[from..].as_ptr(), buffer.len() - from);
        let name = SockAddr::from(destination);
        let mut control = Control([0; CONTROL_BYTES]);
        // SAFETY: zeros are a value of this plain structure.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_namelen = name.len();
        header.msg_iov = parts.as_mut_ptr();
        header.msg_iovlen = count as _;
        if let Some(bytes) = segment_bytes.and_then(|bytes| u16::try_from(bytes).ok()) {
            header.msg_control = control.0.as_mut_ptr().cast();
            // SAFETY: the control buffer is aligned and has room for one message with an integer of two bytes.
            unsafe {
                header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as _;
                let message = &mut *libc::CMSG_FIRSTHDR(&raw const header);
                message.cmsg_level = libc::SOL_UDP;
                message.cmsg_type = libc::UDP_SEGMENT;
                message.cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
                libc::CMSG_DATA(message)
                    .cast::<u16>()
                    .write_unaligned(bytes);
            }
        }
        // SAFETY: the header names the destination, parts of our buffer and of memory that is registered for as long as the
        // caller has access to it, and control messages, each with its length. The kernel only reads all of them; what others
        // write into registered memory meanwhile is sent or not.
        let sent =
            unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}
