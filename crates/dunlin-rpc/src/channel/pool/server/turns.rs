//! The turns of one client: fetching its requests beforehand, notifying it, and ending the turn (ScaleRPC §3.3).

use dunlin_verbs::{
    Device, Operation, Payload, QueuePair, Region, Segment, SendFlags, SendRequest,
};

use super::{ServedPool, TurnLoad};
use crate::channel::carrier::QUIET;
use crate::channel::message::{Header, Kind};
use crate::channel::pool::block::Blocks;
use crate::channel::pool::turn::Turn;
use crate::channel::pool::{are_bundled, bits, BLOCKS, BUNDLE, EVENT};
use crate::channel::{Channel, ChannelError};

impl<D: Device> ServedPool<D> {
    /// Fetches the client's requests into a zone for its next turn (ScaleRPC §3.3's warm-up). `false`: not now, because
    /// there are no entries, or no requests: a client may take its entry back between two polls. The zone is then not
    /// assigned to it.
    ///
    /// # Errors
    /// When the client has left, or the queue pair failed.
    pub(crate) fn warm_up(&mut self, place: u16) -> Result<bool, ChannelError> {
        let Some(entry) = self.new_entry()? else {
            return Ok(false);
        };
        if !self.carrier.reserve(BLOCKS)? {
            return Ok(false);
        }
        self.carrier.met = true;
        self.served = entry.serial;
        self.late = None;
        self.place = Some(place);
        self.parts = [0; BLOCKS];
        let blocks = self.blocks(place);
        for (block, seen) in self.seen.iter_mut().enumerate() {
            // Remains of others must not be taken for something new, and a message that is written there again must be.
            blocks.clear(self.carrier.inlet.memory(), block);
            *seen = 0;
        }
        let length = usize::from(entry.lines) * 64;
        let length = length.min(self.block_bytes).min(self.theirs.request_bytes);
        self.scan.found(entry.blocks);
        if are_bundled(entry.lines, entry.blocks) && length == usize::from(entry.lines) * 64 {
            self.fetch_bundled(blocks, entry.blocks, length)?;
            return Ok(true);
        }
        for block in bits(entry.blocks) {
            let theirs = (block + 1) * self.theirs.request_bytes - length;
            let last = entry.blocks >> block == 1;
            self.post_read(theirs, &[blocks.end(block)], length, last)?;
        }
        Ok(true)
    }

    /// Fetches contiguous messages of `length` bytes, many by one READ, each to the end of its block.
    pub(super) fn fetch_bundled(
        &mut self,
        to: Blocks,
        blocks: u32,
        length: usize,
    ) -> Result<(), ChannelError> {
        let mut left = blocks;
        let mut theirs = self.theirs.bundle_at;
        while left != 0 {
            let mut ends = [0; BUNDLE];
            let mut count = 0;
            for block in bits(left).take(self.bundle) {
                ends[count] = to.end(block);
                count += 1;
                left &= !(1 << block);
            }
            self.post_read(theirs, &ends[..count], length, left == 0)?;
            theirs += count * length;
        }
        Ok(())
    }

    /// READs contiguous pieces of `length` bytes at the client, from `theirs` on, to the given ends here: at most
    /// [`BUNDLE`] of them. When the last READ of a turn is completed, all are. There are entries for them.
    pub(super) fn post_read(
        &mut self,
        theirs: usize,
        ends: &[usize],
        length: usize,
        last: bool,
    ) -> Result<(), ChannelError> {
        let read = Operation::Read {
            remote: self.theirs.requests.plus(theirs as u64),
        };
        let segments: [_; BUNDLE] = std::array::from_fn(|i| Segment {
            region: &self.carrier.inlet,
            offset: ends.get(i).map_or(0, |end| end - length),
            length,
        });
        let flags = match last {
            true => SendFlags::SIGNALED,
            false => self.carrier.next_flags(),
        };
        let payload = Payload::Segments(&segments[..ends.len()]);
        let request = SendRequest::new(QUIET, read, payload, flags);
        if let Err(error) = self.carrier.queue_pair.post_send(&[request]) {
            let error = ChannelError::queue_pair(error.to_string());
            return Err(self.carrier.fail(error));
        }
        self.carrier.note_posted(flags);
        self.fetch = last.then_some(self.carrier.last_posted());
        Ok(())
    }

    /// Whether the requests being fetched have arrived.
    ///
    /// # Errors
    /// When the queue pair failed.
    pub(crate) fn is_warm(&mut self) -> Result<bool, ChannelError> {
        let Some(fetch) = self.fetch else {
            return Ok(true);
        };
        self.carrier.progress()?;
        if self.carrier.is_done(fetch) {
            self.fetch = None;
        }
        Ok(self.fetch.is_none())
    }

    /// The client's requests did not arrive in time: they will be fetched again when these READs have completed. Until
    /// then the server does not wait for this client again.
    pub(crate) fn give_up_warm_up(&mut self) {
        self.place = None;
        self.late = self.fetch.take();
        self.served = self.served.wrapping_sub(1);
    }

    /// Begins the client's turn, in the zone that its requests were fetched into.
    pub(crate) fn begin_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
        self.active = true;
        self.ending = false;
        self.patient = false;
        self.overwritten = false;
        self.told = false;
        self.told_over = false;
        self.scan.restart();
        self.load = TurnLoad::default();
    }

    /// Called after a poll: tells the client that it is its turn if no response has.
    #[inline]
    pub(crate) fn tell_turn(&mut self) -> Result<(), ChannelError> {
        if self.told || !self.active || (self.scan.looks() < 4 && self.working == 0) {
            return Ok(());
        }
        self.write_event()?;
        self.flush()
    }

    /// Makes the turn end with the next response: to the last call of a batch, as far as the turn has shown how many
    /// are in one. If the client has sent fewer requests than `seldom`, no other is waited for.
    pub(crate) fn end_with_answer(&mut self, seldom: u64) {
        self.ending = true;
        self.patient = self.load.requests >= seldom;
    }

    /// Whether the client knows that its turn is over, or is not waited for.
    pub(crate) fn may_end(&self) -> bool {
        self.told_over || !self.patient
    }

    /// Makes the turn end now: every block is polled once more, and the last response states that the turn is over.
    pub(crate) fn end_soon(&mut self) {
        self.ending = true;
        self.patient = false;
        self.scan.look_at_all();
    }

    /// Ends the turn; the zone no longer belongs to the client.
    pub(crate) fn end_turn(&mut self) -> Result<TurnLoad, ChannelError> {
        self.ending = true;
        self.active = false;
        self.place = None;
        // A client that has no turn is not polled. Its call runs, as if the cancellation had arrived after it.
        self.held = None;
        if !self.told_over {
            self.write_event()?;
        }
        self.flush()?;
        Ok(self.load)
    }

    /// The state of the turn, to be sent with everything that is written.
    #[inline]
    pub(super) fn turn_word(&self, over: bool) -> u64 {
        let turn = Turn {
            number: self.turn,
            place: self
                .place
                .filter(|_| self.active)
                .map_or(0, |place| self.zone(place)),
            over: over || !self.active,
            leaving: self.leaving,
        };
        turn.encode()
    }

    /// Reports the state of the turn by a separate WRITE.
    #[cold]
    pub(super) fn write_event(&mut self) -> Result<(), ChannelError> {
        if !self.carrier.reserve(1)? {
            // The next flush sends it, with the state at that time.
            self.event_due = true;
            return Ok(());
        }
        self.told = true;
        self.told_over = self.ending;
        self.load.words += 1;
        self.draft.fill(&self.working.to_le_bytes());
        let header = Header::new(Kind::Turn, 0, 0, 4);
        self.write(EVENT, header, self.turn_word(self.ending))
    }
}
