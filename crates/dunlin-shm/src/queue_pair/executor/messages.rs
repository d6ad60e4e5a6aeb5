//! Messages to a connected peer: SEND, and WRITE with immediate data.

use dunlin_verbs::{Access, CompletionStatus, RemoteAddress, SendFlags, Transport};

use super::one_sided::place;
use super::{unreliable_or, Executor, Reason, Step};
use crate::port::{Nonsense, Record, RecordKind};
use crate::queue_pair::shared::Shared;
use crate::queue_pair::work::Work;

/// Sends of more than the ring has room for go in pieces of at least this.
const PIECE_BYTES_MIN: u64 = 4096;

impl Record {
    /// The record of a whole SEND.
    #[inline(always)]
    pub(in crate::queue_pair) fn send(work: &Work<'_>, immediate: Option<u32>) -> Self {
        Self {
            kind: if immediate.is_some() {
                RecordKind::SendImmediate
            } else {
                RecordKind::Send
            },
            solicited: work.flags.contains(SendFlags::SOLICITED),
            more: false,
            bytes: work.length as u32,
            total: work.length as u32,
            immediate: immediate.unwrap_or(0),
        }
    }
}

impl Executor {
    pub(super) fn send(
        &mut self,
        pair: &Shared,
        work: &Work<'_>,
        immediate: Option<u32>,
    ) -> Result<Step, Nonsense> {
        let reliable = pair.transport == Transport::ReliableConnection;
        let Some(outbound) = self.outbound.as_mut() else {
            return Ok(Step::Wait(Reason::Peer));
        };
        let record = Record::send(work, immediate);
        if self.crossed == 0 {
            if !outbound.receiver_ready()? {
                return Ok(self.not_ready(work, reliable));
            }
            if work.length as u64 > outbound.receive_length() {
                if !reliable {
                    return Ok(Step::Done(work.length));
                }
                if outbound.room(0)?.is_none() {
                    return Ok(Step::Wait(Reason::Room));
                }
                let record = Record {
                    kind: RecordKind::TooLong,
                    bytes: 0,
                    ..record
                };
                outbound.publish(record, |_| {});
                return Ok(Step::Fail(CompletionStatus::RemoteInvalidRequest));
            }
        }
        loop {
            let left = work.length - self.crossed;
            let Some(room) = outbound.room(left as u64)? else {
                return Ok(Step::Wait(Reason::Room));
            };
            let fits = left as u64 <= room;
            if !fits
                && room < PIECE_BYTES_MIN.min(u64::from(outbound.port.geometry().data_bytes) / 2)
            {
                return Ok(Step::Wait(Reason::Room));
            }
            let bytes = if fits { left } else { room as usize };
            let crossed = self.crossed;
            let record = Record {
                more: !fits,
                bytes: bytes as u32,
                ..record
            };
            outbound.publish(record, |pieces| work.source.gather(crossed, pieces));
            self.crossed += bytes;
            if fits {
                self.crossed = 0;
                return Ok(Step::Done(work.length));
            }
        }
    }

    fn not_ready(&self, work: &Work<'_>, reliable: bool) -> Step {
        if !reliable {
            return Step::Done(work.length);
        }
        if self.attributes.receiver_not_ready_retries == 0 {
            return Step::Fail(CompletionStatus::ReceiverNotReadyRetryExceeded);
        }
        Step::Wait(Reason::Receiver)
    }

    pub(super) fn write_with_immediate(
        &mut self,
        pair: &Shared,
        work: &Work<'_>,
        remote: RemoteAddress,
        immediate: u32,
    ) -> Result<Step, Nonsense> {
        let reliable = pair.transport == Transport::ReliableConnection;
        let target = match self.find(pair, remote, work.length as u64, Access::REMOTE_WRITE) {
            Ok(target) => target,
            Err(Step::Fail(status)) => return Ok(unreliable_or(pair, work, status)),
            Err(step) => return Ok(step),
        };
        let Some(outbound) = self.outbound.as_mut() else {
            return Ok(Step::Wait(Reason::Peer));
        };
        if !outbound.receiver_ready()? {
            return Ok(self.not_ready(work, reliable));
        }
        if outbound.room(0)?.is_none() {
            return Ok(Step::Wait(Reason::Room));
        }
        place(work.source, target);
        let record = Record {
            kind: RecordKind::WriteImmediate,
            bytes: 0,
            ..Record::send(work, Some(immediate))
        };
        outbound.publish(record, |_| {});
        Ok(Step::Done(work.length))
    }
}
