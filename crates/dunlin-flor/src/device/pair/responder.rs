//! Work requests of the peer: taken in any order, carried out in theirs.

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

/// Requests that are carried out before others have their turn.
const REQUESTS_PER_STEP: usize = 256;

/// See the module.
#[derive(Debug)]
pub(super) struct Responder<R: Region> {
    /// Number of the request that is carried out next.
    next: u32,
    requests: Requests<R>,
    held_bytes: usize,
    /// What the peer was told last.
    told: u32,
    /// It waits to hear more.
    owes: bool,
    /// When the first request ends that waits for a RECEIVE.
    gives_up_ns: Option<u64>,
    /// Nothing more is carried out.
    stopped: bool,
}

/// The peer asks for what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Violation;

/// What became of a request.
enum Outcome {
    Done,
    /// It is not whole yet, or there is no room for its answer.
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

    /// Whether a request waits for something.
    pub(super) fn is_blocked(&self) -> bool {
        !self.requests.is_empty()
    }

    pub(super) fn gives_up_ns(&self) -> Option<u64> {
        self.gives_up_ns
    }

    /// Nothing more is carried out.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
        self.requests.clear();
        self.held_bytes = 0;
        self.gives_up_ns = None;
    }

    fn is_ahead(&self, sequence: u32) -> bool {
        sequence.wrapping_sub(self.next) < RUN_AHEAD
    }

    /// A request has come.
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
        // One alone is never too much.
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

    /// Whether a long payload belongs to a request: `Some(false)` when that may still come.
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

    /// A long payload is there; given back when nobody wants it.
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
    /// Carries out what has its turn.
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

    /// The first request waits for a RECEIVE; the peer says for how many offers.
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
            // Else the peer would wait for ever: it is told with another look.
            if self.send(now_ns, Kind::Failed { status }, sequence, 0, None) {
                self.responder.stop();
            }
        }
    }

    /// The peer has asked for what it may not: it hears so, and this end is in error.
    fn refuse(&mut self, shared: &Shared<D>, now_ns: u64, sequence: u32, status: CompletionStatus) {
        // With a failure go all messages that were submitted before.
        self.fail(shared, None, Cause::RefusedPeer);
        // Where there is no memory for that, it hears later that this end is closed.
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

    /// Where an access goes, if it is granted; inside `None` when it is for no bytes, whose key nobody looks at.
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

    /// Answers a READ: a long one with a message of its own, from where the bytes are.
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
        // Before anything is said: there may be no memory for a copy.
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

    /// Where a long answer is sent from, and whether that is a slot with a copy: of memory of another protection domain
    /// below. `None`: there is no memory for it.
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
            // It was carried out, and cannot be again.
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
