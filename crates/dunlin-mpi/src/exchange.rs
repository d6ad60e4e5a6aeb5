//! What every blocking call does: it sends, receives or both, and makes progress for everything else meanwhile.

use std::time::Instant;

use crate::error::MpiError;
use crate::matching::Pattern;
use crate::outbound::Outgoing;
use crate::selection::{Source, Status, Tag};
use crate::target::{Lent, LentSend, Target};
use crate::waiting::{Next, Wait};
use crate::wire::{Context, MESSAGE_BYTES_MAX};
use crate::world::World;

/// A message that a call is to send: to a rank, with a tag.
pub(crate) type Sending<'a> = (usize, u32, &'a [u8]);

impl World {
    /// Sends, receives or both; returns what was received.
    pub(crate) fn exchange(
        &mut self,
        context: Context,
        send: Option<Sending<'_>>,
        receive: Option<(Source, Tag, &mut [u8])>,
        until: Option<Instant>,
    ) -> Result<Option<Status>, MpiError> {
        let mut lent = Lent::default();
        if let Some((dest, tag, bytes)) = send {
            self.check_rank(dest)?;
            check_length(bytes.len())?;
            lent.send = Some(LentSend {
                dest,
                context,
                tag,
                bytes,
                sent: 0,
                is_done: false,
            });
        }
        let mut waits_for = None;
        if let Some((source, tag, buffer)) = receive {
            if let Source::Rank(rank) = source {
                self.check_rank(rank)?;
            }
            lent.buffer = buffer;
            let pattern = Pattern {
                context,
                source,
                tag,
            };
            self.begin_receive(pattern, Target::Lent, &mut lent);
            waits_for = Some(source);
        }
        let ended = self.run(&mut lent, waits_for, until);
        if ended.is_err() {
            self.take_back(lent);
            return ended.map(|()| None);
        }
        lent.received.transpose()
    }

    /// As [`World::exchange`] with a receive.
    pub(crate) fn exchange_one(
        &mut self,
        context: Context,
        send: Option<Sending<'_>>,
        receive: (Source, Tag, &mut [u8]),
        until: Option<Instant>,
    ) -> Result<Status, MpiError> {
        let status = self.exchange(context, send, Some(receive), until)?;
        // It has succeeded, so it has received.
        status.ok_or(MpiError::OnlySelf)
    }

    /// Makes progress until what was lent is sent and received.
    fn run(
        &mut self,
        lent: &mut Lent<'_>,
        waits_for: Option<Source>,
        until: Option<Instant>,
    ) -> Result<(), MpiError> {
        let mut wait = Wait::new(until);
        loop {
            let moved = self.progress(lent);
            let unsent = lent.send.as_ref().filter(|send| !send.is_done);
            let waits = waits_for.filter(|_| lent.received.is_none());
            if unsent.is_none() && waits.is_none() {
                return Ok(());
            }
            if moved {
                wait.found();
                continue;
            }
            if let Some(send) = unsent {
                if let Some(absence) = self.peers[send.dest].cannot_take(send.dest) {
                    return Err(self.failure.clone().unwrap_or(absence));
                }
                if send.dest == self.rank {
                    let bytes = send.bytes.len();
                    return Err(MpiError::SendToSelf { bytes });
                }
            }
            if let Some(source) = waits {
                self.check_can_come(source)?;
            }
            self.rest(&mut wait, lent)?;
        }
    }

    /// Begins a receive: takes a message that has arrived, or posts the receive.
    pub(crate) fn begin_receive(&mut self, pattern: Pattern, target: Target, lent: &mut Lent<'_>) {
        let Some(found) = self.matching.take_unexpected(&pattern) else {
            return self.matching.post(pattern, target);
        };
        let status = found.envelope.status();
        let inbound = &mut self.peers[status.source].inbound;
        inbound.count_taken(status.bytes);
        let Some(bytes) = found.bytes else {
            return inbound.redirect(target, lent);
        };
        if let Some(mut target) = target.checked(&status, lent) {
            target.bytes_mut(lent)[..bytes.len()].copy_from_slice(&bytes);
            target.end(Ok(status), lent);
        }
    }

    /// Ends the loan of a call that failed: its receive is withdrawn; of its message, what has begun is completed
    /// later, so that the ring stays usable.
    fn take_back(&mut self, lent: Lent<'_>) {
        self.matching
            .withdraw(|target| matches!(target, Target::Lent));
        for peer in &mut self.peers {
            peer.inbound.forget_lent();
        }
        let has_begun = |send: &LentSend<'_>| !send.is_done && send.sent > 0;
        if let Some(send) = lent.send.filter(has_begun) {
            if self.peers[send.dest].cannot_take(send.dest).is_some() {
                // Nobody takes the rest.
                return;
            }
            self.peers[send.dest].outbound.push_front(Outgoing {
                context: send.context,
                tag: send.tag,
                bytes: send.bytes.to_vec(),
                sent: send.sent,
                outcome: None,
            });
        }
    }

    /// Waits a little after a step that did nothing.
    pub(crate) fn rest(&mut self, wait: &mut Wait, lent: &mut Lent<'_>) -> Result<(), MpiError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        match wait.idle() {
            Next::Poll => Ok(()),
            Next::Probe => {
                self.probe_links(lent);
                Ok(())
            }
            Next::Expired => Err(MpiError::Timeout),
        }
    }

    /// Fails when no message of this source can come any more.
    pub(crate) fn check_can_come(&self, source: Source) -> Result<(), MpiError> {
        match self.cannot_come(source) {
            Some(why) => Err(self.failure.clone().unwrap_or(why)),
            None => Ok(()),
        }
    }
}

/// Checks the length of a message to be sent.
pub(crate) fn check_length(bytes: usize) -> Result<(), MpiError> {
    match bytes as u64 <= MESSAGE_BYTES_MAX {
        true => Ok(()),
        false => Err(MpiError::TooLong {
            bytes,
            limit: MESSAGE_BYTES_MAX as usize,
        }),
    }
}
