//! A rank of a job, and its blocking calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use dunlin_verbs::thread;

use crate::error::MpiError;
use crate::matching::{Envelope, Matching, Pattern};
use crate::outbound::put_with;
use crate::peer::Peer;
use crate::selection::{Source, Status, Tag};
use crate::settings::Settings;
use crate::target::{Lent, Target};
use crate::waiting::Wait;
use crate::wire::{Context, Header, Kind};

/// This process as a rank of a job: the communicator of all ranks (`MPI_COMM_WORLD`).
///
/// A world belongs to one thread at a time; it can be moved to another one. All of its calls make progress for all
/// messages under way, and none is made without a call: a rank that computes for long neither receives nor completes
/// its nonblocking sends of long messages meanwhile.
///
/// Leave the job by [`World::finalize`]. A world that is dropped tells the other ranks that this one has left; what it
/// has sent before arrives, if it is in the rings within a second.
#[derive(Debug)]
pub struct World {
    pub(crate) rank: usize,
    pub(crate) peers: Vec<Peer>,
    pub(crate) matching: Matching<Target>,
    /// The first loss of a rank, which ends all calls that would wait.
    pub(crate) failure: Option<MpiError>,
    pub(crate) eager_bytes: usize,
    pub(crate) unexpected_bytes: usize,
    /// Whether the user receives nothing more.
    pub(crate) is_leaving: bool,
    /// Distinguishes the worlds of a process.
    pub(crate) id: u64,
    /// When a caller that polls has probed the connections last.
    pub(crate) probed: Instant,
    /// Number of collectives so far.
    pub(crate) collectives: u32,
}

impl World {
    /// A rank that is not connected to others yet.
    pub(crate) fn new(rank: usize, size: usize, settings: &Settings) -> Self {
        static WORLDS: AtomicU64 = AtomicU64::new(0);
        Self {
            rank,
            peers: (0..size).map(|_| Peer::new()).collect(),
            matching: Matching::new(),
            failure: None,
            eager_bytes: settings.eager_bytes,
            unexpected_bytes: settings.unexpected_bytes,
            is_leaving: false,
            id: WORLDS.fetch_add(1, Ordering::Relaxed),
            probed: thread::now(),
            collectives: 0,
        }
    }

    /// The number of this process, from 0 (`MPI_Comm_rank`).
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of processes of the job (`MPI_Comm_size`).
    pub fn size(&self) -> usize {
        self.peers.len()
    }

    /// The device over which this rank and another one exchange messages; `None` for this rank itself, and for a number
    /// that is not a rank's.
    pub fn device(&self, rank: usize) -> Option<&str> {
        self.peers.get(rank)?.device.as_deref()
    }

    /// Sends a message and waits until it is in the ring as a whole, so that `bytes` may be reused (`MPI_Send`). A
    /// message of at most [`Settings::eager_bytes`](crate::Settings::eager_bytes) waits only while the ring is full; a
    /// longer one may have to wait until the other rank receives it.
    ///
    /// # Errors
    /// When there is no such rank, it has left, or a rank was lost.
    pub fn send(&mut self, dest: usize, tag: u32, bytes: &[u8]) -> Result<(), MpiError> {
        self.exchange(Context::User, Some((dest, tag, bytes)), None, None)?;
        Ok(())
    }

    /// Sends a message of `length` bytes that `fill` makes directly in the slots of the ring, without a copy at this
    /// side. The bytes initially hold the remains of an earlier message.
    ///
    /// # Errors
    /// As for [`World::send`], and when the message is longer than
    /// [`Settings::eager_bytes`](crate::Settings::eager_bytes). `fill` is then not called.
    pub fn send_with(
        &mut self,
        dest: usize,
        tag: u32,
        length: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<(), MpiError> {
        self.check_rank(dest)?;
        if length > self.eager_bytes {
            return Err(MpiError::TooLong {
                bytes: length,
                limit: self.eager_bytes,
            });
        }
        if dest == self.rank {
            let mut bytes = vec![0; length];
            fill(&mut bytes);
            return self.send(dest, tag, &bytes);
        }
        let header = Header {
            kind: Kind::Whole,
            context: Context::User,
            tag,
            length: length as u64,
        };
        let mut wait = Wait::new(None);
        loop {
            let peer = &mut self.peers[dest];
            if let (Some(link), true) = (&mut peer.link, peer.outbound.is_empty()) {
                // A failure shows itself in the progress below.
                if let Ok(true) = put_with(link.as_mut(), header, length, &mut fill) {
                    // Likewise.
                    let _ = link.flush();
                    return Ok(());
                }
            }
            if self.progress(&mut Lent::default()) {
                wait.found();
                continue;
            }
            if let Some(absence) = self.peers[dest].cannot_take(dest) {
                return Err(absence);
            }
            self.rest(&mut wait, &mut Lent::default())?;
        }
    }

    /// Receives a message into the start of `buffer` (`MPI_Recv`).
    ///
    /// # Errors
    /// [`MpiError::Truncated`] when the message is longer than the buffer; also when no message can come, because the
    /// source has left, a rank was lost, or the limit of held messages is reached.
    pub fn receive(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        buffer: &mut [u8],
    ) -> Result<Status, MpiError> {
        let receive = (source.into(), tag.into(), buffer);
        self.exchange_one(Context::User, None, receive, None)
    }

    /// Sends a message and receives another one, in any order, so that ranks which do this with each other do not wait
    /// for each other (`MPI_Sendrecv`).
    ///
    /// # Errors
    /// As for [`World::send`] and [`World::receive`].
    pub fn sendrecv(
        &mut self,
        (dest, send_tag, bytes): (usize, u32, &[u8]),
        source: impl Into<Source>,
        receive_tag: impl Into<Tag>,
        buffer: &mut [u8],
    ) -> Result<Status, MpiError> {
        let receive = (source.into(), receive_tag.into(), buffer);
        let send = Some((dest, send_tag, bytes));
        self.exchange_one(Context::User, send, receive, None)
    }

    /// Waits for a message that a receive with this source and tag would take, and leaves it (`MPI_Probe`).
    ///
    /// # Errors
    /// As for [`World::receive`], except that a message of any length is found.
    pub fn probe(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Status, MpiError> {
        let pattern = self.pattern(source.into(), tag.into())?;
        let mut wait = Wait::new(None);
        loop {
            let moved = self.progress(&mut Lent::default());
            // It may be the very message that stays in its ring.
            if let Some(found) = self.find(&pattern) {
                return Ok(found);
            }
            if moved {
                wait.found();
                continue;
            }
            self.check_can_come(pattern.source)?;
            self.rest(&mut wait, &mut Lent::default())?;
        }
    }

    /// Returns the message that a receive with this source and tag would take, if it has arrived (`MPI_Iprobe`).
    ///
    /// # Errors
    /// When there is no such rank.
    pub fn iprobe(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Status>, MpiError> {
        let pattern = self.pattern(source.into(), tag.into())?;
        if !self.progress(&mut Lent::default()) {
            self.probe_when_due();
        }
        Ok(self.find(&pattern))
    }

    fn pattern(&self, source: Source, tag: Tag) -> Result<Pattern, MpiError> {
        if let Source::Rank(rank) = source {
            self.check_rank(rank)?;
        }
        Ok(Pattern {
            context: Context::User,
            source,
            tag,
        })
    }

    /// The first message that matches: one that is held, or one that came later and for which there was no room, which
    /// is still in the queue of this rank's messages to itself or in its ring.
    fn find(&self, pattern: &Pattern) -> Option<Status> {
        let to_self = self.peers[self.rank].outbound.iter().map(|one| Envelope {
            context: one.context,
            source: self.rank,
            tag: one.tag,
            bytes: one.bytes.len(),
        });
        let stalled = self.peers.iter().filter_map(|peer| peer.inbound.stalled());
        let mut without_room = to_self.chain(stalled.copied());
        let held = self.matching.find(pattern).copied();
        let found = held.or_else(|| without_room.find(|one| pattern.matches(one)));
        found.as_ref().map(Envelope::status)
    }

    pub(crate) fn check_rank(&self, rank: usize) -> Result<(), MpiError> {
        match rank < self.size() {
            true => Ok(()),
            false => Err(MpiError::NoSuchRank {
                rank,
                size: self.size(),
            }),
        }
    }
}
