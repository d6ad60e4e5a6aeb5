//! Packets from the responder: acknowledgements, refusals and answers.

use dunlin_verbs::CompletionStatus;

use super::super::request::{Finished, ReadPlacement, Request, Verb};
use super::{Entry, Requester};
use crate::packet::{timer, Acknowledgement, Header, Operation, Refusal, Syndrome};

impl Requester {
    /// Handles a packet of the peer's responder. `payload_bytes` is the length of a READ's answer. Unexpected packets
    /// are ignored.
    pub fn handle(
        &mut self,
        now_ns: u64,
        header: &Header,
        payload_bytes: usize,
    ) -> Option<ReadPlacement> {
        let acknowledged = self.config.first_psn.plus(self.acknowledged as u32);
        let distance = i64::from(header.psn.distance_from(acknowledged));
        let sequence = self.acknowledged.checked_add_signed(distance)?;
        if self.failed || sequence >= self.sent || header.operation.contradicts_itself() {
            return None;
        }
        match header.operation {
            Operation::Acknowledge { acknowledgement } => {
                self.handle_acknowledgement(now_ns, sequence, &acknowledgement);
                None
            }
            Operation::AtomicAcknowledge { original, .. } => {
                let request = self.answered_request(now_ns, sequence)?;
                let atomic = matches!(
                    request.verb,
                    Verb::CompareAndSwap { .. } | Verb::FetchAdd { .. }
                );
                if !atomic {
                    return None;
                }
                self.advance(now_ns, sequence + 1);
                Some(ReadPlacement::Value {
                    id: request.id,
                    original,
                })
            }
            Operation::ReadResponseFirst { .. }
            | Operation::ReadResponseMiddle
            | Operation::ReadResponseLast { .. }
            | Operation::ReadResponseOnly { .. } => {
                let request = self.answered_request(now_ns, sequence)?;
                let offset = (sequence - self.queue.front()?.first) as u32 * self.config.mtu_bytes;
                let expected = (request.bytes - offset).min(self.config.mtu_bytes);
                if !matches!(request.verb, Verb::Read { .. }) || payload_bytes != expected as usize
                {
                    return None;
                }
                let goes_on = header.operation == Operation::ReadResponseMiddle;
                if goes_on && self.hasty.is_some() && self.inflight.has_end(sequence + 1) {
                    // The repeated piece ends here, so this belongs to the longer one before.
                    self.take_timeout_back();
                }
                self.advance(now_ns, sequence + 1);
                Some(ReadPlacement::Bytes {
                    id: request.id,
                    offset,
                })
            }
            _ => None,
        }
    }

    /// Returns the READ or atomic that `sequence` answers, if that answer is due. It acknowledges what was posted
    /// before.
    pub(super) fn answered_request(&mut self, now_ns: u64, sequence: u64) -> Option<Request> {
        self.acknowledge(now_ns, sequence);
        let front = self.queue.front()?;
        (sequence == self.acknowledged && front.request.is_answered()).then_some(front.request)
    }

    pub(super) fn handle_acknowledgement(
        &mut self,
        now_ns: u64,
        sequence: u64,
        header: &Acknowledgement,
    ) {
        match header.syndrome {
            Syndrome::Acknowledged(_) => self.acknowledge(now_ns, sequence + 1),
            Syndrome::ReceiverNotReady(code) => {
                self.acknowledge(now_ns, sequence);
                if sequence != self.acknowledged || self.not_ready_until_ns.is_some() {
                    return;
                }
                if self.not_ready_retries == 0 {
                    self.fail(CompletionStatus::ReceiverNotReadyRetryExceeded);
                    return;
                }
                if self.config.receiver_not_ready_retries < 7 {
                    self.not_ready_retries -= 1;
                }
                let until_ns = now_ns.saturating_add(timer::receiver_not_ready_ns(code));
                self.not_ready_until_ns = Some(until_ns);
                (self.progress_ns, self.retry_ns) = (until_ns, until_ns);
                self.go_back();
            }
            Syndrome::Refused(Refusal::SequenceError) => {
                self.acknowledge(now_ns, sequence);
                if sequence == self.acknowledged {
                    self.go_back_early();
                }
            }
            Syndrome::Refused(refusal) => {
                self.acknowledge(now_ns, sequence);
                if sequence < self.acknowledged {
                    return;
                }
                let status = match refusal {
                    Refusal::InvalidRequest => CompletionStatus::RemoteInvalidRequest,
                    Refusal::RemoteAccess => CompletionStatus::RemoteAccess,
                    Refusal::RemoteOperation | Refusal::SequenceError => {
                        CompletionStatus::RemoteOperation
                    }
                };
                // READs before the refused request whose answers were lost will not be answered any more.
                while self
                    .queue
                    .front()
                    .is_some_and(|entry| entry.end() <= sequence)
                {
                    self.finish_front(CompletionStatus::Flushed);
                }
                self.fail(status);
            }
        }
    }

    /// Records that the peer has executed everything before `end`. A READ or atomic before it whose answer did not
    /// arrive is requested again.
    pub(super) fn acknowledge(&mut self, now_ns: u64, end: u64) {
        if end <= self.acknowledged {
            return;
        }
        let mut reached = self.queue.iter().take_while(|entry| entry.first < end);
        let first_answered = reached.find(|entry| entry.request.is_answered());
        let answered = first_answered.map_or(u64::MAX, |entry| entry.first);
        let reached = end.min(answered.max(self.acknowledged));
        if reached > self.acknowledged {
            self.advance(now_ns, reached);
        }
        if reached < end {
            self.go_back_early();
        }
    }

    /// Completes everything before `end`.
    pub(super) fn advance(&mut self, now_ns: u64, end: u64) {
        if end > self.next {
            self.take_timeout_back();
        }
        self.round_trip.acknowledged(now_ns, end);
        self.window.acknowledged(end - self.acknowledged);
        self.acknowledged = end;
        self.progress_ns = self.not_ready_until_ns.unwrap_or(0).max(now_ns);
        self.retry_ns = self.progress_ns;
        self.retries = self.config.retry_count;
        self.not_ready_retries = self.config.receiver_not_ready_retries;
        self.inflight.answered(end);
        while self.queue.front().is_some_and(|entry| entry.end() <= end) {
            self.finish_front(CompletionStatus::Success);
        }
        if self.next < end {
            // This end had gone back, but the peer had received more than it seemed.
            self.next = end;
            self.cursor = 0;
        }
    }

    /// Undoes the last timeout, if it was premature: everything before it is still in flight.
    pub(super) fn take_timeout_back(&mut self) {
        let Some(before) = self.hasty.take() else {
            return;
        };
        self.next = before.next;
        self.inflight = before.inflight;
        self.round_trip = before.round_trip;
        self.window = before.window;
        let reached = |entry: &Entry| entry.end() <= before.next;
        self.cursor = self.queue.iter().take_while(|entry| reached(entry)).count();
    }

    pub(super) fn finish_front(&mut self, status: CompletionStatus) {
        if let Some(entry) = self.queue.pop_front() {
            self.finished.push_back(Finished {
                id: entry.request.id,
                status,
            });
            self.cursor = self.cursor.saturating_sub(1);
        }
    }
}
