//! Restoring a participant from its log, and the participant's part of a snapshot.
//!
//! All logged actions are repeated in order, so a participant is restored to its previous state, except for what it
//! never promised to keep: its locks, and the answers that identify duplicate requests. Both belong to an epoch, so it
//! does not continue to serve that epoch.

use std::collections::HashMap;

use super::epochs::transaction;
use super::{Participant, Slot};
use crate::log::Entry;
use crate::membership::Configuration;
use crate::placement::Placement;
use crate::store::{LockError, Store};
use crate::types::{Key, MachineId, TransactionId, Update};

/// An entry cannot follow those before it, or the store has no space for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {0} of the log cannot follow those before it, or does not fit into the tables")]
pub struct NotReplayed(pub usize);

/// Repeats the actions in a log, with all participants of machine `me`, each of which has its share of the
/// coordinators. They do not serve afterwards. The placement is that of all machines, present or not.
///
/// # Errors
/// When an entry cannot follow those before it, or a store has no space.
pub fn replay<S: Store>(
    participants: &mut [Participant<S>],
    (me, placement): (MachineId, &Placement),
    entries: impl IntoIterator<Item = Entry>,
) -> Result<(), NotReplayed> {
    let mut replay = Replay::begin(participants, (me, placement));
    entries
        .into_iter()
        .try_for_each(|entry| replay.take(entry))?;
    replay.end().map(drop)
}

/// [`replay`], entry by entry.
#[derive(Debug)]
pub(crate) struct Replay<'a, S> {
    participants: &'a mut [Participant<S>],
    me: MachineId,
    placement: &'a Placement,
    aside: Aside,
    taken: usize,
}

/// Changes for which there was no space when they were replayed, the latest of each key. A snapshot may contain an item
/// together with one that was deleted before it was inserted, and a log the insertion before the deletion that made
/// space for it.
#[derive(Debug, Default)]
struct Aside(HashMap<Key, Update>);

impl Aside {
    /// Drops a deferred change of this key, which this change supersedes.
    fn forget(&mut self, update: &Update) {
        let is_later = |aside: &Update| aside.version > update.version;
        if !self.0.get(&update.key).is_some_and(is_later) {
            self.0.remove(&update.key);
        }
    }

    /// Stores changes by the store's `apply` or `adopt`; if there is not enough space for all, as many as fit.
    fn store<S: Store>(
        &mut self,
        store: &mut S,
        updates: &[Update],
        how: impl Fn(&mut S, &[Update]) -> Result<(), LockError>,
    ) -> Option<()> {
        match how(store, updates) {
            Ok(()) if self.0.is_empty() => return Some(()),
            Ok(()) | Err(LockError::Full) => {}
            Err(_) => return None,
        }
        for update in updates {
            match how(store, std::slice::from_ref(update)) {
                Ok(()) => self.forget(update),
                Err(LockError::Full) => {
                    let aside = self.0.entry(update.key.clone());
                    let aside = aside.or_insert_with(|| update.clone());
                    if aside.version < update.version {
                        *aside = update.clone();
                    }
                }
                Err(_) => return None,
            }
        }
        Some(())
    }
}

impl<'a, S: Store> Replay<'a, S> {
    pub(crate) fn begin(
        participants: &'a mut [Participant<S>],
        (me, placement): (MachineId, &'a Placement),
    ) -> Self {
        // Like a machine that copies: the items of a snapshot are stored before any change.
        for participant in &mut *participants {
            participant.store.learn(true);
        }
        Self {
            participants,
            me,
            placement,
            aside: Aside::default(),
            taken: 0,
        }
    }

    pub(crate) fn take(&mut self, entry: Entry) -> Result<(), NotReplayed> {
        let place = (self.me, self.placement);
        replay_one((self.participants, &mut self.aside), place, entry)
            .ok_or(NotReplayed(self.taken))?;
        self.taken += 1;
        Ok(())
    }

    /// Ends the replay. Returns the number of entries.
    ///
    /// # Errors
    /// When there is still not enough space for everything.
    pub(crate) fn end(self) -> Result<usize, NotReplayed> {
        if let Some(first) = self.participants.first_mut() {
            for update in self.aside.0.into_values() {
                // Stored like an item of a snapshot: keys deleted since stay deleted.
                let stored = first.store.adopt(&[update]);
                stored.map_err(|_| NotReplayed(self.taken))?;
            }
        }
        for participant in self.participants {
            participant.standing.serving = false;
            participant.store.learn(false);
        }
        Ok(self.taken)
    }
}

fn replay_one<S: Store>(
    (all, aside): (&mut [Participant<S>], &mut Aside),
    (me, placement): (MachineId, &Placement),
    entry: Entry,
) -> Option<()> {
    let shares = all.len() as u64;
    let share_of = |id: TransactionId| (id.coordinator % shares.max(1)) as usize;
    match entry {
        Entry::Replicate { id, append, apply } => {
            let participant = all.get_mut(share_of(id))?;
            aside.store(&mut participant.store, &apply, S::apply)?;
            participant.again(id, |participant, slot| {
                participant.record(slot, &append, &apply);
            });
        }
        Entry::Commit { id, updates } => {
            let participant = all.get_mut(share_of(id))?;
            // The entry contains the whole transaction; this machine had locked and installed the keys whose primary it
            // was. Those that it backs up it had applied before, and they may have later changes.
            let slot = participant.slots.get(&(id.coordinator, id.slot));
            let slot = slot.filter(|slot| slot.sequence == id.sequence);
            let is_mine = |update: &&Update| {
                is_kept(placement, me, &update.key)
                    && slot.is_none_or(|slot| !slot.applied.contains(&update.key))
            };
            let mine: Vec<Update> = updates.iter().filter(is_mine).cloned().collect();
            aside.store(&mut participant.store, &mine, S::apply)?;
            participant.again(id, |participant, slot| {
                if slot.record.is_empty() {
                    participant.record(slot, &updates, &[]);
                }
                slot.installed = true;
            });
        }
        Entry::Seal { epoch, base } => {
            for participant in all {
                participant.seal(epoch, base).ok()?;
            }
        }
        Entry::Install { of, records } => {
            let keeps = keeps(&of, me)?;
            for (share, participant) in all.iter_mut().enumerate() {
                let mine = |(id, _): &&(TransactionId, _)| share_of(*id) == share;
                let mine: Vec<_> = records.iter().filter(mine).cloned().collect();
                // Changes that were applied before may be set aside, and stay there; those that are applied now need
                // no more room than they had, once everything before them is replayed.
                let apply = |store: &mut S, updates: &[Update]| {
                    let stored = aside.store(store, updates, S::apply);
                    stored.ok_or(LockError::Unknown)
                };
                participant
                    .install_by(of.epoch, &mine, &keeps, apply)
                    .ok()?;
            }
        }
        Entry::Serve { epoch, .. } => {
            for participant in all {
                participant.serve(epoch).ok()?;
            }
        }
        Entry::Adopt(items) | Entry::Items(items) => {
            aside.store(&mut all.first_mut()?.store, &items, S::adopt)?;
        }
        Entry::Standing {
            share,
            epoch,
            served,
            installed,
            empty,
            committed,
            outcomes,
        } => {
            let participant = all.get_mut(usize::from(share))?;
            let standing = &mut participant.standing;
            (standing.epoch, standing.served, standing.installed) = (epoch, served, installed);
            standing.empty = empty;
            standing.committed = committed.into_iter().collect();
            let outcomes = outcomes.into_iter();
            standing.outcomes = outcomes
                .map(|(epoch, ids)| (epoch, ids.into_iter().collect()))
                .collect();
            participant.store.new_epoch(served);
        }
        Entry::Slot {
            id,
            record,
            applied,
            installed,
        } => {
            let slot = Slot {
                sequence: id.sequence,
                record,
                applied,
                installed,
                ..Slot::default()
            };
            let participant = all.get_mut(share_of(id))?;
            participant.slots.insert((id.coordinator, id.slot), slot);
        }
        // Handled by the caller: the owner of the log, and the end of a snapshot.
        Entry::Life { .. } | Entry::End => {}
    }
    Some(())
}

/// Which keys have a copy on a machine.
pub(crate) fn keeps(of: &Configuration, me: MachineId) -> Option<impl Fn(&Key) -> bool> {
    let placement = of.placement().ok()?;
    Some(move |key: &Key| is_kept(&placement, me, key))
}

fn is_kept(placement: &Placement, me: MachineId, key: &Key) -> bool {
    placement.primary(key) == me || placement.backups(key).contains(&me)
}

impl<S: Store> Participant<S> {
    /// Executes an action in the slot of its transaction.
    fn again(&mut self, id: TransactionId, execute: impl FnOnce(&Self, &mut Slot)) {
        let name = (id.coordinator, id.slot);
        let slot = self.slots.remove(&name);
        let mut slot = slot
            .filter(|slot| slot.sequence >= id.sequence)
            .unwrap_or_else(|| Slot {
                sequence: id.sequence,
                ..Slot::default()
            });
        if slot.sequence == id.sequence {
            execute(self, &mut slot);
        }
        self.slots.insert(name, slot);
    }

    /// The part of a snapshot for this participant, the one with this index on its machine: everything that [`replay`]
    /// needs except the items.
    pub fn captured(&self, share: u16) -> Vec<Entry> {
        let standing = &self.standing;
        let outcomes = standing.outcomes.iter();
        let mut entries = vec![Entry::Standing {
            share,
            epoch: standing.epoch,
            served: standing.served,
            installed: standing.installed,
            empty: standing.empty,
            committed: standing.committed.iter().copied().collect(),
            outcomes: outcomes
                .map(|(epoch, ids)| (*epoch, ids.iter().copied().collect()))
                .collect(),
        }];
        let slots = self.slots.iter();
        entries.extend(slots.map(|(name, slot)| Entry::Slot {
            id: transaction(*name, slot),
            record: slot.record.clone(),
            applied: slot.applied.clone(),
            installed: slot.installed,
        }));
        entries
    }

    /// Returns some of all items from the cursor on, and where to continue.
    pub fn items(&self, cursor: u64, bytes: usize) -> (Vec<Update>, Option<u64>) {
        self.store.chunk(cursor, bytes, &|_| true)
    }
}
