//! The file: pcapng, one interface, a packet for each request and each answer.

use std::borrow::Cow;
use std::io::{ErrorKind, Write};

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, Endianness, PcapError};

use super::Frame;
use crate::commands::Failure;

/// Of link types the first of those that are free for anybody's use: `dunlin.lua` takes it.
const LINK: DataLink = DataLink::USER0;
/// Times count nanoseconds: ten to the power of minus nine.
const NANOSECONDS: u8 = 9;

/// A file that is being written.
#[expect(
    missing_debug_implementations,
    reason = "its writer is the output's alone"
)]
pub struct File<W: Write> {
    writer: PcapNgWriter<W>,
    /// Packets that were missed before the next one.
    missed: u64,
}

impl<W: Write> File<W> {
    /// Begins it, for the calls of the server of this address.
    ///
    /// # Errors
    /// What the system says of writing.
    pub fn begin(output: W, address: &str) -> Result<Self, Failure> {
        let program = concat!("dunlin ", env!("CARGO_PKG_VERSION"));
        let section = SectionHeaderBlock {
            endianness: Endianness::native(),
            options: vec![SectionHeaderOption::UserApplication(program.into())],
            ..SectionHeaderBlock::default()
        };
        let mut writer = PcapNgWriter::with_section_header(output, section).map_err(failure)?;
        let interface = InterfaceDescriptionBlock {
            linktype: LINK,
            snaplen: 0,
            options: vec![
                InterfaceDescriptionOption::IfName(address.into()),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        writer
            .write_block(&interface.into_block())
            .map_err(failure)?;
        Ok(Self { writer, missed: 0 })
    }

    /// So many calls were missed here: the next packet says so.
    pub fn missed(&mut self, calls: u64) {
        self.missed += 2 * calls;
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// As for [`File::begin`].
    pub fn add(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        let (bytes, whole) = frame.encode();
        let missed = std::mem::take(&mut self.missed);
        let options = match missed {
            0 => Vec::new(),
            _ => vec![EnhancedPacketOption::DropCount(missed)],
        };
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: frame.at,
            original_len: whole.min(u32::MAX.into()) as u32,
            data: Cow::Owned(bytes),
            options,
        };
        let written = self.writer.write_block(&packet.into_block());
        written.map(drop).map_err(failure)
    }

    /// All of it is where its reader sees it.
    ///
    /// # Errors
    /// As for [`File::begin`].
    pub fn flush(&mut self) -> Result<(), Failure> {
        let flushed = self.writer.get_mut().flush();
        flushed.map_err(|error| failure(PcapError::IoError(error)))
    }
}

/// A reader who has gone away (`| head`) is no error.
fn failure(error: PcapError) -> Failure {
    match error {
        PcapError::IoError(error) if error.kind() == ErrorKind::BrokenPipe => {
            Failure::output_closed()
        }
        error => Failure::new(format!("writing the capture: {error}")),
    }
}
