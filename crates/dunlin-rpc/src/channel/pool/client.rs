//! A client's side of a message pool: writes requests while it is its turn, leaves them to be fetched while it is not
//! (ScaleRPC §3.4).
//!
//! Figure 7's states are [`State`]. Every request stands in this side's own memory until it is answered, so whatever
//! became of what was written, it can be fetched.

use std::ops::{Deref, DerefMut};

use dunlin_verbs::{
    Device, Operation, Payload, QueuePair, QueuePairState, Region, RemoteAddress, Segment,
    SendFlags, Work,
};

use super::block::{Blocks, Draft, Look, Seals};
use super::turn::{Entry, Turn};
use super::{are_bundled, bits, ALL, BLOCKS, CALLS, ENTRY_AT, ENTRY_RING, EVENT};
use crate::channel::call_id::slot_of;
use crate::channel::carrier::{Carrier, RINGS};
use crate::channel::message::{Header, Kind};
use crate::channel::{Channel, ChannelError, Exchange};
use crate::effort;

/// Words about turns that are heard in one look for answers: an honest server changes turns more slowly than anybody
/// looks.
const WORDS: usize = 4;

/// Whether this client may write into the pool (ScaleRPC §3.4, Fig. 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The server knows of no requests.
    Idle,
    /// The endpoint entry says which requests are to be fetched. Later ones wait for the first word of the turn.
    Warmup,
    /// It is its turn: requests are written.
    Process,
}

/// The pool as a client knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    /// The first block of the first zone.
    pub(super) zones: RemoteAddress,
    /// Zones that there are.
    pub(super) places: usize,
    /// Bytes of a zone, and of a block in it.
    pub(super) zone_bytes: usize,
    pub(super) block_bytes: usize,
    /// The server hears of messages by completions, and knows this client there by this number.
    pub(super) rings: Option<u32>,
}

impl Pool {
    /// What is to be said with a message in this block.
    #[inline]
    fn ring(&self, block: u32) -> Option<u32> {
        self.rings.map(|client| RINGS | client << 8 | block)
    }
}

/// The client's side of a message pool.
#[derive(Debug)]
pub(crate) struct PoolChannel<D: Device> {
    pub(super) carrier: Carrier<D>,
    pub(super) pool: Pool,
    /// Requests until they are answered; the server READs them from here.
    pub(super) requests: D::Region,
    pub(super) request_blocks: Blocks,
    /// Where messages of a batch stand one behind the other.
    pub(super) bundle_at: usize,
    /// Answers, in the inlet.
    pub(super) answers: Blocks,
    /// Longest payload in a block of the server.
    pub(super) capacity: usize,
    /// The seals that the server makes, and ours.
    pub(super) reads: Seals,
    pub(super) writes: Seals,
    pub(super) state: State,
    /// The turn that this client was last told of, and its place.
    pub(super) turn: Turn,
    /// Blocks whose messages are not answered; of these: those that are neither written nor told in the entry; and
    /// those that the server has taken, to answer them whenever it can.
    pub(super) out: u32,
    pub(super) waiting: u32,
    pub(super) taken: u32,
    /// The block after that of the last answer, where the next look begins: servers answer in the order of blocks, and
    /// none of them is to wait for ever behind others that are used again and again.
    pub(super) next: usize,
    /// Bytes of the message in each block, and the last seal that was read in answer.
    pub(super) lengths: [usize; EVENT],
    pub(super) seen: [u64; EVENT + 1],
    /// Numbers of words that are no calls, by block.
    pub(super) words: [u16; EVENT - CALLS],
    pub(super) serial: u16,
    pub(super) draft: Draft,
    pub(super) scratch: Box<[u8]>,
    /// Something was written since the last flush.
    pub(super) unflushed: bool,
    /// The lane has heard that the server leaves.
    pub(super) said_leaving: bool,
}

impl<D: Device> Deref for PoolChannel<D> {
    type Target = Carrier<D>;

    #[inline]
    fn deref(&self) -> &Carrier<D> {
        &self.carrier
    }
}

impl<D: Device> DerefMut for PoolChannel<D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Carrier<D> {
        &mut self.carrier
    }
}

impl<D: Device> PoolChannel<D> {
    /// WRITEs the message of a block into the zone; it stands in the draft and in the memory that the server may read.
    /// `false`: not now.
    #[inline]
    fn write(&mut self, block: usize) -> Result<bool, ChannelError> {
        let length = self.lengths[block];
        let end = (block + 1) * self.pool.block_bytes - length;
        let zone = usize::from(self.turn.place) * self.pool.zone_bytes;
        let write = Operation::Write {
            remote: self.pool.zones.plus((zone + end) as u64),
            immediate: self.pool.ring(block as u32),
        };
        let mut flags = self.carrier.next_flags();
        flags.set(SendFlags::SOLICITED, self.pool.rings.is_some());
        let segment = [Segment {
            region: &self.requests,
            offset: self.request_blocks.end(block) - length,
            length,
        }];
        let payload = match length <= self.carrier.inline_bytes {
            true => Payload::Inline(self.draft.space(length)),
            false => Payload::Segments(&segment),
        };
        let posted = self.carrier.post_write(write, payload, flags)?;
        self.unflushed |= posted;
        Ok(posted)
    }

    /// Seals the message that stands in a block once more, for the turn of this number; so many calls are out.
    fn seal_again(&mut self, block: usize, number: u32, out: u32) {
        let (length, end) = (self.lengths[block], self.request_blocks.end(block));
        let memory = self.requests.memory();
        self.draft.take(memory, end, length);
        let turn = Turn {
            number,
            place: out as u16,
            ..Turn::default()
        };
        let sealed = self.draft.seal(length, turn.encode(), &self.writes, block);
        memory.write(end - 16, &sealed[length - 16..]);
        D::charge(Work::Copy(length));
    }

    /// Sends what waits: written where that may be, else told in the entry.
    fn send_waiting(&mut self) -> Result<(), ChannelError> {
        match self.state {
            State::Warmup => Ok(()),
            State::Process => {
                let mut out = (self.out & !self.waiting).count_ones();
                for block in bits(self.waiting) {
                    if !self.carrier.reserve(1)? {
                        break;
                    }
                    out += 1;
                    self.seal_again(block, self.turn.number, out);
                    self.write(block)?;
                    self.waiting &= !(1 << block);
                }
                Ok(())
            }
            // The entry that tells of them is to be posted.
            State::Idle if !self.carrier.reserve(1)? => Ok(()),
            State::Idle => {
                // Those that were answered with the last words of the turn are taken with the next look.
                let memory = self.carrier.inlet.memory();
                let answered =
                    |&block: &usize| self.answers.is_new(memory, block, self.seen[block]);
                let done = bits(self.waiting).filter(answered);
                let done = done.fold(0, |set, block| set | 1 << block);
                let blocks = std::mem::take(&mut self.waiting) & !done;
                if blocks == 0 {
                    return Ok(());
                }
                let next = self.turn.number.wrapping_add(1);
                let longest = bits(blocks).map(|block| self.lengths[block]).max();
                let lines = longest.unwrap_or(0).div_ceil(64);
                let bundled = are_bundled(lines as u16, blocks);
                let mut slot_end = self.bundle_at;
                for (block, out) in bits(blocks).zip(1..) {
                    self.seal_again(block, next, out);
                    if bundled {
                        let length = self.lengths[block];
                        slot_end += lines * 64;
                        let message = self.draft.space(length);
                        let memory = self.requests.memory();
                        memory.write(slot_end - length, message);
                        D::charge(Work::Copy(length));
                    }
                }
                self.state = State::Warmup;
                self.tell(lines as u16, blocks)
            }
        }
    }

    /// WRITEs the endpoint entry.
    fn tell(&mut self, lines: u16, blocks: u32) -> Result<(), ChannelError> {
        self.serial = Entry::after(self.serial);
        let entry = Entry {
            serial: self.serial,
            lines,
            blocks,
        };
        let word = entry.encode().to_le_bytes();
        self.carrier.write_word(ENTRY_AT, &word, false)?;
        self.unflushed = true;
        Ok(())
    }

    /// Looks at a block of the answers; the payload of what is new stands in the scratch.
    #[inline]
    fn look_at(&mut self, block: usize) -> Look {
        let memory = self.carrier.inlet.memory();
        let (seen, scratch) = (&mut self.seen[block], &mut self.scratch);
        self.answers.take(memory, block, seen, &self.reads, scratch)
    }

    /// Looks for a word about the turn that came without an answer.
    #[inline]
    fn look_for_event(&mut self) -> Result<bool, ChannelError> {
        match self.look_at(EVENT) {
            Look::Whole(header, turn) => self.take_event(header, turn),
            Look::Known | Look::Part => Ok(false),
        }
    }

    #[cold]
    fn take_event(&mut self, header: Header, turn: u64) -> Result<bool, ChannelError> {
        let taken = self.scratch[..header.length as usize].first_chunk();
        let taken = taken.filter(|_| header.kind == Kind::Turn).copied();
        let Some(taken) = taken.map(u32::from_le_bytes) else {
            let words = "an answer in the place of words about turns";
            return Err(ChannelError::violation(words));
        };
        self.hear(Turn::decode(turn), taken)?;
        Ok(true)
    }

    /// The server has said something about the turn, and which calls it has taken without answering them.
    #[inline]
    fn hear(&mut self, turn: Turn, taken: u32) -> Result<(), ChannelError> {
        if turn == self.turn {
            return Ok(());
        }
        self.hear_news(turn, taken)
    }

    #[cold]
    fn hear_news(&mut self, turn: Turn, taken: u32) -> Result<(), ChannelError> {
        if turn.leaving {
            self.turn.leaving = true;
        }
        let ahead = turn.number.wrapping_sub(self.turn.number) as i32;
        if ahead == 1 && self.state == State::Warmup {
            if usize::from(turn.place) >= self.pool.places {
                return Err(ChannelError::violation("a zone that is not there"));
            }
            self.turn.number = turn.number;
            self.turn.place = turn.place;
            self.turn.over = false;
            self.state = State::Process;
        } else if ahead > 0 {
            let words = "a turn that was not asked for";
            return Err(ChannelError::violation(words));
        }
        if turn.over && turn.number == self.turn.number && self.state == State::Process {
            self.turn.over = true;
            self.state = State::Idle;
            self.taken = taken & self.out;
            self.waiting = self.out & !self.taken;
        }
        Ok(())
    }

    #[inline]
    fn has_block_for_word(&self) -> bool {
        self.out >> CALLS != ALL >> CALLS
    }

    /// Takes the answer in a block, if a new one is there.
    #[inline]
    fn take(&mut self, block: usize) -> Result<Option<Header>, ChannelError> {
        let Look::Whole(header, turn) = self.look_at(block) else {
            return Ok(None);
        };
        D::charge(effort::WHOLE);
        D::charge(Work::Arrived);
        D::charge(Work::Copy(header.length as usize));
        self.carrier.met = true;
        if block >= CALLS && header.handler != self.words[block - CALLS] {
            // To an earlier word in this block, which was fetched twice.
            return Ok(None);
        }
        let bit = !(1 << block);
        self.out &= bit;
        self.waiting &= bit;
        self.taken &= bit;
        self.hear(Turn::decode(turn), 0)?;
        if block >= CALLS {
            return Ok(None);
        }
        if slot_of(header.call) != block {
            return Err(ChannelError::violation("an answer in another's place"));
        }
        Ok(Some(header))
    }

    /// Puts the message whose payload stands in the draft on its way.
    #[inline]
    fn send(&mut self, block: usize, header: Header) -> Result<(), ChannelError> {
        if self.state == State::Process {
            // A turn may have ended since the last look; what is written then is late.
            self.look_for_event()?;
        }
        let others = self.out & !(ALL << CALLS) & !(1 << block);
        let turn = Turn {
            number: self.turn.number,
            place: others.count_ones() as u16 + 1,
            ..Turn::default()
        };
        let message = self
            .draft
            .finish(header, turn.encode(), &self.writes, block);
        D::charge(effort::SEALED);
        let length = message.len();
        let end = self.request_blocks.end(block);
        self.requests.memory().write(end - length, message);
        D::charge(Work::Copy(length));
        self.lengths[block] = length;
        self.out |= 1 << block;
        if self.state != State::Process || !self.write(block)? {
            self.waiting |= 1 << block;
        }
        Ok(())
    }
}

impl<D: Device> Channel for PoolChannel<D> {
    type Device = D;

    #[inline]
    fn eager_bytes(&self) -> usize {
        self.capacity
    }

    fn most_calls(&self) -> usize {
        CALLS
    }

    /// Calls have blocks of their own; words that are no calls may have to wait for one.
    #[inline]
    fn make_room(&mut self, _payload: usize) -> Result<bool, ChannelError> {
        if self.has_block_for_word() {
            return Ok(true);
        }
        for block in CALLS..EVENT {
            self.take(block)?;
        }
        D::charge(Work::Poll);
        self.flush()?;
        Ok(self.has_block_for_word())
    }

    #[inline]
    fn push(&mut self, kind: Kind, handler: u16, call: u64, payload: &[u8]) {
        let mut header = Header::new(kind, handler, call, payload.len());
        let block = match kind {
            Kind::Request | Kind::LongRequest | Kind::Attach => slot_of(call),
            _ => {
                let block = CALLS + (self.out >> CALLS).trailing_ones() as usize;
                let word = &mut self.words[block - CALLS];
                *word = word.wrapping_add(1);
                header.handler = *word;
                block
            }
        };
        self.draft.fill(payload);
        if let Err(error) = self.send(block, header) {
            // The flush says it.
            self.carrier.fail(error);
        }
    }

    fn exchange(&mut self, header: Header, has_room: bool) -> Exchange<'_, D> {
        let most = if has_room { self.capacity } else { 0 };
        let payload = &self.scratch[..header.length as usize];
        (payload, self.draft.space(most), self.carrier.exports())
    }

    fn commit(&mut self, call: u64, length: usize) {
        let header = Header::new(Kind::Response, 0, call, length);
        if let Err(error) = self.send(slot_of(call), header) {
            self.carrier.fail(error);
        }
    }

    #[inline]
    fn flush(&mut self) -> Result<(), ChannelError> {
        if let Some(error) = &self.carrier.broken {
            return Err(error.clone());
        }
        // A wake-up may have found no entry as well.
        self.unflushed |= self.carrier.is_short() && self.carrier.take_short();
        if self.waiting != 0 {
            self.send_waiting()?;
        }
        if std::mem::take(&mut self.unflushed) {
            self.carrier.unconfirmed = Some(self.carrier.posted);
            return self.carrier.wake_if_asleep();
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<Option<Header>, ChannelError> {
        for _ in 0..WORDS {
            let first = self.next as u32;
            for ahead in bits(self.out.rotate_right(first)) {
                let block = (self.next + ahead) % BLOCKS;
                if let Some(header) = self.take(block)? {
                    self.next = (block + 1) % BLOCKS;
                    return Ok(Some(header));
                }
            }
            // What was written before a word about the turn is there when that is, so one more look finds it.
            if !self.look_for_event()? {
                break;
            }
        }
        if self.turn.leaving && !self.said_leaving {
            self.said_leaving = true;
            return Ok(Some(Header::new(Kind::Goodbye, 0, 0, 0)));
        }
        D::charge(Work::Poll);
        self.flush()?;
        Ok(None)
    }

    #[inline]
    fn payload(&self, header: Header) -> &[u8] {
        &self.scratch[..header.length as usize]
    }

    fn has_arrival(&self) -> bool {
        let memory = self.carrier.inlet.memory();
        let new = |block| self.answers.is_new(memory, block, self.seen[block]);
        bits(self.out).any(new) || new(EVENT)
    }

    /// Tells the server, as far as that can be done: it would see the end only when it says something.
    fn close(&mut self) {
        let queue_pair = &self.carrier.queue_pair;
        let whole =
            self.carrier.broken.is_none() && queue_pair.state() == QueuePairState::ReadyToSend;
        if self.carrier.dialled && whole && self.carrier.has_entries(8) {
            let told = self.tell(Entry::GOODBYE, 0);
            let _ = told.and_then(|()| match self.pool.ring(ENTRY_RING) {
                None => self.carrier.wake_if_asleep(),
                ring => self
                    .carrier
                    .post_nothing(ring, SendFlags::SOLICITED)
                    .map(drop),
            });
        }
        self.carrier.queue_pair.to_error();
    }
}
