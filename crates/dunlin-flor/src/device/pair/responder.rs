//! Work requests of the peer: accepted in any order, executed in sequence.

mod requests;

use std::sync::atomic::Ordering;

use dunlin_verbs::{
    Access, Completion, CompletionOpcode, CompletionStatus, Device, Operation, QueuePairState,
    Region, RemoteAddress, Work,
};

use super::{Cause, Content, Engine, Shared, RUN_AHEAD, RUN_AHEAD_BYTES};
use crate::device::frame::{Frame, Kind, Tag, FRAME_BYTES, MAX_SHORT_BYTES};
use crate::device::region::Found;
use crate::device::work::Receive;
use crate::logical::{Landing, Source};
use requests::{Request, Requests};

/// Number of requests that are executed before others get their turn.
const REQUESTS_PER_STEP: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Responder<R: Region> {
    /// Number of the next request to be executed.
    next: u32,
    requests: Requests<R>,
    held_bytes: usize,
    /// The number of executed requests that was last reported to the peer.
    told: u32,
    /// Whether the peer waits for a report.
    owes: bool,
    /// When the first request, which waits for a RECEIVE, times out.
    gives_up_ns: Option<u64>,
    /// Whether execution has stopped.
    stopped: bool,
}

/// The peer's request is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation;

/// The outcome of a request.
enum Outcome {
    Done,
    /// It is not complete yet, or there is no space for its answer.
    NotYet,
    /// It needs a RECEIVE.
    NotReady,
    Refused(CompletionStatus),
}

impl<R: Region> Responder<R> {
    pub(super) fn new() -> Self {
        Self {
            next: 0,
            requests: Requests::new(),
            held_bytes: 0,
            told: 0,
            owes: false,
            gives_up_ns: None,
            stopped: false,
        }
    }

    pub(super) fn next(&self) -> u32 {
        self.next
    }

    pub(super) fn told(&mut self) {
        self.told = self.next;
        self.owes = false;
    }

    pub(super) fn owes_word(&self) -> bool {
        self.owes && self.told != self.next
    }

    /// Whether a request is waiting for something.
    pub(super) fn is_blocked(&self) -> bool {
        !self.requests.is_empty()
    }

    pub(super) fn gives_up_ns(&self) -> Option<u64> {
        self.gives_up_ns
    }

    /// Stops the execution of requests.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
        self.requests.clear();
        self.held_bytes = 0;
        self.gives_up_ns = None;
    }

    fn is_ahead(&self, sequence: u32) -> bool {
        sequence.wrapping_sub(self.next) < RUN_AHEAD
    }

    /// Accepts a request.
    pub(super) fn take(&mut self, frame: &Frame, message: Vec<u8>) -> Result<(), Violation> {
        let Kind::Request {
            operation,
            solicited,
            wants_done,
            long,
            not_ready_retries,
        } = frame.kind
        else {
            return Err(Violation);
        };
        if self.stopped {
            return Ok(());
        }
        let carried = message.len() - FRAME_BYTES;
        // A single request is never too much.
        let fits = self.held_bytes + carried <= RUN_AHEAD_BYTES + MAX_SHORT_BYTES;
        let known = self.requests.get(frame.sequence).is_some();
        if known || !fits || !self.is_ahead(frame.sequence) {
            return Err(Violation);
        }
        self.held_bytes += carried;
        self.requests.insert(
            frame.sequence,
            Request {
                operation,
                solicited,
                wants_done,
                long,
                not_ready_retries,
                bytes: frame.bytes as usize,
                message,
                landing: None,
            },
        );
        Ok(())
    }

    /// Whether a long payload belongs to a request: `Some(false)` if that request may still arrive.
    pub(super) fn wants(&self, sequence: u32, bytes: u32) -> Option<bool> {
        if self.stopped || !self.is_ahead(sequence) {
            return None;
        }
        match self.requests.get(sequence) {
            None => Some(false),
            Some(request) => {
                let fits = request.long && request.bytes == bytes as usize;
                (fits && request.landing.is_none()).then_some(true)
            }
        }
    }

    /// Handles a long payload; returns it if no request wants it.
    pub(super) fn landed(&mut self, sequence: u32, landing: Landing<R>) -> Option<Landing<R>> {
        let ahead = self.is_ahead(sequence);
        match self.requests.get_mut(sequence).filter(|_| ahead) {
            Some(request) if request.long && request.bytes == landing.len() => {
                request.landing.replace(landing)
            }
            _ => Some(landing),
        }
    }
}

impl<D: Device> Engine<D> {
    /// Executes the requests whose turn it is.
    pub(super) fn execute(&mut self, shared: &Shared<D>, now_ns: u64) {
        for _ in 0..REQUESTS_PER_STEP {
            let receives = matches!(
                shared.state(),
                QueuePairState::ReadyToReceive
                    | QueuePairState::ReadyToSend
                    | QueuePairState::SendQueueDrained
            );
            let sequence = self.responder.next;
            if !receives || self.responder.stopped {
                return;
            }
            let Some(mut request) = self.responder.requests.remove(sequence) else {
                return;
            };
            let outcome = self.carry_out(shared, now_ns, sequence, &mut request);
            match outcome {
                Outcome::Done => {
                    let responder = &mut self.responder;
                    responder.next = sequence.wrapping_add(1);
                    responder.owes |= request.wants_done;
                    responder.held_bytes -= request.message.len() - FRAME_BYTES;
                    responder.gives_up_ns = None;
                    if let (Some(landing), Some(link)) = (request.landing, &mut self.link) {
                        link.release(landing);
                    }
                }
                Outcome::NotYet => {
                    self.responder.requests.insert(sequence, request);
                    return;
                }
                Outcome::NotReady => {
                    let retries = request.not_ready_retries;
                    self.responder.requests.insert(sequence, request);
                    return self.not_ready(now_ns, sequence, retries);
                }
                Outcome::Refused(status) => return self.refuse(shared, now_ns, sequence, status),
            }
        }
    }

    /// Handles a first request that waits for a RECEIVE, for as many retries as the peer has specified.
    fn not_ready(&mut self, now_ns: u64, sequence: u32, retries: u8) {
        if retries >= 7 {
            return;
        }
        let wait_ns = self.attributes.receiver_not_ready_timer_ns;
        let wait_ns = wait_ns.saturating_mul(u64::from(retries) + 1);
        let until_ns = now_ns.saturating_add(wait_ns);
        let until_ns = *self.responder.gives_up_ns.get_or_insert(until_ns);
        if until_ns <= now_ns {
            let status = CompletionStatus::ReceiverNotReadyRetryExceeded;
            // Otherwise the peer would wait forever: it is told at the next poll.
            if self.send(now_ns, Kind::Failed { status }, sequence, 0, None) {
                self.responder.stop();
            }
        }
    }

    /// Refuses a request that the peer is not allowed to make: the peer is told, and this end goes to the error state.
    fn refuse(&mut self, shared: &Shared<D>, now_ns: u64, sequence: u32, status: CompletionStatus) {
        // Failing discards all messages that were submitted before.
        self.fail(shared, None, Cause::RefusedPeer);
        // If there is no memory for that, the peer learns later that this end is closed.
        self.told_closed = self.send(now_ns, Kind::Failed { status }, sequence, 0, None);
    }

    fn carry_out(
        &mut self,
        shared: &Shared<D>,
        now_ns: u64,
        sequence: u32,
        request: &mut Request<D::Region>,
    ) -> Outcome {
        if request.long && request.landing.is_none() {
            return Outcome::NotYet;
        }
        let bytes = request.bytes;
        match request.operation {
            Operation::Send { .. } => {
                let Some(receive) = shared.receives.pop() else {
                    return Outcome::NotReady;
                };
                if receive.bytes.len() < bytes {
                    received(shared, &receive, CompletionStatus::LocalLength, request);
                    return Outcome::Refused(CompletionStatus::RemoteInvalidRequest);
                }
                D::charge(Work::Copy(bytes));
                match &request.landing {
                    Some(landing) => {
                        let (region, offset) = landing.place();
                        receive.bytes.scatter_from(region, offset, bytes);
                    }
                    None => receive.bytes.scatter(&request.message[FRAME_BYTES..]),
                }
                received(shared, &receive, CompletionStatus::Success, request);
                Outcome::Done
            }
            Operation::Write { remote, immediate } => {
                let Some(target) = self.find(shared, remote, bytes, Access::REMOTE_WRITE) else {
                    return Outcome::Refused(CompletionStatus::RemoteAccess);
                };
                let receive = match immediate {
                    None => None,
                    Some(_) => match shared.receives.pop() {
                        None => return Outcome::NotReady,
                        receive => receive,
                    },
                };
                if let Some(Found { region, offset, .. }) = target {
                    D::charge(Work::Copy(bytes));
                    match &request.landing {
                        Some(landing) => {
                            let (source, at) = landing.place();
                            let memory = region.memory();
                            memory.copy_from(offset, source.memory(), at, bytes);
                        }
                        None => {
                            let payload = &request.message[FRAME_BYTES..];
                            region.memory().write_in_order(offset, payload);
                        }
                    }
                }
                if let Some(receive) = receive {
                    received(shared, &receive, CompletionStatus::Success, request);
                }
                Outcome::Done
            }
            Operation::Read { remote } => {
                let Some(source) = self.find(shared, remote, bytes, Access::REMOTE_READ) else {
                    return Outcome::Refused(CompletionStatus::RemoteAccess);
                };
                self.answer(now_ns, sequence, bytes, source)
            }
            Operation::CompareAndSwap {
                remote,
                compare,
                swap,
            } => self.atomic(shared, now_ns, sequence, remote, |word| {
                match word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(old) | Err(old) => old,
                }
            }),
            Operation::FetchAndAdd { remote, add } => {
                self.atomic(shared, now_ns, sequence, remote, |word| {
                    word.fetch_add(add, Ordering::SeqCst)
                })
            }
        }
    }

    /// Resolves the target of an access, if it is granted; the inner value is `None` for an access of no bytes, whose
    /// key is not checked.
    #[allow(clippy::type_complexity)]
    fn find(
        &self,
        shared: &Shared<D>,
        remote: RemoteAddress,
        bytes: usize,
        access: Access,
    ) -> Option<Option<Found<D::Region>>> {
        if !self.access.contains(access) {
            return None;
        }
        if bytes == 0 {
            return Some(None);
        }
        let regions = &self.place.regions;
        regions.find(remote, bytes, access, shared.domain).map(Some)
    }

    /// Answers a READ: a long answer is a separate message, sent directly from where the bytes are.
    fn answer(
        &mut self,
        now_ns: u64,
        sequence: u32,
        bytes: usize,
        source: Option<Found<D::Region>>,
    ) -> Outcome {
        if !self.has_room() {
            return Outcome::NotYet;
        }
        let long = bytes > MAX_SHORT_BYTES;
        let payload = match &source {
            _ if long => None,
            Some(found) => Some(Content::Region(&found.region, found.offset)),
            None => None,
        };
        // Before anything is sent, because there may be no memory for a copy.
        let mut long_source = None;
        if let Some(found) = source.as_ref().filter(|_| long) {
            let Some(from) = self.source(found, bytes) else {
                return Outcome::NotYet;
            };
            long_source = Some(from);
        }
        if !self.send(now_ns, Kind::Answer { long }, sequence, bytes, payload) {
            if let Some((slot, true)) = long_source {
                self.staging.give_back(slot);
            }
            return Outcome::NotYet;
        }
        if let Some((source, is_slot)) = long_source {
            self.send_long(now_ns, source, is_slot, Tag::Answer(sequence));
        }
        Outcome::Done
    }

    /// The source of a long answer, and whether that is a slot with a copy, which memory of another protection domain
    /// of the underlying device needs. `None`: there is no memory for it.
    fn source(
        &mut self,
        found: &Found<D::Region>,
        bytes: usize,
    ) -> Option<(Source<D::Region>, bool)> {
        if !found.adopted {
            let source = Source {
                region: found.region.clone(),
                offset: found.offset,
                bytes: bytes as u32,
            };
            return Some((source, false));
        }
        let place = &self.place;
        let slot = self.staging.take(&place.device, &place.domain, bytes);
        let slot = slot.ok()?;
        D::charge(Work::Copy(bytes));
        let (target, source) = (slot.region.memory(), found.region.memory());
        target.copy_from(slot.offset, source, found.offset, bytes);
        Some((slot, true))
    }

    fn atomic(
        &mut self,
        shared: &Shared<D>,
        now_ns: u64,
        sequence: u32,
        remote: RemoteAddress,
        change: impl FnOnce(&std::sync::atomic::AtomicU64) -> u64,
    ) -> Outcome {
        if !self.has_room() {
            return Outcome::NotYet;
        }
        let Some(Some(Found { region, offset, .. })) =
            self.find(shared, remote, 8, Access::REMOTE_ATOMIC)
        else {
            return Outcome::Refused(CompletionStatus::RemoteAccess);
        };
        if offset % 8 != 0 {
            return Outcome::Refused(CompletionStatus::RemoteInvalidRequest);
        }
        let old = change(region.memory().atomic_u64(offset)).to_ne_bytes();
        let kind = Kind::Answer { long: false };
        if !self.send(now_ns, kind, sequence, 8, Some(Content::Word(old))) {
            // It has been executed, and cannot be again.
            return Outcome::Refused(CompletionStatus::RemoteOperation);
        }
        Outcome::Done
    }
}

/// Completes a RECEIVE.
fn received<D: Device>(
    shared: &Shared<D>,
    receive: &Receive<D::Region>,
    status: CompletionStatus,
    request: &Request<D::Region>,
) {
    let (opcode, immediate) = match request.operation {
        Operation::Write { immediate, .. } => {
            (CompletionOpcode::ReceiveWriteWithImmediate, immediate)
        }
        Operation::Send { immediate } => (CompletionOpcode::Receive, immediate),
        _ => return,
    };
    let completion = Completion {
        id: receive.id,
        status,
        opcode,
        bytes: request.bytes,
        immediate,
        queue_pair: shared.number,
        ..Completion::EMPTY
    };
    let completions = &shared.receive_completions;
    completions.push(completion, request.solicited, None);
}
