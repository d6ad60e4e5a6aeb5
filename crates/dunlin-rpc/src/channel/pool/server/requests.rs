//! Finding and taking requests: in the client's zone, by its endpoint entry, and by completions.

use std::sync::atomic::Ordering;

use dunlin_verbs::{Completion, Device, PeerMemory, Region, Work};

use super::{ServedPool, ANSWERS};
use crate::channel::call_id::{generation_of, slot_of};
use crate::channel::message::{Header, Kind};
use crate::channel::pool::block::{Look, LINE_BYTES};
use crate::channel::pool::turn::{Entry, Turn};
use crate::channel::pool::{bits, Mapping, BLOCKS, CALLS, ENTRY_NOTICE};
use crate::channel::ChannelError;
use crate::effort;

/// Number of polls of a block whose message does not become complete, before the turn ends so that it is fetched.
const LOOKS_AT_PART: u8 = 200;

impl<D: Device> ServedPool<D> {
    /// The endpoint entry, if it is a new one.
    ///
    /// # Errors
    /// When the client has left.
    #[inline]
    pub(super) fn new_entry(&self) -> Result<Option<Entry>, ChannelError> {
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
                "an entry from a client that needs no turn",
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
        Ok(self.place.is_none() && self.new_entry()?.is_some() && self.may_fetch())
    }

    /// Whether the READs of a turn that was given up, if any, have completed: only then requests are fetched again.
    pub(super) fn may_fetch(&self) -> bool {
        self.late.is_none_or(|late| self.carrier.is_done(late))
    }

    /// Whether READs of requests that the client has announced, those of a turn that was given up included, have not
    /// completed.
    pub(crate) fn awaits_requests(&self) -> bool {
        let mut reads = self.fetch.iter().chain(&self.late);
        reads.any(|&read| !self.carrier.is_done(read))
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
            return Err(ChannelError::violation(
                "a client with the number of another client",
            ));
        }
        if block == ENTRY_NOTICE {
            return self.new_entry().map(drop);
        }
        if block as usize >= BLOCKS || !self.scan.add(block) {
            let words =
                "a notice of a block that does not exist, or a second notice of the same block";
            return Err(ChannelError::violation(words));
        }
        Ok(())
    }

    /// Whether announced messages are still to be taken.
    #[inline]
    pub(crate) fn is_notified(&self) -> bool {
        self.rings.is_some() && self.scan.is_open()
    }

    /// Whether there is a message in the zone that was not taken.
    pub(super) fn has_message(&self) -> bool {
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
    pub(super) fn find(&mut self, place: u16) {
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
    pub(super) fn take(
        &mut self,
        place: u16,
        block: usize,
    ) -> Result<Option<Header>, ChannelError> {
        let blocks = self.blocks(place);
        let memory = self.carrier.inlet.memory();
        let (seen, scratch) = (&mut self.seen[block], &mut self.scratch);
        let (header, turn) = match blocks.take(memory, block, seen, &self.reads, scratch) {
            Look::Whole(header, turn) => (header, turn),
            Look::Known => return self.miss("a message that was announced but is missing"),
            Look::Part => {
                self.take_part(block);
                return self.miss("a message that was announced but is incomplete");
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
                "a message that clients must not send",
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
            return Err(ChannelError::violation(
                "a call in the block of another call",
            ));
        }
        let generation = generation_of(header.call);
        if (generation.wrapping_sub(self.next[block]) as i32) < 0 {
            // It was taken before: it arrived twice, by READ and by WRITE.
            return Ok(None);
        }
        if self.working & 1 << block != 0 {
            let words = "a call in the slot of an unanswered call";
            return Err(ChannelError::violation(words));
        }
        self.next[block] = generation.wrapping_add(1);
        self.working |= 1 << block;
        self.batch.took(out);
        self.load.requests += 1;
        self.load.bytes += u64::from(header.length);
        Ok(Some(header))
    }

    /// Blocks are checked in their order, which is not that in which messages are written: a call may be written into a
    /// block that was checked already, and be given up before the poll reaches the block of its cancellation. Returns
    /// the message that comes first.
    #[cold]
    pub(super) fn after_its_call(
        &mut self,
        place: u16,
        cancel: Header,
    ) -> Result<Header, ChannelError> {
        let block = slot_of(cancel.call);
        // Messages that are announced are known in the order in which they were written. The call needs an answer.
        if self.rings.is_some() || block >= CALLS || !self.carrier.reserve(ANSWERS)? {
            return Ok(cancel);
        }
        let Some(call) = self.take(place, block)? else {
            return Ok(cancel);
        };
        self.held = Some(cancel);
        Ok(call)
    }

    /// Takes a control message; it is answered here, which frees its block.
    #[cold]
    fn take_word(&mut self, block: usize, header: Header) -> Result<Option<Header>, ChannelError> {
        let Some(last) = block
            .checked_sub(CALLS)
            .and_then(|index| self.words.get_mut(index))
        else {
            return Err(ChannelError::violation(
                "a control message where a call was expected",
            ));
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
