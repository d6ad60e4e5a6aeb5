//! Nonblocking operations: they own their buffers, and a request gives them back.

use crate::error::MpiError;
use crate::exchange::check_length;
use crate::matching::Pattern;
use crate::outbound::Outgoing;
use crate::selection::{Source, Tag};
use crate::target::{Completed, Lent, Outcome, Target};
use crate::waiting::Wait;
use crate::wire::Context;
use crate::world::World;

/// A nonblocking send or receive (`MPI_Request`).
///
/// Calls of any kind on the same [`World`] advance it. A request that is dropped is not cancelled: its message is still
/// sent, or received and thrown away.
#[derive(Debug)]
#[must_use = "the buffer comes back from wait() or test()"]
pub struct Request {
    outcome: Outcome,
    world: u64,
    waits_for: WaitsFor,
}

/// Without whom a request does not complete.
#[derive(Clone, Copy, Debug)]
enum WaitsFor {
    /// The ranks from which a message may come.
    Source(Source),
    /// The rank to which a message of this length goes.
    Dest { rank: usize, bytes: usize },
}

impl World {
    /// Begins to send a message; its buffer comes back when it is in the ring as a whole (`MPI_Isend`).
    ///
    /// # Errors
    /// When there is no such rank, or it has left or was lost.
    pub fn isend(
        &mut self,
        dest: usize,
        tag: u32,
        buffer: impl Into<Vec<u8>>,
    ) -> Result<Request, MpiError> {
        self.check_rank(dest)?;
        let buffer = buffer.into();
        check_length(buffer.len())?;
        if let Some(absence) = self.peers[dest].cannot_take(dest) {
            return Err(absence);
        }
        let request = self.request(WaitsFor::Dest {
            rank: dest,
            bytes: buffer.len(),
        });
        self.peers[dest].outbound.push_back(Outgoing {
            context: Context::User,
            tag,
            bytes: buffer,
            sent: 0,
            outcome: Some(request.outcome.clone()),
        });
        self.progress(&mut Lent::default());
        Ok(request)
    }

    /// Begins to receive a message of at most `buffer.len()` bytes; the buffer comes back, shortened to the message
    /// (`MPI_Irecv`).
    ///
    /// # Errors
    /// When there is no such rank.
    pub fn ireceive(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
        buffer: impl Into<Vec<u8>>,
    ) -> Result<Request, MpiError> {
        let (source, tag) = (source.into(), tag.into());
        if let Source::Rank(rank) = source {
            self.check_rank(rank)?;
        }
        let request = self.request(WaitsFor::Source(source));
        let pattern = Pattern {
            context: Context::User,
            source,
            tag,
        };
        let target = Target::Owned {
            buffer: buffer.into(),
            outcome: request.outcome.clone(),
        };
        self.begin_receive(pattern, target, &mut Lent::default());
        Ok(request)
    }

    /// Waits for several requests, and returns what they completed with, in their order (`MPI_Waitall`).
    ///
    /// # Errors
    /// The first error, as for [`Request::wait`]; the rest of the requests are dropped.
    pub fn wait_all(
        &mut self,
        requests: impl IntoIterator<Item = Request>,
    ) -> Result<Vec<Completed>, MpiError> {
        let requests = requests.into_iter();
        requests.map(|request| request.wait(self)).collect()
    }

    fn request(&self, waits_for: WaitsFor) -> Request {
        Request {
            outcome: Outcome::default(),
            world: self.id,
            waits_for,
        }
    }
}

impl Request {
    /// Waits until the operation has completed (`MPI_Wait`).
    ///
    /// # Errors
    /// [`MpiError::Truncated`] when a message was longer than the buffer; also when the operation cannot complete, as
    /// for [`World::send`] and [`World::receive`].
    pub fn wait(mut self, world: &mut World) -> Result<Completed, MpiError> {
        let ended = self.complete(world);
        if ended.is_err() {
            // The receive is over: a later one takes its message.
            world
                .matching
                .withdraw(|target| target.reports_to(&self.outcome));
        }
        ended
    }

    fn complete(&mut self, world: &mut World) -> Result<Completed, MpiError> {
        let mut wait = Wait::new(None);
        loop {
            if let Some(completed) = self.taken(world)? {
                return Ok(completed);
            }
            let moved = world.progress(&mut Lent::default());
            if let Some(completed) = self.taken(world)? {
                return Ok(completed);
            }
            if moved {
                wait.found();
                continue;
            }
            match self.waits_for {
                WaitsFor::Source(source) => world.check_can_come(source)?,
                WaitsFor::Dest { rank, bytes } if rank == world.rank => {
                    return Err(MpiError::SendToSelf { bytes });
                }
                WaitsFor::Dest { .. } => {}
            }
            world.rest(&mut wait, &mut Lent::default())?;
        }
    }

    /// Returns what the operation completed with, or `None` while it has not (`MPI_Test`). After an outcome was
    /// returned, there is none.
    ///
    /// # Errors
    /// [`MpiError::Truncated`] when a message was longer than the buffer; also when a rank was lost, or all ranks that
    /// the operation waits for have left.
    pub fn test(&mut self, world: &mut World) -> Result<Option<Completed>, MpiError> {
        if let Some(completed) = self.taken(world)? {
            return Ok(Some(completed));
        }
        let moved = world.progress(&mut Lent::default());
        if let Some(completed) = self.taken(world)? {
            return Ok(Some(completed));
        }
        if !moved {
            world.probe_when_due();
            if let Some(failure) = &world.failure {
                return Err(failure.clone());
            }
            if let WaitsFor::Source(source) = self.waits_for {
                // Other reasons may pass with what the caller does next.
                if let Some(why @ (MpiError::RankLeft { .. } | MpiError::RankLost { .. })) =
                    world.cannot_come(source)
                {
                    return Err(why);
                }
            }
        }
        Ok(None)
    }

    fn taken(&mut self, world: &World) -> Result<Option<Completed>, MpiError> {
        if self.world != world.id {
            return Err(MpiError::ForeignRequest);
        }
        self.outcome.take().transpose()
    }
}
