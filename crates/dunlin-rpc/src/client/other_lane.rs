//! The other lane of a thread or pipeline whose server may ask for datagrams: it has a port of the connection handle
//! and a datagram queue pair, uses the one that the server has asked for last, and keeps the other here
//! ([`super::recipe`]).

use std::time::Instant;

use dunlin_verbs::process::Owned;

use super::recipe::{Recipe, Successor};
use crate::call::lane::{Lane, NoCalls};
use crate::fabric::Owner;

/// See the module.
#[derive(Default)]
pub(super) struct OtherLane {
    lane: Option<Owned<Box<dyn Lane>>>,
    /// There was none to be had when it was asked for.
    is_refused: bool,
}

impl OtherLane {
    /// Whether there is one, which takes calls.
    pub(super) fn is_here(&mut self) -> bool {
        self.lane = self.take_usable();
        self.lane.is_some()
    }

    fn take_usable(&mut self) -> Option<Owned<Box<dyn Lane>>> {
        let lane = self.lane.take();
        lane.and_then(|mut lane| lane.is_usable().then_some(lane))
    }

    /// Leaves out the server's wish for this lane, if there was none to be had. When it is not asked for any more, or
    /// another takes the place of both, it may be had the next time.
    #[inline]
    pub(super) fn but_refused(&mut self, successor: Option<Successor>) -> Option<Successor> {
        self.is_refused &= successor == Some(Successor::OtherKind);
        successor.filter(|_| !self.is_refused)
    }

    /// Takes it, for who has `lane` now and keeps it here when nothing is out on it; it is made if it is not there,
    /// until then or for as long as making a connection may take. None: there is none to be had.
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
                    tracing::debug!(%error, "the kind of lane that there is stays in use");
                    self.is_refused = true;
                    return None;
                }
            },
        };
        // What the server has said there since it was used: a failure is for the next call to find.
        let _ = other.as_mut().check(&mut NoCalls);
        Some(other)
    }

    pub(super) fn keep(&mut self, lane: Owned<Box<dyn Lane>>) {
        self.lane = Some(lane);
    }
}
