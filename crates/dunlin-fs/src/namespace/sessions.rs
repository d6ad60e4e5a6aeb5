//! Sessions: who they are, what they have done, how they end.

use std::collections::{BTreeMap, HashMap};

use super::record::Key;
use super::{Body, Namespace, Now};
use crate::types::{refuse, Errno, Extent, Ino, Outcome, SessionId, SLOTS};

/// Most sessions at once.
pub(super) const SESSIONS: usize = 4096;

#[derive(Debug)]
pub(super) struct Session {
    /// By the steady clock.
    pub(super) expires_ms: u64,
    /// It was not renewed in time: it changes nothing any more, and its files are being moved.
    pub(super) ended: bool,
    /// The last change of each slot and its answer.
    pub(super) slots: HashMap<u16, (u32, Vec<u8>)>,
}

impl Namespace {
    /// Begins a session under a name that was drawn for it.
    ///
    /// # Errors
    /// ENOSPC with too many sessions, EEXIST where the name is taken.
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

    /// A session lives on; `current` says that it has no lease to read of an earlier start of the server.
    ///
    /// # Errors
    /// ESTALE where it has ended.
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

    /// It has no lease to read of an earlier start, or is no more. Was it the last, files without names go.
    fn heard_of(&mut self, session: SessionId) {
        if self.unheard.remove(&session) && self.unheard.is_empty() {
            let nameless = self.nodes.iter().filter(|(_, node)| node.inode.nlink == 0);
            for ino in nameless.map(|(ino, _)| *ino).collect::<Vec<_>>() {
                self.drop_unless_used(ino, None);
            }
        }
    }

    /// The answer of a change that was done before. Any change renews its session.
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
            // One that its client has given up long ago.
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

    /// Ends the sessions that were not renewed: what they had reserved is quarantined, their leases to read are gone.
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

    /// Files that a session could write which has ended: each is to be moved.
    pub fn to_move(&self) -> Vec<(SessionId, Ino)> {
        let ended = |session: &SessionId| self.sessions.get(session).is_some_and(|s| s.ended);
        let mut files: Vec<_> = self.written_leases().filter(|(of, _)| ended(of)).collect();
        files.sort_unstable();
        files
    }

    /// Places for the extents of such a file, as (from, to). Nobody has them meanwhile.
    ///
    /// # Errors
    /// ENOSPC where a data server has not enough free ones; nothing is kept then.
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

    /// Nothing was copied, nor will be: the new places are free.
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

    /// A copy that may still be under way, or came to nothing: its places are kept from use until their server starts
    /// anew.
    pub fn spoil_move(&mut self, pairs: &[(Extent, Extent)]) {
        self.sequence += 1;
        for (_, to) in pairs {
            if self.space.is_reserved(*to, MOVER) {
                self.space.quarantine(*to, MOVER, &mut self.records);
            }
        }
    }

    /// The bytes are in their new places: the file has them there, the old ones are quarantined, the lease ends.
    /// `false` where it came otherwise meanwhile; then the new places are free again.
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

    /// No write of a session is under way, nor will be: all that was held for it is free.
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

    /// A session that has ended and has no files any more is forgotten. What is quarantined for it keeps its name.
    fn forget_if_done(&mut self, session: SessionId) {
        let ended = self.sessions.get(&session).is_some_and(|known| known.ended);
        if ended && self.leases_of(session).is_empty() {
            self.sessions.remove(&session);
            self.records.push(Key::Session(session).take());
        }
    }
}

/// Who has the new places of a file that is being moved. A server that was killed meanwhile quarantines them when it
/// starts: a copy into them may still be under way.
pub(super) const MOVER: SessionId = 0;
