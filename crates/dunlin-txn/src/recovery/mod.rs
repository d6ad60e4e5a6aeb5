//! What a machine does to stay a member, and to begin the next epoch: state machines without a clock or a device.
//!
//! An [`Agent`] takes the state of its membership and the current time, and returns what is to be done: propose a
//! configuration, send a request to another machine. It accesses its own machine's storage through [`Local`].

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

/// Length of a chunk that one machine copies from another, in bytes.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// Length of a page of what was decided, in bytes: a small part of the message limit.
pub const PAGE_BYTES: usize = 1024 * 1024;

/// All participants of the agent's own machine.
pub trait Local {
    /// Like [`crate::Participant::seal`]; also returns a [`page`] of what was decided, from the cursor on.
    ///
    /// # Errors
    /// As there.
    fn seal(
        &mut self,
        epoch: Epoch,
        base: Epoch,
        cursor: u64,
    ) -> Result<(Vec<Record>, Option<u64>), OtherEpoch>;
    /// Length of a page of what is to be installed, in bytes.
    fn page_bytes(&self) -> usize {
        PAGE_BYTES
    }
    /// Like [`crate::Participant::install`].
    ///
    /// # Errors
    /// As there. A machine without space answers nobody from then on, so that the others go on without it.
    fn install(
        &mut self,
        epoch: Epoch,
        records: &[Record],
        of: &Configuration,
    ) -> Result<(), NotInstalled>;
    /// Like [`crate::Participant::serve`].
    ///
    /// # Errors
    /// As there.
    fn serve(&mut self, of: &Configuration) -> Result<(), OtherEpoch>;
    /// The epoch, and whether its coordinators are answered.
    fn standing(&self) -> (Epoch, bool);
    /// Like [`crate::Participant::holders`].
    fn holders(&self) -> Vec<(TransactionId, u16)>;
    /// Like [`crate::Participant::is_crowded`].
    fn is_crowded(&self) -> bool;
    /// Items from a cursor on that `machine` should have and whose primary is this machine.
    fn chunk(
        &self,
        cursor: u64,
        machine: MachineId,
        of: &Configuration,
    ) -> (Vec<Update>, Option<u64>);
    /// Stores what was copied. Returns whether there was space.
    fn adopt(&mut self, items: &[Update]) -> bool;
    /// Whether everything installed and adopted is stored durably: on the disk, if the log is on one.
    fn is_durable(&self) -> bool;
    /// The machine has all the data that it should have.
    fn learned(&mut self);
}

impl Agent {
    /// Answers a request of another machine, or of this one.
    pub fn answer(&mut self, local: &mut dyn Local, request: &PeerRequest) -> PeerAnswer {
        let epoch = request.epoch();
        // Members learn the configuration of an epoch from the membership.
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
                    // Not a late request: this life was a member, was left out, and has been admitted again as a new
                    // one.
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
