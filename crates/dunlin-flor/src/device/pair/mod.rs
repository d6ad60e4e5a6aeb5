//! A logical queue pair: work requests of this side and of the peer, as messages of a logical connection.
//!
//! A request is a frame (`frame.rs`) followed by its payload; payloads of more than [`MAX_SHORT_BYTES`] are separate
//! messages, which the logical connection writes. The peer executes requests in the order of their sequence numbers,
//! whatever order they arrive in, and reports how far it has got, which serves as RC's acknowledgement. Nothing here
//! blocks.

mod cause;
mod ending;
mod granting;
mod requester;
mod responder;
mod shared;
mod silence;

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_verbs::{
    Access, CompletionStatus, ConnectAttributes, Device, EndpointAddress, QueuePairState,
    VerbsError, Work,
};

use super::config::FlorConfig;
use super::frame::{Frame, Kind, Tag, FRAME_BYTES, MAX_SHORT_BYTES};
use super::region::RegionTable;
use super::staging::Staging;
use super::work::Bytes;
use crate::ledger::Ledger;
use crate::logical::{LinkError, LinkEvent, LogicalConnection, Source};
use requester::Requester;
use responder::Responder;

pub(crate) use cause::Cause;
pub(crate) use requester::Posted;
pub(crate) use shared::{Parts, Shared};

/// Maximum number of requests sent before the peer has reported that they are done; it keeps those that arrive early.
const RUN_AHEAD: u32 = 256;
/// Maximum number of bytes of short payloads among them.
const RUN_AHEAD_BYTES: usize = 1 << 20;
/// Number of events of the connection that are handled before others get their turn.
const EVENTS_PER_STEP: usize = 256;
/// Minimum silence after which a peer is considered gone: a thread may be off its core meanwhile.
const LEAST_SILENCE_NS: u64 = 2_000_000_000;

/// A message that the peer wants to write.
#[derive(Clone, Copy, Debug)]
struct Announced {
    message: u32,
    bytes: u32,
    tag: u32,
}

/// A message of this side that is in flight.
#[derive(Debug)]
struct Held<R: dunlin_verbs::Region> {
    /// The memory that it is sent from, if that is a slot.
    slot: Option<Source<R>>,
    /// Whether it belongs to a request of this side.
    of_request: bool,
}

/// What a queue pair uses of its device.
#[derive(Debug)]
pub(crate) struct Place<D: Device> {
    pub(crate) device: D,
    pub(crate) domain: D::ProtectionDomain,
    pub(crate) regions: Arc<RegionTable<D::Region>>,
    pub(crate) config: Arc<FlorConfig>,
    pub(crate) channel: D::CompletionChannel,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Engine<D: Device> {
    place: Place<D>,
    pub(crate) access: Access,
    attributes: ConnectAttributes,
    link: Option<LogicalConnection<D>>,
    connected: bool,
    staging: Staging<D>,
    held: Ledger<Held<D::Region>>,
    requester: Requester<D::Region>,
    responder: Responder<D::Region>,
    announced: VecDeque<Announced>,
    /// Set in the error state: the status with which the first request ends, once all may end.
    first_end: Option<CompletionStatus>,
    /// The peer executes nothing more.
    peer_closed: bool,
    /// The peer knows that this side executes nothing more.
    told_closed: bool,
    /// Since when nothing has arrived from a peer that owes a message.
    silent_since_ns: u64,
    probed_ns: u64,
    watched_ns: u64,
}

impl<D: Device> Engine<D> {
    pub(crate) fn new(place: Place<D>) -> Self {
        Self {
            place,
            access: Access::empty(),
            attributes: ConnectAttributes::default(),
            link: None,
            connected: false,
            staging: Staging::new(),
            held: Ledger::new(),
            requester: Requester::new(),
            responder: Responder::new(),
            announced: VecDeque::new(),
            first_end: None,
            peer_closed: false,
            told_closed: false,
            silent_since_ns: 0,
            probed_ns: 0,
            watched_ns: 0,
        }
    }

    /// Creates the connection, which then has an address.
    pub(crate) fn open(&mut self) -> Result<(), VerbsError> {
        if self.link.is_some() {
            return Ok(());
        }
        let config = &self.place.config;
        let modules = config.modules().map_err(refused)?;
        let link = LogicalConnection::in_domain(
            self.place.device.clone(),
            self.place.domain.clone(),
            config.link.clone(),
            modules,
            Some(&self.place.channel),
        );
        self.link = Some(link.map_err(refused)?);
        Ok(())
    }

    /// The address of the primary queue pair.
    pub(crate) fn address(&self) -> Option<EndpointAddress> {
        self.link.as_ref().map(LogicalConnection::address)
    }

    pub(crate) fn connect(
        &mut self,
        peer: &EndpointAddress,
        attributes: ConnectAttributes,
    ) -> Result<(), VerbsError> {
        if let Some(link) = &mut self.link {
            if attributes.traffic_class != 0 {
                link.set_traffic_class(attributes.traffic_class);
            }
            let ConnectAttributes {
                timeout_ns,
                retry_count,
                ..
            } = attributes;
            link.connect(peer, timeout_ns, retry_count)
                .map_err(refused)?;
            self.connected = true;
            self.attributes = attributes;
        }
        Ok(())
    }

    /// Counters of the connection, for diagnosis and tests.
    pub(crate) fn counters(&self) -> crate::connection::Counters {
        let link = self.link.as_ref();
        link.map(|link| link.connection().counters())
            .unwrap_or_default()
    }

    /// Fails the queue pair in use, as its device might.
    pub(crate) fn fail_primary(&mut self) {
        if let Some(link) = &mut self.link {
            let primary = link.connection().primary();
            link.fail_path(primary);
        }
    }

    /// Returns to the initial state: nothing is left of the connection, and no completions are generated.
    pub(crate) fn reset(&mut self, now_ns: u64) {
        self.say_closed(now_ns);
        self.link = None;
        self.connected = false;
        self.staging = Staging::new();
        self.held = Ledger::new();
        self.requester = Requester::new();
        self.responder = Responder::new();
        self.announced.clear();
        self.first_end = None;
        self.peer_closed = false;
        self.told_closed = false;
    }

    /// Whether requests of the peer are waiting.
    pub(crate) fn is_blocked(&self) -> bool {
        self.responder.is_blocked()
    }

    pub(crate) fn request_notify(&mut self) {
        if let Some(link) = self.link.as_mut().filter(|_| self.connected) {
            // The connection was created with a channel.
            let _ = link.request_notify();
        }
    }

    /// Handles arrivals and does what can be done. Returns whether there was anything that others may be waiting for.
    pub(crate) fn step(&mut self, shared: &Shared<D>, now_ns: u64) -> bool {
        if !self.connected {
            return false;
        }
        let state = shared.state();
        let mut handled = 0;
        while handled < EVENTS_PER_STEP {
            let Some(link) = &mut self.link else {
                return false;
            };
            match link.poll(now_ns) {
                Ok(Some(event)) => self.handle(shared, event),
                Ok(None) => break,
                // Nothing can continue without the device.
                Err(error) => {
                    self.lose(shared, Cause::Device(error.to_string()));
                    return true;
                }
            }
            handled += 1;
        }
        self.work(shared, now_ns);
        handled > 0 || shared.state() != state
    }

    /// Does what can be done without polling the device.
    pub(crate) fn work(&mut self, shared: &Shared<D>, now_ns: u64) {
        if shared.is_overrun() {
            self.fail(shared, None, Cause::Overrun);
        }
        if !self.connected {
            return;
        }
        self.grant();
        self.execute(shared, now_ns);
        if self.peer_closed {
            // What is still waiting was given up.
            self.responder.stop();
        }
        self.transmit(shared, now_ns);
        if self.responder.owes_word() && self.has_room() {
            self.send(now_ns, Kind::Done, 0, 0, None);
        }
        self.flush(now_ns);
        self.watch(shared, now_ns);
        if shared.state() == QueuePairState::Error {
            self.end_requests(shared);
            // Whatever failed here, the link is still alive and answers the peer, which would wait forever.
            if !self.peer_closed {
                self.say_closed(now_ns);
            }
        }
    }

    fn flush(&mut self, now_ns: u64) {
        if let Some(link) = &mut self.link {
            // A failure is reported by the next poll.
            let _ = link.flush(now_ns);
        }
    }

    fn handle(&mut self, shared: &Shared<D>, event: LinkEvent<D>) {
        match event {
            LinkEvent::Message(message) => self.frame(shared, message),
            LinkEvent::Announced {
                message,
                bytes,
                tag,
            } => self.announced.push_back(Announced {
                message,
                bytes,
                tag,
            }),
            LinkEvent::Landed { tag, landing } => {
                self.landed(tag, landing);
                self.settle(shared);
            }
            LinkEvent::Finished(id, _) => {
                if let Some(slot) = self.held.remove(id.0).and_then(|held| held.slot) {
                    self.staging.give_back(slot);
                }
            }
            LinkEvent::Lost => {
                let link = self.link.as_ref();
                let by = link.and_then(|link| link.connection().lost_by());
                self.lose(shared, by.map_or(Cause::Ended, Cause::Lost));
            }
        }
    }

    fn frame(&mut self, shared: &Shared<D>, message: Vec<u8>) {
        let Ok((frame, _)) = Frame::decode(&message) else {
            return self.violated(shared);
        };
        // Requests arrive in any order, so one may carry a count older than the known one.
        if self.requester.advance(frame.done).is_err() {
            return self.violated(shared);
        }
        let sequence = frame.sequence;
        match frame.kind {
            Kind::Request { .. } => {
                let alive = shared.state() != QueuePairState::Error;
                if alive && self.responder.take(&frame, message).is_err() {
                    return self.violated(shared);
                }
            }
            Kind::Answer { long } => {
                let payload = &message[FRAME_BYTES..];
                D::charge(Work::Copy(payload.len()));
                let payload = (!long).then_some(payload);
                if self.requester.answered(sequence, payload).is_err() {
                    return self.violated(shared);
                }
            }
            Kind::Failed { status } => {
                if self.requester.refused(sequence, status).is_err() {
                    return self.violated(shared);
                }
            }
            Kind::Done => {}
            Kind::Closed => self.peer_closed = true,
        }
        self.settle(shared);
    }

    /// Ends requests whose outcome is known.
    fn settle(&mut self, shared: &Shared<D>) {
        self.requester.complete(shared);
        if let Some(status) = self.requester.refusal() {
            // The peer's end is in error, too.
            self.told_closed = true;
            self.fail(shared, Some(status), Cause::Refused);
        }
    }

    /// Handles a long payload that has arrived.
    fn landed(&mut self, tag: u32, landing: crate::logical::Landing<D::Region>) {
        let landing = match Tag::decode(tag, self.responder.next()) {
            Some(Tag::Request(sequence)) => self.responder.landed(sequence, landing),
            Some(Tag::Answer(_)) => {
                if let Some(Tag::Answer(sequence)) = Tag::decode(tag, self.requester.first()) {
                    D::charge(Work::Copy(landing.len()));
                    self.requester.landed(sequence, &landing);
                }
                Some(landing)
            }
            None => Some(landing),
        };
        if let (Some(landing), Some(link)) = (landing, &mut self.link) {
            link.release(landing);
        }
    }

    /// Sends a frame, followed by its payload if there is one. The caller has checked that it fits. Returns `false` if
    /// there was no memory.
    fn send(
        &mut self,
        now_ns: u64,
        kind: Kind,
        sequence: u32,
        bytes: usize,
        payload: Option<Content<'_, D::Region>>,
    ) -> bool {
        let Some(link) = &mut self.link else {
            return false;
        };
        let behind = if payload.is_some() { bytes } else { 0 };
        let Place { device, domain, .. } = &self.place;
        let Ok(slot) = self.staging.take(device, domain, FRAME_BYTES + behind) else {
            return false;
        };
        let frame = Frame {
            kind,
            sequence,
            done: self.responder.next(),
            bytes: bytes as u32,
        };
        let memory = dunlin_verbs::Region::memory(&slot.region);
        memory.write(slot.offset, &frame.encode());
        if behind > 0 {
            D::charge(Work::Copy(behind));
        }
        match payload {
            None => {}
            Some(Content::Bytes(bytes)) => bytes.gather(&slot.region, slot.offset + FRAME_BYTES),
            Some(Content::Word(word)) => memory.write(slot.offset + FRAME_BYTES, &word),
            Some(Content::Region(source, offset)) => {
                let target = slot.offset + FRAME_BYTES;
                memory.copy_from(target, source.memory(), offset, bytes);
            }
        }
        match link.submit(now_ns, slot.clone()) {
            Ok(id) => {
                let place = self.held.push(Held {
                    slot: Some(slot),
                    of_request: matches!(kind, Kind::Request { .. }),
                });
                debug_assert_eq!(place, id.0);
                self.responder.told();
                true
            }
            Err(_) => {
                self.staging.give_back(slot);
                false
            }
        }
    }

    /// Sends a long payload, from its place or from a slot.
    fn send_long(&mut self, now_ns: u64, source: Source<D::Region>, slot: bool, tag: Tag) {
        let Some(link) = &mut self.link else {
            return;
        };
        let held = Held {
            slot: slot.then(|| source.clone()),
            of_request: matches!(tag, Tag::Request(_)),
        };
        // A connection that accepts nothing more reports that at the next poll.
        if let Ok(id) = link.submit_tagged(now_ns, source, tag.encode()) {
            let place = self.held.push(held);
            debug_assert_eq!(place, id.0);
        }
    }
}

/// Location of a short payload.
pub(super) enum Content<'a, R> {
    Bytes(&'a Bytes<R>),
    Word([u8; 8]),
    Region(&'a R, usize),
}

fn refused(error: impl Into<LinkError>) -> VerbsError {
    match error.into() {
        LinkError::Verbs(error) => error,
        other => VerbsError::Invalid {
            argument: "logical connection",
            why: other.to_string(),
        },
    }
}

use dunlin_verbs::Region as _;
const _: () = assert!(FRAME_BYTES + MAX_SHORT_BYTES == crate::wire::MAX_SEND_BYTES as usize);
