//! Addresses of queue pairs: what [`EndpointAddress`] contains on this device, and how a peer is derived from it.
//!
//! The global identifier is an IPv6 or mapped IPv4 address, as on every RoCE device. The token, which has no meaning
//! for kernels and NICs, describes the extensions of a Dunlin device. For kernels and NICs it is zero or, from
//! `dunlin-ibv`, the number of a peer's READs and atomics that they answer at a time.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use dunlin_verbs::{EndpointAddress, VerbsError};

use crate::config::ROCE_PORT;
use crate::packet::{whole_payload_steps, MAX_PAYLOAD_BYTES, PAYLOAD_STEP_BYTES};

/// Set if the token is one of Dunlin's: its low 16 bits are then the UDP port from which the owner sends and at which
/// it receives.
const TOKEN_DUNLIN: u64 = 1 << 16;
/// The owner does not use the invariant CRC.
const TOKEN_OMITS_ICRC: u64 = 1 << 17;
/// From this bit on: the maximum payload of its packets, in steps of 64 bytes, if that is not the path MTU.
const TOKEN_PAYLOAD_SHIFT: u32 = 18;
const TOKEN_PAYLOAD_BITS: u64 = 0x3ff;
/// From this bit on: the size of the receive buffer in KiB.
const TOKEN_BUFFER_SHIFT: u32 = 32;

/// The smaller receive buffer must hold at least this many payloads, so that a window, which is half of it, is several
/// packets.
const PAYLOADS_IN_BUFFER: usize = 32;

/// The receive buffer assumed for a peer that does not report its own: a quarter of Linux's default.
const UNKNOWN_BUFFER_BYTES: usize = 64 << 10;

/// Maximum number of READs and atomics in flight, at either end.
pub(crate) const MAX_OUTSTANDING_READS: usize = 16;

/// What this device reports about itself in an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    pub(crate) port: u16,
    pub(crate) omit_icrc: bool,
    pub(crate) receive_buffer_bytes: usize,
}

impl Habits {
    /// `payload_bytes`: the maximum payload of a packet on the path, or zero for no more than the path MTU.
    pub(crate) fn token(&self, payload_bytes: usize) -> u64 {
        let icrc = if self.omit_icrc { TOKEN_OMITS_ICRC } else { 0 };
        let kilobytes = self.kilobytes() as u64;
        let token = TOKEN_DUNLIN | icrc | u64::from(self.port) | kilobytes << TOKEN_BUFFER_SHIFT;
        with_payload(token, payload_bytes)
    }

    /// Size of the receive buffer, as encoded in the token.
    fn kilobytes(&self) -> usize {
        (self.receive_buffer_bytes >> 10).min(u32::MAX as usize)
    }
}

fn with_payload(token: u64, payload_bytes: usize) -> u64 {
    let units = (payload_bytes / PAYLOAD_STEP_BYTES) as u64 & TOKEN_PAYLOAD_BITS;
    token & !(TOKEN_PAYLOAD_BITS << TOKEN_PAYLOAD_SHIFT) | units << TOKEN_PAYLOAD_SHIFT
}

fn payload_of(token: u64) -> usize {
    (token >> TOKEN_PAYLOAD_SHIFT & TOKEN_PAYLOAD_BITS) as usize * PAYLOAD_STEP_BYTES
}

/// Limits a token of this device to a path that carries payloads of this length.
pub(crate) fn limit_payload(token: u64, payload_bytes: usize) -> u64 {
    with_payload(token, payload_of(token).min(payload_bytes))
}

/// The address of a peer's device, and its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// UDP port to which packets are sent.
    pub(crate) port: u16,
    /// Whether it is a device of this kind. Its packets come from that port; those of kernels and NICs may come from
    /// any.
    pub(crate) is_dunlin: bool,
    /// Whether packets carry the invariant CRC.
    pub(crate) icrc: bool,
    /// Maximum number of bytes in flight to it.
    pub(crate) buffer_bytes: usize,
    /// Maximum number of READs and atomics that it answers at a time: further ones are refused, or forgotten before
    /// they are retransmitted.
    pub(crate) answers: usize,
    /// Maximum payload of a packet to it or from it, as far as its own limit and both receive buffers allow; zero for
    /// no more than the path MTU. Together with the paths of both ends, both compute the same number.
    pub(crate) payload_bytes: usize,
}

impl Peer {
    /// Decodes an address.
    ///
    /// # Errors
    /// When it does not belong to a RoCE device.
    pub(crate) fn new(address: &EndpointAddress, ours: &Habits) -> Result<Self, VerbsError> {
        let ip = Ipv6Addr::from(address.gid);
        let bad = |why: &str| Err(VerbsError::Address(format!("{ip}: {why}")));
        if address.lid != 0 {
            return bad("an InfiniBand address (with a LID), not a RoCE address");
        }
        if ip.is_unspecified() || ip.is_multicast() {
            return bad("not a unicast address");
        }
        let token = address.token;
        let dunlin = token & TOKEN_DUNLIN != 0;
        let port = if dunlin { token as u16 } else { ROCE_PORT };
        if port == 0 {
            return bad("UDP port missing");
        }
        let kilobytes = (token >> TOKEN_BUFFER_SHIFT) as usize;
        let shared_buffer_bytes = kilobytes.min(ours.kilobytes()) << 10;
        let longest = (shared_buffer_bytes / PAYLOADS_IN_BUFFER).min(MAX_PAYLOAD_BYTES as usize);
        Ok(Self {
            address: IpAddr::V6(ip).to_canonical(),
            port,
            is_dunlin: dunlin,
            icrc: !(dunlin && ours.omit_icrc && token & TOKEN_OMITS_ICRC != 0),
            buffer_bytes: if dunlin {
                kilobytes << 10
            } else {
                UNKNOWN_BUFFER_BYTES
            },
            answers: match u8::try_from(token) {
                _ if dunlin => MAX_OUTSTANDING_READS,
                Ok(answers) => usize::from(answers).clamp(1, MAX_OUTSTANDING_READS),
                Err(_) => 1,
            },
            payload_bytes: match dunlin {
                true => payload_of(token).min(whole_payload_steps(longest)),
                false => 0,
            },
        })
    }

    /// A Dunlin device that has sent a probe and is not connected to anything yet.
    pub(crate) fn asking(source: &SocketAddr, icrc: bool) -> Self {
        Self {
            address: source.ip(),
            port: source.port(),
            is_dunlin: true,
            icrc,
            buffer_bytes: 0,
            answers: 1,
            payload_bytes: 0,
        }
    }

    /// Whether a datagram from this source can be one of its packets.
    #[inline]
    pub(crate) fn sends_from(&self, source: &SocketAddr) -> bool {
        source.ip() == self.address && (!self.is_dunlin || source.port() == self.port)
    }
}

/// The destination of datagrams: a peer's device.
#[derive(Clone, Debug)]
pub struct RoceAddressHandle {
    /// This host's address on the path to it.
    pub(crate) local: IpAddr,
    pub(crate) peer: Peer,
}

/// Encodes an IP address as a global identifier.
pub(crate) fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(token: u64) -> EndpointAddress {
        EndpointAddress {
            gid: gid("192.0.2.7".parse().unwrap()),
            lid: 0,
            mtu_bytes: 1024,
            queue_pair: 17,
            packet_sequence: 1,
            queue_key: 0,
            token,
        }
    }

    const OURS: Habits = Habits {
        port: 5000,
        omit_icrc: true,
        receive_buffer_bytes: 1 << 20,
    };

    #[test]
    fn the_token_says_port_buffer_and_whether_the_crc_is_omitted() {
        for omit_icrc in [true, false] {
            let theirs = Habits {
                port: 40_000,
                omit_icrc,
                receive_buffer_bytes: 212_992,
            };
            let peer = Peer::new(&address(theirs.token(0)), &OURS).unwrap();
            assert_eq!(peer.address, "192.0.2.7".parse::<IpAddr>().unwrap());
            assert_eq!((peer.port, peer.icrc), (40_000, !omit_icrc));
            assert_eq!(peer.buffer_bytes, 212_992);
            assert!(peer.sends_from(&"192.0.2.7:40000".parse().unwrap()));
            assert!(!peer.sends_from(&"192.0.2.7:40001".parse().unwrap()));
            assert!(!peer.sends_from(&"192.0.2.8:40000".parse().unwrap()));
        }
    }

    #[test]
    fn both_ends_agree_on_the_longest_payload_that_both_buffers_and_ways_bear() {
        let habits = |receive_buffer_bytes| Habits {
            port: 5000,
            omit_icrc: true,
            receive_buffer_bytes,
        };
        let seen = |theirs: &Habits, payload: usize, ours: &Habits| {
            let peer = Peer::new(&address(theirs.token(payload)), ours).unwrap();
            peer.payload_bytes
        };
        let (large, small) = (habits(8 << 20), habits(212_992));
        for payload in [0, 1408, 8896, 57_344] {
            assert_eq!(seen(&large, payload, &large), payload);
            assert_eq!(seen(&large, payload, &small), payload.min(6656));
            assert_eq!(seen(&small, payload, &large), payload.min(6656));
        }
        let token = large.token(57_344);
        assert_eq!(limit_payload(token, 8896), large.token(8896));
        assert_eq!(limit_payload(large.token(0), 8896), large.token(0));
        // A peer may send anything.
        let wild = Peer::new(&address(u64::MAX), &large).unwrap();
        assert_eq!(wild.payload_bytes, 57_344);
        assert_eq!(seen(&habits(0), 57_344, &large), 0);
        assert_eq!(Peer::new(&address(7), &large).unwrap().payload_bytes, 0);
    }

    #[test]
    fn kernels_are_at_the_port_of_roce_and_send_from_any() {
        let peer = Peer::new(&address(0), &OURS).unwrap();
        assert_eq!((peer.port, peer.icrc), (ROCE_PORT, true));
        assert!(peer.sends_from(&"192.0.2.7:50123".parse().unwrap()));
    }

    #[test]
    fn a_peer_is_asked_for_as_much_at_once_as_it_says() {
        let answers = |token| Peer::new(&address(token), &OURS).unwrap().answers;
        assert_eq!([0, 1, 7, 16, 128].map(answers), [1, 1, 7, 16, 16]);
        assert_eq!([256, 1 << 40].map(answers), [1, 1]);
        assert_eq!(answers(OURS.token(0)), MAX_OUTSTANDING_READS);
    }

    #[test]
    fn addresses_of_other_devices_are_refused() {
        let mut lid = address(0);
        lid.lid = 1;
        let mut nowhere = address(0);
        nowhere.gid = [0; 16];
        let no_port = address(TOKEN_DUNLIN);
        for address in [lid, nowhere, no_port] {
            let error = Peer::new(&address, &OURS).unwrap_err();
            assert!(matches!(error, VerbsError::Address(_)), "{error}");
        }
    }
}
