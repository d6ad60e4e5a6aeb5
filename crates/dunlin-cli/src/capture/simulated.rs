//! The capture of a simulated run: packets of hosts, in the order of virtual time, up to a bound.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Write;
use std::time::Duration;

use dunlin_sim::{Observer, SeenPacket};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::DataLink;

use super::pcapng::{Packet, Pcapng};
use super::roce;
use crate::commands::Failure;

/// Flags for the direction of a packet at its interface.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Limits of what is recorded.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum number of packets.
    pub packets: u64,
    /// Maximum bytes of all packets.
    pub bytes: u64,
    /// Maximum bytes kept of a packet.
    pub snap: u32,
}

/// Writes a capture while it observes.
#[expect(
    missing_debug_implementations,
    reason = "its writer is the output's alone"
)]
pub struct Recorder<W: Write> {
    file: Pcapng<W>,
    bounds: Bounds,
    /// The interface of each host; `None` for those not captured.
    interfaces: Vec<Option<u32>>,
    zero_ps: u64,
    /// Packets that leave later than those observed since, held back because the file is in the order of time.
    waiting: BinaryHeap<Reverse<Waiting>>,
    taken: u64,
    taken_bytes: u64,
    left_out: u64,
    failed: Option<Failure>,
}

/// Ordered by time, then by arrival.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    at_ps: u64,
    number: u64,
    interface: u32,
    direction: u32,
    bytes: Vec<u8>,
    whole: u64,
}

impl<W: Write> Recorder<W> {
    /// Begins a file with an interface for each host that is `Some` name; others are not captured.
    ///
    /// # Errors
    /// The system's error when writing.
    pub fn begin(output: W, hosts: &[Option<String>], bounds: Bounds) -> Result<Self, Failure> {
        let names = hosts.iter().flatten().map(String::as_str);
        let file = Pcapng::begin(output, DataLink::ETHERNET, bounds.snap, names)?;
        let mut next = 0..;
        let interfaces = hosts
            .iter()
            .map(|name| name.as_ref().and_then(|_| next.next()));
        Ok(Self {
            file,
            bounds,
            interfaces: interfaces.collect(),
            zero_ps: 0,
            waiting: BinaryHeap::new(),
            taken: 0,
            taken_bytes: 0,
            left_out: 0,
            failed: None,
        })
    }

    /// Ends the file; returns the number of packets in it, and of those that the bounds left out.
    ///
    /// # Errors
    /// The system's first error when writing.
    pub fn end(&mut self) -> Result<(u64, u64), Failure> {
        self.write_until(u64::MAX);
        match self.failed.take() {
            Some(failure) => Err(failure),
            None => self.file.flush().map(|()| (self.taken, self.left_out)),
        }
    }

    fn write_until(&mut self, now_ps: u64) {
        while self
            .waiting
            .peek()
            .is_some_and(|Reverse(first)| first.at_ps <= now_ps)
        {
            let Some(Reverse(first)) = self.waiting.pop() else {
                return;
            };
            let since = first.at_ps.saturating_sub(self.zero_ps);
            let written = self.file.add(Packet {
                interface: first.interface,
                at: Duration::from_nanos(since / 1_000),
                bytes: &first.bytes,
                whole: first.whole,
                options: vec![EnhancedPacketOption::Flags(first.direction)],
            });
            if let Err(failure) = written {
                self.failed.get_or_insert(failure);
            }
        }
    }
}

impl<W: Write + Send> Observer for Recorder<W> {
    fn begin(&mut self, now_ps: u64) {
        self.zero_ps = now_ps;
    }

    fn packet(&mut self, packet: &SeenPacket<'_>) {
        let interface = self.interfaces.get(packet.host.number());
        let Some(interface) = interface.copied().flatten() else {
            return;
        };
        if self.taken == self.bounds.packets || self.taken_bytes >= self.bounds.bytes {
            self.left_out += 1;
            return;
        }
        let Some(mut bytes) = roce::frame(packet) else {
            debug_assert!(false, "{packet:?}");
            return;
        };
        let whole = bytes.len() as u64;
        bytes.truncate(self.bounds.snap as usize);
        self.taken += 1;
        self.taken_bytes += bytes.len() as u64;
        self.waiting.push(Reverse(Waiting {
            at_ps: packet.at_ps,
            number: self.taken,
            interface,
            direction: if packet.leaves { OUTBOUND } else { INBOUND },
            bytes,
            whole,
        }));
        self.write_until(packet.now_ps);
    }
}
