//! Captures with a mix of headers, written from a seed, and what is in them.

use std::collections::HashMap;
use std::net::IpAddr;

use etherparse::PacketBuilder;

/// Addresses, ports and protocol.
pub(crate) type Flow = (IpAddr, u16, IpAddr, u16, u8);

/// A frame, its bytes on the wire, and its flow.
pub(crate) struct Packet {
    pub(crate) frame: Vec<u8>,
    pub(crate) wire: u32,
    pub(crate) flow: Option<Flow>,
    pub(crate) time_ns: u64,
}

/// Bytes of a frame that are captured.
const SNAP: usize = 96;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A packet of one of some kinds, as a network has them.
fn packet(random: &mut fastrand::Rng, number: u64) -> Packet {
    let host = random.u8(1..20);
    let (v4, v6) = (
        ([10, 0, 0, host], [192, 168, 1, 1]),
        (host_v6(host), host_v6(200)),
    );
    let (port, service) = (
        40_000 + u16::from(host),
        *random.choice(&[53, 80, 443]).unwrap(),
    );
    let payload = vec![number as u8; random.usize(0..1400)];
    let ethernet = PacketBuilder::ethernet2(MAC, MAC);
    let mut frame = Vec::new();
    let (source, destination): (IpAddr, IpAddr) = (v4.0.into(), v4.1.into());
    let (source6, destination6): (IpAddr, IpAddr) = (v6.0.into(), v6.1.into());
    let flow = match random.u8(0..9) {
        0 | 1 => {
            let built = ethernet
                .ipv4(v4.0, v4.1, 64)
                .tcp(port, service, number as u32, 1024);
            built.write(&mut frame, &payload).unwrap();
            Some((source, port, destination, service, 6))
        }
        2 => {
            let built = ethernet.ipv4(v4.0, v4.1, 64).udp(port, service);
            built.write(&mut frame, &payload).unwrap();
            Some((source, port, destination, service, 17))
        }
        3 => {
            let built = ethernet
                .ipv6(v6.0, v6.1, 64)
                .tcp(port, service, number as u32, 1024);
            built.write(&mut frame, &payload).unwrap();
            Some((source6, port, destination6, service, 6))
        }
        4 => {
            let built = ethernet.ipv6(v6.0, v6.1, 64).udp(port, service);
            built.write(&mut frame, &payload).unwrap();
            Some((source6, port, destination6, service, 17))
        }
        5 => {
            let tag = etherparse::VlanId::try_new(7).unwrap();
            let built = ethernet
                .single_vlan(tag)
                .ipv4(v4.0, v4.1, 64)
                .udp(port, service);
            built.write(&mut frame, &payload).unwrap();
            Some((source, port, destination, service, 17))
        }
        6 => {
            let built = ethernet
                .ipv4(v4.0, v4.1, 64)
                .icmpv4_echo_request(1, number as u16);
            built.write(&mut frame, &payload).unwrap();
            Some((source, 0, destination, 0, 1))
        }
        7 => {
            // A fragment behind the first: what stands where ports were is payload.
            let built = ethernet.ipv4(v4.0, v4.1, 64).udp(port, service);
            built.write(&mut frame, &payload).unwrap();
            frame[14 + 6..14 + 8].copy_from_slice(&185u16.to_be_bytes());
            Some((source, 0, destination, 0, 17))
        }
        _ => {
            // ARP: a packet without a flow.
            frame.extend([MAC, MAC].concat());
            frame.extend([0x08, 0x06]);
            frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
            frame.extend([0; 20]);
            None
        }
    };
    let wire = frame.len() as u32;
    frame.truncate(SNAP);
    Packet {
        frame,
        wire,
        flow,
        time_ns: 1_700_000_000_000_000_000 + number * 1_000_000,
    }
}

fn host_v6(host: u8) -> [u8; 16] {
    let mut address = [0; 16];
    (address[0], address[1], address[15]) = (0xfd, 0x01, host);
    address
}

/// So many packets of a seed.
pub(crate) fn packets(seed: u64, count: u64) -> Vec<Packet> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count)
        .map(|number| packet(&mut random, number))
        .collect()
}

/// Packets and bytes of each flow, and of none.
pub(crate) fn counts(packets: &[Packet]) -> HashMap<Option<Flow>, (u64, u64)> {
    let mut counts: HashMap<_, (u64, u64)> = HashMap::new();
    for packet in packets {
        let count = counts.entry(packet.flow).or_default();
        count.0 += 1;
        count.1 += u64::from(packet.wire);
    }
    counts
}

/// A file of pcap: in this machine's byte order and microseconds, or in the other one and nanoseconds.
pub(crate) fn pcap(packets: &[Packet], other: bool) -> Vec<u8> {
    let number = |number: u32| match other {
        true => number.to_be_bytes(),
        false => number.to_le_bytes(),
    };
    let (magic, unit) = match other {
        true => (0xa1b2_3c4d, 1),
        false => (0xa1b2_c3d4, 1000),
    };
    let mut file = number(magic).to_vec();
    file.extend(match other {
        true => [0, 2, 0, 4],
        false => [2, 0, 4, 0],
    });
    for word in [0, 0, SNAP as u32, 1] {
        file.extend(number(word));
    }
    for packet in packets {
        let (seconds, rest) = (
            packet.time_ns / 1_000_000_000,
            packet.time_ns % 1_000_000_000,
        );
        let captured = packet.frame.len() as u32;
        for word in [seconds as u32, (rest / unit) as u32, captured, packet.wire] {
            file.extend(number(word));
        }
        file.extend(&packet.frame);
    }
    file
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padding = body.len().next_multiple_of(4) - body.len();
    let length = (12 + body.len() + padding) as u32;
    let mut block = kind.to_le_bytes().to_vec();
    block.extend(length.to_le_bytes());
    block.extend(body);
    block.extend(vec![0; padding]);
    block.extend(length.to_le_bytes());
    block
}

/// A file of pcapng with two interfaces, whose second counts nanoseconds, and with blocks that nobody asked for.
pub(crate) fn pcapng(packets: &[Packet]) -> Vec<u8> {
    let mut section = 0x1a2b_3c4du32.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    let mut file = block(0x0a0d_0d0a, &section);
    let mut interface = vec![1, 0, 0, 0];
    interface.extend((SNAP as u32).to_le_bytes());
    file.extend(block(1, &interface));
    // if_tsresol: 10^-9, and the end of options.
    interface.extend([9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    file.extend(block(1, &interface));
    file.extend(block(0x0bad_cafe, b"nobody knows this one"));
    for (number, packet) in packets.iter().enumerate() {
        let interface = number as u32 % 2;
        let time = packet.time_ns / if interface == 0 { 1000 } else { 1 };
        let mut body = interface.to_le_bytes().to_vec();
        body.extend(((time >> 32) as u32).to_le_bytes());
        body.extend((time as u32).to_le_bytes());
        body.extend((packet.frame.len() as u32).to_le_bytes());
        body.extend(packet.wire.to_le_bytes());
        body.extend(&packet.frame);
        file.extend(block(6, &body));
    }
    file
}
