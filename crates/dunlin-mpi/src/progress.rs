//! Progress: what every call does for all messages under way, since there is no thread that does it.

use dunlin_ring::RingError;
use dunlin_verbs::thread;

use crate::error::{Loss, MpiError};
use crate::inbound::{Accepted, Room};
use crate::link::Taken;
use crate::matching::Envelope;
use crate::outbound::push;
use crate::peer::Presence;
use crate::selection::Source;
use crate::target::{Completed, Lent, LentSend, Outcome};
use crate::waiting::PROBING;
use crate::wire::{Context, Fault, NO_CAUSE};
use crate::world::World;

/// Ring messages of one rank that are taken before the next rank has its turn.
const TURN: usize = 64;
/// As many as are in the longest ring at most.
const IN_RING: usize = 1 << 20;

/// What ended the reading of a rank's ring.
enum Found {
    /// It has nothing more at present, or the turn is over.
    Nothing,
    /// The rank leaves.
    Goodbye(u32),
    /// The ring ends.
    End,
}

impl World {
    /// Does for all ranks what can be done now. Returns whether anything was done.
    pub(crate) fn progress(&mut self, lent: &mut Lent<'_>) -> bool {
        let mut moved = self.progress_self(lent);
        for rank in 0..self.peers.len() {
            if self.peers[rank].link.is_some() {
                moved |= self.progress_with(rank, lent);
            }
        }
        moved
    }

    fn progress_with(&mut self, rank: usize, lent: &mut Lent<'_>) -> bool {
        let mut moved = false;
        match self.read(rank, TURN, lent, &mut moved) {
            Ok(Found::Nothing) => {}
            Ok(Found::Goodbye(cause)) => return self.leave(rank, cause, lent),
            Ok(Found::End) => return self.leave(rank, NO_CAUSE, lent),
            Err(loss) => return self.lose(rank, loss, lent),
        }
        match self.write(rank, lent) {
            Ok(wrote) => moved | wrote,
            Err(error) => {
                // A rank that has left takes no more messages; what it has said before is still in the ring.
                match self.read(rank, IN_RING, lent, &mut moved) {
                    Ok(Found::Goodbye(cause)) => self.leave(rank, cause, lent),
                    Ok(Found::End) => self.leave(rank, NO_CAUSE, lent),
                    // It may have left in order, behind a message for which there is no room yet.
                    Ok(Found::Nothing) if self.peers[rank].inbound.stalled().is_some() => {
                        self.stop_sending(rank, error.into());
                        true
                    }
                    Ok(Found::Nothing) | Err(_) => self.lose(rank, error.into(), lent),
                }
            }
        }
    }

    /// Takes up to `most` ring messages of a rank.
    fn read(
        &mut self,
        rank: usize,
        most: usize,
        lent: &mut Lent<'_>,
        moved: &mut bool,
    ) -> Result<Found, Loss> {
        let peer = &mut self.peers[rank];
        let (Some(link), inbound) = (&mut peer.link, &mut peer.inbound) else {
            return Ok(Found::Nothing);
        };
        let matching = &mut self.matching;
        let room = Room {
            bytes: self.unexpected_bytes,
            is_leaving: self.is_leaving,
        };
        for _ in 0..most {
            let mut accepted: Result<Accepted, Fault> = Ok(Accepted::Placed);
            let taken = link.take(&mut |message| {
                accepted = inbound.accept(rank, message, matching, room, lent);
                accepted != Ok(Accepted::Stalled)
            })?;
            match (taken, accepted?) {
                (Taken::Message, Accepted::Goodbye { cause }) => return Ok(Found::Goodbye(cause)),
                (Taken::Message, _) => *moved = true,
                (Taken::Left | Taken::Empty, _) => break,
                (Taken::End, _) => return Ok(Found::End),
            }
        }
        Ok(Found::Nothing)
    }

    /// Puts what has room into the ring of a rank, in the order of the sends.
    fn write(&mut self, rank: usize, lent: &mut Lent<'_>) -> Result<bool, RingError> {
        let peer = &mut self.peers[rank];
        let (Some(link), outbound) = (&mut peer.link, &mut peer.outbound) else {
            return Ok(false);
        };
        if peer.write_loss.is_some() {
            return Ok(false);
        }
        let link = link.as_mut();
        let mut moved = false;
        while let Some(first) = outbound.front_mut() {
            let (about, before) = ((first.context, first.tag), first.sent);
            let is_done = push(link, about, &first.bytes, &mut first.sent, self.eager_bytes)?;
            moved |= is_done || first.sent > before;
            if !is_done {
                break;
            }
            if let Some(done) = outbound.pop_front() {
                end_send(done.outcome, Ok(done.bytes));
            }
        }
        if let (Some(send), true) = (&mut lent.send, outbound.is_empty()) {
            if send.dest == rank && !send.is_done {
                let (about, before) = ((send.context, send.tag), send.sent);
                send.is_done = push(link, about, send.bytes, &mut send.sent, self.eager_bytes)?;
                moved |= send.is_done || send.sent > before;
            }
        }
        if moved {
            link.flush()?;
        }
        link.poll()?;
        Ok(moved)
    }

    /// Moves messages of this rank to itself. One for which there is neither a receive nor room stays where it is, and
    /// those behind it are not held in front of it; a receive that matches one of them takes it all the same.
    fn progress_self(&mut self, lent: &mut Lent<'_>) -> bool {
        let mut moved = false;
        let own = self.rank;
        let mut messages = std::mem::take(&mut self.peers[own].outbound);
        let mut may_hold = true;
        messages.retain_mut(|one| {
            let about = (one.context, one.tag);
            let is_delivered = self.deliver_to_self(&one.bytes, about, may_hold, lent);
            if is_delivered {
                end_send(one.outcome.take(), Ok(std::mem::take(&mut one.bytes)));
                moved = true;
            }
            may_hold &= is_delivered;
            !is_delivered
        });
        self.peers[own].outbound = messages;
        let is_own = |send: &mut LentSend<'_>| send.dest == own && !send.is_done;
        if let Some(mut send) = lent.send.take_if(is_own) {
            let about = (send.context, send.tag);
            send.is_done = self.deliver_to_self(send.bytes, about, may_hold, lent);
            moved |= send.is_done;
            lent.send = Some(send);
        }
        moved
    }

    /// Gives a message of this rank to the receive that it matches, or holds it if it may be held; false when neither
    /// is possible.
    fn deliver_to_self(
        &mut self,
        bytes: &[u8],
        (context, tag): (Context, u32),
        may_hold: bool,
        lent: &mut Lent<'_>,
    ) -> bool {
        let envelope = Envelope {
            context,
            source: self.rank,
            tag,
            bytes: bytes.len(),
        };
        let status = envelope.status();
        if let Some(target) = self.matching.take_posted(&envelope) {
            if let Some(mut target) = target.checked(&status, lent) {
                target.bytes_mut(lent)[..bytes.len()].copy_from_slice(bytes);
                target.end(Ok(status), lent);
            }
            return true;
        }
        let inbound = &mut self.peers[self.rank].inbound;
        if !may_hold || !inbound.has_room(bytes.len(), self.unexpected_bytes) {
            return false;
        }
        inbound.count_held(bytes.len());
        self.matching.hold(envelope, Some(bytes.to_vec()));
        true
    }

    /// Probes all connections once a second, for a caller that polls.
    pub(crate) fn probe_when_due(&mut self) {
        let now = thread::now();
        if now.saturating_duration_since(self.probed) >= PROBING {
            self.probed = now;
            self.probe_links(&mut Lent::default());
        }
    }

    /// Probes all connections; one that is lost shows it in the next step.
    pub(crate) fn probe_links(&mut self, lent: &mut Lent<'_>) {
        for rank in 0..self.peers.len() {
            let probed = self.peers[rank].link.as_mut().map(|link| link.probe());
            if let Some(Err(_)) = probed {
                self.progress_with(rank, lent);
            }
        }
    }

    /// A rank takes no more messages, but some that it has sent are still in its ring.
    fn stop_sending(&mut self, rank: usize, loss: Loss) {
        let peer = &mut self.peers[rank];
        peer.write_loss = Some(loss);
        for one in std::mem::take(&mut peer.outbound) {
            end_send(one.outcome, Err(MpiError::RankLost { rank, loss }));
        }
    }

    /// A rank has left the job, possibly because it lost another one.
    fn leave(&mut self, rank: usize, cause: u32, lent: &mut Lent<'_>) -> bool {
        let cause = cause as usize;
        if cause < self.peers.len() && cause != self.rank && cause != rank {
            let loss = Loss::Reported { by: rank };
            self.failure
                .get_or_insert(MpiError::RankLost { rank: cause, loss });
        }
        self.part(rank, Presence::Left, lent)
    }

    /// A rank is lost.
    fn lose(&mut self, rank: usize, loss: Loss, lent: &mut Lent<'_>) -> bool {
        tracing::debug!(rank, %loss, "a rank is lost");
        self.failure
            .get_or_insert(MpiError::RankLost { rank, loss });
        self.part(rank, Presence::Lost(loss), lent)
    }

    /// Ends everything that is under way with a rank.
    fn part(&mut self, rank: usize, presence: Presence, lent: &mut Lent<'_>) -> bool {
        let peer = &mut self.peers[rank];
        peer.presence = presence;
        peer.link = None;
        let absence = peer.absence(rank).unwrap_or(MpiError::RankLeft { rank });
        for one in std::mem::take(&mut peer.outbound) {
            end_send(one.outcome, Err(absence.clone()));
        }
        if let Some(target) = peer.inbound.abandon() {
            target.end(Err(absence), lent);
        }
        self.matching.abandon(rank);
        true
    }

    /// Why a message from `source` will never come, as far as this rank can tell after a step that did nothing.
    pub(crate) fn cannot_come(&self, source: Source) -> Option<MpiError> {
        let mut why = None;
        for (rank, peer) in self.peers.iter().enumerate() {
            if !source.accepts(rank) {
                continue;
            }
            let stalled = peer.inbound.stalled().is_some();
            let one = match peer.absence(rank) {
                Some(absence) => absence,
                None if rank == self.rank => MpiError::OnlySelf,
                None if stalled => MpiError::UnexpectedLimit {
                    source_rank: rank,
                    limit: self.unexpected_bytes,
                },
                None => return None,
            };
            // Of several reasons, that of another rank says more.
            if why.is_none() || why == Some(MpiError::OnlySelf) {
                why = Some(one);
            }
        }
        why
    }
}

/// Reports the end of a nonblocking send.
pub(crate) fn end_send(outcome: Option<Outcome>, result: Result<Vec<u8>, MpiError>) {
    if let Some(outcome) = outcome {
        outcome.set(result.map(|buffer| Completed {
            status: None,
            buffer,
        }));
    }
}
