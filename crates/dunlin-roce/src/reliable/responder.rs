//! The responder: executes the peer's requests once and in order, and answers them.
//!
//! It accesses memory, RECEIVEs and completions through a [`Target`].

mod acknowledging;

use std::collections::VecDeque;

use dunlin_verbs::Access;

use super::packets_of;
use super::requester::MAX_MESSAGE_BYTES;
use super::responses::Responses;
use super::target::{AccessError, Delivered, Target};
use crate::packet::{
    timer, AtomicTarget, Header, Operation, Psn, Refusal, RemoteRange, Service, Syndrome,
    MAX_PAYLOAD_BYTES, MIN_MTU_BYTES, PSN_COUNT,
};

/// Parameters of a responder.
#[derive(Clone, Copy, Debug)]
pub struct ResponderConfig {
    /// The peer's queue pair.
    pub peer_queue_pair: u32,
    /// Sequence number of the peer's first packet.
    pub first_psn: Psn,
    /// Payload of a packet, 256 to 57,344 bytes.
    pub mtu_bytes: u32,
    /// Maximum number of the peer's READs and atomics that are kept.
    pub max_outstanding_reads: usize,
    /// Nanoseconds for which a peer is asked to wait for a RECEIVE.
    pub receiver_not_ready_timer_ns: u64,
}

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was executed.
    Taken,
    /// It had been executed before, and was answered again.
    Duplicate,
    /// A packet before it is missing.
    Gap,
    /// There is no RECEIVE for it.
    NotReady,
    /// Refused: the connection is in the error state.
    Refused(Refusal),
    /// Dropped silently: the connection is in the error state, the packet is malformed, or there is no space for the
    /// answer.
    Dropped,
}

/// A message of which some packets have arrived.
#[derive(Clone, Copy, Debug)]
enum Partial {
    Send { received: u32, capacity: u64 },
    Write { target: RemoteRange, received: u32 },
}

/// An atomic that was executed: a duplicate is answered from here.
#[derive(Clone, Copy, Debug)]
struct Replay {
    psn: Psn,
    original: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Responder {
    config: ResponderConfig,
    expected: Psn,
    messages: u32,
    partial: Option<Partial>,
    /// Whether the peer has been told that the expected packet is missing, or must be sent later; it is told once.
    asked: bool,
    failed: bool,
    replays: VecDeque<Replay>,
    responses: Responses,
}

/// Why a packet was not executed.
enum Stop {
    NotReady,
    /// There is no space for its answer: treat it as lost; it will be requested again.
    NoRoom,
    Refuse(Refusal),
}

const INVALID: Stop = Stop::Refuse(Refusal::InvalidRequest);

impl From<AccessError> for Stop {
    fn from(_: AccessError) -> Self {
        Stop::Refuse(Refusal::RemoteAccess)
    }
}

impl Responder {
    /// Creates a responder that waits for the first packet. Values out of range are clamped.
    pub fn new(mut config: ResponderConfig) -> Self {
        config.mtu_bytes = config.mtu_bytes.clamp(MIN_MTU_BYTES, MAX_PAYLOAD_BYTES);
        let reads = config.max_outstanding_reads.max(1);
        config.max_outstanding_reads = reads;
        Self {
            expected: config.first_psn,
            messages: 0,
            partial: None,
            asked: false,
            failed: false,
            replays: VecDeque::with_capacity(reads),
            responses: Responses::new(reads, config.peer_queue_pair, config.mtu_bytes),
            config,
        }
    }

    /// Handles a packet of the peer's requester.
    pub fn handle(&mut self, header: &Header, payload: &[u8], target: &mut impl Target) -> Verdict {
        // A packet of UC or UD for this queue pair is invalid.
        let reliable = header.service == Service::Reliable;
        if self.failed || !reliable || header.operation.is_response() {
            return Verdict::Dropped;
        }
        match header.psn.distance_from(self.expected) {
            0 => {}
            1.. => {
                if !self.asked {
                    self.asked = true;
                    self.refuse(Refusal::SequenceError);
                }
                return Verdict::Gap;
            }
            _ => return self.repeat(header, target),
        }
        match self.carry_out(header, payload, target) {
            Ok(packets) => {
                self.asked = false;
                self.expected = self.expected.plus(packets);
                if header.operation.has_payload() {
                    if header.acknowledge {
                        self.acknowledge();
                    } else {
                        self.acknowledge_too();
                    }
                }
                Verdict::Taken
            }
            Err(Stop::NotReady) => {
                self.asked = true;
                let code = timer::receiver_not_ready_code(self.config.receiver_not_ready_timer_ns);
                let acknowledgement = self.acknowledgement(Syndrome::ReceiverNotReady(code));
                self.responses.acknowledge(self.expected, acknowledgement);
                Verdict::NotReady
            }
            Err(Stop::NoRoom) => Verdict::Dropped,
            Err(Stop::Refuse(refusal)) => {
                self.failed = true;
                if matches!(self.partial, Some(Partial::Send { .. })) {
                    target.fail_receive(false);
                    self.partial = None;
                }
                self.refuse(refusal);
                Verdict::Refused(refusal)
            }
        }
    }

    /// Executes the expected packet and returns the number of sequence numbers that it takes.
    fn carry_out(
        &mut self,
        header: &Header,
        payload: &[u8],
        target: &mut impl Target,
    ) -> Result<u32, Stop> {
        let mtu = self.config.mtu_bytes as usize;
        let solicited = header.solicited;
        match header.operation {
            Operation::SendFirst
            | Operation::SendOnly { .. }
            | Operation::WriteFirst { .. }
            | Operation::WriteOnly { .. }
            | Operation::ReadRequest { .. }
            | Operation::CompareAndSwap { .. }
            | Operation::FetchAdd { .. }
                if self.partial.is_some() =>
            {
                return Err(INVALID)
            }
            Operation::SendFirst
            | Operation::SendMiddle
            | Operation::WriteFirst { .. }
            | Operation::WriteMiddle
                if payload.len() != mtu =>
            {
                return Err(INVALID);
            }
            Operation::SendLast { .. } | Operation::WriteLast { .. } if payload.is_empty() => {
                return Err(INVALID);
            }
            _ if payload.len() > mtu => return Err(INVALID),
            _ => {}
        }
        match header.operation {
            Operation::SendFirst => {
                let capacity = target.take_receive().ok_or(Stop::NotReady)?;
                self.partial = Some(Partial::Send {
                    received: 0,
                    capacity,
                });
                self.receive(payload, target)?;
            }
            Operation::SendMiddle => {
                self.receive(payload, target)?;
            }
            Operation::SendOnly { immediate } => {
                let capacity = target.take_receive().ok_or(Stop::NotReady)?;
                self.partial = Some(Partial::Send {
                    received: 0,
                    capacity,
                });
                let bytes = self.receive(payload, target)?;
                self.end_of_message();
                target.deliver(Delivered {
                    bytes,
                    immediate,
                    write: false,
                    solicited,
                });
            }
            Operation::SendLast { immediate } => {
                let bytes = self.receive(payload, target)?;
                self.end_of_message();
                target.deliver(Delivered {
                    bytes,
                    immediate,
                    write: false,
                    solicited,
                });
            }
            Operation::WriteFirst { target: range } => {
                if range.bytes as usize <= mtu || range.bytes > MAX_MESSAGE_BYTES {
                    return Err(INVALID);
                }
                target.check(&range, Access::REMOTE_WRITE)?;
                self.partial = Some(Partial::Write {
                    target: range,
                    received: 0,
                });
                self.write(payload, target)?;
            }
            Operation::WriteMiddle => self.write(payload, target)?,
            Operation::WriteOnly {
                target: range,
                immediate,
            } => {
                if range.bytes as usize != payload.len() {
                    return Err(INVALID);
                }
                if range.bytes > 0 {
                    target.check(&range, Access::REMOTE_WRITE)?;
                }
                self.finish_write(range, 0, payload, immediate, solicited, target)?;
            }
            Operation::WriteLast { immediate } => {
                let Some(Partial::Write {
                    target: range,
                    received,
                }) = self.partial
                else {
                    return Err(INVALID);
                };
                if u64::from(received) + payload.len() as u64 != u64::from(range.bytes) {
                    return Err(INVALID);
                }
                self.finish_write(range, received, payload, immediate, solicited, target)?;
            }
            Operation::ReadRequest { source } => {
                if source.bytes > MAX_MESSAGE_BYTES {
                    return Err(INVALID);
                }
                self.room_for_answer()?;
                if source.bytes > 0 {
                    target.check(&source, Access::REMOTE_READ)?;
                }
                self.end_of_message();
                let acknowledgement = self.positive();
                self.responses
                    .answer_read(header.psn, acknowledgement, source, false);
                return Ok(packets_of(source.bytes, self.config.mtu_bytes));
            }
            Operation::CompareAndSwap {
                target: place,
                compare,
                swap,
            } => {
                self.atomic(&place, &|value| (value == compare).then_some(swap), target)?;
            }
            Operation::FetchAdd { target: place, add } => {
                self.atomic(&place, &|value| Some(value.wrapping_add(add)), target)?;
            }
            _ => return Err(INVALID),
        }
        Ok(1)
    }

    /// Writes payload of a SEND into its RECEIVE and returns the number of bytes received so far.
    fn receive(&mut self, payload: &[u8], target: &mut impl Target) -> Result<u32, Stop> {
        let Some(Partial::Send { received, capacity }) = &mut self.partial else {
            return Err(INVALID);
        };
        let end = u64::from(*received) + payload.len() as u64;
        if end > (*capacity).min(MAX_MESSAGE_BYTES.into()) {
            self.partial = None;
            target.fail_receive(true);
            return Err(INVALID);
        }
        // An unusable local buffer is our fault, not that of the peer's key.
        target
            .fill_receive(*received, payload)
            .map_err(|_| Stop::Refuse(Refusal::RemoteOperation))?;
        *received = end as u32;
        Ok(*received)
    }

    /// Writes payload of a WRITE that continues after it.
    fn write(&mut self, payload: &[u8], target: &mut impl Target) -> Result<(), Stop> {
        let Some(Partial::Write {
            target: range,
            received,
        }) = &mut self.partial
        else {
            return Err(INVALID);
        };
        let end = u64::from(*received) + payload.len() as u64;
        if end >= range.bytes.into() {
            return Err(INVALID);
        }
        target.write(
            range.address.wrapping_add((*received).into()),
            range.key,
            payload,
        )?;
        *received = end as u32;
        Ok(())
    }

    /// Writes the last payload of a WRITE, if there is a RECEIVE for its immediate data.
    fn finish_write(
        &mut self,
        range: RemoteRange,
        received: u32,
        payload: &[u8],
        immediate: Option<u32>,
        solicited: bool,
        target: &mut impl Target,
    ) -> Result<(), Stop> {
        if immediate.is_some() {
            target.take_receive().ok_or(Stop::NotReady)?;
        }
        if !payload.is_empty() {
            let address = range.address.wrapping_add(received.into());
            if let Err(error) = target.write(address, range.key, payload) {
                if immediate.is_some() {
                    target.fail_receive(false);
                }
                return Err(error.into());
            }
        }
        self.end_of_message();
        if immediate.is_some() {
            target.deliver(Delivered {
                bytes: range.bytes,
                immediate,
                write: true,
                solicited,
            });
        }
        Ok(())
    }

    fn atomic(
        &mut self,
        place: &AtomicTarget,
        change: &dyn Fn(u64) -> Option<u64>,
        target: &mut impl Target,
    ) -> Result<(), Stop> {
        if !place.address.is_multiple_of(8) {
            return Err(INVALID);
        }
        self.room_for_answer()?;
        let original = target.atomic(place, change)?;
        if self.replays.len() == self.config.max_outstanding_reads {
            self.replays.pop_front();
        }
        self.replays.push_back(Replay {
            psn: self.expected,
            original,
        });
        self.end_of_message();
        let acknowledgement = self.positive();
        self.responses
            .answer_atomic(self.expected, acknowledgement, original);
        Ok(())
    }

    /// A peer that respects the limit on READs and atomics in flight finds space, unless it repeats requests.
    fn room_for_answer(&self) -> Result<(), Stop> {
        self.responses.has_room().then_some(()).ok_or(Stop::NoRoom)
    }

    /// Answers a packet that was executed before.
    fn repeat(&mut self, header: &Header, target: &mut impl Target) -> Verdict {
        match header.operation {
            Operation::ReadRequest { source } => {
                let end = header
                    .psn
                    .plus(packets_of(source.bytes, self.config.mtu_bytes));
                let known =
                    source.bytes <= MAX_MESSAGE_BYTES && end.distance_from(self.expected) <= 0;
                let granted =
                    source.bytes == 0 || target.check(&source, Access::REMOTE_READ).is_ok();
                if !known || !granted {
                    return Verdict::Dropped;
                }
                let acknowledgement = self.positive();
                self.responses
                    .answer_read(header.psn, acknowledgement, source, true);
            }
            Operation::CompareAndSwap { .. } | Operation::FetchAdd { .. } => {
                // Latest first: numbers wrap, and a long outdated value may have the same one.
                let mut replays = self.replays.iter().rev();
                let Some(replay) = replays.find(|one| one.psn == header.psn) else {
                    return Verdict::Dropped;
                };
                let original = replay.original;
                let acknowledgement = self.positive();
                self.responses
                    .answer_atomic(header.psn, acknowledgement, original);
            }
            _ => self.acknowledge(),
        }
        Verdict::Duplicate
    }

    fn end_of_message(&mut self) {
        self.partial = None;
        self.messages = (self.messages + 1) % PSN_COUNT;
    }

    /// Handles the loss of the memory of the READ that is being answered: the READ is refused, and the connection goes
    /// to the error state. A RECEIVE that was being filled is kept, to be flushed with the others. If the READ was
    /// already answered before, only the answer ends: the request may be a late copy from the network, and its memory
    /// was released since.
    pub fn fail_read(&mut self) {
        if let Some(psn) = self.responses.drop_read() {
            self.failed = true;
            let syndrome = Syndrome::Refused(Refusal::RemoteAccess);
            let acknowledgement = self.acknowledgement(syndrome);
            self.responses.acknowledge(psn, acknowledgement);
        }
    }

    /// Whether a request was refused; everything after it is dropped.
    pub fn is_failed(&self) -> bool {
        self.failed
    }
}
