//! Receiving: one train at a time, with nothing requested from the kernel besides its source and segment length. A
//! polling thread does this a million times a second, mostly in vain, so anything else that a library would look up
//! (destination, type of service, a batch of headers) is noticeable.

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Maximum length that the kernel delivers: a coalesced train.
const TRAIN_BYTES: usize = 64 << 10;
/// Space for the control messages that are requested: the segment length, the type of service, and the number of
/// packets dropped by the kernel.
const CONTROL_BYTES: usize = 128;
/// The two bits of the type of service that indicate congestion.
const CONGESTION: u8 = 3;
/// A train of more bytes is likely to be followed by another.
const MANY_BYTES: usize = 4096;

/// The buffer into which trains are received.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    bytes: Box<[u8]>,
    length: usize,
    segment_bytes: usize,
    marked: bool,
    /// Number of packets that the kernel has dropped so far, modulo 2^32, and of those that have not been reported yet.
    dropped: u32,
    new_drops: u32,
    source: SocketAddr,
}

/// Aligned as control messages require.
#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; CONTROL_BYTES]);

impl ReceiveBuffer {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; TRAIN_BYTES].into(),
            length: 0,
            segment_bytes: 1,
            marked: false,
            dropped: 0,
            new_drops: 0,
            source: SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0),
        }
    }

    /// The source of the last train, and its packets.
    pub(crate) fn train(&self) -> (SocketAddr, std::slice::Chunks<'_, u8>) {
        let bytes = &self.bytes[..self.length];
        (self.source, bytes.chunks(self.segment_bytes))
    }

    /// Whether the packets of the last train were marked by a congested switch: the kernel does not coalesce packets
    /// that differ in this.
    pub(crate) fn is_marked(&self) -> bool {
        self.marked
    }

    /// Returns the number of packets that were dropped because the socket's buffer was full since the last call.
    pub(crate) fn take_drops(&mut self) -> u32 {
        std::mem::take(&mut self.new_drops)
    }

    /// Whether another call is likely to find more.
    pub(crate) fn promises_more(&self) -> bool {
        self.length > MANY_BYTES
    }

    /// Receives a train from the socket; `false` if there is none. This also consumes the error of an earlier send.
    pub(super) fn fill(&mut self, socket: BorrowedFd<'_>) -> bool {
        let mut name = MaybeUninit::<libc::sockaddr_storage>::uninit();
        let mut control = Control([MaybeUninit::uninit(); CONTROL_BYTES]);
        let mut part = libc::iovec {
            iov_base: self.bytes.as_mut_ptr().cast(),
            iov_len: self.bytes.len(),
        };
        // SAFETY: all zeros are a valid value of this plain structure.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: the header names a place for the source, one part that is our buffer, and space for control messages,
        // each with its length; all outlive the call, and nothing else uses them.
        let received =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        let Ok(length) = usize::try_from(received) else {
            return false;
        };
        // SAFETY: the kernel has written a source of the length that it reports.
        let Some(source) = (unsafe { source_of(&header) }) else {
            return false;
        };
        self.source = source;
        self.length = length.min(self.bytes.len());
        // SAFETY: the control messages are those that the kernel wrote, and their memory is unchanged.
        let told = unsafe { told(&header) };
        self.segment_bytes = told.segment_bytes.unwrap_or(self.length).max(1);
        self.marked = told.service & CONGESTION == CONGESTION;
        if let Some(dropped) = told.dropped {
            self.new_drops += dropped.wrapping_sub(self.dropped);
            self.dropped = dropped;
        }
        true
    }
}

/// # Safety
/// `header.msg_name` has `header.msg_namelen` bytes that the kernel wrote.
unsafe fn source_of(header: &libc::msghdr) -> Option<SocketAddr> {
    let length = header.msg_namelen as usize;
    if length < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: this many bytes are there, and the place is large enough for any address; the family determines their
    // type.
    unsafe {
        match libc::c_int::from(header.msg_name.cast::<libc::sa_family_t>().read()) {
            libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
                let name = header.msg_name.cast::<libc::sockaddr_in>().read();
                let address = IpAddr::V4(u32::from_be(name.sin_addr.s_addr).into());
                Some(SocketAddr::new(address, u16::from_be(name.sin_port)))
            }
            libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
                let name = header.msg_name.cast::<libc::sockaddr_in6>().read();
                let address = IpAddr::V6(name.sin6_addr.s6_addr.into()).to_canonical();
                Some(SocketAddr::new(address, u16::from_be(name.sin6_port)))
            }
            _ => None,
        }
    }
}

/// What the kernel reports about a train besides its source.
#[derive(Default)]
struct Told {
    /// Segment length; `None` if it is not segmented.
    segment_bytes: Option<usize>,
    /// Its type of service, or traffic class.
    service: u8,
    /// Number of packets that were dropped because the socket's buffer was full, if there ever were any.
    dropped: Option<u32>,
}

/// # Safety
/// `header` is as the kernel left it, and its control messages are where it says.
unsafe fn told(header: &libc::msghdr) -> Told {
    let mut told = Told::default();
    // SAFETY: the messages are walked as the kernel wrote them; their values are integers, and in one case a byte.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = next.as_ref() {
            let data = libc::CMSG_DATA(message);
            match (message.cmsg_level, message.cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let value = data.cast::<libc::c_int>().read_unaligned();
                    told.segment_bytes = usize::try_from(value).ok();
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => told.service = data.read(),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    told.service = data.cast::<libc::c_int>().read_unaligned() as u8;
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    told.dropped = Some(data.cast::<u32>().read_unaligned());
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(header, message);
        }
    }
    told
}
