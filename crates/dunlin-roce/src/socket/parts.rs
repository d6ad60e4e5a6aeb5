//! The bytes of a train as a list of parts: bytes that were copied, and payload that the kernel reads in place.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use socket2::SockAddr;

use crate::memory::RegionCore;

/// Maximum number of parts of a train: headers and payload of each of its 64 packets, including padding.
const MAX_PARTS: usize = 192;
/// Space for the only control message that is sent: the segment length.
const CONTROL_BYTES: usize = 64;

/// See the module. All payload is from one region, whose registration is in force while the kernel reads; with two, a
/// thread could make a second one wait that is ending the other registration.
#[derive(Debug)]
pub(super) struct Parts {
    parts: Vec<Part>,
    region: Option<Arc<RegionCore>>,
}

#[derive(Clone, Debug)]
enum Part {
    /// A range of the train's buffer.
    Copied(Range<usize>),
    /// An offset in the region, and a length.
    Held(usize, usize),
}

impl Parts {
    pub(super) fn new() -> Self {
        Self {
            parts: Vec::with_capacity(MAX_PARTS),
            region: None,
        }
    }

    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.region = None;
    }

    pub(super) fn hold_payload(&self) -> bool {
        self.region.is_some()
    }

    /// Whether payload of this region can be added in place.
    pub(super) fn may_hold(&self, region: &Arc<RegionCore>) -> bool {
        let same = |held: &Arc<RegionCore>| Arc::ptr_eq(held, region);
        self.region.as_ref().is_none_or(same) && self.parts.len() + 3 <= MAX_PARTS
    }

    /// Adds a range of the buffer, which most often begins where the last one ended.
    pub(super) fn copied(&mut self, range: Range<usize>) {
        match self.parts.last_mut() {
            Some(Part::Copied(last)) if last.end == range.start => last.end = range.end,
            _ if range.is_empty() => {}
            _ => self.parts.push(Part::Copied(range)),
        }
    }

    /// Adds payload of the region that may be used in place.
    pub(super) fn held(&mut self, region: &Arc<RegionCore>, offset: usize, length: usize) {
        debug_assert!(self.may_hold(region));
        self.region.get_or_insert_with(|| Arc::clone(region));
        self.parts.push(Part::Held(offset, length));
    }

    /// Passes all parts to the kernel. `None`: the registration has ended, and nothing was sent.
    pub(super) fn send(
        &self,
        socket: BorrowedFd<'_>,
        buffer: &[u8],
        destination: SocketAddr,
        segment_bytes: Option<usize>,
    ) -> Option<io::Result<()>> {
        let region = self.region.as_ref()?;
        region.access(0, 0, |memory| {
            let mut slices = [EMPTY; MAX_PARTS];
            for (slice, part) in slices.iter_mut().zip(&self.parts) {
                *slice = match part {
                    Part::Copied(range) => {
                        let bytes = &buffer[range.clone()];
                        libc::iovec {
                            iov_base: bytes.as_ptr().cast_mut().cast(),
                            iov_len: bytes.len(),
                        }
                    }
                    Part::Held(offset, length) => {
                        if !memory.contains(*offset, *length) {
                            return Err(io::ErrorKind::InvalidInput.into());
                        }
                        libc::iovec {
                            iov_base: memory.start().as_ptr().wrapping_add(*offset).cast(),
                            iov_len: *length,
                        }
                    }
                };
            }
            // SAFETY: each slice is a part of the buffer or of the region's window, by the checks above; the kernel
            // only reads them. The buffer is borrowed and the registration is in force until this returns.
            unsafe {
                send(
                    socket,
                    &slices[..self.parts.len()],
                    destination,
                    segment_bytes,
                )
            }
        })
    }

    /// Copies all bytes, for a socket that is full. `None`: the registration has ended.
    #[cold]
    pub(super) fn to_vec(&self, buffer: &[u8]) -> Option<Vec<u8>> {
        let region = self.region.as_ref()?;
        let mut bytes = Vec::new();
        for part in &self.parts {
            match part {
                Part::Copied(range) => bytes.extend_from_slice(&buffer[range.clone()]),
                Part::Held(offset, length) => {
                    let start = bytes.len();
                    bytes.resize(start + length, 0);
                    let place = &mut bytes[start..];
                    region.access(*offset, *length, |memory| memory.read(*offset, place))?;
                }
            }
        }
        Some(bytes)
    }
}

const EMPTY: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// Aligned as control messages require.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// # Safety
/// Each slice is memory that can be read until this returns.
unsafe fn send(
    socket: BorrowedFd<'_>,
    slices: &[libc::iovec],
    destination: SocketAddr,
    segment_bytes: Option<usize>,
) -> io::Result<()> {
    let name = SockAddr::from(destination);
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: all zeros are a valid value of this plain structure.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = name.as_ptr().cast_mut().cast();
    header.msg_namelen = name.len();
    header.msg_iov = slices.as_ptr().cast_mut();
    header.msg_iovlen = slices.len() as _;
    if let Some(bytes) = segment_bytes {
        header.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the macros compute lengths and places within the space above, which is larger than the one message.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as u32) as _;
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = libc::SOL_UDP;
            (*message).cmsg_type = libc::UDP_SEGMENT;
            (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(message)
                .cast::<u16>()
                .write_unaligned(bytes as u16);
        }
    }
    // SAFETY: the header names the address, the slices and the control message, which outlive the call; the slices can
    // be read, as the caller promises.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) };
    match sent {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Grant;
    use dunlin_verbs::Access;

    fn region(fill: u8) -> Arc<RegionCore> {
        let grant = Grant {
            domain: 1,
            access: Access::LOCAL_WRITE,
            key: 7,
        };
        let region = RegionCore::allocate(grant, 64, false).unwrap();
        region.write_in_order(0, &[fill; 64]);
        Arc::new(region)
    }

    #[test]
    fn parts_go_out_as_they_were_added_and_not_after_the_end_of_the_registration() {
        use std::net::UdpSocket;
        use std::os::fd::AsFd;
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (ours, other) = (region(b'x'), region(b'y'));
        let buffer = *b"headtail";
        let mut parts = Parts::new();
        assert!(parts.may_hold(&ours) && parts.may_hold(&other));
        parts.copied(0..2);
        parts.copied(2..4);
        parts.held(&ours, 3, 5);
        parts.copied(4..4);
        assert!(parts.may_hold(&ours) && !parts.may_hold(&other));
        parts.held(&ours, 60, 4);
        parts.copied(4..8);
        let expected = b"headxxxxxxxxxtail";
        assert_eq!(parts.to_vec(&buffer).unwrap(), expected);
        let to = receiver.local_addr().unwrap();
        let sent = parts.send(socket.as_fd(), &buffer, to, None);
        sent.expect("registered").expect("sent");
        let mut received = [0; 64];
        let length = receiver.recv(&mut received).unwrap();
        assert_eq!(&received[..length], expected);

        ours.end();
        assert!(parts.send(socket.as_fd(), &buffer, to, None).is_none());
        assert!(parts.to_vec(&buffer).is_none());
        parts.clear();
        assert!(!parts.hold_payload() && parts.may_hold(&other));
    }
}
