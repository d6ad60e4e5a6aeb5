//! Captured calls as a file: one interface, with a packet for each request and each response.

use std::io::Write;

use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::DataLink;

use super::pcapng::{Packet, Pcapng};
use super::Frame;
use crate::commands::Failure;

/// Of link types the first of those that are free for anybody's use: `dunlin.lua` takes it.
const LINK: DataLink = DataLink::USER0;

/// A file that is being written.
#[expect(
    missing_debug_implementations,
    reason = "its writer is the output's alone"
)]
pub struct File<W: Write> {
    file: Pcapng<W>,
    /// Packets that were missed before the next one.
    missed: u64,
}

impl<W: Write> File<W> {
    /// Begins it, for the calls of the server of this address.
    ///
    /// # Errors
    /// The system's error when writing.
    pub fn begin(output: W, address: &str) -> Result<Self, Failure> {
        let file = Pcapng::begin(output, LINK, 0, [address])?;
        Ok(Self { file, missed: 0 })
    }

    /// Number of calls missed here, which is recorded in the next packet.
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
        self.file.add(Packet {
            interface: 0,
            at: frame.at,
            bytes: &bytes,
            whole,
            options,
        })
    }

    /// All of it is where its reader sees it.
    ///
    /// # Errors
    /// As for [`File::begin`].
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.file.flush()
    }
}
