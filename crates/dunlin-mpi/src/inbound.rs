//! The messages that come from one rank: each ring message goes into the receive that it matches, or into the queue of
//! unexpected messages, or stays in the ring when that has no room.

use dunlin_ring::Message;

use crate::matching::{Envelope, Matching};
use crate::target::{Lent, Target};
use crate::wire::{Context, Fault, Header, Kind, HEADER_BYTES};

/// What a held message counts in addition to its bytes, so that empty messages are limited, too.
const HELD_BYTES: usize = 64;

/// A long message of which pieces are still missing.
#[derive(Debug)]
struct Arriving {
    envelope: Envelope,
    received: usize,
    sink: Sink,
}

/// Where the pieces of a long message go.
#[derive(Debug)]
enum Sink {
    /// Into the receive that it matched.
    Target(Target),
    /// Into a buffer of ours: it matched no receive yet.
    Held(Vec<u8>),
    /// Nowhere: the receive that it matched has failed.
    Nowhere,
}

/// What may be held of messages that match no receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes for each source.
    pub(crate) bytes: usize,
    /// Whether the user receives nothing more: such messages are thrown away.
    pub(crate) is_leaving: bool,
}

/// What a ring message was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// A message or a piece, which has its place now.
    Placed,
    /// A message for which there is neither a receive nor room; it stays in the ring.
    Stalled,
    /// The rank leaves, possibly because of a rank that it lost.
    Goodbye { cause: u32 },
}

/// The receiving state of one rank.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    arriving: Option<Arriving>,
    /// The message at the head of the ring, if it stays there.
    stalled: Option<Envelope>,
    /// Bytes of unexpected messages that are held.
    held: usize,
}

impl Inbound {
    /// The message that stays in the ring.
    pub(crate) fn stalled(&self) -> Option<&Envelope> {
        self.stalled.as_ref()
    }

    /// Whether a message of `bytes` bytes may be held.
    pub(crate) fn has_room(&self, bytes: usize, limit: usize) -> bool {
        self.held + bytes + HELD_BYTES <= limit
    }

    /// Counts a message that is held.
    pub(crate) fn count_held(&mut self, bytes: usize) {
        self.held += bytes + HELD_BYTES;
    }

    /// Counts a held message that a receive has taken.
    pub(crate) fn count_taken(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes + HELD_BYTES);
    }

    /// Accepts the next ring message of rank `source`.
    pub(crate) fn accept(
        &mut self,
        source: usize,
        message: Message<'_>,
        matching: &mut Matching<Target>,
        room: Room,
        lent: &mut Lent<'_>,
    ) -> Result<Accepted, Fault> {
        self.stalled = None;
        let Some(bytes) = message.len().checked_sub(HEADER_BYTES) else {
            return Err(Fault::Short {
                bytes: message.len(),
            });
        };
        // Read once: the peer can still write there.
        let header = Header::decode(message.u64_at(0), message.u64_at(8), bytes)?;
        match (header.kind, &mut self.arriving) {
            (Kind::Goodbye, None) => Ok(Accepted::Goodbye { cause: header.tag }),
            (Kind::Whole | Kind::First, None) => {
                let envelope = Envelope {
                    context: header.context,
                    source,
                    tag: header.tag,
                    bytes: usize::try_from(header.length).unwrap_or(usize::MAX),
                };
                Ok(self.begin(envelope, &message, matching, room, lent))
            }
            (Kind::Piece, Some(arriving)) => {
                let rest = arriving.envelope.bytes - arriving.received;
                if header.length != arriving.received as u64 || bytes > rest {
                    return Err(Fault::Length {
                        length: header.length,
                        bytes,
                    });
                }
                arriving.add(&message, lent);
                self.end_if_whole(matching, lent);
                Ok(Accepted::Placed)
            }
            _ => Err(Fault::Order),
        }
    }

    /// Finds the place of a message that begins, and puts its bytes or its first piece there.
    fn begin(
        &mut self,
        envelope: Envelope,
        message: &Message<'_>,
        matching: &mut Matching<Target>,
        room: Room,
        lent: &mut Lent<'_>,
    ) -> Accepted {
        let sink = match matching.take_posted(&envelope) {
            Some(target) => match target.checked(&envelope.status(), lent) {
                Some(target) => Sink::Target(target),
                None => Sink::Nowhere,
            },
            None if room.is_leaving && envelope.context == Context::User => Sink::Nowhere,
            None if self.has_room(envelope.bytes, room.bytes) => {
                self.count_held(envelope.bytes);
                matching.hold(envelope, None);
                Sink::Held(Vec::with_capacity(envelope.bytes))
            }
            None => {
                self.stalled = Some(envelope);
                return Accepted::Stalled;
            }
        };
        let mut arriving = Arriving {
            envelope,
            received: 0,
            sink,
        };
        arriving.add(message, lent);
        self.arriving = Some(arriving);
        self.end_if_whole(matching, lent);
        Accepted::Placed
    }

    fn end_if_whole(&mut self, matching: &mut Matching<Target>, lent: &mut Lent<'_>) {
        let is_whole = |one: &mut Arriving| one.received == one.envelope.bytes;
        if let Some(Arriving { envelope, sink, .. }) = self.arriving.take_if(is_whole) {
            match sink {
                Sink::Target(target) => target.end(Ok(envelope.status()), lent),
                Sink::Held(bytes) => matching.complete(envelope.source, bytes),
                Sink::Nowhere => {}
            }
        }
    }

    /// Directs the message that is arriving, and was held so far, into a receive.
    pub(crate) fn redirect(&mut self, target: Target, lent: &mut Lent<'_>) {
        let Some(arriving) = &mut self.arriving else {
            return;
        };
        let held = std::mem::replace(&mut arriving.sink, Sink::Nowhere);
        let (Sink::Held(bytes), Some(mut target)) =
            (held, target.checked(&arriving.envelope.status(), lent))
        else {
            return;
        };
        target.bytes_mut(lent)[..bytes.len()].copy_from_slice(&bytes);
        arriving.sink = Sink::Target(target);
    }

    /// The call that lent its buffer ends: what still arrives for it goes nowhere.
    pub(crate) fn forget_lent(&mut self) {
        if let Some(arriving) = &mut self.arriving {
            if matches!(arriving.sink, Sink::Target(Target::Lent)) {
                arriving.sink = Sink::Nowhere;
            }
        }
    }

    /// The rank is gone: removes the receive of the message that was arriving.
    pub(crate) fn abandon(&mut self) -> Option<Target> {
        self.stalled = None;
        match self.arriving.take()?.sink {
            Sink::Target(target) => Some(target),
            Sink::Held(_) | Sink::Nowhere => None,
        }
    }
}

impl Arriving {
    /// Copies the bytes behind the header to their place.
    fn add(&mut self, message: &Message<'_>, lent: &mut Lent<'_>) {
        let bytes = message.len() - HEADER_BYTES;
        let place = self.received..self.received + bytes;
        match &mut self.sink {
            Sink::Target(target) => {
                message.read(HEADER_BYTES, &mut target.bytes_mut(lent)[place]);
            }
            Sink::Held(held) => {
                held.resize(place.end, 0);
                message.read(HEADER_BYTES, &mut held[place]);
            }
            Sink::Nowhere => {}
        }
        self.received += bytes;
    }
}
