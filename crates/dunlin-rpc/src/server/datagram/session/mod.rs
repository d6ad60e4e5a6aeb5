//! One client's session at a server: takes its datagrams ([`Session::take`]), runs handlers or hands requests to them
//! ([`executing`]), puts responses into packets ([`responding`]).
//!
//! A request is executed at most once: the slot and the generation of its call tell whether it was seen. A lost
//! response is not sent again; the client asks for the fate of its call, and is told ([`Fate`]). With eRPC's protocol
//! responses are kept, and sent again as often as the client asks ([`Answerer`]).

mod executing;
mod responding;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use dunlin_verbs::{Device, Work};

use super::outgoing::{OpenPacket, Outgoing, Target};
use crate::channel::call_id::{generation_of, slot_of};
use crate::channel::datagram::driven::server::{Answerer, Step};
use crate::channel::datagram::driven::PART_BYTES;
use crate::channel::datagram::fate::{self, Fate};
use crate::channel::datagram::packet::{Cursor, Head, Room};
use crate::channel::datagram::segments::{
    count_in, Arrived, Incoming, Transfer, SEGMENT_HEAD_BYTES,
};
use crate::channel::datagram::spare::Spare;
use crate::channel::datagram::{Endpoint, Greeting, Protocol};
use crate::channel::message::{Header, Kind};
use crate::channel::ChannelError;
use crate::memory::NoMemory;
use crate::server::away::Away;
use crate::server::caller::Caller;
use crate::server::connection::Context;
use crate::server::deadlines::Deadlines;

/// A slot for calls: the generation of its next call, and whether one is being executed.
#[derive(Clone, Copy, Debug)]
struct Slot {
    next: u32,
    working: bool,
    /// Whether the last call was not executed and will not be: the client was told so, although that message may be
    /// lost.
    given_up: bool,
    /// The generation of a call that its caller has given up before it arrived: while its segments were on their way,
    /// or because the cancellation overtook it.
    cancelled: Option<u32>,
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: u64,
    target: Target,
    /// Longest payload to the client in one datagram, and longest payload in all.
    capacity: usize,
    longest: usize,
    slots: Box<[Slot]>,
    open_packet: OpenPacket,
    /// Long responses; the first one is being sent.
    transfers: VecDeque<Transfer<Box<[u8]>>>,
    transfer: u32,
    transfer_bytes: usize,
    /// The long request that is arriving.
    incoming: Incoming,
    /// Replaces both, if the client drives the protocol.
    answerer: Option<Box<Answerer>>,
    /// Calls whose handlers run elsewhere.
    away: Away,
    deadlines: Deadlines,
    caller: Caller,
    /// Whether its first datagram was answered, which tells it that its RECEIVEs are posted.
    greeted: bool,
    /// Whether it was told that the server sleeps, and has sent nothing since.
    knows_of_sleep: bool,
    /// When it last sent something.
    pub(super) heard: Instant,
}

/// What a session works with.
pub(super) struct Tools<'a, D: Device> {
    pub(super) endpoint: &'a mut Endpoint<D>,
    pub(super) outgoing: &'a mut Outgoing,
    pub(super) context: &'a Context,
    pub(super) poller: usize,
    pub(super) draining: bool,
    /// Length of the last response: the next one is given as much room.
    pub(super) usual: &'a mut usize,
    /// Total number of requests that have come.
    pub(super) requests: &'a mut u32,
}

impl Session {
    pub(super) fn new(
        (id, number): (u64, u32),
        protocol: Protocol,
        (theirs, deadlines, caller): (&Greeting, Deadlines, Caller),
        (room, longest_request): (Room, usize),
        (now, spare): (Instant, &Spare),
    ) -> Self {
        let slot = Slot {
            next: 0,
            working: false,
            given_up: false,
            cancelled: None,
        };
        let capacity = theirs.capacity(room.bytes);
        Self {
            id,
            target: Target {
                number,
                to: theirs.to,
                room,
            },
            capacity,
            longest: theirs.longest,
            slots: vec![slot; theirs.calls].into(),
            open_packet: OpenPacket::default(),
            transfers: VecDeque::new(),
            transfer: 0,
            transfer_bytes: 0,
            incoming: Incoming::new(capacity - SEGMENT_HEAD_BYTES, longest_request, spare),
            answerer: (protocol == Protocol::Driven).then(|| {
                let piece = capacity - PART_BYTES;
                Box::new(Answerer::new(theirs.calls, piece, longest_request, spare))
            }),
            away: Away::default(),
            deadlines,
            caller,
            greeted: false,
            knows_of_sleep: false,
            heard: now,
        }
    }

    /// Wakes handlers elsewhere whose callers' deadlines have passed by `now`.
    pub(super) fn expire(&self, now: Instant) {
        self.away.expire(now);
    }

    /// Length of a segment in bytes.
    fn piece(&self) -> usize {
        self.capacity - SEGMENT_HEAD_BYTES
    }

    /// Takes a datagram; `bytes` are a private copy.
    #[inline]
    pub(super) fn take<D: Device>(
        &mut self,
        bytes: &[u8],
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        let Some(head) = bytes.first_chunk().and_then(Head::read) else {
            return Ok(());
        };
        self.greet(tools)?;
        let mut cursor = Cursor::new(head);
        if head.messages > 1 {
            self.take_releases(cursor, bytes);
        }
        loop {
            let next = cursor.take(bytes).map_err(ChannelError::violation)?;
            let Some((header, payload)) = next else {
                return Ok(());
            };
            let payload: Range<usize> = payload;
            match header.kind {
                Kind::Request if self.answerer.is_none() => {
                    self.request(header, &bytes[payload], tools)?;
                }
                Kind::RequestPart => self.take_part(header, &bytes[payload], tools)?,
                _ => self.dispatch(header, &bytes[payload], tools)?,
            }
        }
    }

    /// Drops the responses that a datagram releases, before its requests are taken: their responses may need the room.
    #[inline]
    fn take_releases(&mut self, mut cursor: Cursor, bytes: &[u8]) {
        let Some(answerer) = &mut self.answerer else {
            return;
        };
        while let Ok(Some((header, _))) = cursor.take(bytes) {
            if header.kind == Kind::Release {
                answerer.release(header.call);
            }
        }
    }

    /// Takes a request that was written into a zone; its payload is at the start of `bytes`.
    #[inline]
    pub(super) fn take_written<D: Device>(
        &mut self,
        block: usize,
        header: Header,
        bytes: &[u8],
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        self.greet(tools)?;
        if header.kind != Kind::Request || slot_of(header.call) != block {
            let words = "a message in a zone that is not the request of its block";
            return Err(ChannelError::violation(words));
        }
        self.request(header, &bytes[..header.length as usize], tools)
    }

    /// Called when the client has sent something: the first time, it is told that its RECEIVEs are posted.
    #[inline]
    fn greet<D: Device>(&mut self, tools: &mut Tools<'_, D>) -> Result<(), ChannelError> {
        self.knows_of_sleep = false;
        if self.greeted {
            return Ok(());
        }
        self.greeted = true;
        self.push(Kind::Fates, 0, &[], tools)
    }

    /// Tells the client that the server sleeps, unless it knows.
    pub(super) fn say_asleep<D: Device>(
        &mut self,
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        if std::mem::replace(&mut self.knows_of_sleep, true) {
            return Ok(());
        }
        self.push(Kind::Asleep, 0, &[], tools)
    }

    #[cold]
    fn dispatch<D: Device>(
        &mut self,
        header: Header,
        payload: &[u8],
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        match header.kind {
            Kind::ResponseRequest => {
                let number = count_in(payload)?;
                return self.put_response(header.call, number, tools);
            }
            Kind::Release => {
                if let Some(answerer) = &mut self.answerer {
                    answerer.release(header.call);
                }
                return Ok(());
            }
            Kind::RequestSegment | Kind::Segments | Kind::Question if self.answerer.is_some() => {
                let words = "a message of a different datagram protocol";
                return Err(ChannelError::violation(words));
            }
            _ => {}
        }
        match header.kind {
            Kind::RequestSegment => self.take_segment(header, payload, tools),
            Kind::Segments => {
                let count = count_in(payload)? as usize;
                let piece = self.piece();
                let front = self.transfers.front_mut();
                if front.is_some_and(|one| one.call == header.call && one.has(count, piece)) {
                    self.end_transfer();
                }
                self.continue_transfers(tools)
            }
            Kind::Question => {
                let mut answer = Vec::new();
                for call in fate::asked(payload) {
                    let fate = self.fate(call)?;
                    fate::tell(&mut answer, call, fate);
                }
                answer.truncate(self.capacity / fate::TOLD_BYTES * fate::TOLD_BYTES);
                self.push(Kind::Fates, 0, &answer, tools)?;
                self.continue_transfers(tools)
            }
            Kind::Cancel => {
                self.away.cancel(header.call);
                if is_new(&self.slots, header.call)? {
                    let generation = generation_of(header.call);
                    self.slots[slot_of(header.call)].cancelled = Some(generation);
                }
                Ok(())
            }
            Kind::Goodbye => Err(ChannelError::peer_gone()),
            _ => Err(ChannelError::violation(
                "a message that clients must not send",
            )),
        }
    }

    /// Registers a new call as seen. Returns whether its caller still waits for it.
    #[inline]
    fn begin(&mut self, call: u64) -> Result<bool, ChannelError> {
        let slot = &mut self.slots[slot_of(call)];
        if slot.working {
            let words = "a call in the slot of an unanswered call";
            return Err(ChannelError::violation(words));
        }
        let generation = generation_of(call);
        slot.next = generation.wrapping_add(1);
        slot.working = true;
        slot.given_up = false;
        Ok(slot.cancelled.take() != Some(generation))
    }

    /// Returns the fate of a call. A call that has not arrived will no longer be executed.
    fn fate(&mut self, call: u64) -> Result<Fate, ChannelError> {
        if is_new(&self.slots, call)? {
            let slot = &mut self.slots[slot_of(call)];
            slot.next = generation_of(call).wrapping_add(1);
            slot.given_up = true;
            self.incoming.forget(call);
            return Ok(Fate::Unknown);
        }
        let slot = self.slots[slot_of(call)];
        let latest = slot.next.wrapping_sub(1) == generation_of(call);
        if latest && slot.working {
            return Ok(Fate::Working);
        }
        if latest && slot.given_up {
            return Ok(Fate::Unknown);
        }
        match self.transfers.iter().position(|one| one.call == call) {
            // The client waits for lost segments.
            Some(0) if self.transfers[0].is_stuck() => {
                self.end_transfer();
                Ok(Fate::Answered)
            }
            Some(_) => Ok(Fate::Working),
            None => Ok(Fate::Answered),
        }
    }

    #[inline]
    fn request<D: Device>(
        &mut self,
        header: Header,
        payload: &[u8],
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        if !is_new(&self.slots, header.call)? {
            // It was duplicated, or arrived so late that its caller was told that it is lost.
            return Ok(());
        }
        self.run_new(header, payload, tools)
    }

    /// Takes a part of a request of a client that drives the protocol.
    #[inline]
    fn take_part<D: Device>(
        &mut self,
        header: Header,
        payload: &[u8],
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        let is_new = is_new(&self.slots, header.call)?;
        let Some(answerer) = &mut self.answerer else {
            let words = "a message of a different datagram protocol";
            return Err(ChannelError::violation(words));
        };
        D::charge(Work::Copy(payload.len()));
        match answerer.take(header, payload, is_new)? {
            Step::Nothing => Ok(()),
            Step::Credit(number) => {
                let number = number.to_le_bytes();
                self.push(Kind::CreditReturn, header.call, &number, tools)
            }
            Step::Run(None) => self.run_new(header, &payload[PART_BYTES..], tools),
            Step::Run(Some(request)) => self.run_new(header, request, tools),
            Step::Starved(bytes) => self.starve(header, bytes, tools),
            Step::AtWork => {
                let mut word = Vec::with_capacity(fate::TOLD_BYTES);
                fate::tell(&mut word, header.call, Fate::Working);
                self.push(Kind::Fates, header.call, &word, tools)
            }
            Step::Again => self.put_response(header.call, 0, tools),
        }
    }

    fn take_segment<D: Device>(
        &mut self,
        header: Header,
        payload: &[u8],
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        let Self {
            incoming, slots, ..
        } = self;
        let arrived = incoming.take(header, payload, || is_new(slots, header.call))?;
        D::charge(Work::Copy(payload.len()));
        let (count, whole) = match arrived {
            Arrived::Nothing => return Ok(()),
            Arrived::Tell(count) => (count, None),
            Arrived::Whole(count, handler, bytes) => (count, Some((handler, bytes))),
        };
        self.push(Kind::Segments, header.call, &count.to_le_bytes(), tools)?;
        match whole {
            Some((handler, bytes)) => {
                let header = Header { handler, ..header };
                match bytes {
                    Ok(bytes) => self.run_new(header, bytes, tools),
                    Err(NoMemory(bytes)) => self.starve(header, bytes, tools),
                }
            }
            None => Ok(()),
        }
    }

    #[inline]
    fn push<D: Device>(
        &mut self,
        kind: Kind,
        call: u64,
        payload: &[u8],
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        let Tools {
            outgoing, endpoint, ..
        } = tools;
        let packet =
            outgoing.packet(&mut self.open_packet, &self.target, payload.len(), endpoint)?;
        D::charge(Work::Copy(payload.len()));
        packet.push(Header::new(kind, 0, call, payload.len()), payload);
        Ok(())
    }

    /// Tells the client that no more calls are taken.
    pub(super) fn say_goodbye<D: Device>(
        &mut self,
        tools: &mut Tools<'_, D>,
    ) -> Result<(), ChannelError> {
        self.push(Kind::Goodbye, 0, &[], tools)
    }

    /// Whether every request taken is answered.
    pub(super) fn is_quiet(&self) -> bool {
        let sent = self
            .answerer
            .as_ref()
            .is_none_or(|answerer| answerer.is_quiet());
        self.away.is_empty() && self.transfers.is_empty() && sent
    }
}

/// Whether a call was never seen and has not been given up.
#[inline]
fn is_new(slots: &[Slot], call: u64) -> Result<bool, ChannelError> {
    let slot = slots
        .get(slot_of(call))
        .ok_or_else(|| ChannelError::violation("more calls than the session allows"))?;
    Ok(generation_of(call).wrapping_sub(slot.next) as i32 >= 0)
}
