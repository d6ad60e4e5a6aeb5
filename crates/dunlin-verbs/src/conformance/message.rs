//! The messages between the two ends of a test: an operation, some numbers, some bytes.

use std::io::{Error, ErrorKind, Read, Write};

use crate::{Completion, CompletionOpcode, CompletionStatus, Transport};

/// The commands to the passive end, and its two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u8)]
pub enum Op {
    Done,
    Failed,
    Endpoint,
    Address,
    Connect,
    DropEndpoint,
    ToError,
    ToReset,
    State,
    Region,
    DropRegion,
    Write,
    Read,
    Receive,
    SharedQueue,
    SharedReceive,
    Send,
    Poll,
    Watch,
    Watched,
    /// Has no answer: the process ends as if it had been killed.
    Abort,
}

const OPS: [Op; 21] = [
    Op::Done,
    Op::Failed,
    Op::Endpoint,
    Op::Address,
    Op::Connect,
    Op::DropEndpoint,
    Op::ToError,
    Op::ToReset,
    Op::State,
    Op::Region,
    Op::DropRegion,
    Op::Write,
    Op::Read,
    Op::Receive,
    Op::SharedQueue,
    Op::SharedReceive,
    Op::Send,
    Op::Poll,
    Op::Watch,
    Op::Watched,
    Op::Abort,
];

/// A command or its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The command.
    pub op: Op,
    /// Its arguments.
    pub numbers: Vec<u64>,
    /// Its data.
    pub bytes: Vec<u8>,
}

impl Message {
    /// Creates a message without data.
    pub fn new(op: Op, numbers: impl Into<Vec<u64>>) -> Self {
        Self {
            op,
            numbers: numbers.into(),
            bytes: Vec::new(),
        }
    }

    /// The same with data.
    #[must_use]
    pub fn with_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.bytes = bytes.into();
        self
    }

    /// Number `at`; zero if there are fewer.
    pub fn number(&self, at: usize) -> u64 {
        self.numbers.get(at).copied().unwrap_or(0)
    }

    /// Number `at` as a size or an index.
    pub fn size(&self, at: usize) -> usize {
        usize::try_from(self.number(at)).expect("64-bit sizes")
    }

    /// Number `at` as 32 bits.
    pub fn word(&self, at: usize) -> u32 {
        u32::try_from(self.number(at)).expect("a 32-bit number")
    }

    /// Writes the message, preceded by its lengths.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn write_to(&self, stream: &mut impl Write) -> std::io::Result<()> {
        let mut wire = vec![self.op as u8];
        for length in [self.numbers.len(), self.bytes.len()] {
            wire.extend((length as u64).to_le_bytes());
        }
        for number in &self.numbers {
            wire.extend(number.to_le_bytes());
        }
        wire.extend(&self.bytes);
        stream.write_all(&wire)
    }

    /// Reads a message.
    ///
    /// # Errors
    /// Those of the stream, and for an invalid operation.
    pub fn read_from(stream: &mut impl Read) -> std::io::Result<Self> {
        let mut op = [0];
        stream.read_exact(&mut op)?;
        let mut number = || {
            let mut bytes = [0; 8];
            stream.read_exact(&mut bytes)?;
            std::io::Result::Ok(u64::from_le_bytes(bytes))
        };
        let count = number()?;
        let length = number()?;
        let numbers = (0..count)
            .map(|_| number())
            .collect::<std::io::Result<_>>()?;
        let mut bytes = vec![0; usize::try_from(length).expect("64-bit sizes")];
        stream.read_exact(&mut bytes)?;
        Ok(Self {
            op: *OPS
                .get(usize::from(op[0]))
                .ok_or_else(|| Error::from(ErrorKind::InvalidData))?,
            numbers,
            bytes,
        })
    }
}

const STATUSES: [CompletionStatus; 11] = [
    CompletionStatus::Success,
    CompletionStatus::LocalLength,
    CompletionStatus::LocalQueuePairOperation,
    CompletionStatus::LocalProtection,
    CompletionStatus::Flushed,
    CompletionStatus::RemoteInvalidRequest,
    CompletionStatus::RemoteAccess,
    CompletionStatus::RemoteOperation,
    CompletionStatus::RetryExceeded,
    CompletionStatus::ReceiverNotReadyRetryExceeded,
    CompletionStatus::General,
];

const OPCODES: [CompletionOpcode; 7] = [
    CompletionOpcode::Send,
    CompletionOpcode::Write,
    CompletionOpcode::Read,
    CompletionOpcode::CompareAndSwap,
    CompletionOpcode::FetchAndAdd,
    CompletionOpcode::Receive,
    CompletionOpcode::ReceiveWriteWithImmediate,
];

const TRANSPORTS: [Transport; 3] = [
    Transport::ReliableConnection,
    Transport::UnreliableConnection,
    Transport::UnreliableDatagram,
];

/// Encodes an optional 32-bit number.
pub(super) fn optional(value: Option<u32>) -> u64 {
    value.map_or(u64::MAX, u64::from)
}

/// Decodes the result of [`optional`].
pub(super) fn to_optional(number: u64) -> Option<u32> {
    u32::try_from(number).ok()
}

fn index<T: PartialEq>(all: &[T], one: &T) -> u64 {
    all.iter().position(|x| x == one).expect("a known value") as u64
}

pub(super) fn transport_number(transport: Transport) -> u64 {
    index(&TRANSPORTS, &transport)
}

pub(super) fn to_transport(number: usize) -> Transport {
    TRANSPORTS[number]
}

pub(super) fn completion_numbers(completion: &Completion) -> Vec<u64> {
    vec![
        completion.id,
        index(&STATUSES, &completion.status),
        index(&OPCODES, &completion.opcode),
        completion.bytes as u64,
        optional(completion.immediate),
        u64::from(completion.queue_pair),
        optional(completion.source_queue_pair),
        completion.timestamp_ns.unwrap_or(u64::MAX),
    ]
}

pub(super) fn to_completion(message: &Message) -> Completion {
    Completion {
        id: message.number(0),
        status: STATUSES[message.size(1)],
        opcode: OPCODES[message.size(2)],
        bytes: message.size(3),
        immediate: to_optional(message.number(4)),
        queue_pair: message.word(5),
        source_queue_pair: to_optional(message.number(6)),
        timestamp_ns: Some(message.number(7)).filter(|&t| t != u64::MAX),
    }
}
