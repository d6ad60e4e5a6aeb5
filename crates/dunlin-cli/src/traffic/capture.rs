//! Reads packets of a capture file, pcap or pcapng, through a buffer, parsing each in place and only as far as its
//! flow. A file may contain anything: what is not an IP packet, or too short to tell, is a packet without a flow.

use std::fs::File;
use std::path::{Path, PathBuf};

use etherparse::{EtherType, Ipv6ExtensionSlice, LaxNetSlice, LaxSlicedPacket};
use pcap_parser::data::{get_packetdata, PacketData};
use pcap_parser::pcapng::Block;
use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{create_reader, Linktype, PcapBlockOwned, PcapError};

use super::{Flow, Record};

/// Bytes read at once, enough for most blocks.
const BUFFER_BYTES: usize = 1 << 20;
/// Size of the longest block accepted. A packet has 256 KiB at most, and other blocks are names and keys.
const BUFFER_BYTES_MAX: usize = 64 << 20;
/// Maximum number of interfaces in a section of pcapng.
const INTERFACES_MAX: usize = 65_536;
/// The link type in a pcap header; the other bits say how many bytes of checksum frames end with.
const LINK_BITS: i32 = 0x03ff_ffff;

/// Why a capture cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// An error of the system.
    #[error("{}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The file does not begin like a capture.
    #[error("{} is not a capture: neither pcap nor pcapng", path.display())]
    NoCapture {
        /// The file.
        path: PathBuf,
    },
    /// Something in it is invalid.
    #[error("{}: malformed data after packet {packets}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Packets before it.
        packets: u64,
        /// What is wrong.
        what: String,
    },
}

/// How to read packets of an interface.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Linktype,
    /// Units of a timestamp in a second.
    units_per_s: u64,
    /// Seconds that are added to timestamps.
    offset_s: i64,
}

/// What blocks define for those after them.
#[derive(Debug, Default)]
struct Context {
    interfaces: Vec<Interface>,
}

/// A packet as it is in the file.
struct Found {
    flow: Option<Flow>,
    time_ns: u64,
    bytes: u32,
}

impl Interface {
    fn found(&self, data: &[u8], time: u64, bytes: u32) -> Found {
        let scaled = u128::from(time) * 1_000_000_000 / u128::from(self.units_per_s.max(1));
        let offset_ns = i128::from(self.offset_s) * 1_000_000_000;
        let time_ns = (scaled as i128).saturating_add(offset_ns);
        Found {
            flow: get_packetdata(data, self.link, data.len()).and_then(flow_of),
            time_ns: u64::try_from(time_ns).unwrap_or(0),
            bytes,
        }
    }
}

impl Context {
    /// Parses a block; returns the packet in it, if there is one.
    fn look(&mut self, block: &PcapBlockOwned<'_>) -> Result<Option<Found>, &'static str> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.interfaces = vec![Interface {
                    link: Linktype(header.network.0 & LINK_BITS),
                    units_per_s: match header.is_nanosecond_precision() {
                        true => 1_000_000_000,
                        false => 1_000_000,
                    },
                    offset_s: 0,
                }];
                Ok(None)
            }
            PcapBlockOwned::Legacy(packet) => {
                let interface = self
                    .interfaces
                    .first()
                    .ok_or("a packet before the header")?;
                let seconds = u64::from(packet.ts_sec) * interface.units_per_s;
                let time = seconds + u64::from(packet.ts_usec);
                Ok(Some(interface.found(packet.data, time, packet.origlen)))
            }
            PcapBlockOwned::NG(block) => self.look_at_block(block),
        }
    }

    fn look_at_block(&mut self, block: &Block<'_>) -> Result<Option<Found>, &'static str> {
        match block {
            Block::SectionHeader(_) => self.interfaces.clear(),
            Block::InterfaceDescription(described) => {
                if self.interfaces.len() == INTERFACES_MAX {
                    return Err("more than 65536 interfaces");
                }
                self.interfaces.push(Interface {
                    link: described.linktype,
                    units_per_s: described
                        .ts_resolution()
                        .ok_or("an unsupported time resolution")?,
                    offset_s: described.ts_offset(),
                });
            }
            Block::EnhancedPacket(packet) => {
                let interface = self.interfaces.get(packet.if_id as usize);
                let interface = interface.ok_or("a packet of an unknown interface")?;
                let time = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                return Ok(Some(interface.found(
                    packet.packet_data(),
                    time,
                    packet.origlen,
                )));
            }
            Block::SimplePacket(packet) => {
                let interface = self.interfaces.first();
                let interface = interface.ok_or("a packet of an unknown interface")?;
                // It has no time.
                return Ok(Some(interface.found(
                    packet.packet_data(),
                    0,
                    packet.origlen,
                )));
            }
            // Names, statistics, keys: nothing that is counted.
            _ => {}
        }
        Ok(None)
    }
}

/// The flow of a packet.
fn flow_of(data: PacketData<'_>) -> Option<Flow> {
    let packet = match data {
        PacketData::L2(frame) => LaxSlicedPacket::from_ethernet(frame).ok()?,
        PacketData::L3(kind, packet) => LaxSlicedPacket::from_ether_type(EtherType(kind), packet),
        PacketData::L4(..) | PacketData::Unsupported(_) => return None,
    };
    let net = packet.net?;
    let payload = net.ip_payload_ref()?;
    let (source, destination, is_first) = match &net {
        LaxNetSlice::Ipv4(packet) => {
            let header = packet.header();
            let is_first = header.fragments_offset().value() == 0;
            (
                header.source_addr().into(),
                header.destination_addr().into(),
                is_first,
            )
        }
        LaxNetSlice::Ipv6(packet) => {
            let header = packet.header();
            let mut extensions = packet.extensions().clone().into_iter();
            let is_first = extensions.all(|extension| match extension {
                Ipv6ExtensionSlice::Fragment(header) => header.fragment_offset().value() == 0,
                _ => true,
            });
            (
                header.source_addr().into(),
                header.destination_addr().into(),
                is_first,
            )
        }
        LaxNetSlice::Arp(_) => return None,
    };
    // TCP, UDP, DCCP, SCTP and UDP-Lite begin with their ports.
    let has_ports = is_first && matches!(payload.ip_number.0, 6 | 17 | 33 | 132 | 136);
    let ports = payload.payload.first_chunk::<4>().filter(|_| has_ports);
    let [a, b, c, d] = ports.copied().unwrap_or_default();
    Some(Flow {
        source,
        source_port: u16::from_be_bytes([a, b]),
        destination,
        destination_port: u16::from_be_bytes([c, d]),
        protocol: payload.ip_number.0,
    })
}

/// A capture that is being read.
pub struct Capture {
    path: PathBuf,
    reader: Box<dyn PcapReaderIterator + Send>,
    context: Context,
    buffer_bytes: usize,
    packets: u64,
    cut_short: bool,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture")
            .field("path", &self.path)
            .field("packets", &self.packets)
            .finish_non_exhaustive()
    }
}

/// The result of parsing the buffer.
enum Step {
    Block(usize, Result<Option<Found>, &'static str>),
    Refill,
    Grow,
    CutShort,
    End,
    Malformed(String),
}

impl Capture {
    /// Opens one.
    ///
    /// # Errors
    /// When it cannot be read, or is not a capture.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let path = path.to_owned();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(source) => return Err(CaptureError::System { path, source }),
        };
        match create_reader(BUFFER_BYTES, file) {
            Ok(reader) => Ok(Self {
                path,
                reader,
                context: Context::default(),
                buffer_bytes: BUFFER_BYTES,
                packets: 0,
                cut_short: false,
            }),
            Err(PcapError::ReadError) => Err(CaptureError::System {
                path,
                source: std::io::Error::other("it cannot be read"),
            }),
            Err(_) => Err(CaptureError::NoCapture { path }),
        }
    }

    /// Whether it ended within a packet, as after the kill of the capturing program.
    pub fn is_cut_short(&self) -> bool {
        self.cut_short
    }

    /// The next packet; `None` at the end.
    ///
    /// # Errors
    /// What is invalid, with the number of packets before it.
    pub fn next_record(&mut self) -> Result<Option<Record>, CaptureError> {
        loop {
            let step = match self.reader.next() {
                Ok((bytes, block)) => Step::Block(bytes, self.context.look(&block)),
                Err(PcapError::Eof) => Step::End,
                Err(PcapError::Incomplete(_)) => Step::Refill,
                Err(PcapError::BufferTooSmall) => Step::Grow,
                Err(PcapError::UnexpectedEof) => Step::CutShort,
                Err(PcapError::NomError(_, kind) | PcapError::OwnedNomError(_, kind)) => {
                    Step::Malformed(format!("{kind:?}"))
                }
                Err(PcapError::HeaderNotRecognized) => Step::Malformed("an invalid header".into()),
                Err(PcapError::ReadError) => Step::Malformed("it cannot be read".into()),
            };
            match step {
                Step::Block(bytes, found) => {
                    self.reader.consume(bytes);
                    let found = found.map_err(|what| self.malformed(what.into()))?;
                    if let Some(found) = found {
                        let record = Record {
                            key: found.flow.map_or([0; super::KEY_BYTES], |flow| flow.key()),
                            time_ns: found.time_ns,
                            sequence: self.packets,
                            bytes: found.bytes,
                        };
                        self.packets += 1;
                        return Ok(Some(record));
                    }
                }
                Step::Refill => {
                    let before = self.reader.data().len();
                    if self.reader.refill().is_err() {
                        return Err(self.malformed("it cannot be read".into()));
                    }
                    let stuck = self.reader.data().len() == before;
                    if stuck && !self.reader.reader_exhausted() {
                        self.grow()?;
                    }
                }
                Step::Grow => self.grow()?,
                Step::CutShort => {
                    self.cut_short = true;
                    return Ok(None);
                }
                Step::End => return Ok(None),
                Step::Malformed(what) => return Err(self.malformed(what)),
            }
        }
    }

    fn grow(&mut self) -> Result<(), CaptureError> {
        self.buffer_bytes *= 2;
        if self.buffer_bytes > BUFFER_BYTES_MAX || !self.reader.grow(self.buffer_bytes) {
            return Err(self.malformed("a block of more than 32 MiB".into()));
        }
        if self.reader.refill().is_err() {
            return Err(self.malformed("it cannot be read".into()));
        }
        Ok(())
    }

    fn malformed(&self, what: String) -> CaptureError {
        CaptureError::Malformed {
            path: self.path.clone(),
            packets: self.packets,
            what,
        }
    }
}
