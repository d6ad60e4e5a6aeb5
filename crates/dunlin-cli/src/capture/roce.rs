//! Encodes a packet of the simulated cluster as a RoCEv2 frame: Ethernet, IPv4, UDP, transport headers, payload and
//! invariant CRC.
//!
//! What the simulation does not have is made up: the addresses of hosts, which are numbered; the sender's UDP port,
//! which stands for the queue pair's flow; and the count of completed messages in acknowledgements, which is zero.

use std::net::Ipv4Addr;

use dunlin_roce::packet::{
    encode, icrc, timer, Acknowledgement, AtomicTarget, Envelope, Header, Network, Operation, Psn,
    Refusal, RemoteRange, Service, Syndrome, BASE_BYTES, DEFAULT_PARTITION_KEY, ICRC_BYTES,
    MAX_HEADER_BYTES, PSN_COUNT,
};
use dunlin_roce::ROCE_PORT;
use dunlin_sim::{HostId, PacketKind, Refusal as Refused, SeenPacket};
use dunlin_verbs::Transport;
use etherparse::{EtherType, Ethernet2Header, IpEcn, IpNumber, Ipv4Header, UdpHeader};

/// Ports of senders begin here, as Linux chooses them for RoCE.
const FIRST_PORT: u16 = 0xc000;
const HOPS: u8 = 64;
/// No end-to-end credit is kept.
const NO_CREDIT: u8 = 31;
const PICOSECONDS_IN_NS: u64 = 1_000;

/// The address of a host: 10.0.0.1 is the first.
fn address(host: HostId) -> Ipv4Addr {
    let [.., high, low] = (host.number() as u32 + 1).to_be_bytes();
    Ipv4Addr::new(10, 0, high, low)
}

/// The same on Ethernet, locally administered.
fn hardware_address(host: HostId) -> [u8; 6] {
    let [a, b, c, d] = address(host).octets();
    [2, 0, a, b, c, d]
}

/// The frame, without a frame check sequence. `None`: no such packet exists on its transport, which is a bug of the
/// simulation.
pub(super) fn frame(packet: &SeenPacket<'_>) -> Option<Vec<u8>> {
    let header = header(packet);
    let payload = match header.operation.has_payload() {
        true => packet.payload,
        false => &[],
    };
    let mut bytes = vec![0; MAX_HEADER_BYTES + payload.len() + 3];
    let copy = |place: &mut [u8]| place.copy_from_slice(payload);
    let length = encode(&header, payload.len(), &mut bytes, copy).ok()?;
    debug_assert!(length >= BASE_BYTES, "a packet begins with a base header");
    bytes.truncate(length);

    let udp_bytes = UdpHeader::LEN + length + ICRC_BYTES;
    let (source, destination) = (address(packet.from), address(packet.to));
    let mut ip = Ipv4Header::new(
        u16::try_from(udp_bytes).ok()?,
        HOPS,
        IpNumber::UDP,
        source.octets(),
        destination.octets(),
    )
    .ok()?;
    ip.ecn = match packet.congested {
        true => IpEcn::CongestionExperienced,
        false => IpEcn::Ect0,
    };
    ip.header_checksum = ip.calc_header_checksum();
    // RoCEv2 has the invariant CRC instead of UDP's checksum.
    let udp = UdpHeader {
        source_port: source_port(packet),
        destination_port: ROCE_PORT,
        length: udp_bytes as u16,
        checksum: 0,
    };
    let envelope = Envelope {
        network: Network::V4 {
            source,
            destination,
            identification: ip.identification,
            dont_fragment: ip.dont_fragment,
        },
        source_port: udp.source_port,
        destination_port: udp.destination_port,
    };
    let crc = icrc(&envelope, &bytes)?;
    let ethernet = Ethernet2Header {
        source: hardware_address(packet.from),
        destination: hardware_address(packet.to),
        ether_type: EtherType::IPV4,
    };
    let parts = [
        &ethernet.to_bytes()[..],
        &ip.to_bytes(),
        &udp.to_bytes(),
        &bytes,
        &crc,
    ];
    Some(parts.concat())
}

/// Both directions of a connection have ports of their own, and each keeps its.
fn source_port(packet: &SeenPacket<'_>) -> u16 {
    let [high, low] = [packet.source_queue_pair >> 16, packet.source_queue_pair];
    FIRST_PORT | (high ^ low) as u16 & !FIRST_PORT
}

fn header(packet: &SeenPacket<'_>) -> Header {
    let service = match (packet.kind, packet.transport) {
        (PacketKind::Congestion, _) => Service::Congestion,
        (PacketKind::Datagram, _) => Service::Datagram {
            queue_key: packet.key,
            source_queue_pair: packet.source_queue_pair,
        },
        (_, Transport::UnreliableConnection) => Service::Unreliable,
        _ => Service::Reliable,
    };
    Header {
        service,
        operation: operation(packet),
        solicited: packet.solicited,
        acknowledge: packet.acknowledge,
        partition_key: DEFAULT_PARTITION_KEY,
        queue_pair: packet.queue_pair,
        psn: Psn::new((packet.psn % u64::from(PSN_COUNT)) as u32),
    }
}

fn operation(packet: &SeenPacket<'_>) -> Operation {
    let immediate = packet.immediate;
    let range = RemoteRange {
        address: packet.address,
        key: packet.key,
        bytes: packet.bytes,
    };
    let target = AtomicTarget {
        address: packet.address,
        key: packet.key,
    };
    let [one, other] = packet.operands;
    let acknowledgement = acknowledged(Syndrome::Acknowledged(NO_CREDIT));
    match (packet.kind, packet.first, packet.last) {
        (PacketKind::Send, true, false) => Operation::SendFirst,
        (PacketKind::Send, false, false) => Operation::SendMiddle,
        (PacketKind::Send, false, true) => Operation::SendLast { immediate },
        (PacketKind::Send, true, true) | (PacketKind::Datagram, ..) => {
            Operation::SendOnly { immediate }
        }
        (PacketKind::Write, true, false) => Operation::WriteFirst { target: range },
        (PacketKind::Write, false, false) => Operation::WriteMiddle,
        (PacketKind::Write, false, true) => Operation::WriteLast { immediate },
        (PacketKind::Write, true, true) => Operation::WriteOnly {
            target: range,
            immediate,
        },
        (PacketKind::ReadRequest, ..) => Operation::ReadRequest { source: range },
        (PacketKind::ReadResponse, true, false) => Operation::ReadResponseFirst { acknowledgement },
        (PacketKind::ReadResponse, false, false) => Operation::ReadResponseMiddle,
        (PacketKind::ReadResponse, false, true) => Operation::ReadResponseLast { acknowledgement },
        (PacketKind::ReadResponse, true, true) => Operation::ReadResponseOnly { acknowledgement },
        (PacketKind::CompareAndSwap, ..) => Operation::CompareAndSwap {
            target,
            compare: one,
            swap: other,
        },
        (PacketKind::FetchAndAdd, ..) => Operation::FetchAdd { target, add: one },
        (PacketKind::AtomicResponse, ..) => Operation::AtomicAcknowledge {
            acknowledgement,
            original: one,
        },
        (PacketKind::Acknowledge, ..) => Operation::Acknowledge { acknowledgement },
        (PacketKind::Refuse(refused), ..) => Operation::Acknowledge {
            acknowledgement: acknowledged(syndrome(refused)),
        },
        (PacketKind::Congestion, ..) => Operation::CongestionNotification,
    }
}

fn acknowledged(syndrome: Syndrome) -> Acknowledgement {
    Acknowledgement {
        syndrome,
        messages: 0,
    }
}

fn syndrome(refused: Refused) -> Syndrome {
    Syndrome::Refused(match refused {
        Refused::NotReady(wait_ps) => {
            let wait_ns = wait_ps / PICOSECONDS_IN_NS;
            return Syndrome::ReceiverNotReady(timer::receiver_not_ready_code(wait_ns));
        }
        Refused::Sequence => Refusal::SequenceError,
        Refused::Access => Refusal::RemoteAccess,
        Refused::Invalid => Refusal::InvalidRequest,
        Refused::Operation => Refusal::RemoteOperation,
    })
}
