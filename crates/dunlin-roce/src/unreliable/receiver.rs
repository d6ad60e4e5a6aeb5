//! The receiving end of UC: executes messages that arrive completely and in order, and drops all others.

use dunlin_verbs::Access;

use crate::packet::{Header, Operation, Psn, RemoteRange, MAX_PAYLOAD_BYTES, MIN_MTU_BYTES};
use crate::reliable::{Delivered, Target, MAX_MESSAGE_BYTES};

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was executed.
    Taken,
    /// A packet of its message is missing.
    Gap,
    /// There is no RECEIVE for it.
    NoReceive,
    /// The key does not grant it, or it is malformed.
    Refused,
}

/// A message of which some packets have arrived.
#[derive(Clone, Copy, Debug)]
enum Partial {
    Send { received: u32, capacity: u64 },
    Write { target: RemoteRange, received: u32 },
}

/// See the module.
#[derive(Debug)]
pub struct Receiver {
    expected: Psn,
    mtu_bytes: usize,
    partial: Option<Partial>,
}

impl Receiver {
    /// Creates a receiver that expects the sequence number `first`.
    pub fn new(first: Psn, mtu_bytes: u32) -> Self {
        Self {
            expected: first,
            mtu_bytes: mtu_bytes.clamp(MIN_MTU_BYTES, MAX_PAYLOAD_BYTES) as usize,
            partial: None,
        }
    }

    /// Handles a packet. A RECEIVE that was taken for a message that did not arrive completely remains the current one,
    /// for the next message.
    pub fn handle(&mut self, header: &Header, payload: &[u8], target: &mut impl Target) -> Verdict {
        let in_order = header.psn == self.expected;
        self.expected = header.psn.plus(1);
        let begins = matches!(
            header.operation,
            Operation::SendFirst
                | Operation::SendOnly { .. }
                | Operation::WriteFirst { .. }
                | Operation::WriteOnly { .. }
        );
        if begins || !in_order {
            self.partial = None;
        }
        if !begins && self.partial.is_none() {
            return Verdict::Gap;
        }
        let verdict = self.carry_out(header, payload, target);
        if verdict != Verdict::Taken {
            self.partial = None;
        }
        verdict
    }

    fn carry_out(&mut self, header: &Header, payload: &[u8], target: &mut impl Target) -> Verdict {
        if payload.len() > self.mtu_bytes {
            return Verdict::Refused;
        }
        let whole = payload.len() == self.mtu_bytes;
        match header.operation {
            Operation::SendFirst if whole => match target.take_receive() {
                None => Verdict::NoReceive,
                Some(capacity) => self.receive(0, capacity, payload, target),
            },
            Operation::SendMiddle if whole => match self.partial {
                Some(Partial::Send { received, capacity }) => {
                    self.receive(received, capacity, payload, target)
                }
                _ => Verdict::Refused,
            },
            Operation::SendOnly { immediate } => match target.take_receive() {
                None => Verdict::NoReceive,
                Some(capacity) => self.finish_send(0, capacity, payload, immediate, header, target),
            },
            Operation::SendLast { immediate } => match self.partial {
                Some(Partial::Send { received, capacity }) if !payload.is_empty() => {
                    self.finish_send(received, capacity, payload, immediate, header, target)
                }
                _ => Verdict::Refused,
            },
            Operation::WriteFirst { target: range } if whole => {
                self.write(range, 0, payload, target)
            }
            Operation::WriteMiddle if whole => match self.partial {
                Some(Partial::Write {
                    target: range,
                    received,
                }) => self.write(range, received, payload, target),
                _ => Verdict::Refused,
            },
            Operation::WriteOnly {
                target: range,
                immediate,
            } => self.finish_write(range, 0, payload, immediate, header, target),
            Operation::WriteLast { immediate } => match self.partial {
                Some(Partial::Write {
                    target: range,
                    received,
                }) if !payload.is_empty() => {
                    self.finish_write(range, received, payload, immediate, header, target)
                }
                _ => Verdict::Refused,
            },
            _ => Verdict::Refused,
        }
    }

    /// Writes payload of a SEND that continues into its RECEIVE.
    fn receive(
        &mut self,
        received: u32,
        capacity: u64,
        payload: &[u8],
        target: &mut impl Target,
    ) -> Verdict {
        let end = u64::from(received) + payload.len() as u64;
        if end > capacity.min(MAX_MESSAGE_BYTES.into())
            || target.fill_receive(received, payload).is_err()
        {
            return Verdict::Refused;
        }
        self.partial = Some(Partial::Send {
            received: end as u32,
            capacity,
        });
        Verdict::Taken
    }

    fn finish_send(
        &mut self,
        received: u32,
        capacity: u64,
        payload: &[u8],
        immediate: Option<u32>,
        header: &Header,
        target: &mut impl Target,
    ) -> Verdict {
        let verdict = self.receive(received, capacity, payload, target);
        if verdict == Verdict::Taken {
            self.partial = None;
            target.deliver(Delivered {
                bytes: received + payload.len() as u32,
                immediate,
                write: false,
                solicited: header.solicited,
            });
        }
        verdict
    }

    /// Writes payload of a WRITE that continues after it.
    fn write(
        &mut self,
        range: RemoteRange,
        received: u32,
        payload: &[u8],
        target: &mut impl Target,
    ) -> Verdict {
        let end = u64::from(received) + payload.len() as u64;
        // Checks the whole range before the first byte.
        let granted = received > 0 || target.check(&range, Access::REMOTE_WRITE).is_ok();
        let address = range.address.wrapping_add(received.into());
        if end >= range.bytes.into()
            || !granted
            || target.write(address, range.key, payload).is_err()
        {
            return Verdict::Refused;
        }
        self.partial = Some(Partial::Write {
            target: range,
            received: end as u32,
        });
        Verdict::Taken
    }

    fn finish_write(
        &mut self,
        range: RemoteRange,
        received: u32,
        payload: &[u8],
        immediate: Option<u32>,
        header: &Header,
        target: &mut impl Target,
    ) -> Verdict {
        if u64::from(received) + payload.len() as u64 != u64::from(range.bytes) {
            return Verdict::Refused;
        }
        let address = range.address.wrapping_add(received.into());
        if !payload.is_empty() && target.write(address, range.key, payload).is_err() {
            return Verdict::Refused;
        }
        self.partial = None;
        if immediate.is_some() {
            // The bytes are written whether or not there is a RECEIVE; only the immediate data are lost without one.
            if target.take_receive().is_none() {
                return Verdict::NoReceive;
            }
            target.deliver(Delivered {
                bytes: range.bytes,
                immediate,
                write: true,
                solicited: header.solicited,
            });
        }
        Verdict::Taken
    }
}
