//! The server's side of a message pool, for one client: finds requests in the client's zone, answers them into the
//! client's memory, and reports its turns to it.

mod answers;
mod requests;
mod turns;

use std::ops::{Deref, DerefMut};

use dunlin_link::Ticket;
use dunlin_verbs::{Device, QueuePair, RemoteAddress, Work};

use super::batch::Batch;
use super::block::{Blocks, Draft, Seals};
use super::scan::Scan;
use super::{Mapping, BLOCKS, CALLS};
use crate::channel::call_id::slot_of;
use crate::channel::carrier::Carrier;
use crate::channel::message::{Header, Kind};
use crate::channel::{Channel, ChannelError, Exchange, Mapped};

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
    /// A cancellation whose call was found after it, and comes first.
    pub(super) held: Option<Header>,
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
        if self.held.is_some() {
            return Ok(self.held.take());
        }
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
                return match header.kind {
                    Kind::Cancel => self.after_its_call(place, header).map(Some),
                    _ => Ok(Some(header)),
                };
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
        // An entry is read when the client has no zone, and no READ that it lets wait.
        let has_news = match self.new_entry() {
            Ok(entry) => entry.is_some() && self.place.is_none() && self.may_fetch(),
            Err(_) => true,
        };
        self.has_message() || has_news || self.held.is_some()
    }

    fn close(&mut self) {
        self.carrier.queue_pair.to_error();
    }
}
