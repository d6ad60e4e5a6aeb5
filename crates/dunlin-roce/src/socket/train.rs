//! Trains: packets to one peer that are sent by one system call, and segmented by the kernel or only by the peer's.

use std::net::IpAddr;
use std::sync::Arc;

use super::parts::Parts;
use super::Socket;
use crate::address::Peer;
use crate::memory::RegionCore;
use crate::packet::{
    encode, encode_header, icrc, mark_icrc_omitted, padding_of, Envelope, Header, Network,
    ICRC_BYTES,
};
use crate::work::Gone;

/// Maximum length of a train in bytes: that of a datagram, with space for its headers.
const MAX_TRAIN_BYTES: usize = 65_000;
/// Maximum number of segments that the kernel accepts, whatever their size.
const MAX_SEGMENTS: usize = 64;

/// Source and destination of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) local: IpAddr,
    pub(crate) peer: Peer,
}

/// Payloads of at least this many bytes are long, and usually parts of messages that take many packets. The kernel
/// reads them in place; shorter ones are copied behind their headers, which takes no longer than the kernel takes for
/// an additional part.
pub(crate) const LONG_PAYLOAD_BYTES: usize = 1024;

/// Packets that wait to be sent together. All have the same length, except that the last may be shorter.
#[derive(Debug)]
pub(crate) struct Train {
    /// Headers, and payloads that were copied.
    buffer: Box<[u8]>,
    used: usize,
    /// What is to be sent, part by part.
    parts: Parts,
    /// Total length of all parts in bytes.
    bytes: usize,
    segment_bytes: usize,
    segments: usize,
    /// Whether the last packet was shorter, so that nothing can follow it.
    closed: bool,
    path: Option<Path>,
    /// Number of long payloads added since the train was created, modulo 2^32.
    long_payloads: u32,
}

impl Train {
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![0; MAX_TRAIN_BYTES].into(),
            used: 0,
            parts: Parts::new(),
            bytes: 0,
            segment_bytes: 0,
            segments: 0,
            closed: false,
            path: None,
            long_payloads: 0,
        }
    }

    /// Number of long payloads added since the train was created, modulo 2^32.
    pub(crate) fn long_payloads(&self) -> u32 {
        self.long_payloads
    }

    /// Adds a packet, after sending what cannot be sent together with it. `fill` writes the payload.
    ///
    /// # Errors
    /// Those of `fill`; nothing is then added.
    pub(crate) fn add(
        &mut self,
        socket: &Socket,
        path: &Path,
        header: &Header,
        payload_bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Gone>,
    ) -> Result<(), Gone> {
        let bytes = packet_bytes(path, header, payload_bytes);
        self.make_room(socket, path, bytes, None);
        self.put(socket, path, header, payload_bytes, fill)
    }

    /// Adds a packet whose payload is in a region, from `offset` on. Long ones are not copied: their bytes are read
    /// when the train is sent, at the latest before [`Train::send`] returns.
    ///
    /// # Errors
    /// When the registration has ended; nothing is then added.
    pub(crate) fn add_from(
        &mut self,
        socket: &Socket,
        path: &Path,
        header: &Header,
        (region, offset): (&Arc<RegionCore>, usize),
        payload_bytes: usize,
    ) -> Result<(), Gone> {
        let held = payload_bytes >= LONG_PAYLOAD_BYTES && !path.peer.icrc;
        let bytes = packet_bytes(path, header, payload_bytes);
        // Sending from here takes the lock of a region by itself, so it comes before taking that of this one.
        self.make_room(socket, path, bytes, held.then_some(region));
        let added = region.access(offset, payload_bytes, |memory| match held {
            true => {
                self.hold(header, (region, offset), payload_bytes);
                Ok(())
            }
            false => self.put(socket, path, header, payload_bytes, |place| {
                memory.read(offset, place);
                Ok(())
            }),
        });
        added.unwrap_or(Err(Gone))
    }

    /// Adds a packet for which there is space.
    fn put(
        &mut self,
        socket: &Socket,
        path: &Path,
        header: &Header,
        payload_bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Gone>,
    ) -> Result<(), Gone> {
        let start = self.used;
        let rest = &mut self.buffer[start..];
        let mut filled = Ok(());
        let encoded = match encode(header, payload_bytes, rest, |place| filled = fill(place)) {
            Ok(encoded) => encoded,
            // Headers are made by the state machines, which know what exists; a packet is shorter than a train.
            Err(error) => {
                debug_assert!(false, "{error}");
                return Ok(());
            }
        };
        filled?;
        let bytes = packet_bytes(path, header, payload_bytes);
        if path.peer.icrc {
            let envelope = envelope(path.local, socket.port(), path.peer.address, path.peer.port);
            let crc = icrc(&envelope, &rest[..encoded]).unwrap_or_default();
            rest[encoded..bytes].copy_from_slice(&crc);
        } else {
            mark_icrc_omitted(rest);
        }
        self.used += bytes;
        self.parts.copied(start..self.used);
        self.count(bytes);
        Ok(())
    }

    /// Adds a packet for which there is space, without copying its payload.
    fn hold(
        &mut self,
        header: &Header,
        (region, offset): (&Arc<RegionCore>, usize),
        payload_bytes: usize,
    ) {
        let start = self.used;
        let rest = &mut self.buffer[start..];
        let headers = match encode_header(header, payload_bytes, rest) {
            Ok(headers) => headers,
            Err(error) => {
                debug_assert!(false, "{error}");
                return;
            }
        };
        mark_icrc_omitted(rest);
        let padding = padding_of(payload_bytes);
        rest[headers..headers + padding].fill(0);
        let end = start + headers;
        self.used = end + padding;
        self.parts.copied(start..end);
        self.parts.held(region, offset, payload_bytes);
        self.parts.copied(end..self.used);
        self.count(headers + payload_bytes + padding);
    }

    /// Sends what a packet of this length cannot be sent together with.
    fn make_room(
        &mut self,
        socket: &Socket,
        path: &Path,
        bytes: usize,
        region: Option<&Arc<RegionCore>>,
    ) {
        // The CRC covers IPv4's identification field, which is zero for each datagram that is sent alone.
        let alone = path.peer.icrc && path.peer.address.is_ipv4();
        let fits = self.path.as_ref() == Some(path)
            && !self.closed
            && !alone
            && bytes <= self.segment_bytes
            && self.bytes + bytes <= MAX_TRAIN_BYTES
            && self.segments < socket.max_segments().min(MAX_SEGMENTS)
            && region.is_none_or(|region| self.parts.may_hold(region));
        if !fits {
            self.send(socket);
            self.path = Some(*path);
            self.segment_bytes = bytes;
        }
    }

    fn count(&mut self, bytes: usize) {
        if bytes >= LONG_PAYLOAD_BYTES {
            self.long_payloads = self.long_payloads.wrapping_add(1);
        }
        self.bytes += bytes;
        self.segments += 1;
        self.closed = bytes < self.segment_bytes;
    }

    /// Releases payload that is used in place: from here on its memory may change.
    pub(crate) fn release(&mut self, socket: &Socket) {
        if self.parts.hold_payload() {
            self.send(socket);
        }
    }

    /// Sends what has been added.
    pub(crate) fn send(&mut self, socket: &Socket) {
        if let (Some(path), true) = (self.path.take(), self.bytes > 0) {
            let destination = socket.destination(path.peer.address, path.peer.port);
            let segment_bytes = (self.segments > 1).then_some(self.segment_bytes);
            match self.parts.hold_payload() {
                true => {
                    let buffer = &self.buffer[..self.used];
                    socket.send_parts(destination, buffer, &self.parts, segment_bytes);
                }
                false => socket.send(&self.buffer[..self.used], destination, segment_bytes),
            }
        }
        self.parts.clear();
        self.used = 0;
        self.bytes = 0;
        self.segments = 0;
        self.segment_bytes = 0;
        self.closed = false;
    }
}

/// Length of a packet with its padding and its CRC.
fn packet_bytes(path: &Path, header: &Header, payload_bytes: usize) -> usize {
    let crc_bytes = if path.peer.icrc { ICRC_BYTES } else { 0 };
    header.encoded_bytes() + payload_bytes + padding_of(payload_bytes) + crc_bytes
}

/// The part of the headers below that the invariant CRC covers, for packets of an unconnected socket.
pub(crate) fn envelope(
    source: IpAddr,
    source_port: u16,
    destination: IpAddr,
    destination_port: u16,
) -> Envelope {
    let v6 = |address| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let network = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Network::V4 {
            source,
            destination,
            identification: 0,
            dont_fragment: true,
        },
        (source, destination) => Network::V6 {
            source: v6(source),
            destination: v6(destination),
        },
    };
    Envelope {
        network,
        source_port,
        destination_port,
    }
}
