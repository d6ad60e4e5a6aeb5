//! Messages to a connected peer: SEND, and WRITE with immediate data.

use dunlin_verbs::{Access, CompletionStatus, RemoteAddress, SendFlags, Transport};

use super::one_sided::place_on;
use super::{unreliable_or, Executor, Reason, Step};
use crate::port::{Nonsense, Outbound, Record, RecordKind};
use crate::queue_pair::notices::Notices;
use crate::queue_pair::shared::Shared;
use crate::queue_pair::work::Work;

/// Minimum size of a piece of a message that is sent in several, or half the ring if that is less.
const PIECE_BYTES_MIN: u64 = 4096;
/// Maximum size of a piece, or an eighth of the ring if that is less: the receiver copies one piece while the sender
/// copies the next, and a piece is still in the cache through which it was written.
const PIECE_BYTES_MAX: u64 = 32 << 10;

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
            first: true,
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
                    return Ok(wait_for_room(outbound, &mut self.notices));
                }
                let record = Record {
                    kind: RecordKind::TooLong,
                    bytes: 0,
                    ..record
                };
                let waker = outbound.publish(record, |_| {});
                self.notices.wake(waker);
                return Ok(Step::Fail(CompletionStatus::RemoteInvalidRequest));
            }
        }
        loop {
            let ring = u64::from(outbound.port.geometry().data_bytes);
            let least = PIECE_BYTES_MIN.min(ring / 2);
            let most = PIECE_BYTES_MAX.min(ring / 8).max(least);
            let left = work.length - self.crossed;
            let wanted = most.min(left as u64);
            let room = match outbound.room(wanted)? {
                Some(room) if room >= least.min(wanted) => room,
                _ => return Ok(wait_for_room(outbound, &mut self.notices)),
            };
            let bytes = room.min(wanted) as usize;
            let fits = bytes == left;
            let crossed = self.crossed;
            let record = Record {
                first: crossed == 0,
                more: !fits,
                bytes: bytes as u32,
                ..record
            };
            let waker = outbound.publish(record, |pieces| work.source.gather(crossed, pieces));
            self.notices.wake(waker);
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
            return Ok(wait_for_room(outbound, &mut self.notices));
        }
        place_on(pair, work.source, target);
        let record = Record {
            kind: RecordKind::WriteImmediate,
            bytes: 0,
            ..Record::send(work, Some(immediate))
        };
        let waker = outbound.publish(record, |_| {});
        self.notices.wake(waker);
        Ok(Step::Done(work.length))
    }
}

#[cold]
fn wait_for_room(outbound: &Outbound, notices: &mut Notices) -> Step {
    notices.wake(outbound.waker_for_room());
    Step::Wait(Reason::Room)
}
