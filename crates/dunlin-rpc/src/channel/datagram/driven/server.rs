//! The server's side: accepts the packets of a call in order, keeps its response, and answers each packet by one (eRPC
//! §5). It has no timers.

use super::client::put_part;
use super::{pieces, Part, FAILURE, HELD};
use crate::channel::call_id::slot_of;
use crate::channel::datagram::growing::Growing;
use crate::channel::datagram::packet::Packet;
use crate::channel::datagram::spare::{LongBytes, Spare};
use crate::channel::message::{Header, Kind};
use crate::channel::ChannelError;
use crate::memory::NoMemory;

/// The state of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Parts of the request are arriving.
    #[default]
    Coming,
    /// The handler is executing it.
    Working,
    /// The response is available.
    Answered,
}

/// A slot for a call of the client.
#[derive(Debug, Default)]
struct Slot {
    call: u64,
    stage: Stage,
    /// Number of parts of the request that have arrived.
    got: u32,
    /// Length of the request as stated in its first part, and the bytes that have arrived.
    total: u32,
    request: Growing,
    /// The response, in the first bytes, with their number.
    response: Vec<u8>,
    length: usize,
    flags: u32,
    /// Number of its parts that were sent at least once.
    sent: u32,
}

/// How to handle a packet of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ignore it: it is late, or comes after a lost one.
    Nothing,
    /// Answer it with a credit.
    Credit(u32),
    /// The request is complete: in this single packet, or in several.
    Run(Option<LongBytes>),
    /// The request is complete, but there was no memory for so many bytes.
    Starved(usize),
    /// It is a duplicate, while the handler runs.
    AtWork,
    /// It is a duplicate, and the response is available: its first part is sent again.
    Again,
}

/// The answering side of a session.
#[derive(Debug)]
pub(crate) struct Answerer {
    slots: Box<[Slot]>,
    piece: usize,
    longest: usize,
    /// Number of bytes of responses of more than one part.
    kept: usize,
    /// Total length of the requests of more than one part that are arriving.
    coming: usize,
    /// The source of memory for long requests.
    spare: Spare,
}

/// Maximum number of bytes of requests arriving at once; a single one is accepted whatever its length.
const COMING_MAX: usize = 64 << 20;

impl Answerer {
    /// For `calls` calls, with requests of up to `longest` bytes in pieces of `piece`.
    pub(crate) fn new(calls: usize, piece: usize, longest: usize, spare: &Spare) -> Self {
        Self {
            slots: (0..calls).map(|_| Slot::default()).collect(),
            piece,
            longest,
            kept: 0,
            coming: 0,
            spare: spare.clone(),
        }
    }

    /// Size of a piece in bytes.
    pub(crate) fn piece(&self) -> usize {
        self.piece
    }

    /// Number of bytes of long responses that are kept.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Whether every part of every response was sent, whether or not it was lost.
    pub(crate) fn is_quiet(&self) -> bool {
        let waits = |slot: &Slot| {
            slot.stage == Stage::Answered && slot.sent < pieces(slot.length, self.piece)
        };
        !self.slots.iter().any(waits)
    }

    /// Handles a part of a request, whose slot must exist. `is_new`: the call was not executed yet. The bytes of the
    /// part follow its header.
    ///
    /// # Errors
    /// When an honest client would not send it.
    #[inline]
    pub(crate) fn take(
        &mut self,
        header: Header,
        payload: &[u8],
        is_new: bool,
    ) -> Result<Step, ChannelError> {
        let read = Part::read(payload, self.piece, self.longest);
        let (part, body) = read.map_err(ChannelError::violation)?;
        let last = pieces(part.total as usize, self.piece) - 1;
        let slot = &mut self.slots[slot_of(header.call)];
        if !is_new {
            return Ok(match slot.stage {
                _ if slot.call != header.call => Step::Nothing,
                _ if part.number < last => Step::Credit(part.number),
                Stage::Working => Step::AtWork,
                Stage::Answered => Step::Again,
                Stage::Coming => Step::Nothing,
            });
        }
        if slot.call != header.call || slot.stage != Stage::Coming || slot.got == 0 {
            if part.number != 0 {
                // The first is lost or late.
                return Ok(Step::Nothing);
            }
            if slot.stage == Stage::Working {
                let words = "a call in the slot of an unanswered call";
                return Err(ChannelError::violation(words));
            }
            if last > 0 && self.coming > 0 && self.coming + part.total as usize > COMING_MAX {
                // It is sent again, and accepted when others are complete.
                return Ok(Step::Nothing);
            }
            self.kept -= kept_of(slot, self.piece);
            self.coming -= coming_of(slot);
            forget(slot, header.call, self.piece);
            slot.total = part.total;
        }
        if slot.total != part.total {
            let words = "a request that changes its length";
            return Err(ChannelError::violation(words));
        }
        if part.number != slot.got {
            return Ok(match part.number < slot.got {
                true => Step::Credit(part.number),
                false => Step::Nothing,
            });
        }
        slot.got += 1;
        if last > 0 {
            if part.number == 0 {
                slot.request = Growing::new(part.total as usize, &self.spare);
            }
            self.coming -= coming_of(slot);
            slot.request.push(body);
            self.coming += coming_of(slot);
        }
        if part.number < last {
            return Ok(Step::Credit(part.number));
        }
        self.coming -= coming_of(slot);
        slot.stage = Stage::Working;
        if last == 0 {
            return Ok(Step::Run(None));
        }
        Ok(match std::mem::take(&mut slot.request).into_bytes() {
            Ok(whole) => Step::Run(Some(whole)),
            Err(NoMemory(bytes)) => Step::Starved(bytes),
        })
    }

    /// The place for the response of a call if it is no longer than a piece.
    #[inline]
    pub(crate) fn place(&mut self, call: u64) -> &mut [u8] {
        let piece = self.piece;
        let slot = &mut self.slots[slot_of(call)];
        if slot.response.len() < piece {
            slot.response.resize(piece, 0);
        }
        &mut slot.response[..piece]
    }

    /// To be called when the response of a call, of this length, is in its place.
    #[inline]
    pub(crate) fn placed(&mut self, call: u64, length: usize) {
        let slot = &mut self.slots[slot_of(call)];
        (slot.stage, slot.length, slot.flags) = (Stage::Answered, length, 0);
    }

    /// Sets the response of a call. `failed`: it is an encoded failure. `held`: the call waited for a worker.
    pub(crate) fn answer(&mut self, call: u64, response: Vec<u8>, failed: bool, held: bool) {
        let slot = &mut self.slots[slot_of(call)];
        slot.flags = if failed { FAILURE } else { 0 } | if held { HELD } else { 0 };
        (slot.stage, slot.length) = (Stage::Answered, response.len());
        slot.response = response;
        self.kept += kept_of(slot, self.piece);
    }

    /// Adds a part of a response to an empty packet. `false`: there is no such part.
    #[inline]
    pub(crate) fn put(&mut self, call: u64, number: u32, packet: &mut Packet) -> bool {
        let Some(slot) = self.slots.get_mut(slot_of(call)) else {
            return false;
        };
        if slot.call != call
            || slot.stage != Stage::Answered
            || number >= pieces(slot.length, self.piece)
        {
            return false;
        }
        let start = number as usize * self.piece;
        let end = slot.length.min(start + self.piece);
        let part = Part {
            total: slot.length as u32,
            number,
            flags: slot.flags,
        };
        put_part(
            packet,
            Kind::ResponsePart,
            (0, call),
            part,
            &slot.response[start..end],
        );
        slot.sent = slot.sent.max(number + 1);
        true
    }

    /// The client has the whole response.
    pub(crate) fn release(&mut self, call: u64) {
        if let Some(slot) = self.slots.get_mut(slot_of(call)) {
            if slot.call == call && slot.stage == Stage::Answered {
                self.kept -= kept_of(slot, self.piece);
                slot.response = Vec::new();
                slot.length = 0;
            }
        }
    }
}

/// Number of bytes of a slot's request that count: it has several parts, of which the first is here.
fn coming_of(slot: &Slot) -> usize {
    match slot.stage == Stage::Coming && slot.request.holds_bytes() {
        true => slot.total as usize,
        false => 0,
    }
}

/// Number of bytes of a slot's response that count.
fn kept_of(slot: &Slot, piece: usize) -> usize {
    match slot.stage == Stage::Answered && slot.length > piece {
        true => slot.length,
        false => 0,
    }
}

/// Ends a slot's earlier call and starts this one.
fn forget(slot: &mut Slot, call: u64, piece: usize) {
    if slot.response.len() > piece {
        slot.response = Vec::new();
    }
    slot.request = Growing::default();
    (slot.call, slot.stage) = (call, Stage::Coming);
    (slot.got, slot.length, slot.flags, slot.sent) = (0, 0, 0, 0);
}
