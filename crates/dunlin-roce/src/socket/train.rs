//! Trains: packets to one peer that go out in one system call, cut apart again by the kernel or not before the peer's.

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

/// Bytes of a train at most: a datagram's, with room for its headers.
const MAX_TRAIN_BYTES: usize = 65_000;
/// The kernel takes no more segments, whatever their size.
const MAX_SEGMENTS: usize = 64;

/// From where to where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) local: IpAddr,
    pub(crate) peer: Peer,
}

/// Payloads from this many bytes on are long: parts of messages that take many packets, as a rule. The kernel reads
/// them from where they lie; shorter ones are copied to where their headers are, which takes no longer than the kernel
/// takes for one more piece.
pub(crate) const LONG_PAYLOAD_BYTES: usize = 1024;

/// Packets that wait to go out together. All have the same length, but the last, which may be shorter.
#[derive(Debug)]
pub(crate) struct Train {
    /// Headers, and payloads that were copied.
    buffer: Box<[u8]>,
    used: usize,
    /// What goes out, piece by piece.
    parts: Parts,
    /// Bytes of all parts.
    bytes: usize,
    segment_bytes: usize,
    segments: usize,
    /// Whether the last was shorter: nothing comes after it.
    closed: bool,
    path: Option<Path>,
    /// Long payloads that were added since the train was made, modulo 2^32.
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

    /// How many long payloads were added since the train was made, modulo 2^32.
    pub(crate) fn long_payloads(&self) -> u32 {
        self.long_payloads
    }

    /// Adds a packet; sends what cannot go with it before. `fill` writes the payload.
    ///
    /// # Errors
    /// As `fill`; nothing was added then.
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

    /// Adds a packet whose payload is in a region, from `offset` on. Long ones are not copied: the bytes are those that
    /// are there when the train goes, at the latest when [`Train::send`] returns.
    ///
    /// # Errors
    /// When the registration has ended; nothing was added then.
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
        // What is sent here takes the lock of a region by itself, so it comes before that of this one.
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

    /// Adds a packet that there is room for.
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

    /// Adds a packet that there is room for, without its payload.
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

    /// Sends what a packet of so many bytes cannot go with.
    fn make_room(
        &mut self,
        socket: &Socket,
        path: &Path,
        bytes: usize,
        region: Option<&Arc<RegionCore>>,
    ) {
        // The CRC covers what IPv4 numbers datagrams with, which is zero for each that goes alone.
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

    /// Lets go of payload: from here on its memory may change.
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

/// Bytes of a packet with its padding and its CRC.
fn packet_bytes(path: &Path, header: &Header, payload_bytes: usize) -> usize {
    let crc_bytes = if path.peer.icrc { ICRC_BYTES } else { 0 };
    header.encoded_bytes() + payload_bytes + padding_of(payload_bytes) + crc_bytes
}

/// What the invariant CRC covers of the headers below, for packets of a socket that is not connected.
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
