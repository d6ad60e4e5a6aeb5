//! A network function that counts traffic by flow (RB², case 1). One process reads a capture and writes a record for
//! each packet into a ring; another one counts them. This module defines flows and records.

pub mod capture;
pub mod count;
pub mod over_ring;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Bytes of a record: a cache line. The paper's has 40, too few for IPv6 addresses.
pub const RECORD_BYTES: usize = 64;
/// Bytes of a record that identify the flow.
const KEY_BYTES: usize = 40;
/// The families of addresses, as IP numbers its versions; zero is no flow.
const V4: u8 = 4;
const V6: u8 = 6;

/// The flow of a packet: what RB² calls a flow key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Flow {
    /// Source address.
    pub source: IpAddr,
    /// Zero if the protocol has none, and in fragments after the first.
    pub source_port: u16,
    /// Destination address.
    pub destination: IpAddr,
    /// As for the source.
    pub destination_port: u16,
    /// As IANA numbers them.
    pub protocol: u8,
}

/// A flow as the bytes of a record: addresses (those of IPv4 are the first four bytes), ports, protocol, family. No
/// flow is all zeros.
pub type Key = [u8; KEY_BYTES];

impl Flow {
    /// The bytes of it.
    pub fn key(&self) -> Key {
        let mut key = [0; KEY_BYTES];
        let mut put = |at: usize, address: IpAddr| match address {
            IpAddr::V4(address) => {
                key[at..at + 4].copy_from_slice(&address.octets());
                V4
            }
            IpAddr::V6(address) => {
                key[at..at + 16].copy_from_slice(&address.octets());
                V6
            }
        };
        put(0, self.source);
        let family = put(16, self.destination);
        key[32..34].copy_from_slice(&self.source_port.to_be_bytes());
        key[34..36].copy_from_slice(&self.destination_port.to_be_bytes());
        (key[36], key[37]) = (self.protocol, family);
        key
    }

    /// The flow of a key; `None` for the key of no flow, or for one that [`Flow::key`] does not make.
    pub fn of(key: &Key) -> Option<Self> {
        let address = |at: usize| match key[37] {
            V4 => Some(Ipv4Addr::from(*key[at..].first_chunk()?).into()),
            V6 => Some(Ipv6Addr::from(*key[at..].first_chunk::<16>()?).into()),
            _ => None,
        };
        Some(Self {
            source: address(0)?,
            source_port: u16::from_be_bytes([key[32], key[33]]),
            destination: address(16)?,
            destination_port: u16::from_be_bytes([key[34], key[35]]),
            protocol: key[36],
        })
    }
}

/// The record of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its flow.
    pub key: Key,
    /// When it was captured, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Its number in the capture, from 0 on.
    pub sequence: u64,
    /// Its bytes on the wire, however many of them were captured.
    pub bytes: u32,
}

impl Record {
    /// Writes it to a place of [`RECORD_BYTES`].
    #[inline]
    pub fn write(&self, place: &mut [u8]) {
        place[..KEY_BYTES].copy_from_slice(&self.key);
        place[40..48].copy_from_slice(&self.time_ns.to_le_bytes());
        place[48..56].copy_from_slice(&self.sequence.to_le_bytes());
        place[56..].copy_from_slice(&u64::from(self.bytes).to_le_bytes());
    }

    /// Reads it.
    #[inline]
    pub fn read(place: &[u8; RECORD_BYTES]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&place[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(&place[..KEY_BYTES]);
        Self {
            key,
            time_ns: word(40),
            sequence: word(48),
            bytes: word(56) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_flows_come_back() {
        for (source, destination) in [("10.0.0.1", "192.168.7.9"), ("fe80::1", "2001:db8::2")] {
            let flow = Flow {
                source: source.parse().unwrap(),
                source_port: 443,
                destination: destination.parse().unwrap(),
                destination_port: 51_000,
                protocol: 6,
            };
            assert_eq!(Flow::of(&flow.key()), Some(flow));
            let record = Record {
                key: flow.key(),
                time_ns: 1_700_000_000_000_000_001,
                sequence: u64::MAX - 1,
                bytes: u32::MAX,
            };
            let mut place = [0xff; RECORD_BYTES];
            record.write(&mut place);
            assert_eq!(Record::read(&place), record);
        }
        assert_eq!(Flow::of(&[0; KEY_BYTES]), None);
    }
}
