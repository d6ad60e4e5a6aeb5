//! Packets as a hostile peer makes them, and what holds for all that parse.

use std::net::Ipv4Addr;

use dunlin_roce::packet::{
    encode, icrc, icrc_agrees, parse, Acknowledgement, AtomicTarget, Envelope, Header, Network,
    Operation, Psn, Refusal, RemoteRange, Service, Syndrome, DEFAULT_PARTITION_KEY,
};

use super::choices::Choices;

/// Lengths at limits.
pub(crate) fn length(choices: &mut Choices, mtu: u32) -> u32 {
    let lengths = [
        0,
        1,
        7,
        8,
        mtu - 1,
        mtu,
        mtu + 1,
        2 * mtu,
        2 * mtu + 1,
        5 * mtu,
        (1 << 31) - 1,
        1 << 31,
        (1 << 31) + 1,
        u32::MAX,
    ];
    // The huge ones are rare, because their answers are long.
    match choices.byte() {
        0 => choices.word(),
        255 => choices.one_of(&lengths),
        other => lengths[usize::from(other) % 10],
    }
}

/// Addresses with a meaning, at the ends of the space, odd ones.
pub(crate) fn address(choices: &mut Choices) -> u64 {
    let base = choices.one_of(&[0x1000, 0x1000, 0x1000, 0x2000, 0, 1 << 63, u64::MAX - 7]);
    base + u64::from(choices.one_of(&[0u8, 0, 0, 0, 1, 4, 7]))
}

/// Of the keys 1 to 4 each grants something, 0 nothing.
pub(crate) fn key(choices: &mut Choices) -> u32 {
    choices.one_of(&[4, 4, 4, 4, 1, 2, 3, 0])
}

pub(crate) fn acknowledgement(choices: &mut Choices) -> Acknowledgement {
    // What ends a connection is rare, or each would be short.
    let syndrome = match choices.below(64) {
        0..=31 => Syndrome::Acknowledged(choices.byte() % 32),
        32..=47 => Syndrome::ReceiverNotReady(choices.byte() % 32),
        48..=61 => Syndrome::Refused(Refusal::SequenceError),
        _ => Syndrome::Refused(choices.one_of(&[
            Refusal::InvalidRequest,
            Refusal::RemoteAccess,
            Refusal::RemoteOperation,
        ])),
    };
    Acknowledgement {
        syndrome,
        messages: choices.word() % (1 << 24),
    }
}

/// Any request.
pub(crate) fn request(choices: &mut Choices, mtu: u32) -> Operation {
    let range = |choices: &mut Choices| RemoteRange {
        address: address(choices),
        key: key(choices),
        bytes: length(choices, mtu),
    };
    let place = |choices: &mut Choices| AtomicTarget {
        address: address(choices),
        key: key(choices),
    };
    let immediate = choices.one_in(2).then_some(7);
    match choices.below(11) {
        0 => Operation::SendFirst,
        1 => Operation::SendMiddle,
        2 => Operation::SendLast { immediate },
        3 => Operation::SendOnly { immediate },
        4 => Operation::WriteFirst {
            target: range(choices),
        },
        5 => Operation::WriteMiddle,
        6 => Operation::WriteLast { immediate },
        7 => Operation::WriteOnly {
            target: range(choices),
            immediate,
        },
        8 => Operation::ReadRequest {
            source: range(choices),
        },
        9 => Operation::CompareAndSwap {
            target: place(choices),
            compare: choices.byte().into(),
            swap: choices.byte().into(),
        },
        _ => Operation::FetchAdd {
            target: place(choices),
            add: u64::MAX - u64::from(choices.byte()),
        },
    }
}

/// Any response.
pub(crate) fn response(choices: &mut Choices) -> Operation {
    let acknowledgement = acknowledgement(choices);
    match choices.below(12) {
        0 => Operation::ReadResponseFirst { acknowledgement },
        1 => Operation::ReadResponseMiddle,
        2 => Operation::ReadResponseLast { acknowledgement },
        3 => Operation::ReadResponseOnly { acknowledgement },
        4 | 5 => Operation::AtomicAcknowledge {
            acknowledgement,
            original: choices.word().into(),
        },
        _ => Operation::Acknowledge { acknowledgement },
    }
}

pub(crate) fn header(choices: &mut Choices, operation: Operation, psn: Psn) -> Header {
    let flags = choices.byte();
    Header {
        service: Service::Reliable,
        operation,
        solicited: flags & 1 != 0,
        acknowledge: flags & 6 != 0,
        partition_key: DEFAULT_PARTITION_KEY,
        queue_pair: 17,
        psn,
    }
}

/// The packet has a wire form, and that reads as it again.
pub(crate) fn crosses_the_wire(header: &Header, payload_bytes: u32) {
    let mut buffer = [0; 4200];
    let end = encode(header, payload_bytes as usize, &mut buffer, |_| ()).expect("a wire form");
    let (again, payload) = parse(&buffer[..end]).expect("what was encoded");
    assert_eq!((again, payload.len()), (*header, payload_bytes as usize));
}

/// Whatever parses is what `encode` makes of it again, but for the bits that mean nothing. No bytes make the parser or
/// the CRC panic.
pub(crate) fn bytes_of_anybody(bytes: &[u8]) {
    let first = |at| bytes.get(at).copied().unwrap_or_default();
    let envelope = |identification| Envelope {
        network: Network::V4 {
            source: Ipv4Addr::LOCALHOST,
            destination: Ipv4Addr::LOCALHOST,
            identification,
            dont_fragment: true,
        },
        source_port: 1,
        destination_port: 4791,
    };
    let crc = icrc(&envelope(u16::from_be_bytes([first(10), first(11)])), bytes);
    assert_eq!(crc.is_some(), (12..65_536 - 32).contains(&bytes.len()));
    let agrees = |crc| icrc_agrees(&envelope(0), bytes, crc);
    assert!(crc.is_none_or(agrees) && (crc.is_some() || !agrees([0; 4])));
    let Ok((header, payload)) = parse(bytes) else {
        return;
    };
    let mut buffer = vec![0; bytes.len() + 4];
    let copy = |place: &mut [u8]| place.copy_from_slice(payload);
    let end = encode(&header, payload.len(), &mut buffer, copy).expect("what parses has a form");
    let again = &mut buffer[..end];
    assert_eq!(parse(again), Ok((header, payload)));
    // Padding that does not end on four bytes is read, and not written.
    if again.len() != bytes.len() {
        return;
    }
    let headers = header.encoded_bytes();
    let mut meant = bytes.to_vec();
    // That the path has migrated, congestion marks, and what is reserved.
    meant[1] |= 1 << 6;
    meant[4] = u8::from(header.service == Service::Congestion) << 6;
    meant[8] &= 1 << 7;
    if let Service::Datagram { .. } = header.service {
        meant[16] = 0;
    }
    if let Operation::FetchAdd { .. } = header.operation {
        meant[headers - 8..headers].fill(0);
    }
    if let Operation::CongestionNotification = header.operation {
        meant[12..headers].fill(0);
    }
    meant[headers + payload.len()..].fill(0);
    assert_eq!(again, meant);
}
