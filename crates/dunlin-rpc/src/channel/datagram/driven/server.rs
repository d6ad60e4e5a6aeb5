//! The server's side: takes the packets of a call in order, keeps its response, and answers each packet by one (eRPC
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

/// What stands in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Parts of the request come.
    #[default]
    Coming,
    /// The handler has it.
    Working,
    /// The response is here.
    Answered,
}

/// A call of the client.
#[derive(Debug, Default)]
struct Slot {
    call: u64,
    stage: Stage,
    /// Parts of the request that have come.
    got: u32,
    /// Bytes of the request, as its first part says, and those that have come.
    total: u32,
    request: Growing,
    /// The response in the first bytes: so many.
    response: Vec<u8>,
    length: usize,
    flags: u32,
    /// Parts of it that were sent at least once.
    sent: u32,
}

/// What is to be done with a packet of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is late, or ahead of one that is lost.
    Nothing,
    /// It is answered by a credit.
    Credit(u32),
    /// The request is whole: in this one packet, or in several.
    Run(Option<LongBytes>),
    /// The request is whole, and there was no memory for so many bytes.
    Starved(usize),
    /// It came again, while the handler runs.
    AtWork,
    /// It came again, and the response is here: its first part is sent again.
    Again,
}

/// A session's side that answers.
#[derive(Debug)]
pub(crate) struct Answerer {
    slots: Box<[Slot]>,
    piece: usize,
    longest: usize,
    /// Bytes of responses of more than one part.
    kept: usize,
    /// Bytes of requests of more than one part that are coming, as far as they will come.
    coming: usize,
    /// Where memory of long requests comes from.
    spare: Spare,
}

/// Bytes of requests that come at once; one that is alone comes however long it is.
const COMING_MAX: usize = 64 << 20;

impl Answerer {
    /// For as many calls, with requests of up to `longest` bytes in pieces of `piece`.
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

    /// Bytes of a piece.
    pub(crate) fn piece(&self) -> usize {
        self.piece
    }

    /// Bytes of long responses that are kept.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Whether every part of every response was sent, however often it was lost.
    pub(crate) fn is_quiet(&self) -> bool {
        let waits = |slot: &Slot| {
            slot.stage == Stage::Answered && slot.sent < pieces(slot.length, self.piece)
        };
        !self.slots.iter().any(waits)
    }

    /// Takes a part of a request, whose slot is one that there is. `is_new`: the call was not executed yet. The bytes
    /// of the part are behind those of its head.
    ///
    /// # Errors
    /// When no honest client sends it.
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
                let words = "a call in the place of one that is not answered";
                return Err(ChannelError::violation(words));
            }
            if last > 0 && self.coming > 0 && self.coming + part.total as usize > COMING_MAX {
                // It is sent again, and taken when others are whole.
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

    /// Where the response of a call may be written that is no longer than a piece.
    #[inline]
    pub(crate) fn place(&mut self, call: u64) -> &mut [u8] {
        let piece = self.piece;
        let slot = &mut self.slots[slot_of(call)];
        if slot.response.len() < piece {
            slot.response.resize(piece, 0);
        }
        &mut slot.response[..piece]
    }

    /// The response of a call stands in its place, with so many bytes.
    #[inline]
    pub(crate) fn placed(&mut self, call: u64, length: usize) {
        let slot = &mut self.slots[slot_of(call)];
        (slot.stage, slot.length, slot.flags) = (Stage::Answered, length, 0);
    }

    /// The response of a call. `failed`: its bytes are the words of a failure. `held`: it waited for a worker.
    pub(crate) fn answer(&mut self, call: u64, response: Vec<u8>, failed: bool, held: bool) {
        let slot = &mut self.slots[slot_of(call)];
        slot.flags = if failed { FAILURE } else { 0 } | if held { HELD } else { 0 };
        (slot.stage, slot.length) = (Stage::Answered, response.len());
        slot.response = response;
        self.kept += kept_of(slot, self.piece);
    }

    /// Puts a part of a response into an empty packet. `false`: there is none such.
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

    /// The client has all of a response.
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

/// Bytes of a slot's request that count: it comes in parts, of which the first is here.
fn coming_of(slot: &Slot) -> usize {
    match slot.stage == Stage::Coming && slot.request.holds_bytes() {
        true => slot.total as usize,
        false => 0,
    }
}

/// Bytes of a slot's response that count.
fn kept_of(slot: &Slot, piece: usize) -> usize {
    match slot.stage == Stage::Answered && slot.length > piece {
        true => slot.length,
        false => 0,
    }
}

/// A slot's earlier call is over; this one begins.
fn forget(slot: &mut Slot, call: u64, piece: usize) {
    if slot.response.len() > piece {
        slot.response = Vec::new();
    }
    slot.request = Growing::default();
    (slot.call, slot.stage) = (call, Stage::Coming);
    (slot.got, slot.length, slot.flags, slot.sent) = (0, 0, 0, 0);
}
