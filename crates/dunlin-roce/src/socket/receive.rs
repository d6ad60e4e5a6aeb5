//! Receiving: one train at a time, with nothing asked of the kernel beside where it comes from and how it is cut. A
//! thread that polls does this a million times a second and mostly in vain, so what a library would look up besides
//! (destination, type of service, a batch of headers) is felt.

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The longest that the kernel hands over: a train put together again.
const TRAIN_BYTES: usize = 64 << 10;
/// Room for the control messages that are asked for: the length of the segments, the type of service, and how many
/// packets the kernel had to drop.
const CONTROL_BYTES: usize = 128;
/// The two bits of the type of service that say that a queue grew long.
const CONGESTION: u8 = 3;
/// A train of more bytes is likely to have another behind it.
const MANY_BYTES: usize = 4096;

/// Where trains are received.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    bytes: Box<[u8]>,
    length: usize,
    segment_bytes: usize,
    marked: bool,
    /// Packets that the kernel has dropped so far, modulo 2^32, and those of them that nobody asked for yet.
    dropped: u32,
    new_drops: u32,
    source: SocketAddr,
}

/// Aligned as control messages are.
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

    /// Where the last train came from, and its packets.
    pub(crate) fn train(&self) -> (SocketAddr, std::slice::Chunks<'_, u8>) {
        let bytes = &self.bytes[..self.length];
        (self.source, bytes.chunks(self.segment_bytes))
    }

    /// Whether the packets of the last train were marked by a queue that grew long: the kernel puts none together that
    /// differ in this.
    pub(crate) fn is_marked(&self) -> bool {
        self.marked
    }

    /// How many packets found the socket's buffer full since the last time that this was asked.
    pub(crate) fn take_drops(&mut self) -> u32 {
        std::mem::take(&mut self.new_drops)
    }

    /// Whether another call is likely to find more.
    pub(crate) fn promises_more(&self) -> bool {
        self.length > MANY_BYTES
    }

    /// Takes a train off the socket; `false` when there is none. An error of an earlier send is consumed with this.
    pub(super) fn fill(&mut self, socket: BorrowedFd<'_>) -> bool {
        let mut name = MaybeUninit::<libc::sockaddr_storage>::uninit();
        let mut control = Control([MaybeUninit::uninit(); CONTROL_BYTES]);
        let mut part = libc::iovec {
            iov_base: self.bytes.as_mut_ptr().cast(),
            iov_len: self.bytes.len(),
        };
        // SAFETY: all zeros are a value of this plain structure.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES as _;
        // SAFETY: the header names a place for the source, one part that is our buffer, and room for control messages,
        // each with its length; all outlive the call, and nothing else uses them.
        let received =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        let Ok(length) = usize::try_from(received) else {
            return false;
        };
        // SAFETY: the kernel has written a source of the length that it says now.
        let Some(source) = (unsafe { source_of(&header) }) else {
            return false;
        };
        self.source = source;
        self.length = length.min(self.bytes.len());
        // SAFETY: the control messages are those that the kernel wrote, and their memory is as it was.
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
    // SAFETY: so many bytes are there, and the place was made for any address; what they are their family says.
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

/// What the kernel tells of a train beside where it comes from.
#[derive(Default)]
struct Told {
    /// How long its segments are; `None` for one that is not cut.
    segment_bytes: Option<usize>,
    /// Its type of service, or traffic class.
    service: u8,
    /// Packets that found the socket's buffer full, if any ever did.
    dropped: Option<u32>,
}

/// # Safety
/// `header` is as the kernel left it, and its control messages are where it says.
unsafe fn told(header: &libc::msghdr) -> Told {
    let mut told = Told::default();
    // SAFETY: the messages are walked as the kernel wrote them; the values of these are integers, and in one a byte.
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
