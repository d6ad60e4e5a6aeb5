//! A client's side of a message pool: writes requests during its turn, and otherwise leaves them to be fetched
//! (ScaleRPC §3.4).
//!
//! The states of Figure 7 are [`State`]. Every request is kept in this side's own memory until it is answered, so it
//! can be fetched, whatever became of what was written.

use std::ops::{Deref, DerefMut};

use dunlin_verbs::{Device, QueuePair, QueuePairState, Region, RemoteAddress, SendFlags, Work};

use super::block::{Blocks, Draft, Look, Seals};
use super::turn::{Entry, Turn};
use super::{bits, ALL, BLOCKS, CALLS, ENTRY_NOTICE, EVENT};
use crate::channel::call_id::slot_of;
use crate::channel::carrier::{Carrier, NOTIFICATIONS};
use crate::channel::message::{Header, Kind};
use crate::channel::{Channel, ChannelError, Exchange, Mapped};
use crate::effort;

mod requests;

/// Maximum number of turn messages processed in one poll for responses: an honest server changes turns more slowly than
/// clients poll.
const WORDS: usize = 4;

/// Whether this client may write into the pool (ScaleRPC §3.4, Fig. 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The server knows of no requests.
    Idle,
    /// The endpoint entry states which requests are to be fetched. Later ones wait for the first message of the turn.
    Warmup,
    /// It is the client's turn: requests are written.
    Process,
}

/// The pool as a client knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    /// The first block of the first zone.
    pub(super) zones: RemoteAddress,
    /// Number of zones.
    pub(super) places: usize,
    /// Size of a zone, and of a block in it.
    pub(super) zone_bytes: usize,
    pub(super) block_bytes: usize,
    /// The number by which the server identifies this client, if it receives messages by completions.
    pub(super) rings: Option<u32>,
    /// There is a single zone, which belongs to this client permanently: nothing is ever fetched.
    pub(super) is_fixed: bool,
}

impl Pool {
    /// Offset of the last `length` bytes of a block, counted from the first zone.
    #[inline]
    fn place(&self, zone: u16, block: usize, length: usize) -> usize {
        usize::from(zone) * self.zone_bytes + (block + 1) * self.block_bytes - length
    }

    /// The immediate to send with a message in this block.
    #[inline]
    fn ring(&self, block: u32) -> Option<u32> {
        self.rings.map(|client| NOTIFICATIONS | client << 8 | block)
    }
}

/// The client's side of a message pool.
#[derive(Debug)]
pub(crate) struct PoolChannel<D: Device> {
    pub(super) carrier: Carrier<D>,
    pub(super) pool: Pool,
    /// The zones, if they are mapped here and have been written once.
    pub(super) peer_zones: Option<Mapped<D>>,
    /// Requests until they are answered; the server READs them from here.
    pub(super) requests: D::Region,
    pub(super) request_blocks: Blocks,
    /// Offset of the contiguous messages of a batch.
    pub(super) bundle_at: usize,
    /// Responses, in the inlet.
    pub(super) answers: Blocks,
    /// Maximum length of a payload in a block of the server.
    pub(super) capacity: usize,
    /// The seals of the server's messages, and of ours.
    pub(super) reads: Seals,
    pub(super) writes: Seals,
    pub(super) state: State,
    /// The turn last reported to this client, with its place.
    pub(super) turn: Turn,
    /// Blocks whose messages are not answered; of these: those neither written nor announced in the entry; and those
    /// that the server has taken, to answer them at any time.
    pub(super) out: u32,
    pub(super) waiting: u32,
    pub(super) taken: u32,
    /// The block after that of the last response, where the next poll begins: servers answer in the order of blocks,
    /// and none of them should wait for ever behind others that are used again and again.
    pub(super) next: usize,
    /// Blocks that had something new in the last poll, and were not taken since.
    pub(super) found: u32,
    /// Length of the message in each block, and the seal of the last response read.
    pub(super) lengths: [usize; EVENT],
    pub(super) seen: [u64; EVENT + 1],
    /// Numbers of control messages, by block.
    pub(super) words: [u16; EVENT - CALLS],
    pub(super) serial: u16,
    pub(super) draft: Draft,
    pub(super) scratch: Box<[u8]>,
    /// Something was written since the last flush.
    pub(super) unflushed: bool,
    /// The lane knows that the server is shutting down.
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
    /// Polls a block of the responses; the payload of a new one is in the scratch buffer.
    #[inline]
    fn look_at(&mut self, block: usize) -> Look {
        let memory = self.carrier.inlet.memory();
        let (seen, scratch) = (&mut self.seen[block], &mut self.scratch);
        self.answers.take(memory, block, seen, &self.reads, scratch)
    }

    /// Blocks that may contain responses.
    #[inline]
    fn look_for_answers(&mut self) -> u32 {
        if !D::QueuePair::MAPS_PEERS {
            return self.out;
        }
        if self.found == 0 {
            let memory = self.carrier.inlet.memory();
            self.found = self.answers.news(memory, self.out, &self.seen);
        }
        self.found
    }

    /// Polls for a turn message that came without a response.
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
            let words = "an answer where a message about turns was expected";
            return Err(ChannelError::violation(words));
        };
        self.hear(Turn::decode(turn), taken)?;
        Ok(true)
    }

    /// Processes what the server reported about the turn, and which calls it has taken without answering them.
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
                return Err(ChannelError::violation("a zone that does not exist"));
            }
            self.turn.number = turn.number;
            self.turn.place = turn.place;
            self.turn.over = false;
            self.state = State::Process;
        } else if ahead > 0 {
            let words = "a turn that was not requested";
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

    /// Takes the response in a block, if there is a new one.
    #[inline]
    fn take(&mut self, block: usize) -> Result<Option<Header>, ChannelError> {
        let Look::Whole(header, turn) = self.look_at(block) else {
            return Ok(None);
        };
        D::charge(effort::WHOLE);
        D::charge(Work::Arrived);
        D::charge(Work::Copy(header.length as usize));
        self.carrier.met = true;
        self.expect(block);
        if block >= CALLS && header.handler != self.words[block - CALLS] {
            // The response to an earlier control message in this block, which was fetched twice.
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
            return Err(ChannelError::violation(
                "an answer in the block of another call",
            ));
        }
        Ok(Some(header))
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

    /// Calls have blocks of their own; control messages may have to wait for one.
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
            // The flush returns it.
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
        // There may have been no entry for a wake-up either.
        self.unflushed |= self.carrier.is_short() && self.carrier.take_short();
        if self.waiting != 0 {
            self.send_waiting()?;
        }
        if std::mem::take(&mut self.unflushed) {
            self.carrier.unconfirmed = Some(self.carrier.last_posted());
            return self.carrier.wake_if_asleep();
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<Option<Header>, ChannelError> {
        for _ in 0..WORDS {
            let first = self.next as u32;
            for ahead in bits(self.look_for_answers().rotate_right(first)) {
                let block = (self.next + ahead) % BLOCKS;
                self.found &= !(1 << block);
                if let Some(header) = self.take(block)? {
                    self.next = (block + 1) % BLOCKS;
                    return Ok(Some(header));
                }
            }
            // What was written before a turn message has arrived when that has, so one more poll finds it.
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

    /// Tells the server, if it can: the server would notice the end only when it sends something.
    fn close(&mut self) {
        let queue_pair = &self.carrier.queue_pair;
        let whole =
            self.carrier.broken.is_none() && queue_pair.state() == QueuePairState::ReadyToSend;
        if self.carrier.dialled && whole && self.carrier.has_entries(8) {
            let told = self.tell(Entry::GOODBYE, 0);
            let _ = told.and_then(|()| match self.pool.ring(ENTRY_NOTICE) {
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
