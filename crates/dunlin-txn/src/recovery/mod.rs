//! What a machine does to stay a member, and to begin the next epoch: state machines without a clock or a device.
//!
//! An [`Agent`] is told what its membership says and how late it is, and says what is to be done: propose a
//! configuration, ask another machine. It reaches what its own machine stores by [`Local`].

mod agent;
mod begins;
mod copying;
mod epoch;
mod pages;
mod suspicion;

pub use agent::{Agent, Condition, Order, Timing};
pub(crate) use begins::database_of;
pub use begins::{Begins, CannotBegin};
pub use pages::page;

use crate::membership::peer::{PeerAnswer, PeerRequest};
use crate::membership::{Configuration, Epoch, Record};
use crate::participant::{NotInstalled, OtherEpoch};
use crate::types::{MachineId, TransactionId, Update};
use pages::Pages;

/// Bytes of a chunk that one machine copies from another.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// Bytes of a page of what was decided: a small part of a message's limit.
pub const PAGE_BYTES: usize = 1024 * 1024;

/// A machine's own participants, all of them.
pub trait Local {
    /// As [`crate::Participant::seal`], and from the cursor on a [`page`] of what was decided.
    ///
    /// # Errors
    /// As there.
    fn seal(
        &mut self,
        epoch: Epoch,
        base: Epoch,
        cursor: u64,
    ) -> Result<(Vec<Record>, Option<u64>), OtherEpoch>;
    /// Bytes of a page of what is to be installed.
    fn page_bytes(&self) -> usize {
        PAGE_BYTES
    }
    /// As [`crate::Participant::install`].
    ///
    /// # Errors
    /// As there. A machine without room answers nobody from then on, so that the others go on without it.
    fn install(
        &mut self,
        epoch: Epoch,
        records: &[Record],
        of: &Configuration,
    ) -> Result<(), NotInstalled>;
    /// As [`crate::Participant::serve`].
    ///
    /// # Errors
    /// As there.
    fn serve(&mut self, of: &Configuration) -> Result<(), OtherEpoch>;
    /// The epoch, and whether coordinators of it are answered.
    fn standing(&self) -> (Epoch, bool);
    /// As [`crate::Participant::holders`].
    fn holders(&self) -> Vec<(TransactionId, u16)>;
    /// As [`crate::Participant::is_crowded`].
    fn is_crowded(&self) -> bool;
    /// Items from a cursor on that `machine` should have and whose primary this one is.
    fn chunk(
        &self,
        cursor: u64,
        machine: MachineId,
        of: &Configuration,
    ) -> (Vec<Update>, Option<u64>);
    /// Stores what was copied. Whether there was room.
    fn adopt(&mut self, items: &[Update]) -> bool;
    /// Whether all that was installed and adopted is where it should be kept: on the disk, where there is a log.
    fn is_durable(&self) -> bool;
    /// The machine has all that it should have.
    fn learned(&mut self);
}

impl Agent {
    /// Answers another machine, or this one itself.
    pub fn answer(&mut self, local: &mut dyn Local, request: &PeerRequest) -> PeerAnswer {
        let epoch = request.epoch();
        // What an epoch is, its members know from the membership.
        let of = self.observed.configuration.as_ref().map(|(_, of)| of);
        let of = of.filter(|of| of.epoch == epoch);
        let done = |is_done: bool| match is_done {
            true => PeerAnswer::Done,
            false => PeerAnswer::No,
        };
        match (request, of) {
            (
                PeerRequest::Seal {
                    epoch,
                    base,
                    cursor,
                },
                _,
            ) => match local.seal(*epoch, *base, *cursor) {
                Ok((records, next)) => {
                    self.sealed = *epoch;
                    PeerAnswer::Report(records, next)
                }
                Err(OtherEpoch) => {
                    // Not a late request: this life was a member, was left out, and has been taken for one that comes.
                    self.missed |= local.standing().0 < *epoch;
                    PeerAnswer::No
                }
            },
            (
                PeerRequest::Install {
                    cursor: 0,
                    records,
                    more: false,
                    ..
                },
                Some(of),
            ) => done(local.install(epoch, records, of).is_ok()),
            (
                PeerRequest::Install {
                    cursor,
                    records,
                    more,
                    ..
                },
                Some(of),
            ) => {
                let known = self.pages.take().filter(|pages| pages.epoch() == epoch);
                let pages = self
                    .pages
                    .insert(known.unwrap_or_else(|| Pages::new(epoch)));
                let is_whole = pages.take(*cursor, records);
                done(is_whole && (*more || local.install(epoch, pages.records(), of).is_ok()))
            }
            (PeerRequest::Serve { .. }, Some(of)) => done(local.serve(of).is_ok()),
            (
                PeerRequest::Copy {
                    machine, cursor, ..
                },
                Some(of),
            ) if local.standing() == (epoch, true) => {
                let (items, next) = local.chunk(*cursor, *machine, of);
                PeerAnswer::Chunk(items, next)
            }
            _ => PeerAnswer::No,
        }
    }
}
