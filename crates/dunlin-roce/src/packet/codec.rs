//! The encoding of packets, between the UDP header and the invariant CRC.

use super::header::{
    Acknowledgement, AtomicTarget, Header, Operation, Refusal, RemoteRange, Service, Syndrome,
    CONGESTION_BYTES, CONGESTION_CODE,
};
use super::psn::{Psn, PSN_COUNT};

/// Why bytes are not a valid packet, or a packet cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The packet ends within its headers or its padding.
    #[error("truncated packet: it ends after {bytes} bytes, within its headers or padding")]
    Truncated {
        /// Number of bytes present.
        bytes: usize,
    },
    /// The opcode is not supported.
    #[error("unsupported opcode {0:#04x}: supported are RC without invalidation, UC, UD and congestion notifications")]
    Opcode(u8),
    /// The base header has another version than zero.
    #[error("unsupported version {0} of the transport header: only version 0 is supported")]
    Version(u8),
    /// The syndrome is reserved.
    #[error("reserved syndrome {0:#04x} in an acknowledgement")]
    Syndrome(u8),
    /// A packet of a kind without payload has one.
    #[error("unexpected payload of {bytes} bytes in a packet of opcode {opcode:#04x}")]
    Payload {
        /// Its opcode.
        opcode: u8,
        /// Length of the payload in bytes.
        bytes: usize,
    },
    /// The operation does not exist on the transport.
    #[error("operation code {code:#04x} does not exist on this transport")]
    Transport {
        /// Low five bits of its opcode.
        code: u8,
    },
    /// The buffer is too short for the packet.
    #[error("buffer too short: it has {bytes} bytes, but the packet needs {needed}")]
    Room {
        /// Length of the buffer in bytes.
        bytes: usize,
        /// Length of the packet in bytes.
        needed: usize,
    },
}

/// Takes fields from the front of a received packet.
struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], PacketError> {
        let (field, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(PacketError::Truncated { bytes: self.total })?;
        self.rest = rest;
        Ok(*field)
    }

    fn word(&mut self) -> Result<u32, PacketError> {
        self.take().map(u32::from_be_bytes)
    }

    fn double_word(&mut self) -> Result<u64, PacketError> {
        self.take().map(u64::from_be_bytes)
    }

    fn range(&mut self) -> Result<RemoteRange, PacketError> {
        Ok(RemoteRange {
            address: self.double_word()?,
            key: self.word()?,
            bytes: self.word()?,
        })
    }

    fn target(&mut self) -> Result<AtomicTarget, PacketError> {
        Ok(AtomicTarget {
            address: self.double_word()?,
            key: self.word()?,
        })
    }

    fn immediate(&mut self, present: bool) -> Result<Option<u32>, PacketError> {
        present.then(|| self.word()).transpose()
    }

    fn acknowledgement(&mut self) -> Result<Acknowledgement, PacketError> {
        let word = self.word()?;
        let code = (word >> 24) as u8;
        let value = code & 0x1f;
        let syndrome = match (code >> 5, value) {
            (0, credits) => Syndrome::Acknowledged(credits),
            (1, timer) => Syndrome::ReceiverNotReady(timer),
            (3, 0) => Syndrome::Refused(Refusal::SequenceError),
            (3, 1) => Syndrome::Refused(Refusal::InvalidRequest),
            (3, 2) => Syndrome::Refused(Refusal::RemoteAccess),
            (3, 3) => Syndrome::Refused(Refusal::RemoteOperation),
            _ => return Err(PacketError::Syndrome(code)),
        };
        Ok(Acknowledgement {
            syndrome,
            messages: word % PSN_COUNT,
        })
    }

    fn operation(&mut self, opcode: u8) -> Result<Operation, PacketError> {
        Ok(match opcode & 0x1f {
            0x00 => Operation::SendFirst,
            0x01 => Operation::SendMiddle,
            code @ 0x02..=0x03 => Operation::SendLast {
                immediate: self.immediate(code == 0x03)?,
            },
            code @ 0x04..=0x05 => Operation::SendOnly {
                immediate: self.immediate(code == 0x05)?,
            },
            0x06 => Operation::WriteFirst {
                target: self.range()?,
            },
            0x07 => Operation::WriteMiddle,
            code @ 0x08..=0x09 => Operation::WriteLast {
                immediate: self.immediate(code == 0x09)?,
            },
            code @ 0x0a..=0x0b => Operation::WriteOnly {
                target: self.range()?,
                immediate: self.immediate(code == 0x0b)?,
            },
            0x0c => Operation::ReadRequest {
                source: self.range()?,
            },
            0x0d => Operation::ReadResponseFirst {
                acknowledgement: self.acknowledgement()?,
            },
            0x0e => Operation::ReadResponseMiddle,
            0x0f => Operation::ReadResponseLast {
                acknowledgement: self.acknowledgement()?,
            },
            0x10 => Operation::ReadResponseOnly {
                acknowledgement: self.acknowledgement()?,
            },
            0x11 => Operation::Acknowledge {
                acknowledgement: self.acknowledgement()?,
            },
            0x12 => Operation::AtomicAcknowledge {
                acknowledgement: self.acknowledgement()?,
                original: self.double_word()?,
            },
            0x13 => {
                let target = self.target()?;
                let swap = self.double_word()?;
                Operation::CompareAndSwap {
                    target,
                    compare: self.double_word()?,
                    swap,
                }
            }
            0x14 => {
                let target = self.target()?;
                let add = self.double_word()?;
                // The standard uses the same header for both atomics; the last word has no meaning here.
                self.double_word()?;
                Operation::FetchAdd { target, add }
            }
            _ => return Err(PacketError::Opcode(opcode)),
        })
    }
}

/// Decodes a packet: its header and its payload without padding. `bytes` end before the invariant CRC.
///
/// # Errors
/// When the bytes are not a packet of a supported kind.
pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), PacketError> {
    let mut reader = Reader {
        rest: bytes,
        total: bytes.len(),
    };
    let [opcode, flags] = reader.take()?;
    let partition_key = u16::from_be_bytes(reader.take()?);
    let queue_pair = reader.word()? % PSN_COUNT;
    let sequence = reader.word()?;
    if flags & 0x0f != 0 {
        return Err(PacketError::Version(flags & 0x0f));
    }
    let service = match opcode >> 5 {
        0 => Service::Reliable,
        1 => Service::Unreliable,
        3 => Service::Datagram {
            queue_key: reader.word()?,
            source_queue_pair: reader.word()? % PSN_COUNT,
        },
        4 => Service::Congestion,
        _ => return Err(PacketError::Opcode(opcode)),
    };
    let operation = match service {
        Service::Congestion if opcode & 0x1f == CONGESTION_CODE => {
            reader.take::<CONGESTION_BYTES>()?;
            Operation::CongestionNotification
        }
        _ => reader.operation(opcode)?,
    };
    if !operation.exists_on(&service) {
        return Err(PacketError::Opcode(opcode));
    }
    let padding = usize::from(flags >> 4 & 3);
    let bytes_left = reader.rest.len();
    let payload_bytes = bytes_left
        .checked_sub(padding)
        .ok_or(PacketError::Truncated { bytes: bytes.len() })?;
    if bytes_left > 0 && !operation.has_payload() {
        return Err(PacketError::Payload {
            opcode,
            bytes: bytes_left,
        });
    }
    let header = Header {
        service,
        operation,
        solicited: flags & 0x80 != 0,
        acknowledge: sequence & 1 << 31 != 0,
        partition_key,
        queue_pair,
        psn: Psn::new(sequence),
    };
    Ok((header, &reader.rest[..payload_bytes]))
}

/// Appends fields to a buffer.
struct Writer<'a> {
    buffer: &'a mut [u8],
    end: usize,
}

impl Writer<'_> {
    /// The caller has checked that everything fits.
    fn put(&mut self, field: &[u8]) {
        self.buffer[self.end..self.end + field.len()].copy_from_slice(field);
        self.end += field.len();
    }

    fn range(&mut self, range: &RemoteRange) {
        self.put(&range.address.to_be_bytes());
        self.put(&range.key.to_be_bytes());
        self.put(&range.bytes.to_be_bytes());
    }

    fn atomic(&mut self, target: &AtomicTarget, first: u64, second: u64) {
        self.put(&target.address.to_be_bytes());
        self.put(&target.key.to_be_bytes());
        self.put(&first.to_be_bytes());
        self.put(&second.to_be_bytes());
    }

    fn immediate(&mut self, immediate: Option<u32>) {
        if let Some(immediate) = immediate {
            self.put(&immediate.to_be_bytes());
        }
    }

    fn acknowledgement(&mut self, acknowledgement: &Acknowledgement) {
        let code = match acknowledgement.syndrome {
            Syndrome::Acknowledged(credits) => credits & 0x1f,
            Syndrome::ReceiverNotReady(timer) => 0x20 | timer & 0x1f,
            Syndrome::Refused(Refusal::SequenceError) => 0x60,
            Syndrome::Refused(Refusal::InvalidRequest) => 0x61,
            Syndrome::Refused(Refusal::RemoteAccess) => 0x62,
            Syndrome::Refused(Refusal::RemoteOperation) => 0x63,
        };
        let word = (u32::from(code) << 24) | (acknowledgement.messages % PSN_COUNT);
        self.put(&word.to_be_bytes());
    }

    fn operation(&mut self, operation: &Operation) {
        match operation {
            Operation::SendFirst
            | Operation::SendMiddle
            | Operation::WriteMiddle
            | Operation::ReadResponseMiddle => {}
            Operation::SendLast { immediate }
            | Operation::SendOnly { immediate }
            | Operation::WriteLast { immediate } => self.immediate(*immediate),
            Operation::WriteFirst { target } => self.range(target),
            Operation::WriteOnly { target, immediate } => {
                self.range(target);
                self.immediate(*immediate);
            }
            Operation::ReadRequest { source } => self.range(source),
            Operation::ReadResponseFirst { acknowledgement }
            | Operation::ReadResponseLast { acknowledgement }
            | Operation::ReadResponseOnly { acknowledgement }
            | Operation::Acknowledge { acknowledgement } => self.acknowledgement(acknowledgement),
            Operation::AtomicAcknowledge {
                acknowledgement,
                original,
            } => {
                self.acknowledgement(acknowledgement);
                self.put(&original.to_be_bytes());
            }
            Operation::CompareAndSwap {
                target,
                compare,
                swap,
            } => {
                self.atomic(target, *swap, *compare);
            }
            Operation::FetchAdd { target, add } => self.atomic(target, *add, 0),
            Operation::CongestionNotification => self.put(&[0; CONGESTION_BYTES]),
        }
    }
}

impl Header {
    /// Length of the encoded headers in bytes.
    pub fn encoded_bytes(&self) -> usize {
        let acknowledgement = 4;
        let range = 16;
        let immediate = |immediate: &Option<u32>| 4 * usize::from(immediate.is_some());
        let datagram = match self.service {
            Service::Datagram { .. } => 8,
            Service::Reliable | Service::Unreliable | Service::Congestion => 0,
        };
        super::header::BASE_BYTES
            + datagram
            + match &self.operation {
                Operation::SendFirst
                | Operation::SendMiddle
                | Operation::WriteMiddle
                | Operation::ReadResponseMiddle => 0,
                Operation::SendLast { immediate: data }
                | Operation::SendOnly { immediate: data }
                | Operation::WriteLast { immediate: data } => immediate(data),
                Operation::WriteFirst { .. } | Operation::ReadRequest { .. } => range,
                Operation::WriteOnly {
                    immediate: data, ..
                } => range + immediate(data),
                Operation::ReadResponseFirst { .. }
                | Operation::ReadResponseLast { .. }
                | Operation::ReadResponseOnly { .. }
                | Operation::Acknowledge { .. } => acknowledgement,
                Operation::AtomicAcknowledge { .. } => acknowledgement + 8,
                Operation::CompareAndSwap { .. } | Operation::FetchAdd { .. } => 28,
                Operation::CongestionNotification => CONGESTION_BYTES,
            }
    }
}

/// Number of padding bytes behind a payload.
pub(crate) fn padding_of(payload_bytes: usize) -> usize {
    payload_bytes.wrapping_neg() % 4
}

/// Writes a packet with `payload_bytes` of payload to the start of `buffer` and returns its length including padding.
/// `fill` writes the payload to its place, so that it is copied only once.
///
/// # Errors
/// When the operation does not exist on the transport or has no payload, or the buffer is too short. Nothing is then
/// written.
pub fn encode(
    header: &Header,
    payload_bytes: usize,
    buffer: &mut [u8],
    fill: impl FnOnce(&mut [u8]),
) -> Result<usize, PacketError> {
    let needed = header
        .encoded_bytes()
        .saturating_add(payload_bytes)
        .saturating_add(padding_of(payload_bytes));
    if needed > buffer.len() {
        return Err(PacketError::Room {
            bytes: buffer.len(),
            needed,
        });
    }
    let headers = encode_header(header, payload_bytes, buffer)?;
    fill(&mut buffer[headers..headers + payload_bytes]);
    buffer[headers + payload_bytes..needed].fill(0);
    Ok(needed)
}

/// Writes the headers of a packet with `payload_bytes` of payload and returns their length. The payload and its padding
/// follow them.
///
/// # Errors
/// As for [`encode`].
pub(crate) fn encode_header(
    header: &Header,
    payload_bytes: usize,
    buffer: &mut [u8],
) -> Result<usize, PacketError> {
    let code = header.operation.code();
    if !header.operation.exists_on(&header.service) {
        return Err(PacketError::Transport { code });
    }
    if payload_bytes > 0 && !header.operation.has_payload() {
        return Err(PacketError::Payload {
            opcode: code,
            bytes: payload_bytes,
        });
    }
    let headers = header.encoded_bytes();
    if headers > buffer.len() {
        return Err(PacketError::Room {
            bytes: buffer.len(),
            needed: headers,
        });
    }
    let padding = padding_of(payload_bytes);
    let service = match header.service {
        Service::Reliable => 0,
        Service::Unreliable => 1,
        Service::Datagram { .. } => 3,
        Service::Congestion => 4,
    };
    let mut writer = Writer { buffer, end: 0 };
    // Path migration is not supported, so its bit says *migrated*, as with other endpoints without it.
    let flags = u8::from(header.solicited) << 7 | 1 << 6 | (padding as u8) << 4;
    writer.put(&[service << 5 | code, flags]);
    writer.put(&header.partition_key.to_be_bytes());
    // The byte before the queue pair tells whether the packet reports packets that were marked on the way here.
    let backward = u32::from(header.service == Service::Congestion) << 30;
    writer.put(&(backward | (header.queue_pair % PSN_COUNT)).to_be_bytes());
    writer.put(&(u32::from(header.acknowledge) << 31 | header.psn.value()).to_be_bytes());
    if let Service::Datagram {
        queue_key,
        source_queue_pair,
    } = header.service
    {
        writer.put(&queue_key.to_be_bytes());
        writer.put(&(source_queue_pair % PSN_COUNT).to_be_bytes());
    }
    writer.operation(&header.operation);
    Ok(headers)
}
