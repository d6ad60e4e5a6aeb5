//! Trains: packets to one peer that go out in one system call, cut apart again by the kernel or not before the peer's.

use std::net::IpAddr;
use std::sync::Arc;

use super::gather::Gathered;
use super::Socket;
use crate::address::Peer;
use crate::memory::RegionCore;
use crate::packet::{
    encode, encode_headers, icrc, mark_icrc_omitted, Envelope, Header, Network, ICRC_BYTES,
};

/// Bytes of a train at most: a datagram's, with room for its headers.
const MAX_TRAIN_BYTES: usize = 65_000;
/// The kernel takes no more segments, whatever their size.
pub(super) const MAX_SEGMENTS: usize = 64;
/// Payload that is copied into a train when it is shorter: the kernel takes longer for a part of its own.
const LEAST_GATHERED_BYTES: usize = 1024;

/// From where to where packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) local: IpAddr,
    pub(crate) peer: Peer,
}

/// Packets that wait to go out together. All have the same length, but the last, which may be shorter.
#[derive(Debug)]
pub(crate) struct Train {
    buffer: Box<[u8]>,
    used: usize,
    gathered: Gathered,
    segment_bytes: usize,
    segments: usize,
    /// Whether the last was shorter: nothing comes after it.
    closed: bool,
    path: Option<Path>,
}

/// Bytes of a region of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) region: &'a Arc<RegionCore>,
    pub(crate) offset: usize,
}

impl Train {
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![0; MAX_TRAIN_BYTES].into(),
            used: 0,
            gathered: Gathered::default(),
            segment_bytes: 0,
            segments: 0,
            closed: false,
            path: None,
        }
    }

    /// Adds a packet; sends what cannot go with it before. `fill` writes the payload.
    pub(crate) fn add(
        &mut self,
        socket: &Socket,
        path: &Path,
        header: &Header,
        payload_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let crc_bytes = if path.peer.icrc { ICRC_BYTES } else { 0 };
        let bytes = header.encoded_bytes() + payload_bytes.next_multiple_of(4) + crc_bytes;
        self.make_room(socket, path, bytes);
        let rest = &mut self.buffer[self.used..];
        let encoded = match encode(header, payload_bytes, rest, fill) {
            Ok(encoded) => encoded,
            // Headers are made by the state machines, which know what exists; a packet is shorter than a train.
            Err(error) => {
                debug_assert!(false, "{error}");
                return;
            }
        };
        self.used += bytes;
        if path.peer.icrc {
            let envelope = envelope(path.local, socket.port(), path.peer.address, path.peer.port);
            let crc = icrc(&envelope, &rest[..encoded]).unwrap_or_default();
            rest[encoded..bytes].copy_from_slice(&crc);
        } else {
            mark_icrc_omitted(rest);
        }
        self.added(bytes);
    }

    /// Adds a packet whose payload is sent from where it is, and is to be as it is now until [`Train::send`]. Says whether it
    /// did: short payload is copied faster, the invariant CRC has to see it, and a train has one region.
    #[must_use]
    pub(crate) fn add_from(
        &mut self,
        socket: &Socket,
        path: &Path,
        header: &Header,
        payload_bytes: usize,
        source: Source<'_>,
    ) -> bool {
        let whole = payload_bytes >= LEAST_GATHERED_BYTES && payload_bytes.is_multiple_of(4);
        if !whole || path.peer.icrc {
            return false;
        }
        if !self.gathered.takes(source.region) {
            self.send(socket);
        }
        let bytes = header.encoded_bytes() + payload_bytes;
        self.make_room(socket, path, bytes);
        let rest = &mut self.buffer[self.used..];
        let Ok(headers) = encode_headers(header, payload_bytes, 0, rest) else {
            return false;
        };
        mark_icrc_omitted(rest);
        self.used += headers;
        self.gathered
            .add(self.used, source.region, source.offset, payload_bytes);
        self.added(bytes);
        true
    }

    /// Sends what cannot go with a packet of `bytes` to `path`.
    fn make_room(&mut self, socket: &Socket, path: &Path, bytes: usize) {
        // The CRC covers what IPv4 numbers datagrams with, which is zero for each that goes alone.
        let alone = path.peer.icrc && path.peer.address.is_ipv4();
        let fits = self.path.as_ref() == Some(path)
            && !self.closed
            && !alone
            && bytes <= self.segment_bytes
            && self.used + self.gathered.bytes() + bytes <= MAX_TRAIN_BYTES
            && self.segments < socket.max_segments().min(MAX_SEGMENTS);
        if !fits {
            self.send(socket);
            self.path = Some(*path);
            self.segment_bytes = bytes;
        }
    }

    fn added(&mut self, bytes: usize) {
        self.segments += 1;
        self.closed = bytes < self.segment_bytes;
    }

    /// Sends what has been added.
    pub(crate) fn send(&mut self, socket: &Socket) {
        if let (Some(path), true) = (self.path.take(), self.used > 0) {
            let destination = socket.destination(path.peer.address, path.peer.port);
            let segment_size = (self.segments > 1).then_some(self.segment_bytes);
            let buffer = &self.buffer[..self.used];
            if self.gathered.bytes() == 0 {
                socket.send(destination, segment_size, buffer);
            } else {
                socket.send_gathered(destination, segment_size, buffer, &self.gathered);
            }
        }
        self.gathered.clear();
        self.used = 0;
        self.segments = 0;
        self.segment_bytes = 0;
        self.closed = false;
    }
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
