//! The invariant CRC, which protects a packet from end to end (IBTA vol. 1 §7.8.1, annex A17.3.3).
//!
//! It covers what routers do not change: eight bytes of ones where InfiniBand has a local routing header, the IP and
//! UDP headers with their variable fields as ones, and the packet itself with the reserved byte of its base header as
//! ones.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::header::BASE_BYTES;

/// Length of the invariant CRC at the end of a packet.
pub const ICRC_BYTES: usize = 4;

/// The addresses of a datagram, as far as the invariant CRC covers its IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4, without options.
    V4 {
        /// Source address.
        source: Ipv4Addr,
        /// Destination address.
        destination: Ipv4Addr,
        /// The identification field, which is covered although a UDP socket does not show it. From an unconnected
        /// socket, Linux sends zero with *don't fragment*.
        identification: u16,
        /// Whether *don't fragment* is set.
        dont_fragment: bool,
    },
    /// IPv6, without extension headers.
    V6 {
        /// Source address.
        source: Ipv6Addr,
        /// Destination address.
        destination: Ipv6Addr,
    },
}

/// The addresses and ports of the datagram that contains a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// IP addresses.
    pub network: Network,
    /// UDP port of the sender.
    pub source_port: u16,
    /// UDP port of the receiver.
    pub destination_port: u16,
}

const UDP_BYTES: usize = 8;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
/// Number of bytes of ones in place of a local routing header.
const ROUTING_BYTES: usize = 8;
const PROTOCOL_UDP: u8 = 17;

/// The invariant CRC of `packet`, which is everything between the UDP header and the CRC, including padding. `None` if
/// it is shorter than a base header, or does not fit into a datagram.
pub fn icrc(envelope: &Envelope, packet: &[u8]) -> Option<[u8; ICRC_BYTES]> {
    let udp_bytes = u16::try_from(UDP_BYTES + packet.len() + ICRC_BYTES).ok()?;
    let (base, rest) = packet.split_at_checked(BASE_BYTES)?;
    let mut pseudo = [0xff; ROUTING_BYTES + IPV6_BYTES + UDP_BYTES + BASE_BYTES];
    let mut end = ROUTING_BYTES;
    match envelope.network {
        Network::V4 {
            source,
            destination,
            identification,
            dont_fragment,
        } => {
            let ip = &mut pseudo[end..end + IPV4_BYTES];
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&udp_bytes.checked_add(IPV4_BYTES as u16)?.to_be_bytes());
            ip[4..6].copy_from_slice(&identification.to_be_bytes());
            ip[6..8].copy_from_slice(&[u8::from(dont_fragment) << 6, 0]);
            ip[9] = PROTOCOL_UDP;
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&destination.octets());
            end += IPV4_BYTES;
        }
        Network::V6 {
            source,
            destination,
        } => {
            let ip = &mut pseudo[end..end + IPV6_BYTES];
            ip[0] = 0x6f;
            ip[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
            ip[6] = PROTOCOL_UDP;
            ip[8..24].copy_from_slice(&source.octets());
            ip[24..40].copy_from_slice(&destination.octets());
            end += IPV6_BYTES;
        }
    }
    pseudo[end..end + 2].copy_from_slice(&envelope.source_port.to_be_bytes());
    pseudo[end + 2..end + 4].copy_from_slice(&envelope.destination_port.to_be_bytes());
    pseudo[end + 4..end + 6].copy_from_slice(&udp_bytes.to_be_bytes());
    end += UDP_BYTES;
    pseudo[end..end + BASE_BYTES].copy_from_slice(base);
    // This byte contains the congestion marks, which routers change.
    pseudo[end + 4] = 0xff;
    end += BASE_BYTES;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&pseudo[..end]);
    hasher.update(rest);
    Some(hasher.finalize().to_le_bytes())
}

/// The value of the reserved bits of a base header's ninth byte if the invariant CRC is omitted. Only devices that have
/// agreed on it send such packets to each other; for all others the bits have no meaning.
const OMITTED: u8 = 0x35;
/// Those bits.
const OMITTED_BITS: u8 = 0x7f;
const OMITTED_AT: usize = 8;

/// Marks a packet as one without an invariant CRC.
pub fn mark_icrc_omitted(packet: &mut [u8]) {
    if let Some(byte) = packet.get_mut(OMITTED_AT) {
        *byte = *byte & !OMITTED_BITS | OMITTED;
    }
}

/// Whether a packet is marked as one without an invariant CRC.
pub fn is_icrc_omitted(packet: &[u8]) -> bool {
    packet
        .get(OMITTED_AT)
        .is_some_and(|byte| byte & OMITTED_BITS == OMITTED)
}

/// Whether `crc` is the invariant CRC of `packet`. Over IPv4 any identification is accepted, since a UDP socket does
/// not show the actual one: sixteen bits of the check remain, and UDP's own checksum if the sender uses one.
pub fn icrc_agrees(envelope: &Envelope, packet: &[u8], crc: [u8; ICRC_BYTES]) -> bool {
    let Some(computed) = icrc(envelope, packet) else {
        return false;
    };
    let difference = u32::from_le_bytes(computed) ^ u32::from_le_bytes(crc);
    if difference == 0 || matches!(envelope.network, Network::V6 { .. }) {
        return difference == 0;
    }
    // A CRC is linear: another identification adds its own polynomial, shifted by all bits that follow it. Shifted
    // back, the difference must be such a polynomial, which has sixteen bits.
    let bytes_after = IPV4_BYTES + UDP_BYTES - IDENTIFICATION_END + packet.len();
    let bits = 8 * bytes_after as u32 + 32;
    let identification = polynomial::multiply(difference, polynomial::power_of_x(u32::MAX - bits));
    identification & 0xffff == 0
}

/// Offset of the end of the identification in an IPv4 header.
const IDENTIFICATION_END: usize = 6;

/// Polynomials modulo that of the CRC, with the coefficient of x^0 in the highest bit.
mod polynomial {
    const ONE: u32 = 1 << 31;
    const CRC: u32 = 0xedb8_8320;

    fn times_x(a: u32) -> u32 {
        a >> 1 ^ (CRC & (a & 1).wrapping_neg())
    }

    pub(super) fn multiply(a: u32, mut b: u32) -> u32 {
        let mut product = 0;
        for bit in (0..32).rev() {
            product ^= b & (a >> bit & 1).wrapping_neg();
            b = times_x(b);
        }
        product
    }

    /// x to a power. The polynomial is primitive: powers repeat after 2^32 - 1, so `u32::MAX - n` gives the inverse for
    /// n.
    pub(super) fn power_of_x(mut exponent: u32) -> u32 {
        let (mut power, mut square) = (ONE, ONE >> 1);
        while exponent > 0 {
            if exponent & 1 == 1 {
                power = multiply(power, square);
            }
            square = multiply(square, square);
            exponent >>= 1;
        }
        power
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(identification: u16) -> Envelope {
        Envelope {
            network: Network::V4 {
                source: [192, 0, 2, 1].into(),
                destination: [192, 0, 2, 2].into(),
                identification,
                dont_fragment: true,
            },
            source_port: 49152,
            destination_port: 4791,
        }
    }

    #[test]
    fn any_identification_agrees_and_little_else() {
        let mut wrong = 0;
        for bytes in [12, 16, 100, 1052, 4124] {
            let packet: Vec<u8> = (0..bytes).map(|at| (at * 37 + 11) as u8).collect();
            for identification in [0, 1, 0x8000, 0xffff, 0x1234] {
                let crc = icrc(&envelope(identification), &packet).unwrap();
                assert!(
                    icrc_agrees(&envelope(0), &packet, crc),
                    "{bytes} {identification:x}"
                );
                for bit in 0..32 {
                    let bad = (u32::from_le_bytes(crc) ^ 1 << bit).to_le_bytes();
                    wrong += u32::from(icrc_agrees(&envelope(0), &packet, bad));
                }
            }
        }
        // One in 65,536 of all wrong ones passes.
        assert_eq!(wrong, 0, "of 800");
    }

    #[test]
    fn a_mark_says_that_the_crc_is_omitted() {
        let mut packet = [0xff; 12];
        assert!(!is_icrc_omitted(&packet));
        mark_icrc_omitted(&mut packet);
        assert!(is_icrc_omitted(&packet));
        assert_eq!(packet[8] & 0x80, 0x80, "the bit beside them stays");
        assert!(!is_icrc_omitted(&[0; 12]));
        assert!(!is_icrc_omitted(&[0; 3]));
    }
}
