//! The other lane of a thread or pipeline whose server may request datagrams: it has a port of the connection handle
//! and a datagram queue pair, uses the one that the server requested last, and keeps the other here
//! ([`super::recipe`]).

use std::time::Instant;

use dunlin_verbs::process::Owned;

use super::recipe::{Recipe, Successor};
use crate::call::lane::{Lane, NoCalls};
use crate::lanes::Owner;

/// The other lane; see the module.
#[derive(Default)]
pub(super) struct OtherLane {
    lane: Option<Owned<Box<dyn Lane>>>,
    /// It could not be made when it was requested.
    is_refused: bool,
}

impl OtherLane {
    /// Whether there is one that takes calls.
    pub(super) fn is_here(&mut self) -> bool {
        self.lane = self.take_usable();
        self.lane.is_some()
    }

    fn take_usable(&mut self) -> Option<Owned<Box<dyn Lane>>> {
        let lane = self.lane.take();
        lane.and_then(|mut lane| lane.is_usable().then_some(lane))
    }

    /// Filters out the server's request for this lane, if it could not be made. When the server no longer requests it,
    /// or another lane replaces both, it may be tried again.
    #[inline]
    pub(super) fn but_refused(&mut self, successor: Option<Successor>) -> Option<Successor> {
        self.is_refused &= successor == Some(Successor::OtherKind);
        successor.filter(|_| !self.is_refused)
    }

    /// Takes it for the user of `lane`, who keeps that one here when nothing is outstanding on it. It is made if there
    /// is none, until `until` or for as long as making a connection may take. `None`: it could not be made.
    pub(super) fn take(
        &mut self,
        recipe: &Recipe,
        lane: &dyn Lane,
        (owner, window): (Owner, usize),
        until: Option<Instant>,
    ) -> Option<Owned<Box<dyn Lane>>> {
        let mut other = match self.take_usable() {
            Some(lane) => lane,
            None => match recipe.open_other(lane, (owner, window), until) {
                Ok(lane) => Owned::new(lane),
                Err(error) => {
                    tracing::debug!(%error, "cannot open a lane of the other kind: the current kind stays in use");
                    self.is_refused = true;
                    return None;
                }
            },
        };
        // Processes what the server has sent there since its last use: a failure is left to the next call.
        let _ = other.as_mut().check(&mut NoCalls);
        Some(other)
    }

    pub(super) fn keep(&mut self, lane: Owned<Box<dyn Lane>>) {
        self.lane = Some(lane);
    }
}
