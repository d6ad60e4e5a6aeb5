//! Copies that fail and come back, and what happens to parts then.

use std::time::{Duration, Instant};

use super::{each, Action, Condition, Connection, Copy, Engine, Part, Way};
use crate::client::open::is_enough;
use crate::client::VolumeError;
use crate::wire::{self, Head, EPOCH_BYTES};

/// Minimum number of checks of the clock before a copy counts as late.
const LEAST_LOOKS: u32 = 4;

impl Engine {
    /// A copy no longer answers: the others go on without it.
    pub(in crate::client) fn lose(&mut self, server: usize, now: Instant) {
        if self.copies[server].connection == Connection::Out {
            return;
        }
        self.copies[server].connection = Connection::Out;
        self.actions.push_back(Action::Disconnect { server });
        if !matches!(self.condition, Condition::Serving) {
            return;
        }
        if is_enough(&self.shape, self.in_sync()).is_err() {
            return self.stall(now);
        }
        let bit = 1 << server;
        let waiting = self.parts.iter().filter(|(_, part)| part.out & bit != 0);
        let waiting: Vec<usize> = waiting.map(|(index, _)| index).collect();
        for index in waiting {
            self.parts[index].out &= !bit;
            match self.parts[index].way {
                Way::Write => self.look(index),
                _ => self.send(index, now),
            }
        }
    }

    fn stall(&mut self, now: Instant) {
        tracing::warn!("not enough copies of the volume respond: requests wait until more do");
        self.condition = Condition::Stalled(now);
        for server in 0..self.copies.len() {
            self.lose(server, now);
        }
        for (_, part) in &mut self.parts {
            (part.out, part.done) = (0, 0);
        }
        self.actions.push_back(Action::Reopen);
    }

    /// The volume was opened, for the first time or again: all parts are sent in the new epoch, in the order in which
    /// they were begun.
    pub(in crate::client) fn opened(
        &mut self,
        epoch: u64,
        servers: u64,
        session: u64,
        now: Instant,
    ) {
        if let Condition::Over(_) = self.condition {
            return;
        }
        (self.epoch, self.count) = (epoch, 0);
        self.ticked = Some(now);
        self.condition = Condition::Serving;
        for (server, copy) in self.copies.iter_mut().enumerate() {
            let is_there = servers & 1 << server != 0;
            let connection = if is_there {
                Connection::InSync
            } else {
                Connection::Out
            };
            *copy = Copy {
                connection,
                whole: is_there,
                session,
            };
        }
        let version =
            |part: &Part| Head::of(part.payload.get(EPOCH_BYTES..)?).map(|head| head.version);
        let mut waiting: Vec<_> = self
            .parts
            .iter()
            .map(|(at, part)| (version(part), at))
            .collect();
        waiting.sort_unstable();
        for (_, index) in waiting {
            let version = self.next_version();
            let Some(part) = self.parts.get_mut(index) else {
                return;
            };
            part.payload[..EPOCH_BYTES].copy_from_slice(&epoch.to_le_bytes());
            if part.way == Way::Write {
                wire::set_version(&mut part.payload[EPOCH_BYTES..], version);
            }
            self.send(index, now);
        }
    }

    /// A server is connected: from now on it gets all writes.
    pub(in crate::client) fn connected(
        &mut self,
        server: usize,
        whole: bool,
        session: u64,
        now: Instant,
    ) {
        if !matches!(self.condition, Condition::Serving) {
            return;
        }
        let connection = Connection::Joining;
        self.copies[server] = Copy {
            connection,
            whole,
            session,
        };
        let is_behind = |part: &Part| part.way == Way::Write && part.set & 1 << server != 0;
        let waiting = self.parts.iter().filter(|(_, part)| is_behind(part));
        let waiting: Vec<usize> = waiting.map(|(index, _)| index).collect();
        for index in waiting {
            // It may have lost what it acknowledged before; sending it twice does no harm.
            self.parts[index].done &= !(1 << server);
            self.send(index, now);
        }
    }

    /// A server that was connected in this session is up to date.
    pub(in crate::client) fn joined(&mut self, server: usize, session: u64) {
        let copy = &mut self.copies[server];
        if copy.connection == Connection::Joining && copy.session == session {
            (copy.connection, copy.whole) = (Connection::InSync, true);
        }
    }

    /// Checks the clock. Time in which it was not checked hardly counts against the copies: answers may have arrived,
    /// and requests may need polls to make progress. It counts a little, so that a copy that does not answer becomes
    /// late even if checks are rare.
    pub(in crate::client) fn tick(&mut self, now: Instant) {
        let ticked = self.ticked.replace(now).unwrap_or(now);
        let unseen = now
            .duration_since(ticked)
            .saturating_sub(self.replace_after / LEAST_LOOKS);
        if unseen > Duration::ZERO {
            for (_, part) in &mut self.parts {
                // Some were sent after the last check.
                part.sent = part.sent.map(|sent| (sent + unseen).min(now));
            }
        }
        if let Condition::Stalled(since) = self.condition {
            if now.duration_since(since) >= self.patience {
                self.over(VolumeError::TooFew {
                    have: self.in_sync().count_ones(),
                    want: self.shape.majority(),
                    why: format!("no others have responded for {:?}", self.patience),
                });
            }
            return;
        }
        let is_late = |part: &Part, server: usize| {
            now.duration_since(part.sent[part.nth(server)]) >= self.replace_after
        };
        let late = self.parts.iter().fold(0, |late, (_, part)| {
            let out = each(part.out & !late);
            out.filter(|server| is_late(part, *server))
                .fold(late, |late, server| late | 1 << server)
        });
        for server in each(late) {
            tracing::warn!(server, after = ?self.replace_after, "a copy does not respond");
            self.lose(server, now);
        }
    }

    /// Ends everything: every request fails with the error.
    pub(in crate::client) fn over(&mut self, error: VolumeError) {
        if let Condition::Over(_) = self.condition {
            return;
        }
        self.condition = Condition::Over(error.clone());
        for server in 0..self.copies.len() {
            if self.copies[server].connection != Connection::Out {
                self.copies[server].connection = Connection::Out;
                self.actions.push_back(Action::Disconnect { server });
            }
        }
        self.parts.clear();
        for request in self.requests.drain() {
            let (tag, result) = (request.tag, Err(error.clone()));
            self.actions.push_back(Action::Done { tag, result });
        }
    }
}
