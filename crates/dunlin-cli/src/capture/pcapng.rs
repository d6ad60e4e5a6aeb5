//! Writes a pcapng file: interfaces first, then packets with timestamps in nanoseconds.

use std::borrow::Cow;
use std::io::{ErrorKind, Write};
use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, Endianness, PcapError};

use crate::commands::Failure;

/// Times count nanoseconds: ten to the power of minus nine.
const NANOSECONDS: u8 = 9;

/// A pcapng file.
pub(super) struct Pcapng<W: Write>(PcapNgWriter<W>);

/// A packet of the file.
#[derive(Debug)]
pub(super) struct Packet<'a> {
    /// Place of its interface among those that the file began with.
    pub(super) interface: u32,
    /// Time since 1970, or since time zero of a simulation.
    pub(super) at: Duration,
    /// The packet, or its beginning.
    pub(super) bytes: &'a [u8],
    /// Bytes of the whole packet.
    pub(super) whole: u64,
    /// Further options of the packet.
    pub(super) options: Vec<EnhancedPacketOption<'a>>,
}

impl<W: Write> Pcapng<W> {
    /// Begins the file, with interfaces of these names, all of one link type. `snap` is the maximum number of bytes
    /// kept of a packet, 0 for all of them.
    ///
    /// # Errors
    /// The system's error when writing.
    pub(super) fn begin<'a>(
        output: W,
        link: DataLink,
        snap: u32,
        interfaces: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, Failure> {
        let program = concat!("dunlin ", env!("CARGO_PKG_VERSION"));
        let section = SectionHeaderBlock {
            endianness: Endianness::native(),
            options: vec![SectionHeaderOption::UserApplication(program.into())],
            ..SectionHeaderBlock::default()
        };
        let mut writer = PcapNgWriter::with_section_header(output, section).map_err(failure)?;
        for name in interfaces {
            let interface = InterfaceDescriptionBlock {
                linktype: link,
                snaplen: snap,
                options: vec![
                    InterfaceDescriptionOption::IfName(name.into()),
                    InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
                ],
            };
            writer
                .write_block(&interface.into_block())
                .map_err(failure)?;
        }
        Ok(Self(writer))
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// As for [`Pcapng::begin`].
    pub(super) fn add(&mut self, packet: Packet<'_>) -> Result<(), Failure> {
        let packet = EnhancedPacketBlock {
            interface_id: packet.interface,
            timestamp: packet.at,
            original_len: packet.whole.min(u32::MAX.into()) as u32,
            data: Cow::Borrowed(packet.bytes),
            options: packet.options,
        };
        let written = self.0.write_block(&packet.into_block());
        written.map(drop).map_err(failure)
    }

    /// Flushes the file.
    ///
    /// # Errors
    /// As for [`Pcapng::begin`].
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        let flushed = self.0.get_mut().flush();
        flushed.map_err(|error| failure(PcapError::IoError(error)))
    }
}

/// A reader that has gone away (`| head`) is not an error.
fn failure(error: PcapError) -> Failure {
    match error {
        PcapError::IoError(error) if error.kind() == ErrorKind::BrokenPipe => {
            Failure::output_closed()
        }
        PcapError::IoError(error) => Failure::new(format!("cannot write the capture: {error}")),
        error => Failure::new(format!("cannot write the capture: {error}")),
    }
}
