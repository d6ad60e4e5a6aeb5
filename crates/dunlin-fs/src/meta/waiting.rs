//! Waiting requests: for leases that conflict with others, and long polls of sessions.

use std::collections::{BTreeSet, HashMap, VecDeque};

use dunlin::OwnedResponder;

use crate::types::{Ino, SessionId};
use crate::wire::{decode, Envelope};

/// A change that waits for a lease; its bytes were decoded once.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) payload: Vec<u8>,
    pub(super) responder: OwnedResponder,
}

/// The long poll of a session, and what it will report.
#[derive(Debug, Default)]
pub(super) struct Poll {
    pub(super) responder: Option<OwnedResponder>,
    /// When it is answered in any case.
    pub(super) until_ms: u64,
    pub(super) recalled: BTreeSet<Ino>,
}

/// All waiting requests.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// By file, in order of arrival.
    pub(super) leases: HashMap<Ino, VecDeque<Waiter>>,
    pub(super) polls: HashMap<SessionId, Poll>,
}

impl Waiting {
    /// Whether a session has to queue behind others, so that a sequence of readers cannot starve a writer.
    pub(super) fn is_contended(&self, ino: Ino) -> bool {
        self.leases.contains_key(&ino)
    }

    pub(super) fn wait(&mut self, ino: Ino, waiter: Waiter) {
        self.leases.entry(ino).or_default().push_back(waiter);
    }

    /// Removes the requests of a session for a lease.
    pub(super) fn withdraw(&mut self, session: SessionId, ino: Ino) -> Vec<Waiter> {
        let Some(queue) = self.leases.remove(&ino) else {
            return Vec::new();
        };
        let is_its = |waiter: &Waiter| {
            decode::<Envelope<'_>>(&waiter.payload).is_some_and(|one| one.session == session)
        };
        let (its, others): (VecDeque<_>, VecDeque<_>) = queue.into_iter().partition(is_its);
        if !others.is_empty() {
            self.leases.insert(ino, others);
        }
        its.into()
    }

    /// Asks sessions to release a lease.
    pub(super) fn recall(&mut self, ino: Ino, holders: &[SessionId]) {
        for holder in holders {
            self.polls.entry(*holder).or_default().recalled.insert(ino);
        }
    }

    /// The long polls that have something to report or have waited long enough, with what they report.
    pub(super) fn due(&mut self, now_ms: u64) -> Vec<(OwnedResponder, Vec<Ino>)> {
        self.polls.retain(|_, poll| {
            // No poll for a long time: the session no longer exists.
            poll.responder.is_some() || poll.until_ms + POLL_KEPT_MS > now_ms
        });
        let due = |poll: &mut Poll| {
            if poll.recalled.is_empty() && poll.until_ms > now_ms {
                return None;
            }
            let responder = poll.responder.take()?;
            Some((
                responder,
                std::mem::take(&mut poll.recalled).into_iter().collect(),
            ))
        };
        self.polls.values_mut().filter_map(due).collect()
    }
}

/// Time for which the state of a session that does not poll is kept: longer than any sensible lease.
const POLL_KEPT_MS: u64 = 600_000;
