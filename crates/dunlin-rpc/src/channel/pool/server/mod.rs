//! The server's side of a message pool, for one client: finds requests in the client's zone, answers them into the
//! client's memory, and reports its turns to it.

mod answers;
mod turns;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering;

use dunlin_link::Ticket;
use dunlin_verbs::{Completion, Device, PeerMemory, QueuePair, Region, RemoteAddress, Work};

use super::batch::Batch;
use super::block::{Blocks, Draft, Look, Seals, LINE_BYTES};
use super::scan::Scan;
use super::turn::{Entry, Turn};
use super::{bits, Mapping, BLOCKS, CALLS, ENTRY_NOTICE};
use crate::channel::call_id::{generation_of, slot_of};
use crate::channel::carrier::Carrier;
use crate::channel::message::{Header, Kind};
use crate::channel::{Channel, ChannelError, Exchange, Mapped};
use crate::effort;

/// Number of polls of a block whose message does not become complete, before the turn ends so that it is fetched.
const LOOKS_AT_PART: u8 = 200;
/// Number of send queue entries that a taken message may need: a response, a turn message, a wake-up.
const ANSWERS: usize = 4;

/// Memory of the client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theirs {
    /// Its requests, and the size of each of their blocks.
    pub(super) requests: RemoteAddress,
    pub(super) request_bytes: usize,
    /// Offset of the contiguous requests of a batch.
    pub(super) bundle_at: usize,
    /// Its responses, and the size of each of their blocks.
    pub(super) answers: RemoteAddress,
    pub(super) answer_bytes: usize,
}

/// A client's load in a turn (ScaleRPC §3.2's T and S are computed from it).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TurnLoad {
    /// Number of requests taken.
    pub(crate) requests: u64,
    /// Number of bytes of their payloads.
    pub(crate) bytes: u64,
    /// Number of requests found in the zone that were of another turn, or no longer complete.
    pub(crate) late: u64,
    /// Number of WRITEs that only reported the turn.
    pub(crate) words: u64,
}

/// The server's side of a message pool, for one client.
#[derive(Debug)]
pub(crate) struct ServedPool<D: Device> {
    pub(super) carrier: Carrier<D>,
    pub(super) theirs: Theirs,
    /// Its responses, if they are mapped here and have been written once.
    pub(super) peer_answers: Option<Mapped<D>>,
    /// Length of the last message that was stored there.
    pub(super) usual: usize,
    /// Offsets of the endpoint entry and of the first zone in the region.
    pub(super) entry_at: usize,
    pub(super) zones_at: usize,
    /// There is a single zone, which belongs to the client, whatever place it is served in.
    pub(super) has_own_zone: bool,
    /// Size of a zone, and of a block in it.
    pub(super) zone_bytes: usize,
    pub(super) block_bytes: usize,
    /// Maximum length of a payload in a response.
    pub(super) capacity: usize,
    pub(super) reads: Seals,
    pub(super) writes: Seals,
    /// The client's number, if its messages are received by completions; otherwise its blocks are polled.
    pub(super) rings: Option<u32>,
    pub(super) mapping: Mapping,
    /// The zone that belongs to the client.
    pub(super) place: Option<u16>,
    pub(super) turn: u32,
    /// Whether it is the client's turn; whether it is about to end, with the last call of a batch; and whether the
    /// client was told so, or of the turn at all.
    pub(super) active: bool,
    pub(super) ending: bool,
    pub(super) patient: bool,
    pub(super) batch: Batch,
    pub(super) told_over: bool,
    pub(super) told: bool,
    /// A turn message is due when there is an entry for it.
    pub(super) event_due: bool,
    pub(super) leaving: bool,
    /// The serial of the entry whose requests were fetched last, and the last of the READs, until it is known to be
    /// completed.
    pub(super) served: u16,
    /// Number of requests that one READ fetches.
    pub(super) bundle: usize,
    pub(super) fetch: Option<Ticket>,
    /// The last READ of a turn that was given up.
    pub(super) late: Option<Ticket>,
    /// The generation of the next call in each block, and the number of the next control message.
    pub(super) next: [u32; CALLS],
    pub(super) words: [u16; BLOCKS - CALLS],
    /// Calls that were taken and are not answered.
    pub(super) working: u32,
    /// The last seal seen in each block of the zone, and the number of polls that found an incomplete message.
    pub(super) seen: [u64; BLOCKS],
    pub(super) parts: [u8; BLOCKS],
    /// A message was overwritten by a late one.
    pub(super) overwritten: bool,
    /// The blocks to check. If messages are received by completions: those that were announced.
    pub(super) scan: Scan,
    pub(super) load: TurnLoad,
    pub(super) draft: Draft,
    pub(super) scratch: Box<[u8]>,
    /// Staging memory for responses that are too long to be inline; allocated when needed.
    pub(super) staging: Option<D::Region>,
    pub(super) unflushed: bool,
}

impl<D: Device> Deref for ServedPool<D> {
    type Target = Carrier<D>;

    #[inline]
    fn deref(&self) -> &Carrier<D> {
        &self.carrier
    }
}

impl<D: Device> DerefMut for ServedPool<D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Carrier<D> {
        &mut self.carrier
    }
}

impl<D: Device> ServedPool<D> {
    /// The client's zone at this place of the pools.
    #[inline]
    fn zone(&self, place: u16) -> u16 {
        match self.has_own_zone {
            true => 0,
            false => place,
        }
    }

    /// The blocks of the client's zone.
    #[inline]
    fn blocks(&self, place: u16) -> Blocks {
        Blocks {
            start: self.zones_at + usize::from(self.zone(place)) * self.zone_bytes,
            bytes: self.block_bytes,
        }
    }

    /// The endpoint entry, if it is a new one.
    ///
    /// # Errors
    /// When the client has left.
    #[inline]
    fn new_entry(&self) -> Result<Option<Entry>, ChannelError> {
        let word = self.carrier.inlet.memory().atomic_u64(self.entry_at);
        let entry = Entry::decode(u64::from_le(word.load(Ordering::Acquire)));
        if entry.serial == self.served {
            return Ok(None);
        }
        if entry.lines == Entry::GOODBYE {
            return Err(ChannelError::peer_gone());
        }
        if self.mapping != Mapping::ByTurns {
            // Its requests are in its zone.
            return Err(ChannelError::violation(
                "an entry of a client that needs no turn",
            ));
        }
        Ok(Some(entry))
    }

    /// Whether the client has requests to be fetched.
    ///
    /// # Errors
    /// When it has left.
    #[inline]
    pub(crate) fn wants_turn(&self) -> Result<bool, ChannelError> {
        let may_fetch = self.late.is_none_or(|late| self.carrier.is_done(late));
        Ok(self.place.is_none() && self.new_entry()?.is_some() && may_fetch)
    }

    /// Handles a completion by which the peer announces a message.
    ///
    /// # Errors
    /// When it is invalid, the client has left, or the queue pair failed.
    #[inline]
    pub(crate) fn ring(&mut self, completion: &Completion) -> Result<(), ChannelError> {
        let Some(ring) = self.carrier.arrived(completion)? else {
            return Ok(());
        };
        let (client, block) = (ring >> 8, ring & 0xff);
        if self.rings != Some(client) {
            return Err(ChannelError::violation("a client that says it is another"));
        }
        if block == ENTRY_NOTICE {
            return self.new_entry().map(drop);
        }
        if block as usize >= BLOCKS || !self.scan.add(block) {
            let words = "a message in a block that is not there, or told of twice";
            return Err(ChannelError::violation(words));
        }
        Ok(())
    }

    /// Whether announced messages are still to be taken.
    #[inline]
    pub(crate) fn is_notified(&self) -> bool {
        self.rings.is_some() && self.scan.is_open()
    }

    /// Which client the zone belongs to, and how messages are found in it.
    pub(crate) fn mapping(&self) -> Mapping {
        self.mapping
    }

    /// The zone that belongs to the client for its turn.
    pub(crate) fn place(&self) -> Option<u16> {
        self.place
    }

    /// Whether the client's turn has to end because one of its messages was overwritten by another client's: it will be
    /// fetched again.
    #[inline]
    pub(crate) fn is_overwritten(&self) -> bool {
        self.overwritten
    }

    /// Whether there is a message in the zone that was not taken.
    fn has_message(&self) -> bool {
        let Some(place) = self.place.filter(|_| self.active) else {
            return false;
        };
        let memory = self.carrier.inlet.memory();
        // A message overwritten by a late one is not written again: its block is polled until that ends the turn.
        let may_be_hit = |block: usize| self.may_be_hit() && self.parts[block] < LOOKS_AT_PART;
        self.blocks(place)
            .have_arrival(memory, &self.seen, &self.reads, may_be_hit)
    }

    /// Finds out which of the blocks to check contain something new, and prefetches the memory that their responses
    /// will be stored into: its last lines are in the cache of the client, which polls them, but those before are
    /// needed here.
    #[inline]
    fn find(&mut self, place: u16) {
        let (blocks, memory, seen) = (self.blocks(place), self.carrier.inlet.memory(), &self.seen);
        let answers = self
            .peer_answers
            .as_ref()
            .filter(|_| self.usual > LINE_BYTES);
        let bytes = self.theirs.answer_bytes;
        self.scan.keep(|left| {
            let new = blocks.news(memory, left, seen);
            if let Some(answers) = answers {
                bits(new).for_each(|block| {
                    answers.expect((block + 1) * bytes - 2 * LINE_BYTES, LINE_BYTES);
                });
            }
            new
        });
    }

    /// Takes the request in a block, if there is a new one.
    #[inline]
    fn take(&mut self, place: u16, block: usize) -> Result<Option<Header>, ChannelError> {
        let blocks = self.blocks(place);
        let memory = self.carrier.inlet.memory();
        let (seen, scratch) = (&mut self.seen[block], &mut self.scratch);
        let (header, turn) = match blocks.take(memory, block, seen, &self.reads, scratch) {
            Look::Whole(header, turn) => (header, turn),
            Look::Known => return self.miss("a message that was told of and is not there"),
            Look::Part => {
                self.take_part(block);
                return self.miss("a message that was told of and is not whole");
            }
        };
        self.parts[block] = 0;
        let turn = Turn::decode(turn);
        if turn.number != self.turn {
            // It was fetched, or will be.
            self.load.late += 1;
            return Ok(None);
        }
        D::charge(effort::WHOLE);
        D::charge(Work::Arrived);
        D::charge(Work::Copy(header.length as usize));
        self.carrier.met = true;
        self.scan.found(1 << block);
        match header.kind {
            Kind::Request | Kind::LongRequest | Kind::Attach => {
                self.begin(block, header, turn.place)
            }
            Kind::Release | Kind::Cancel => self.take_word(block, header),
            _ => Err(ChannelError::violation(
                "a client that sends what clients do not",
            )),
        }
    }

    /// There is no message in a block: if the client announced one, `words` describe its violation.
    #[inline]
    fn miss(&self, words: &'static str) -> Result<Option<Header>, ChannelError> {
        match self.rings {
            None => Ok(None),
            Some(_) => Err(ChannelError::violation(words)),
        }
    }

    /// Whether late messages of others may arrive in the zone, and none is known to have arrived in this turn.
    fn may_be_hit(&self) -> bool {
        self.turn != 0 && !self.overwritten
    }

    /// A block contains no valid message: half of one, or one damaged by a late message. The latter ends the turn. A
    /// zone that belongs to the client permanently has no late messages.
    #[cold]
    fn take_part(&mut self, block: usize) {
        self.parts[block] = self.parts[block].saturating_add(1);
        if self.may_be_hit() && self.parts[block] >= LOOKS_AT_PART {
            self.overwritten = true;
            self.load.late += 1;
        }
    }

    /// Takes a new call; its client stated that `out` calls were outstanding.
    #[inline]
    fn begin(
        &mut self,
        block: usize,
        header: Header,
        out: u16,
    ) -> Result<Option<Header>, ChannelError> {
        if block >= CALLS || slot_of(header.call) != block {
            return Err(ChannelError::violation("a call in another's block"));
        }
        let generation = generation_of(header.call);
        if (generation.wrapping_sub(self.next[block]) as i32) < 0 {
            // It was taken before: it arrived twice, by READ and by WRITE.
            return Ok(None);
        }
        if self.working & 1 << block != 0 {
            let words = "a call in the place of one that is not answered";
            return Err(ChannelError::violation(words));
        }
        self.next[block] = generation.wrapping_add(1);
        self.working |= 1 << block;
        self.batch.took(out);
        self.load.requests += 1;
        self.load.bytes += u64::from(header.length);
        Ok(Some(header))
    }

    /// Takes a control message; it is answered here, which frees its block.
    #[cold]
    fn take_word(&mut self, block: usize, header: Header) -> Result<Option<Header>, ChannelError> {
        let Some(last) = block
            .checked_sub(CALLS)
            .and_then(|index| self.words.get_mut(index))
        else {
            return Err(ChannelError::violation("a word in the place of a call"));
        };
        let is_new = (header.handler.wrapping_sub(*last) as i16) > 0;
        if is_new {
            *last = header.handler;
        }
        self.answer(
            block,
            Header {
                length: 0,
                ..header
            },
        )?;
        Ok(is_new.then_some(header))
    }
}

impl<D: Device> Channel for ServedPool<D> {
    type Device = D;

    #[inline]
    fn eager_bytes(&self) -> usize {
        self.capacity
    }

    /// Each response has its block; the send queue may be full.
    #[inline]
    fn make_room(&mut self, _payload: usize) -> Result<bool, ChannelError> {
        self.carrier.reserve(ANSWERS)
    }

    fn push(&mut self, kind: Kind, handler: u16, call: u64, payload: &[u8]) {
        let pushed = if kind == Kind::Goodbye {
            self.leaving = true;
            self.write_event()
        } else {
            self.draft.fill(payload);
            let header = Header::new(kind, handler, call, payload.len());
            self.answer(slot_of(call) % BLOCKS, header)
        };
        if let Err(error) = pushed {
            // The flush returns it.
            self.carrier.fail(error);
        }
    }

    #[inline]
    fn exchange(&mut self, header: Header, has_room: bool) -> Exchange<'_, D> {
        let most = if has_room { self.capacity } else { 0 };
        let payload = &self.scratch[..header.length as usize];
        (payload, self.draft.space(most), self.carrier.exports())
    }

    #[inline]
    fn commit(&mut self, call: u64, length: usize) {
        let header = Header::new(Kind::Response, 0, call, length);
        if let Err(error) = self.answer(slot_of(call) % BLOCKS, header) {
            self.carrier.fail(error);
        }
    }

    #[inline]
    fn flush(&mut self) -> Result<(), ChannelError> {
        if let Some(error) = &self.carrier.broken {
            return Err(error.clone());
        }
        if self.carrier.is_short() {
            self.unflushed |= self.carrier.take_short();
            if std::mem::take(&mut self.event_due) {
                self.write_event()?;
            }
        }
        if std::mem::take(&mut self.unflushed) {
            self.carrier.unconfirmed = Some(self.carrier.last_posted());
            return self.carrier.wake_if_asleep();
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<Option<Header>, ChannelError> {
        let Some(place) = self.place.filter(|_| self.active && !self.told_over) else {
            return Ok(None);
        };
        // The only word of a client with static mapping that is not in its zone.
        if self.rings.is_none() {
            let begins = !self.scan.is_open();
            if self.scan.begin() {
                self.new_entry()?;
            }
            if D::QueuePair::MAPS_PEERS && begins {
                self.find(place);
            }
        }
        // A control message is answered as soon as it is taken.
        while self.carrier.reserve(ANSWERS)? {
            let Some(block) = self.scan.next() else {
                break;
            };
            if let Some(header) = self.take(place, block)? {
                return Ok(Some(header));
            }
        }
        D::charge(Work::Poll);
        Ok(None)
    }

    #[inline]
    fn payload(&self, header: Header) -> &[u8] {
        &self.scratch[..header.length as usize]
    }

    fn has_arrival(&self) -> bool {
        if self.rings.is_some() {
            return self.scan.is_open();
        }
        // An entry is read when the client has no zone.
        let has_news = match self.new_entry() {
            Ok(entry) => entry.is_some() && self.place.is_none(),
            Err(_) => true,
        };
        self.has_message() || has_news
    }

    fn close(&mut self) {
        self.carrier.queue_pair.to_error();
    }
}
