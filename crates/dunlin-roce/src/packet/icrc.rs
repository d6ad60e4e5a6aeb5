//! The invariant CRC: what protects a packet from end to end (IBTA vol. 1 §7.8.1, annex A17.3.3).
//!
//! It covers what no router changes: eight bytes of ones where InfiniBand has a local routing header, the IP and UDP
//! headers with their variable fields as ones, and the packet itself with the reserved byte of its base header as ones.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::header::BASE_BYTES;

/// Bytes of the invariant CRC at a packet's end.
pub const ICRC_BYTES: usize = 4;

/// Addresses of a datagram, as far as the invariant CRC covers its IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4, without options.
    V4 {
        /// From where.
        source: Ipv4Addr,
        /// To where.
        destination: Ipv4Addr,
        /// The identification field, which is covered although a UDP socket does not show it. Linux sends zero with
        /// *don't fragment* from a socket that is not connected.
        identification: u16,
        /// Whether *don't fragment* is set.
        dont_fragment: bool,
    },
    /// IPv6, without extension headers.
    V6 {
        /// From where.
        source: Ipv6Addr,
        /// To where.
        destination: Ipv6Addr,
    },
}

/// What stands around a packet: the addresses and ports of its datagram.
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
/// The ones in place of a local routing header.
const ROUTING_BYTES: usize = 8;
const PROTOCOL_UDP: u8 = 17;

/// The invariant CRC of `packet`, which is everything between the UDP header and the CRC, padding included. `None`: it is
/// shorter than a base header, or does not fit into a datagram.
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
    // Congestion marks stand in this byte, and routers change them.
    pseudo[end + 4] = 0xff;
    end += BASE_BYTES;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&pseudo[..end]);
    hasher.update(rest);
    Some(hasher.finalize().to_le_bytes())
}
