//! Who waits: leases that stand against others', and long polls of sessions.

use std::collections::{BTreeSet, HashMap, VecDeque};

use dunlin::OwnedResponder;

use crate::types::{Ino, SessionId};

/// A change that waits for a lease; its bytes were decoded once.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) payload: Vec<u8>,
    pub(super) responder: OwnedResponder,
}

/// The long poll of a session, and what it is to bring.
#[derive(Debug, Default)]
pub(super) struct Poll {
    pub(super) responder: Option<OwnedResponder>,
    /// When it is answered in any case.
    pub(super) until_ms: u64,
    pub(super) recalled: BTreeSet<Ino>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// By file, in the order in which they came.
    pub(super) leases: HashMap<Ino, VecDeque<Waiter>>,
    pub(super) polls: HashMap<SessionId, Poll>,
}

impl Waiting {
    /// Whether a session has to stand behind others: so that many readers do not keep a writer out for ever.
    pub(super) fn is_contended(&self, ino: Ino) -> bool {
        self.leases.contains_key(&ino)
    }

    pub(super) fn wait(&mut self, ino: Ino, waiter: Waiter) {
        self.leases.entry(ino).or_default().push_back(waiter);
    }

    /// Sessions are asked to give a lease back.
    pub(super) fn recall(&mut self, ino: Ino, holders: &[SessionId]) {
        for holder in holders {
            self.polls.entry(*holder).or_default().recalled.insert(ino);
        }
    }

    /// Long polls that have something to say or have waited long enough, with what they say.
    pub(super) fn due(&mut self, now_ms: u64) -> Vec<(OwnedResponder, Vec<Ino>)> {
        self.polls.retain(|_, poll| {
            // Nobody has asked for long: a session that is no more.
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

/// What is kept of a session that does not ask: longer than any sensible lease.
const POLL_KEPT_MS: u64 = 600_000;
