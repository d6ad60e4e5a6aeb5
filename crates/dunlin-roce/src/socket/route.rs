//! The system's knowledge of paths to peers, and socket options that the libraries lack.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use quinn_udp::EcnCodepoint;

use crate::packet::{whole_payload_steps, MAX_PAYLOAD_BYTES};

/// Maximum overhead around the payload of a packet: IPv6, UDP, base header, RETH, immediate data, padding and invariant
/// CRC.
const OVERHEAD_BYTES: usize = 40 + 8 + 12 + 16 + 4 + 3 + 4;
/// Reserved for the headers of tunnels on the path, which neither end's link knows of: two of VXLAN, or one of
/// WireGuard.
const TUNNEL_BYTES: usize = 100;
/// The MTU of a loopback interface, whose path has no tunnel.
const LOOPBACK_BYTES: usize = 64 << 10;
/// What every IPv6 link carries, used where the MTU cannot be queried.
const LEAST_LINK_BYTES: usize = 1280;

/// The limits of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The largest MTU of RoCE.
    pub(crate) mtu_bytes: usize,
    /// The maximum payload of a packet between two devices that need not use the standard's sizes, in steps of 64
    /// bytes.
    pub(crate) payload_bytes: usize,
}

impl Link {
    fn of(link_bytes: usize) -> Self {
        let mtu_bytes = largest_mtu(link_bytes.saturating_sub(OVERHEAD_BYTES));
        let beside = match link_bytes < LOOPBACK_BYTES {
            true => OVERHEAD_BYTES + TUNNEL_BYTES,
            false => OVERHEAD_BYTES,
        };
        let payload_bytes = whole_payload_steps(link_bytes.saturating_sub(beside));
        Self {
            mtu_bytes,
            payload_bytes: payload_bytes.clamp(mtu_bytes, MAX_PAYLOAD_BYTES as usize),
        }
    }

    /// The same with a payload limit.
    pub(crate) fn with_payload(self, payload_bytes: usize) -> Self {
        Self {
            payload_bytes: self.payload_bytes.min(payload_bytes),
            ..self
        }
    }

    /// The limits of a path on which payloads of this length get through, but no longer ones.
    pub(crate) fn within(self, payload_bytes: usize) -> Self {
        self.min(Self {
            mtu_bytes: largest_mtu(payload_bytes),
            payload_bytes,
        })
    }

    /// The limits of both.
    pub(crate) fn min(self, other: Self) -> Self {
        Self {
            mtu_bytes: self.mtu_bytes.min(other.mtu_bytes),
            payload_bytes: self.payload_bytes.min(other.payload_bytes),
        }
    }
}

/// The largest RoCE MTU of at most this many bytes.
fn largest_mtu(bytes: usize) -> usize {
    [4096, 2048, 1024, 512]
        .into_iter()
        .find(|mtu| *mtu <= bytes)
        .unwrap_or(256)
}

fn set(socket: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: usize) -> bool {
    let value = libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is open, and the value is an integer of the length that is passed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    result == 0
}

fn get(socket: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int) -> Option<usize> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the place is an integer of the length that is passed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    (result == 0).then(|| usize::try_from(value).ok()).flatten()
}

/// Sets the sizes of the buffers, beyond the system's limits if this process may exceed them.
pub(super) fn grow_buffers(socket: BorrowedFd<'_>, receive_bytes: usize, send_bytes: usize) {
    let level = libc::SOL_SOCKET;
    let _ = set(socket, level, libc::SO_RCVBUFFORCE, receive_bytes)
        || set(socket, level, libc::SO_RCVBUF, receive_bytes);
    let _ = set(socket, level, libc::SO_SNDBUFFORCE, send_bytes)
        || set(socket, level, libc::SO_SNDBUF, send_bytes);
}

/// Accepts packets without a checksum: kernels and NICs send RoCE over IPv6 with a UDP checksum of zero, which would
/// otherwise be dropped.
pub(super) fn take_packets_without_checksum(socket: BorrowedFd<'_>) {
    set(socket, libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, 1);
}

/// Restricts what the kernel reports about a datagram to its source, the number of drops and, if wanted, the congestion
/// marks: other options that a library has enabled are not used, and cost time with each datagram.
pub(super) fn receive_plainly(socket: BorrowedFd<'_>, marks: bool) {
    let wanted = usize::from(marks);
    let (v4, v6) = (libc::IPPROTO_IP, libc::IPPROTO_IPV6);
    set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    set(socket, v4, libc::IP_PKTINFO, 0);
    set(socket, v6, libc::IPV6_RECVPKTINFO, 0);
    set(socket, v4, libc::IP_RECVTOS, wanted);
    set(socket, v6, libc::IPV6_RECVTCLASS, wanted);
    if marks {
        set(socket, v4, libc::IP_TOS, EcnCodepoint::Ect0 as usize);
        set(socket, v6, libc::IPV6_TCLASS, EcnCodepoint::Ect0 as usize);
    }
}

/// Sends packets with *don't fragment*, whatever the kernel assumes about the path.
pub(super) fn never_fragment(socket: BorrowedFd<'_>) {
    set(
        socket,
        libc::IPPROTO_IP,
        libc::IP_MTU_DISCOVER,
        libc::IP_PMTUDISC_PROBE as usize,
    );
}

/// The path to a peer, according to the routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The local address of packets to it.
    pub(crate) local: IpAddr,
    /// The limits of the path, as far as the kernel knows.
    pub(crate) link: Link,
}

impl Route {
    /// The path to `remote`, from `local` if that is given; `None` if there is none.
    pub(crate) fn find(local: Option<IpAddr>, remote: IpAddr) -> Option<Self> {
        let any = match remote {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let socket = UdpSocket::bind(SocketAddr::new(local.unwrap_or(any), 0)).ok()?;
        // Sends nothing: it queries the route.
        socket.connect(SocketAddr::new(remote, 9)).ok()?;
        let link_bytes = match remote {
            IpAddr::V4(_) => get(socket.as_fd(), libc::IPPROTO_IP, libc::IP_MTU),
            IpAddr::V6(_) => get(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        Some(Self {
            local: socket.local_addr().ok()?.ip().to_canonical(),
            link: Link::of(link_bytes?),
        })
    }
}

/// The limits of the interface with this local address; without an address, those of all interfaces that lead to other
/// hosts, and if there are none, of the loopback interface.
pub(crate) fn link_of_interface(address: Option<IpAddr>) -> Link {
    let loopback = Link::of(LOOPBACK_BYTES);
    if address.is_some_and(|address| address.is_loopback()) {
        return loopback;
    }
    let link = |name: String| Link::of(interface_bytes(&name).unwrap_or(LEAST_LINK_BYTES));
    let wanted = |one: &IpAddr| match address {
        Some(address) => *one == address,
        None => !one.is_loopback(),
    };
    let found = interfaces_of(wanted).into_iter().map(link);
    found.reduce(Link::min).unwrap_or(match address {
        Some(_) => Link::of(LEAST_LINK_BYTES),
        None => loopback,
    })
}

/// The MTU of an interface of this network namespace, which may differ from that of the mounted `/sys`.
fn interface_bytes(name: &str) -> Option<usize> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // SAFETY: an `ifreq` consists of integers and unions of integers, for which zeros are valid values.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (place, byte) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    // SAFETY: the descriptor is open, and the request is of the kind that the call reads and fills.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    if result != 0 {
        return None;
    }
    // SAFETY: the call has filled this field.
    usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

/// The names of the interfaces that have a matching address.
fn interfaces_of(wanted: impl Fn(&IpAddr) -> bool) -> Vec<String> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the place is a pointer that the call fills; the list is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    // SAFETY: the first entry of the list, or none.
    let mut next = unsafe { first.as_ref() };
    while let Some(entry) = next {
        if address_of(entry).is_some_and(|address| wanted(&address)) {
            // SAFETY: the name of an entry ends with a zero, and lives until `freeifaddrs`.
            let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
            found.extend(name.to_str().ok().map(str::to_owned));
        }
        // SAFETY: the next entry of the list, or none; all of them live until `freeifaddrs`.
        next = unsafe { entry.ifa_next.as_ref() };
    }
    // SAFETY: the list returned by the call above, freed once.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// The IP address of an entry of `getifaddrs`' list.
fn address_of(entry: &libc::ifaddrs) -> Option<IpAddr> {
    let address = entry.ifa_addr;
    // SAFETY: the address of an entry is null or valid, and of the type that its family indicates; it is read by value,
    // whatever its alignment.
    unsafe {
        if address.is_null() {
            return None;
        }
        match libc::c_int::from((*address).sa_family) {
            libc::AF_INET => {
                let inet = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(IpAddr::V4(u32::from_be(inet.sin_addr.s_addr).into()))
            }
            libc::AF_INET6 => {
                let inet = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(IpAddr::V6(inet.sin6_addr.s6_addr.into()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_links_carry_common_mtus() {
        for (link, mtu, payload) in [
            (1280, 1024, 1088),
            (1500, 1024, 1280),
            (9000, 4096, 8768),
            (65536, 4096, 57_344),
            (576, 256, 384),
            (100, 256, 256),
        ] {
            let expected = Link {
                mtu_bytes: mtu,
                payload_bytes: payload,
            };
            assert_eq!(Link::of(link), expected, "{link}");
        }
    }

    #[test]
    fn loopback_carries_the_largest() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let route = Route::find(None, here).unwrap();
        assert_eq!((route.local, route.link.mtu_bytes), (here, 4096));
        assert_eq!(interfaces_of(|one| *one == here), ["lo"]);
        assert_eq!(link_of_interface(Some(here)), route.link);
    }
}
