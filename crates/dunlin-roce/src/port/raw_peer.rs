//! A peer that is a plain socket: a test determines each packet that it sends.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use dunlin_verbs::EndpointAddress;

use crate::address::{gid, Habits};
use crate::packet::{encode, mark_icrc_omitted, Header, MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES};
use crate::RoceDevice;

pub(super) const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
/// Another host, as far as the routing table knows.
pub(super) const THERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn peer() -> (UdpSocket, EndpointAddress) {
    peer_that_takes(MAX_PAYLOAD_BYTES as usize)
}

pub(super) fn peer_that_takes(payload_bytes: usize) -> (UdpSocket, EndpointAddress) {
    let socket = UdpSocket::bind((THERE, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = address(socket.local_addr().unwrap().port(), payload_bytes);
    (socket, address)
}

pub(super) fn habits(port: u16) -> Habits {
    Habits {
        port,
        omit_icrc: true,
        receive_buffer_bytes: 64 << 20,
    }
}

/// The address of a peer at this port.
pub(super) fn address(port: u16, payload_bytes: usize) -> EndpointAddress {
    EndpointAddress {
        gid: gid(THERE.into()),
        lid: 0,
        mtu_bytes: 4096,
        queue_pair: 1 << 20,
        packet_sequence: 1,
        queue_key: 0,
        token: habits(port).token(payload_bytes),
    }
}

/// Sends a packet without the invariant CRC, with `bytes` of payload, and returns it.
pub(super) fn send(
    socket: &UdpSocket,
    device: &RoceDevice,
    header: &Header,
    bytes: usize,
) -> Vec<u8> {
    let mut packet = vec![0; MAX_HEADER_BYTES + bytes + 3];
    let length = encode(header, bytes, &mut packet, |place| place.fill(7)).unwrap();
    packet.truncate(length);
    mark_icrc_omitted(&mut packet);
    socket.send_to(&packet, (HERE, device.port())).unwrap();
    packet
}
