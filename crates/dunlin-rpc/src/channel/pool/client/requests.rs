//! Sending requests: stored or written during the client's turn, otherwise left where they are fetched from.

use dunlin_verbs::{
    Device, Operation, Payload, PeerMemory, QueuePair, Region, Segment, SendFlags, Work,
};

use super::{PoolChannel, State};
use crate::channel::message::Header;
use crate::channel::pool::block::LINE_BYTES;
use crate::channel::pool::turn::{Entry, Turn};
use crate::channel::pool::{are_bundled, bits, ALL, BLOCKS, CALLS, ENTRY_AT};
use crate::channel::ChannelError;
use crate::effort;

impl<D: Device> PoolChannel<D> {
    /// Stores the message in the draft into its block of the zone, if that is mapped and messages are not announced by
    /// completions. `false`: it must be posted.
    #[inline]
    fn store(&mut self, block: usize) -> bool {
        let Some(zones) = &self.peer_zones else {
            return false;
        };
        if self.pool.rings.is_some() || !zones.is_open() {
            return false;
        }
        let length = self.lengths[block];
        let at = self.pool.place(self.turn.place, block, length);
        zones.store(at, self.draft.message(length));
        self.unflushed = true;
        true
    }

    /// Prepares for the next use of the block: its last line is in the server's cache, which polls it, but the one
    /// before is needed here, if messages are as long as the last.
    #[inline]
    pub(super) fn expect(&self, block: usize) {
        if let Some(zones) = &self.peer_zones {
            if self.lengths[block.min(BLOCKS - 1)] > LINE_BYTES {
                let at = self.pool.place(self.turn.place, block, 2 * LINE_BYTES);
                zones.expect(at, LINE_BYTES);
            }
        }
    }

    /// WRITEs the message of a block into the zone; it is in the draft and in the memory that the server may read.
    /// `false`: not now.
    #[inline]
    fn write(&mut self, block: usize) -> Result<bool, ChannelError> {
        let length = self.lengths[block];
        let at = self.pool.place(self.turn.place, block, length);
        let write = Operation::Write {
            remote: self.pool.zones.plus(at as u64),
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
            true => Payload::Inline(self.draft.message(length)),
            false => Payload::Segments(&segment),
        };
        let posted = self.carrier.post_write(write, payload, flags)?;
        self.unflushed |= posted;
        if D::QueuePair::MAPS_PEERS && self.peer_zones.is_none() {
            let bytes = self.pool.places * self.pool.zone_bytes;
            let pair = &mut self.carrier.queue_pair;
            self.peer_zones = pair.map_peer(self.pool.zones, bytes);
        }
        Ok(posted)
    }

    /// Seals the message in a block again, for the turn of this number, with `out` calls outstanding.
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

    /// Sends what waits: written if permitted, otherwise announced in the entry.
    pub(super) fn send_waiting(&mut self) -> Result<(), ChannelError> {
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
                    if !self.store(block) {
                        self.write(block)?;
                    }
                    self.waiting &= !(1 << block);
                }
                Ok(())
            }
            // The entry that announces them must be posted.
            State::Idle if !self.carrier.reserve(1)? => Ok(()),
            State::Idle => {
                // Those that were answered at the end of the turn are taken in the next poll.
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
                        let message = self.draft.message(length);
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
    pub(super) fn tell(&mut self, lines: u16, blocks: u32) -> Result<(), ChannelError> {
        self.serial = Entry::after(self.serial);
        let entry = Entry {
            serial: self.serial,
            lines,
            blocks,
        };
        let word = entry.encode().to_le_bytes();
        self.carrier.write_word(ENTRY_AT, &word)?;
        self.unflushed = true;
        Ok(())
    }

    /// Sends the message whose payload is in the draft.
    #[inline]
    pub(super) fn send(&mut self, block: usize, header: Header) -> Result<(), ChannelError> {
        if self.state == State::Process && !self.pool.is_fixed {
            // A turn may have ended since the last poll; what is written then is late.
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
        self.lengths[block] = length;
        self.out |= 1 << block;
        let is_turn = self.state == State::Process;
        if is_turn && self.pool.is_fixed && self.store(block) {
            // It is never fetched.
            return Ok(());
        }
        let end = self.request_blocks.end(block);
        let message = self.draft.message(length);
        self.requests.memory().write(end - length, message);
        D::charge(Work::Copy(length));
        if !is_turn || !(self.store(block) || self.write(block)?) {
            self.waiting |= 1 << block;
        }
        Ok(())
    }
}
