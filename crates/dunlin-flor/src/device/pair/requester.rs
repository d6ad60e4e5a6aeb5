//! Work requests of this side: which are posted, sent and done, and their completions.

use std::collections::VecDeque;

use dunlin_verbs::{
    Completion, CompletionOpcode, CompletionStatus, Device, Operation, QueuePairState, Region,
};

use super::{Cause, Content, Engine, Shared, RUN_AHEAD, RUN_AHEAD_BYTES};
use crate::device::frame::{Kind, Tag, MAX_SHORT_BYTES};
use crate::device::work::Bytes;
use crate::logical::{Landing, Source};
use dunlin_verbs::software::Retirement;

/// Maximum number of READs and atomics without an answer.
const MAX_READS: usize = 16;
/// Of requests without a signal, one in this many asks to be told that it is done, so that the window moves on.
const WORD_EVERY: u32 = 32;

/// A posted request.
#[derive(Debug)]
pub(crate) struct Posted<R> {
    pub(crate) id: u64,
    pub(crate) operation: Operation,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fenced: bool,
    pub(crate) bytes: Bytes<R>,
    /// Its number among the posted requests, by which its entry is freed.
    pub(crate) entry: u32,
    pub(crate) answered: bool,
}

impl<R: Region> Posted<R> {
    fn wants_answer(&self) -> bool {
        matches!(
            self.operation,
            Operation::Read { .. }
                | Operation::CompareAndSwap { .. }
                | Operation::FetchAndAdd { .. }
        )
    }

    fn opcode(&self) -> CompletionOpcode {
        match self.operation {
            Operation::Send { .. } => CompletionOpcode::Send,
            Operation::Write { .. } => CompletionOpcode::Write,
            Operation::Read { .. } => CompletionOpcode::Read,
            Operation::CompareAndSwap { .. } => CompletionOpcode::CompareAndSwap,
            Operation::FetchAndAdd { .. } => CompletionOpcode::FetchAndAdd,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Requester<R> {
    /// Requests that are not complete, from number `first` on.
    queue: VecDeque<Posted<R>>,
    first: u32,
    /// Number of requests in the queue that were sent.
    sent: usize,
    /// Requests before this number are done at the peer.
    done: u32,
    /// Number of requests that were sent and still lack an answer.
    reads: usize,
    /// Bytes of short payloads that were sent and are not done.
    ahead_bytes: usize,
    /// Requests from this number on are counted in it.
    ahead_from: u32,
    /// The request that the peer has refused: it fails once all before it are complete.
    refused: Option<(u32, CompletionStatus)>,
}

/// The peer's message is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation;

impl<R: Region> Requester<R> {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            first: 0,
            sent: 0,
            done: 0,
            reads: 0,
            ahead_bytes: 0,
            ahead_from: 0,
            refused: None,
        }
    }

    pub(super) fn post(&mut self, posted: Posted<R>) {
        self.queue.push_back(posted);
    }

    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Whether something was sent whose outcome is not known.
    pub(super) fn waits(&self) -> bool {
        self.sent > 0
    }

    fn sent_end(&self) -> u32 {
        self.first.wrapping_add(self.sent as u32)
    }

    fn index(&self, sequence: u32) -> Option<usize> {
        let index = sequence.wrapping_sub(self.first) as usize;
        (index < self.sent).then_some(index)
    }

    /// Records that the peer has executed all requests before this number.
    pub(super) fn advance(&mut self, done: u32) -> Result<(), Violation> {
        if done.wrapping_sub(self.sent_end()) as i32 > 0 {
            return Err(Violation);
        }
        if done.wrapping_sub(self.done) as i32 <= 0 {
            return Ok(());
        }
        self.done = done;
        while self.ahead_from.wrapping_sub(done) as i32 != 0 {
            if let Some(index) = self.index(self.ahead_from) {
                self.ahead_bytes -= short_bytes(&self.queue[index]);
            }
            self.ahead_from = self.ahead_from.wrapping_add(1);
        }
        Ok(())
    }

    /// Records that the peer has refused a request, after executing those before it.
    pub(super) fn refused(
        &mut self,
        sequence: u32,
        status: CompletionStatus,
    ) -> Result<(), Violation> {
        self.advance(sequence)?;
        self.index(sequence).ok_or(Violation)?;
        self.refused.get_or_insert((sequence, status));
        Ok(())
    }

    /// The status with which the first request fails, if that is known.
    pub(super) fn refusal(&self) -> Option<CompletionStatus> {
        let (sequence, status) = self.refused?;
        (sequence == self.first).then_some(status)
    }

    /// Handles an answer; the payload is `None` if it is a separate message.
    pub(super) fn answered(
        &mut self,
        sequence: u32,
        payload: Option<&[u8]>,
    ) -> Result<(), Violation> {
        let Some(payload) = payload else {
            // Its payload message may have arrived first, followed by that of a later request that reported it as done:
            // then it is already complete.
            let is_sent = (sequence.wrapping_sub(self.sent_end()) as i32) < 0;
            return is_sent.then_some(()).ok_or(Violation);
        };
        let index = self.index(sequence).ok_or(Violation)?;
        let posted = &mut self.queue[index];
        let fits = payload.len() == posted.bytes.len();
        if posted.answered || !posted.wants_answer() || !fits {
            return Err(Violation);
        }
        posted.bytes.scatter(payload);
        posted.answered = true;
        self.reads -= 1;
        Ok(())
    }

    /// Whether a long answer of this length is expected.
    pub(super) fn wants(&self, sequence: u32, bytes: u32) -> bool {
        self.index(sequence).is_some_and(|index| {
            let posted = &self.queue[index];
            let is_read = matches!(posted.operation, Operation::Read { .. });
            is_read && !posted.answered && posted.bytes.len() == bytes as usize
        })
    }

    /// Handles a long answer.
    pub(super) fn landed(&mut self, sequence: u32, landing: &Landing<R>) {
        if !self.wants(sequence, landing.len() as u32) {
            return;
        }
        if let Some(index) = self.index(sequence) {
            let posted = &mut self.queue[index];
            let (region, offset) = landing.place();
            posted.bytes.scatter_from(region, offset, landing.len());
            posted.answered = true;
            self.reads -= 1;
        }
    }

    /// Completes requests that are done, in order.
    pub(super) fn complete<D: Device<Region = R>>(&mut self, shared: &Shared<D>) {
        while let Some(posted) = self.take_done() {
            if posted.signaled {
                report(shared, &posted, CompletionStatus::Success);
            }
        }
    }

    /// Removes the first request, if it is done.
    fn take_done(&mut self) -> Option<Posted<R>> {
        let answered = |posted: &Posted<R>| posted.answered || !posted.wants_answer();
        if self.first == self.done || !self.queue.front().is_some_and(answered) {
            return None;
        }
        self.first = self.first.wrapping_add(1);
        self.sent -= 1;
        self.queue.pop_front()
    }

    /// Ends all requests, the first with the given status.
    pub(super) fn flush<D: Device<Region = R>>(
        &mut self,
        shared: &Shared<D>,
        mut first: Option<CompletionStatus>,
    ) {
        for posted in self.queue.drain(..) {
            let status = first.take().unwrap_or(CompletionStatus::Flushed);
            report(shared, &posted, status);
            self.first = self.first.wrapping_add(1);
        }
        self.sent = 0;
        self.reads = 0;
        self.ahead_bytes = 0;
        self.done = self.first;
        self.ahead_from = self.first;
        self.refused = None;
    }
}

fn short_bytes<R: Region>(posted: &Posted<R>) -> usize {
    match posted.bytes.len() {
        _ if posted.wants_answer() => 0,
        length if length > MAX_SHORT_BYTES => 0,
        length => length,
    }
}

/// Adds a completion to the queue.
fn report<D: Device>(shared: &Shared<D>, posted: &Posted<D::Region>, status: CompletionStatus) {
    let bytes = match posted.operation {
        Operation::Send { .. } | Operation::Write { .. } => 0,
        _ => posted.bytes.len(),
    };
    let completion = Completion {
        id: posted.id,
        status,
        opcode: posted.opcode(),
        bytes,
        queue_pair: shared.number,
        ..Completion::EMPTY
    };
    let retirement = Retirement {
        retired: std::sync::Arc::clone(&shared.retired),
        until: posted.entry.wrapping_add(1),
    };
    shared
        .send_completions
        .push(completion, false, Some(retirement));
}

impl<D: Device> Engine<D> {
    pub(crate) fn post(&mut self, shared: &Shared<D>, posted: Posted<D::Region>) {
        self.requester.post(posted);
        if shared.state() == QueuePairState::Error {
            self.end_requests(shared);
        }
    }

    /// Sends the requests that may be sent.
    pub(super) fn transmit(&mut self, shared: &Shared<D>, now_ns: u64) {
        if self.peer_closed && !self.requester.queue.is_empty() {
            return self.fail(
                shared,
                Some(CompletionStatus::RetryExceeded),
                Cause::PeerClosed,
            );
        }
        while shared.state() == QueuePairState::ReadyToSend && self.has_room() {
            if !self.send_next(now_ns) {
                return;
            }
        }
    }

    /// Sends the next request; returns `false` if there is none, or it has to wait.
    fn send_next(&mut self, now_ns: u64) -> bool {
        let requester = &mut self.requester;
        let index = requester.sent;
        let Some(posted) = requester.queue.get(index) else {
            return false;
        };
        let sequence = requester.sent_end();
        let ahead = sequence.wrapping_sub(requester.done);
        let short = short_bytes(posted);
        let full = ahead >= RUN_AHEAD
            || ahead > 0 && requester.ahead_bytes + short > RUN_AHEAD_BYTES
            || posted.fenced && requester.reads > 0
            || posted.wants_answer() && requester.reads >= MAX_READS;
        if full {
            return false;
        }
        let length = posted.bytes.len();
        let carries = !posted.wants_answer();
        let long = carries && length > MAX_SHORT_BYTES;
        let kind = Kind::Request {
            operation: posted.operation,
            solicited: posted.solicited,
            wants_done: posted.signaled || long || sequence % WORD_EVERY == 0,
            long,
            not_ready_retries: self.attributes.receiver_not_ready_retries,
        };
        let wants_answer = posted.wants_answer();
        // The queue is not accessed meanwhile: its bytes are lent to the function that sends them.
        let queue = std::mem::take(&mut requester.queue);
        let bytes = &queue[index].bytes;
        let sent = if long {
            self.send_with_long(now_ns, kind, sequence, bytes)
        } else {
            let payload = carries.then_some(Content::Bytes(bytes));
            self.send(now_ns, kind, sequence, length, payload)
        };
        let requester = &mut self.requester;
        requester.queue = queue;
        if sent {
            requester.sent += 1;
            requester.ahead_bytes += short;
            requester.reads += usize::from(wants_answer);
        }
        sent
    }

    /// Sends a request and its long payload, directly from its place if it is one piece.
    fn send_with_long(
        &mut self,
        now_ns: u64,
        kind: Kind,
        sequence: u32,
        bytes: &Bytes<D::Region>,
    ) -> bool {
        let length = bytes.len();
        let (source, is_slot) = match bytes {
            Bytes::Piece(piece) => {
                let source = Source {
                    region: piece.region.clone(),
                    offset: piece.offset,
                    bytes: length as u32,
                };
                (source, false)
            }
            _ => {
                let place = &self.place;
                let slot = self.staging.take(&place.device, &place.domain, length);
                let Ok(source) = slot else {
                    return false;
                };
                bytes.gather(&source.region, source.offset);
                (source, true)
            }
        };
        let sent = self.send(now_ns, kind, sequence, length, None);
        if sent {
            self.send_long(now_ns, source, is_slot, Tag::Request(sequence));
        } else if is_slot {
            self.staging.give_back(source);
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_shm::ShmRegion;
    use dunlin_verbs::{RemoteAddress, RemoteKey};

    fn reading(count: u32, bytes: usize) -> Requester<ShmRegion> {
        let mut requester = Requester::new();
        for entry in 0..count {
            requester.post(Posted {
                id: entry.into(),
                operation: Operation::Read {
                    remote: RemoteAddress {
                        address: 0,
                        key: RemoteKey(0),
                    },
                },
                signaled: true,
                solicited: false,
                fenced: false,
                bytes: Bytes::Inline(vec![0; bytes].into()),
                entry,
                answered: false,
            });
            requester.sent += 1;
            requester.reads += 1;
        }
        requester
    }

    /// A network that loses frames delivers retransmissions when everything that they refer to may be over.
    #[test]
    fn the_frame_of_a_long_answer_may_come_after_its_request_is_complete() {
        let mut requester = reading(2, 8);
        // Payloads first, as separate messages bring them; then the frame of the second answer.
        requester.answered(0, Some(&[1; 8])).unwrap();
        requester.answered(1, Some(&[1; 8])).unwrap();
        requester.advance(1).unwrap();
        requester.answered(1, None).unwrap();
        assert_eq!(requester.take_done().map(|posted| posted.id), Some(0));
        assert!(requester.take_done().is_none());
        assert_eq!(requester.answered(0, None), Ok(()));
        // But not for a request that was not sent.
        assert_eq!(requester.answered(2, None), Err(Violation));
        assert_eq!(requester.answered(0, Some(&[1; 8])), Err(Violation));
    }
}
