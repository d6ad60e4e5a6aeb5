//! The wire form: known bytes, an independent CRC, and properties over all packets.

use std::net::{Ipv4Addr, Ipv6Addr};

use dunlin_roce::packet::{
    encode, icrc, parse, Acknowledgement, AtomicTarget, Envelope, Header, Network, Operation,
    PacketError, Psn, Refusal, RemoteRange, Service, Syndrome, DEFAULT_PARTITION_KEY,
};
use proptest::prelude::*;

/// CRC-32 of Ethernet, a bit at a time.
fn bitwise_crc(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        for bit in 0..8 {
            let out = crc & 1 ^ u32::from(byte >> bit & 1);
            crc = crc >> 1 ^ if out == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    !crc
}

/// The whole IP datagram, as it would be captured, with the fields that the CRC leaves out set to `noise`.
fn datagram(envelope: &Envelope, packet: &[u8], noise: u8) -> Vec<u8> {
    let udp_bytes = (8 + packet.len() + 4) as u16;
    let mut bytes = Vec::new();
    match envelope.network {
        Network::V4 {
            source,
            destination,
            identification,
            dont_fragment,
        } => {
            bytes.extend([0x45, noise]);
            bytes.extend((udp_bytes + 20).to_be_bytes());
            bytes.extend(identification.to_be_bytes());
            bytes.extend([
                if dont_fragment { 0x40 } else { 0 },
                0,
                noise,
                17,
                noise,
                noise,
            ]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
        }
        Network::V6 {
            source,
            destination,
        } => {
            bytes.extend([0x60 | noise >> 4, noise, noise, noise]);
            bytes.extend(udp_bytes.to_be_bytes());
            bytes.extend([17, noise]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
        }
    }
    bytes.extend(envelope.source_port.to_be_bytes());
    bytes.extend(envelope.destination_port.to_be_bytes());
    bytes.extend(udp_bytes.to_be_bytes());
    bytes.extend([noise, noise]);
    bytes.extend(packet);
    bytes
}

/// The invariant CRC from a captured datagram: masks it in place, as the standard lists the fields.
fn captured_icrc(mut datagram: Vec<u8>) -> [u8; 4] {
    let udp = if datagram[0] >> 4 == 4 {
        for at in [1, 8, 10, 11] {
            datagram[at] = 0xff;
        }
        20
    } else {
        datagram[0] |= 0x0f;
        datagram[1..4].fill(0xff);
        datagram[7] = 0xff;
        40
    };
    datagram[udp + 6..udp + 8].fill(0xff);
    datagram[udp + 8 + 4] = 0xff;
    let mut covered = vec![0xff; 8];
    covered.extend(datagram);
    bitwise_crc(&covered).to_le_bytes()
}

fn networks() -> impl Strategy<Value = Network> {
    prop_oneof![
        (any::<u32>(), any::<u32>(), any::<u16>(), any::<bool>()).prop_map(|(a, b, id, df)| {
            Network::V4 {
                source: Ipv4Addr::from(a),
                destination: Ipv4Addr::from(b),
                identification: id,
                dont_fragment: df,
            }
        }),
        (any::<u128>(), any::<u128>()).prop_map(|(a, b)| Network::V6 {
            source: Ipv6Addr::from(a),
            destination: Ipv6Addr::from(b)
        }),
    ]
}

fn acknowledgements() -> impl Strategy<Value = Acknowledgement> {
    let syndrome = prop_oneof![
        (0..32u8).prop_map(Syndrome::Acknowledged),
        (0..32u8).prop_map(Syndrome::ReceiverNotReady),
        prop_oneof![
            Just(Refusal::SequenceError),
            Just(Refusal::InvalidRequest),
            Just(Refusal::RemoteAccess),
            Just(Refusal::RemoteOperation)
        ]
        .prop_map(Syndrome::Refused),
    ];
    (syndrome, 0..1u32 << 24)
        .prop_map(|(syndrome, messages)| Acknowledgement { syndrome, messages })
}

fn operations() -> impl Strategy<Value = Operation> {
    let range = || {
        any::<(u64, u32, u32)>().prop_map(|(address, key, bytes)| RemoteRange {
            address,
            key,
            bytes,
        })
    };
    let target = || any::<(u64, u32)>().prop_map(|(address, key)| AtomicTarget { address, key });
    prop_oneof![
        Just(Operation::SendFirst),
        Just(Operation::SendMiddle),
        any::<Option<u32>>().prop_map(|immediate| Operation::SendLast { immediate }),
        any::<Option<u32>>().prop_map(|immediate| Operation::SendOnly { immediate }),
        range().prop_map(|target| Operation::WriteFirst { target }),
        Just(Operation::WriteMiddle),
        any::<Option<u32>>().prop_map(|immediate| Operation::WriteLast { immediate }),
        (range(), any::<Option<u32>>())
            .prop_map(|(target, immediate)| Operation::WriteOnly { target, immediate }),
        range().prop_map(|source| Operation::ReadRequest { source }),
        acknowledgements()
            .prop_map(|acknowledgement| Operation::ReadResponseFirst { acknowledgement }),
        Just(Operation::ReadResponseMiddle),
        acknowledgements()
            .prop_map(|acknowledgement| Operation::ReadResponseLast { acknowledgement }),
        acknowledgements()
            .prop_map(|acknowledgement| Operation::ReadResponseOnly { acknowledgement }),
        acknowledgements().prop_map(|acknowledgement| Operation::Acknowledge { acknowledgement }),
        (acknowledgements(), any::<u64>()).prop_map(|(acknowledgement, original)| {
            Operation::AtomicAcknowledge {
                acknowledgement,
                original,
            }
        }),
        (target(), any::<u64>(), any::<u64>()).prop_map(|(target, compare, swap)| {
            Operation::CompareAndSwap {
                target,
                compare,
                swap,
            }
        }),
        (target(), any::<u64>()).prop_map(|(target, add)| Operation::FetchAdd { target, add }),
        Just(Operation::CongestionNotification),
    ]
}

fn headers() -> impl Strategy<Value = Header> {
    let service = prop_oneof![
        3 => Just(Service::Reliable),
        1 => Just(Service::Unreliable),
        1 => Just(Service::Congestion),
        1 => (any::<u32>(), 0..1u32 << 24).prop_map(|(queue_key, source_queue_pair)| {
            Service::Datagram { queue_key, source_queue_pair }
        }),
    ];
    (
        service,
        operations(),
        any::<(bool, bool, u16, u32)>(),
        0..1u32 << 24,
    )
        .prop_map(
            |(service, operation, (solicited, acknowledge, partition_key, psn), queue_pair)| {
                Header {
                    service,
                    operation,
                    solicited,
                    acknowledge,
                    partition_key,
                    queue_pair,
                    psn: Psn::new(psn),
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn packets_round_trip(header in headers(), payload in prop::collection::vec(any::<u8>(), 0..300)) {
        let payload = if header.operation.has_payload() { &payload[..] } else { &[] };
        let mut buffer = [0xaa; 400];
        match encode(&header, payload.len(), &mut buffer, |place| place.copy_from_slice(payload)) {
            Ok(bytes) => {
                prop_assert_eq!(bytes % 4, 0);
                prop_assert_eq!(parse(&buffer[..bytes]), Ok((header, payload)));
                prop_assert!(encode(&header, payload.len(), &mut buffer[..bytes - 1], |_| ()).is_err());
            }
            Err(error) => {
                prop_assert!(matches!(error, PacketError::Transport { .. }), "{}", error);
                let notifies = header.operation == Operation::CongestionNotification;
                prop_assert!(notifies || header.service != Service::Reliable);
            }
        }
    }

    #[test]
    fn whatever_parses_means_what_it_says(bytes in prop::collection::vec(any::<u8>(), 0..80), opcode in 0..0xa0u8) {
        let mut bytes = bytes;
        if let [first, flags, ..] = &mut bytes[..] {
            *first = opcode;
            *flags &= 0xf0;
        }
        if let Ok((header, payload)) = parse(&bytes) {
            let mut again = [0; 100];
            let end = encode(&header, payload.len(), &mut again, |place| place.copy_from_slice(payload));
            prop_assert_eq!(parse(&again[..end.unwrap()]), Ok((header, payload)));
        }
    }

    #[test]
    fn the_crc_is_that_of_the_masked_datagram(
        network in networks(), ports in any::<(u16, u16)>(), noise in any::<u8>(),
        mut packet in prop::collection::vec(any::<u8>(), 12..200), flipped in any::<prop::sample::Index>(),
    ) {
        let envelope = Envelope { network, source_port: ports.0, destination_port: ports.1 };
        let crc = icrc(&envelope, &packet).unwrap();
        prop_assert_eq!(crc, captured_icrc(datagram(&envelope, &packet, noise)));
        let at = flipped.index(packet.len());
        packet[at] ^= 1;
        // Only the byte with the congestion marks is not covered.
        prop_assert_eq!(icrc(&envelope, &packet).unwrap() == crc, at == 4);
    }
}

#[test]
fn the_bytes_are_those_of_the_standard() {
    let header = Header {
        service: Service::Reliable,
        operation: Operation::WriteOnly {
            target: RemoteRange {
                address: 0x0102_0304_0506_0708,
                key: 0x1122_3344,
                bytes: 5,
            },
            immediate: Some(0xaabb_ccdd),
        },
        solicited: true,
        acknowledge: true,
        partition_key: DEFAULT_PARTITION_KEY,
        queue_pair: 0x12_3456,
        psn: Psn::new(0xab_cdef),
    };
    let mut buffer = [0xee; 64];
    let end = encode(&header, 5, &mut buffer, |place| {
        place.copy_from_slice(b"hello")
    })
    .unwrap();
    let expected: [&[u8]; 6] = [
        &[
            0x0b, 0xf0, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef,
        ],
        &[1, 2, 3, 4, 5, 6, 7, 8],
        &[0x11, 0x22, 0x33, 0x44, 0, 0, 0, 5],
        &[0xaa, 0xbb, 0xcc, 0xdd],
        b"hello",
        &[0, 0, 0],
    ];
    assert_eq!(buffer[..end], expected.concat());
}

#[test]
fn what_is_no_packet_is_refused_with_its_reason() {
    let base = |opcode, flags| [opcode, flags, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0];
    assert_eq!(
        parse(&[0x04; 11]),
        Err(PacketError::Truncated { bytes: 11 })
    );
    assert_eq!(
        parse(&base(0x04, 0x10)),
        Err(PacketError::Truncated { bytes: 12 })
    );
    assert_eq!(parse(&base(0x16, 0)), Err(PacketError::Opcode(0x16)));
    assert_eq!(
        parse(&base(0x2c, 0)),
        Err(PacketError::Truncated { bytes: 12 })
    );
    assert_eq!(
        parse(&[&base(0x2c, 0)[..], &[0; 16]].concat()),
        Err(PacketError::Opcode(0x2c))
    );
    assert_eq!(parse(&base(0x04, 1)), Err(PacketError::Version(1)));
    let reserved = [&base(0x11, 0)[..], &[0x40, 0, 0, 0]].concat();
    assert_eq!(parse(&reserved), Err(PacketError::Syndrome(0x40)));
    let loaded = [&base(0x11, 0)[..], &[0; 8]].concat();
    assert_eq!(
        parse(&loaded),
        Err(PacketError::Payload {
            opcode: 0x11,
            bytes: 4
        })
    );
}

/// A SEND of `hello` as scapy 2.8 builds it, from its base header to its CRC.
#[test]
fn another_implementation_makes_the_same_datagram() {
    let packet = [
        0x04, 0x70, 0xff, 0xff, 0, 0, 0, 0x17, 0x80, 0x65, 0x43, 0x21, b'h', b'e', b'l', b'l',
        b'o', 0, 0, 0,
    ];
    let header = Header {
        service: Service::Reliable,
        operation: Operation::SendOnly { immediate: None },
        solicited: false,
        acknowledge: true,
        partition_key: DEFAULT_PARTITION_KEY,
        queue_pair: 0x17,
        psn: Psn::new(0x65_4321),
    };
    assert_eq!(parse(&packet), Ok((header, &b"hello"[..])));
    let v4 = Network::V4 {
        source: Ipv4Addr::new(192, 0, 2, 1),
        destination: Ipv4Addr::new(192, 0, 2, 2),
        identification: 0x1234,
        dont_fragment: true,
    };
    let v6 = Network::V6 {
        source: "2001:db8::1".parse().unwrap(),
        destination: "2001:db8::2".parse().unwrap(),
    };
    for (network, crc) in [
        (v4, [0xad, 0x48, 0x31, 0x8d]),
        (v6, [0xe8, 0x81, 0x2c, 0x37]),
    ] {
        let envelope = Envelope {
            network,
            source_port: 0xc123,
            destination_port: 4791,
        };
        assert_eq!(icrc(&envelope, &packet), Some(crc), "{network:?}");
    }
}
