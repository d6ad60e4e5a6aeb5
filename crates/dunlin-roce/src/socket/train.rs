//! Trains: packets to one peer that go out in one system call, cut apart again by the kernel or not before the peer's.

use std::net::IpAddr;

use quinn_udp::Transmit;

use super::Socket;
use crate::address::Peer;
use crate::packet::{encode, icrc, mark_icrc_omitted, Envelope, Header, Network, ICRC_BYTES};

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

/// Packets that wait to go out together. All have the same length, but the last, which may be shorter.
#[derive(Debug)]
pub(crate) struct Train {
    buffer: Box<[u8]>,
    used: usize,
    segment_bytes: usize,
    segments: usize,
    /// Whether the last was shorter: nothing comes after it.
    closed: bool,
    path: Option<Path>,
}

impl Train {
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![0; MAX_TRAIN_BYTES].into(),
            used: 0,
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
        // The CRC covers what IPv4 numbers datagrams with, which is zero for each that goes alone.
        let alone = path.peer.icrc && path.peer.address.is_ipv4();
        let fits = self.path.as_ref() == Some(path)
            && !self.closed
            && !alone
            && bytes <= self.segment_bytes
            && self.used + bytes <= MAX_TRAIN_BYTES
            && self.segments < socket.max_segments().min(MAX_SEGMENTS);
        if !fits {
            self.send(socket);
            self.path = Some(*path);
            self.segment_bytes = bytes;
        }
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
        self.segments += 1;
        self.closed = bytes < self.segment_bytes;
    }

    /// Sends what has been added.
    pub(crate) fn send(&mut self, socket: &Socket) {
        if let (Some(path), true) = (self.path.take(), self.used > 0) {
            socket.send(&Transmit {
                destination: socket.destination(path.peer.address, path.peer.port),
                ecn: socket.ecn,
                contents: &self.buffer[..self.used],
                segment_size: (self.segments > 1).then_some(self.segment_bytes),
                // The kernel takes the address that the path was made with: that of its routing table, or the one
                // that the socket is bound to.
                src_ip: None,
            });
        }
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
