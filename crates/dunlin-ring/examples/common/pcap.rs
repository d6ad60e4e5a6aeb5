//! Reading packets from a classic pcap file (draft-ietf-opsawg-pcap): both byte orders, microseconds and nanoseconds,
//! Ethernet with VLAN tags, raw IP and Linux cooked frames, IPv4 and IPv6.
//!
//! A file may hold anything: every length is checked against what is left of the bytes before it is used, and a packet
//! that is cut short or of another protocol is a packet without a flow, not an error.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The longest record that is believed: tcpdump's own limit.
const LONGEST: usize = 262_144;
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

/// What the network function wants to know of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Addresses, ports and protocol, folded; none for what is no IP packet, or too short to say.
    pub flow: Option<u64>,
    /// When it was captured, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Bytes on the wire, however many of them the file holds.
    pub bytes: u32,
}

/// Why a file cannot be read, or not further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcapError {
    /// It does not begin as a pcap file does.
    NotPcap,
    /// A record is longer than any capture has: where, and what it says.
    Length { at: usize, bytes: u32 },
    /// The file ends within a record.
    Short { at: usize },
}

impl std::fmt::Display for PcapError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotPcap => f.write_str(
                "this is no classic pcap file (for pcapng, convert it: `editcap -F pcap`)",
            ),
            Self::Length { at, bytes } => {
                write!(f, "the record at byte {at} says that it has {bytes} bytes, at most {LONGEST} are believed")
            }
            Self::Short { at } => write!(f, "the file ends within the record at byte {at}"),
        }
    }
}

impl std::error::Error for PcapError {}

/// The packets of a file, one after the other; after an error there are no more.
#[derive(Debug)]
pub struct Packets<'a> {
    file: &'a [u8],
    at: usize,
    big_endian: bool,
    /// Nanoseconds of a unit of the second half of a timestamp.
    fraction_ns: u64,
    link: u32,
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

impl<'a> Packets<'a> {
    /// Looks at the header of a file.
    ///
    /// # Errors
    /// When it is none.
    pub fn new(file: &'a [u8]) -> Result<Self, PcapError> {
        let magic = word(file, 0).map(u32::from_le_bytes);
        let (big_endian, fraction_ns) = match magic {
            Some(0xa1b2_c3d4) => (false, 1000),
            Some(0xa1b2_3c4d) => (false, 1),
            Some(0xd4c3_b2a1) => (true, 1000),
            Some(0x4d3c_b2a1) => (true, 1),
            _ => return Err(PcapError::NotPcap),
        };
        let mut packets = Self {
            file,
            at: FILE_HEADER,
            big_endian,
            fraction_ns,
            link: 0,
        };
        // The upper bits of the link type say how many bytes of checksum frames end with.
        packets.link = packets.number(20).ok_or(PcapError::NotPcap)? & 0x03ff_ffff;
        Ok(packets)
    }

    fn number(&self, at: usize) -> Option<u32> {
        let bytes = word(self.file, at)?;
        Some(if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    fn next_packet(&mut self) -> Result<Packet, PcapError> {
        let at = self.at;
        let short = PcapError::Short { at };
        let number = |index: usize| self.number(at + 4 * index).ok_or(short);
        let (seconds, fraction, captured, bytes) = (number(0)?, number(1)?, number(2)?, number(3)?);
        if captured as usize > LONGEST {
            return Err(PcapError::Length {
                at,
                bytes: captured,
            });
        }
        let start = at + RECORD_HEADER;
        let end = start + captured as usize;
        let frame = self.file.get(start..end).ok_or(short)?;
        self.at = end;
        Ok(Packet {
            flow: flow(self.link, frame),
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.fraction_ns,
            bytes,
        })
    }
}

impl Iterator for Packets<'_> {
    type Item = Result<Packet, PcapError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.file.len() {
            return None;
        }
        let packet = self.next_packet();
        if packet.is_err() {
            self.at = self.file.len();
        }
        Some(packet)
    }
}

/// The flow of a frame of a link type.
fn flow(link: u32, frame: &[u8]) -> Option<u64> {
    const ETHERNET: u32 = 1;
    const RAW: [u32; 4] = [12, 14, 101, 228];
    const COOKED: u32 = 113;
    match link {
        ETHERNET => {
            let mut at = 12;
            let mut kind = u16::from_be_bytes(word(frame, at)?);
            // VLAN tags, one in another.
            while matches!(kind, 0x8100 | 0x88a8) {
                at += 4;
                kind = u16::from_be_bytes(word(frame, at)?);
            }
            let packet = frame.get(at + 2..)?;
            matches!(kind, 0x0800 | 0x86dd).then(|| ip(packet))?
        }
        COOKED => ip(frame.get(16..)?),
        link if RAW.contains(&link) => ip(frame),
        _ => None,
    }
}

fn ip(packet: &[u8]) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let (protocol, payload) = match packet.first()? >> 4 {
        4 => {
            let header = 4 * usize::from(packet[0] & 15);
            packet.get(12..20)?.hash(&mut hasher);
            let fragment = u16::from_be_bytes(word(packet, 6)?) & 0x1fff;
            // Only the first fragment has ports.
            let payload = if fragment == 0 && header >= 20 {
                packet.get(header..).unwrap_or_default()
            } else {
                &[]
            };
            (*packet.get(9)?, payload)
        }
        6 => {
            packet.get(8..40)?.hash(&mut hasher);
            (*packet.get(6)?, packet.get(40..).unwrap_or_default())
        }
        _ => return None,
    };
    protocol.hash(&mut hasher);
    // TCP, UDP and SCTP begin with their ports.
    if matches!(protocol, 6 | 17 | 132) {
        payload.get(..4).unwrap_or_default().hash(&mut hasher);
    }
    Some(hasher.finish())
}
