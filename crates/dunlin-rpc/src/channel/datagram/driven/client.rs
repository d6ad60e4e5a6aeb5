//! The client's side: the outstanding packets of each call, the session's credits, its rate, and the timers (eRPC §5).

use std::collections::VecDeque;

use super::pace::Pacer;
use super::timely::Timely;
use super::{number_in, pieces, Part, FAILURE, HELD, PART_BYTES};
use crate::channel::call_id::slot_of;
use crate::channel::datagram::growing::Growing;
use crate::channel::datagram::packet::Packet;
use crate::channel::datagram::spare::{LongBytes, Spare};
use crate::channel::message::{Header, Kind};
use crate::channel::ChannelError;
use crate::memory::NoMemory;

/// Time without an answer after which a call goes back to its first unanswered packet (eRPC §5.3).
const TIMEOUT_NS: u64 = 5_000_000;
/// Maximum number of doublings of that time, while one timeout follows another: a server that is executing a call is
/// asked less and less often.
const DOUBLINGS: u32 = 5;

/// A slot for an outstanding call.
#[derive(Debug, Default)]
struct Slot {
    call: u64,
    handler: u16,
    /// Whether the call is outstanding.
    out: bool,
    /// Whether it is in the queue of calls that have packets to send.
    in_line: bool,
    /// A packet was retransmitted, so it is unknown which one an answer belongs to, and none serves as a measurement.
    again: bool,
    failed: bool,
    request: Vec<u8>,
    /// The request itself, if it came with memory of its own.
    long_request: Option<LongBytes>,
    requests: u32,
    response: Vec<u8>,
    /// A response of several parts.
    long_response: Growing,
    /// Number of parts of the response, known from the first one.
    responses: Option<u32>,
    /// Number of packets sent, and of answers to them that have arrived, each in order.
    sent: u32,
    got: u32,
    /// When it was last heard of, or sent while nothing was in flight.
    moved_ns: u64,
    timeouts: u32,
    /// When packets were sent, by number modulo the credits.
    sent_ns: Box<[u64]>,
}

impl Slot {
    #[inline]
    fn request(&self) -> &[u8] {
        match &self.long_request {
            None => &self.request,
            Some(request) => request,
        }
    }

    /// Number of packets that may be sent, as far as known.
    #[inline]
    fn limit(&self) -> u32 {
        // All parts of the response but one are requested.
        self.requests + self.responses.map_or(0, |parts| parts - 1)
    }

    fn has_more(&self) -> bool {
        self.out && self.sent < self.limit()
    }

    fn is_whole(&self) -> bool {
        self.responses.is_some() && self.got == self.limit()
    }
}

/// The effect of a packet of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// None: it was late or a duplicate.
    Nothing,
    /// The call has made progress.
    Progress,
    /// The response is complete: see [`Driver::take_response`].
    Whole,
}

/// A complete response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Response<'a> {
    /// In the slot's memory until the slot's next call.
    Short(&'a [u8]),
    /// There may have been no memory for it.
    Long(Result<LongBytes, NoMemory>),
    /// An encoded failure.
    Failure(&'a [u8]),
}

/// The driving side of a session.
#[derive(Debug)]
pub(crate) struct Driver {
    slots: Box<[Slot]>,
    /// Slots with packets to send: each sends one and goes to the end.
    line: VecDeque<u32>,
    /// Number of further packets that may be in flight.
    credits: usize,
    most_credits: usize,
    /// Size of a piece, and maximum length of a response, in bytes.
    piece: usize,
    longest: usize,
    /// The rate, where there is a network with queues to control.
    timely: Option<Timely>,
    pacer: Pacer,
    /// The source of memory for long responses.
    spare: Spare,
}

impl Driver {
    /// For `calls` calls and `credits` packets of `piece` bytes in flight. `controlled`: with congestion control.
    pub(crate) fn new(
        calls: usize,
        credits: usize,
        (piece, longest): (usize, usize),
        controlled: bool,
        spare: &Spare,
    ) -> Self {
        let slot = |_| Slot {
            sent_ns: vec![0; credits].into(),
            ..Slot::default()
        };
        Self {
            slots: (0..calls).map(slot).collect(),
            line: VecDeque::with_capacity(calls),
            credits,
            most_credits: credits,
            piece,
            longest,
            timely: controlled.then(|| Timely::new(0)),
            pacer: Pacer::default(),
            spare: spare.clone(),
        }
    }

    /// Starts a call in the slot given by its name, which must be free.
    #[inline]
    pub(crate) fn begin(&mut self, call: u64, handler: u16, request: &[u8]) {
        let slot = &mut self.slots[slot_of(call)];
        slot.request.clear();
        slot.request.extend_from_slice(request);
        slot.long_request = None;
        self.begun(call, handler);
    }

    /// As [`Driver::begin`], without copying the request.
    pub(crate) fn begin_long(&mut self, call: u64, handler: u16, request: LongBytes) {
        self.slots[slot_of(call)].long_request = Some(request);
        self.begun(call, handler);
    }

    #[inline]
    fn begun(&mut self, call: u64, handler: u16) {
        let index = slot_of(call) as u32;
        let slot = &mut self.slots[index as usize];
        (slot.call, slot.handler, slot.out) = (call, handler, true);
        (slot.again, slot.failed) = (false, false);
        (slot.sent, slot.got, slot.timeouts) = (0, 0, 0);
        slot.requests = pieces(slot.request().len(), self.piece);
        slot.responses = None;
        slot.response.clear();
        self.stand_in_line(index);
    }

    #[inline]
    fn stand_in_line(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if !slot.in_line {
            slot.in_line = true;
            self.line.push_back(index);
        }
    }

    /// Whether there are packets that could be sent, apart from the rate.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        self.credits > 0 && !self.line.is_empty()
    }

    /// Number of packets in flight.
    pub(crate) fn unanswered(&self) -> usize {
        self.most_credits - self.credits
    }

    /// Whether packets are in flight or queued.
    pub(crate) fn is_busy(&self) -> bool {
        self.unanswered() > 0 || self.slots.iter().any(Slot::has_more)
    }

    /// Whether an unconfirmed packet is in flight or could be sent, so that time matters.
    pub(crate) fn is_hurried(&self) -> bool {
        !self.line.is_empty()
            || self
                .slots
                .iter()
                .any(|slot| slot.out && slot.timeouts == 0 && slot.sent > slot.got)
    }

    /// Adds the next packet that may be sent to `packet`, which is empty. `false`: none may.
    #[inline]
    pub(crate) fn put(&mut self, packet: &mut Packet, now_ns: u64) -> bool {
        while self.credits > 0 {
            let Some(&index) = self.line.front() else {
                return false;
            };
            let slot = &mut self.slots[index as usize];
            if !slot.has_more() {
                slot.in_line = false;
                self.line.pop_front();
                continue;
            }
            let slow = self.timely.filter(|timely| !timely.is_uncongested());
            if slow.is_some() && !self.pacer.lets_go(now_ns) {
                return false;
            }
            let number = slot.sent;
            if number < slot.requests {
                put_request(slot, number, self.piece, packet);
            } else {
                let part = number - slot.requests + 1;
                let header = Header::new(Kind::ResponseRequest, 0, slot.call, 4);
                packet.push(header, &part.to_le_bytes());
            }
            if slot.sent == slot.got {
                slot.moved_ns = now_ns;
            }
            let stamps = slot.sent_ns.len();
            slot.sent_ns[number as usize % stamps] = now_ns;
            slot.sent += 1;
            self.credits -= 1;
            if let Some(timely) = slow {
                self.pacer.left(packet.bytes().len(), timely.rate(), now_ns);
            }
            self.line.rotate_left(1);
            if !self.slots[index as usize].has_more() {
                self.slots[index as usize].in_line = false;
                self.line.pop_back();
            }
            return true;
        }
        false
    }

    /// The slot of a call, if it is outstanding.
    #[inline]
    fn index(&self, call: u64) -> Option<u32> {
        let slot = self.slots.get(slot_of(call))?;
        (slot.out && slot.call == call).then_some(slot_of(call) as u32)
    }

    /// Handles a packet of the server.
    ///
    /// # Errors
    /// When an honest server would not send it.
    #[inline]
    pub(crate) fn hear(
        &mut self,
        header: Header,
        payload: &[u8],
        now_ns: u64,
    ) -> Result<Heard, ChannelError> {
        let Some(index) = self.index(header.call) else {
            return Ok(Heard::Nothing);
        };
        let slot = &mut self.slots[index as usize];
        let (answered, part) = match header.kind {
            Kind::CreditReturn => {
                let number = number_in(payload).map_err(ChannelError::violation)?;
                if number >= slot.requests - 1 {
                    let words = "a credit for the last packet of a request";
                    return Err(ChannelError::violation(words));
                }
                (number, None)
            }
            _ => {
                let read = Part::read(payload, self.piece, self.longest);
                let (part, body) = read.map_err(ChannelError::violation)?;
                (slot.requests - 1 + part.number, Some((part, body)))
            }
        };
        if answered != slot.got {
            return Ok(Heard::Nothing);
        }
        if let Some((part, body)) = part {
            let parts = pieces(part.total as usize, self.piece);
            if part.number == 0 {
                slot.responses = Some(parts);
                slot.failed = part.flags & FAILURE != 0;
                if parts > 1 {
                    slot.long_response = Growing::new(part.total as usize, &self.spare);
                }
            } else if slot.responses != Some(parts) {
                let words = "a response that changes its length";
                return Err(ChannelError::violation(words));
            }
            match slot.responses {
                Some(1) => slot.response.extend_from_slice(body),
                _ => slot.long_response.push(body),
            }
        }
        slot.got += 1;
        if slot.sent < slot.got {
            // The answer to a packet that was given up as lost, and no longer holds a credit.
            slot.sent = slot.got;
        } else {
            self.credits += 1;
            let held = part.is_some_and(|(part, _)| part.flags & HELD != 0);
            if let Some(timely) = self.timely.as_mut().filter(|_| !slot.again && !held) {
                let stamps = slot.sent_ns.len();
                let rtt = now_ns.saturating_sub(slot.sent_ns[answered as usize % stamps]);
                timely.answered(rtt, now_ns);
            }
        }
        slot.moved_ns = now_ns;
        slot.timeouts = 0;
        if slot.is_whole() {
            slot.out = false;
            slot.long_request = None;
            return Ok(Heard::Whole);
        }
        if slot.has_more() {
            self.stand_in_line(index);
        }
        Ok(Heard::Progress)
    }

    /// The response of a call that has just become complete in its slot.
    #[inline]
    pub(crate) fn take_response(&mut self, call: u64) -> Response<'_> {
        let slot = &mut self.slots[slot_of(call)];
        let is_short = slot.responses == Some(1);
        match (slot.failed, is_short) {
            (true, true) => Response::Failure(&slot.response),
            (true, false) => match slot.long_response.bytes() {
                Ok(bytes) => Response::Failure(bytes),
                Err(none) => Response::Long(Err(none)),
            },
            (false, true) => Response::Short(&slot.response),
            (false, false) => {
                let response = std::mem::take(&mut slot.long_response);
                Response::Long(response.into_bytes())
            }
        }
    }

    /// Makes calls without an answer for too long go back to their first unanswered packet (eRPC §5.3: go-back-N).
    /// Returns `true` if any did.
    #[cold]
    pub(crate) fn go_back(&mut self, now_ns: u64) -> bool {
        let mut any = false;
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            let after = TIMEOUT_NS << slot.timeouts.min(DOUBLINGS);
            let waits = slot.out && slot.sent > slot.got;
            if !waits || now_ns.saturating_sub(slot.moved_ns) < after {
                continue;
            }
            self.credits += (slot.sent - slot.got) as usize;
            slot.sent = slot.got;
            slot.again = true;
            slot.timeouts += 1;
            slot.moved_ns = now_ns;
            any = true;
            self.stand_in_line(index as u32);
        }
        any
    }
}

fn put_request(slot: &Slot, number: u32, piece: usize, packet: &mut Packet) {
    let start = number as usize * piece;
    let request = slot.request();
    let body = &request[start..request.len().min(start + piece)];
    let part = Part {
        total: request.len() as u32,
        number,
        flags: 0,
    };
    put_part(
        packet,
        Kind::RequestPart,
        (slot.handler, slot.call),
        part,
        body,
    );
}

/// Adds a piece to an empty packet.
pub(super) fn put_part(
    packet: &mut Packet,
    kind: Kind,
    (handler, call): (u16, u64),
    part: Part,
    body: &[u8],
) {
    let length = PART_BYTES + body.len();
    let space = packet.space();
    space[..PART_BYTES].copy_from_slice(&part.encode());
    space[PART_BYTES..length].copy_from_slice(body);
    packet.commit(Header::new(kind, handler, call, length));
}
