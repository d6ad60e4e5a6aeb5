//! Sessions: their state, their past changes, and how they end.

use std::collections::{BTreeMap, HashMap};

use super::record::Key;
use super::{Body, Namespace, Now};
use crate::types::{refuse, Errno, Extent, Ino, Outcome, SessionId, SLOTS};

/// Maximum number of sessions.
pub(super) const SESSIONS: usize = 4096;

#[derive(Debug)]
pub(super) struct Session {
    /// By the steady clock.
    pub(super) expires_ms: u64,
    /// It was not renewed in time: it can make no more changes, and its files are being moved.
    pub(super) ended: bool,
    /// The last change of each slot and its answer.
    pub(super) slots: HashMap<u16, (u32, Vec<u8>)>,
}

impl Namespace {
    /// Begins a session under a random name.
    ///
    /// # Errors
    /// ENOSPC with too many sessions, EEXIST if the name is taken.
    pub fn begin_session(&mut self, session: SessionId, expires_ms: u64) -> Outcome<()> {
        if self.sessions.len() >= SESSIONS {
            return refuse(Errno::NOSPC);
        }
        if session == 0 || self.sessions.contains_key(&session) {
            return refuse(Errno::EXIST);
        }
        self.sequence += 1;
        let begun = Session {
            expires_ms,
            ended: false,
            slots: HashMap::new(),
        };
        self.records.push(Key::Session(session).put(&begun.ended));
        self.sessions.insert(session, begun);
        Ok(())
    }

    /// Renews a session; `current` means that it has no lease to read from an earlier start of the server.
    ///
    /// # Errors
    /// ESTALE if it has ended.
    pub fn renew(&mut self, session: SessionId, expires_ms: u64, current: bool) -> Outcome<()> {
        let known = self.live(session)?;
        known.expires_ms = expires_ms.max(known.expires_ms);
        if current {
            self.heard_of(session);
        }
        Ok(())
    }

    fn live(&mut self, session: SessionId) -> Outcome<&mut Session> {
        match self.sessions.get_mut(&session) {
            Some(known) if !known.ended => Ok(known),
            _ => refuse(Errno::STALE),
        }
    }

    /// It has no lease to read from an earlier start, or no longer exists. If it was the last one, files without names
    /// are removed.
    fn heard_of(&mut self, session: SessionId) {
        if self.unheard.remove(&session) && self.unheard.is_empty() {
            let nameless = self.nodes.iter().filter(|(_, node)| node.inode.nlink == 0);
            for ino in nameless.map(|(ino, _)| *ino).collect::<Vec<_>>() {
                self.drop_unless_used(ino, None);
            }
        }
    }

    /// Returns the answer of a change that was executed before. Any change renews its session.
    pub(super) fn known(
        &mut self,
        session: SessionId,
        slot: u16,
        sequence: u32,
        now: Now,
    ) -> Outcome<Option<Vec<u8>>> {
        let expires_ms = now.steady_ms + self.lease_ms;
        let known = self.live(session)?;
        if slot >= SLOTS {
            return refuse(Errno::INVAL);
        }
        if known.expires_ms < now.steady_ms {
            return refuse(Errno::STALE);
        }
        known.expires_ms = known.expires_ms.max(expires_ms);
        match known.slots.get(&slot) {
            Some((last, answer)) if *last == sequence => Ok(Some(answer.clone())),
            // A change that its client has given up long ago.
            Some((last, _)) if sequence.wrapping_sub(*last) > u32::MAX / 2 => refuse(Errno::STALE),
            _ => Ok(None),
        }
    }

    pub(super) fn remember(&mut self, session: SessionId, slot: u16, sequence: u32, answer: &[u8]) {
        // A session that has said goodbye has no slots.
        let Some(known) = self.sessions.get_mut(&session) else {
            return;
        };
        known.slots.insert(slot, (sequence, answer.to_vec()));
        let kept = (sequence, answer);
        self.records.push(Key::Slot(session, slot).put(&kept));
    }

    /// Ends the sessions that were not renewed: their reserved extents are quarantined, their leases to read are gone.
    /// The files that they could write remain theirs until they are moved: [`Namespace::to_move`].
    pub fn end_expired(&mut self, now: Now) {
        let over = |session: &Session| !session.ended && session.expires_ms < now.steady_ms;
        let ended = self.sessions.iter().filter(|(_, session)| over(session));
        for session in ended.map(|(session, _)| *session).collect::<Vec<_>>() {
            self.sequence += 1;
            self.forget_slots(session);
            if let Some(known) = self.sessions.get_mut(&session) {
                known.ended = true;
                self.records.push(Key::Session(session).put(&true));
            }
            self.space.quarantine_reserved(session, &mut self.records);
            self.heard_of(session);
            for ino in self.leases_of(session) {
                if !self.writes(session, ino) {
                    self.drop_lease(session, ino, None);
                } else if self.unheard.is_empty()
                    && !self.is_kept_beside(session, ino)
                    && self
                        .nodes
                        .get(&ino)
                        .is_none_or(|node| node.inode.nlink == 0)
                {
                    self.drop_lease(session, ino, Some(session));
                }
            }
            self.forget_if_done(session);
        }
    }

    /// The files that could be written by sessions that have ended: each is to be moved.
    pub fn to_move(&self) -> Vec<(SessionId, Ino)> {
        let ended = |session: &SessionId| self.sessions.get(session).is_some_and(|s| s.ended);
        let mut files: Vec<_> = self.written_leases().filter(|(of, _)| ended(of)).collect();
        files.sort_unstable();
        files
    }

    /// Allocates new extents for those of such a file, as (from, to). They belong to nobody meanwhile.
    ///
    /// # Errors
    /// ENOSPC if a data server does not have enough free ones; nothing is allocated then.
    pub fn plan_move(&mut self, ino: Ino) -> Outcome<Vec<(Extent, Extent)>> {
        self.sequence += 1;
        let Body::File(map) = &self.node(ino)?.body else {
            return refuse(Errno::INVAL);
        };
        let mut by_server = BTreeMap::<u16, Vec<Extent>>::new();
        for extent in map.values() {
            by_server.entry(extent.server).or_default().push(*extent);
        }
        let mut pairs = Vec::new();
        for (server, from) in by_server {
            let to = self
                .space
                .reserve(MOVER, from.len(), Some(server), &mut self.records);
            let enough = to.len() == from.len();
            pairs.extend(from.into_iter().zip(to.iter().copied()));
            if !enough {
                self.abandon_move(pairs.iter().map(|(_, to)| *to).chain(to));
                return refuse(Errno::NOSPC);
            }
        }
        Ok(pairs)
    }

    /// Nothing was copied, nor will be: the new extents are free.
    pub fn cancel_move(&mut self, pairs: &[(Extent, Extent)]) {
        self.sequence += 1;
        self.abandon_move(pairs.iter().map(|(_, to)| *to));
    }

    fn abandon_move(&mut self, places: impl Iterator<Item = Extent>) {
        for extent in places {
            if self.space.is_reserved(extent, MOVER) {
                self.space.give(extent, &mut self.records);
                self.space.free(extent);
            }
        }
    }

    /// The copy may still be in progress, or has failed: its extents are quarantined until their server restarts.
    pub fn spoil_move(&mut self, pairs: &[(Extent, Extent)]) {
        self.sequence += 1;
        for (_, to) in pairs {
            if self.space.is_reserved(*to, MOVER) {
                self.space.quarantine(*to, MOVER, &mut self.records);
            }
        }
    }

    /// The data has been copied: the file gets the new extents, the old ones are quarantined, and the lease ends.
    /// Returns `false` if the file has changed meanwhile; then the new extents are free again.
    pub fn finish_move(
        &mut self,
        session: SessionId,
        ino: Ino,
        pairs: &[(Extent, Extent)],
    ) -> bool {
        self.sequence += 1;
        let to: HashMap<_, _> = pairs.iter().copied().collect();
        let still = self.writes(session, ino);
        let map = match self.nodes.get_mut(&ino).map(|node| &mut node.body) {
            Some(Body::File(map)) if still && map.values().all(|at| to.contains_key(at)) => map,
            _ => {
                self.abandon_move(pairs.iter().map(|(_, to)| *to));
                return false;
            }
        };
        for (index, extent) in map.iter_mut() {
            let new = to[extent];
            self.space.give(new, &mut self.records);
            self.space.quarantine(*extent, session, &mut self.records);
            *extent = new;
            self.records.push(Key::Map(ino, *index).put(&new));
        }
        self.write_down(ino);
        self.drop_lease(session, ino, None);
        self.forget_if_done(session);
        true
    }

    /// No write of a session is in progress, nor will be: everything held for it is freed.
    pub(super) fn settle(&mut self, session: SessionId) {
        self.forget_slots(session);
        for ino in self.leases_of(session) {
            self.drop_lease(session, ino, None);
        }
        self.space.settle(session, &mut self.records);
        if self.sessions.remove(&session).is_some() {
            self.records.push(Key::Session(session).take());
        }
        self.heard_of(session);
    }

    fn forget_slots(&mut self, session: SessionId) {
        let Some(known) = self.sessions.get_mut(&session) else {
            return;
        };
        for slot in std::mem::take(&mut known.slots).into_keys() {
            self.records.push(Key::Slot(session, slot).take());
        }
    }

    /// Forgets a session that has ended and has no files any more. Extents quarantined for it keep its name.
    fn forget_if_done(&mut self, session: SessionId) {
        let ended = self.sessions.get(&session).is_some_and(|known| known.ended);
        if ended && self.leases_of(session).is_empty() {
            self.sessions.remove(&session);
            self.records.push(Key::Session(session).take());
        }
    }
}

/// The holder of the new extents of a file that is being moved. A server that was killed meanwhile quarantines them
/// when it starts: a copy into them may still be in progress.
pub(super) const MOVER: SessionId = 0;
