//! What a participant does when one epoch ends and the next begins.
//!
//! It is *sealed* first: it no longer answers coordinators, and reports the transactions that were decided. Then it
//! *installs* all that were decided anywhere, releases every lock, and *serves* when all machines of the epoch have
//! installed. Until then it remembers what it has done for each slot, so that a recovery that is restarted does nothing
//! twice.

use super::{Participant, Slot};
use crate::membership::{Epoch, Record};
use crate::mistakes::Mistake;
use crate::store::{LockError, Store};
use crate::types::{Key, TransactionId, Update};
use crate::wire::Fate;
use std::collections::{BTreeSet, VecDeque};

/// Number of epochs whose outcomes are kept for coordinators.
const OUTCOMES: usize = 64;

/// The epoch of a participant, and its progress in it.
#[derive(Debug, Hash, Clone)]
pub(super) struct Standing {
    pub(super) epoch: Epoch,
    pub(super) serving: bool,
    /// The last epoch known to have served: the slots belong to it.
    pub(super) served: Epoch,
    /// The last epoch whose decided transactions are installed.
    pub(super) installed: Epoch,
    recovers: bool,
    /// It started without data, and no epoch has served since: it will copy what was decided before.
    pub(super) empty: bool,
    /// The transactions decided before this epoch.
    pub(super) committed: BTreeSet<TransactionId>,
    /// By the epoch of the transactions.
    pub(super) outcomes: VecDeque<(Epoch, BTreeSet<TransactionId>)>,
    /// There was no space for another slot: a new epoch starts without any.
    pub(super) crowded: bool,
}

impl Standing {
    /// For a membership that never changes.
    pub(super) fn fixed() -> Standing {
        Standing {
            epoch: Epoch::FIXED,
            serving: true,
            served: Epoch::FIXED,
            installed: Epoch::FIXED,
            recovers: false,
            empty: false,
            committed: BTreeSet::new(),
            outcomes: VecDeque::new(),
            crowded: false,
        }
    }

    pub(super) fn recovers(&self) -> bool {
        self.recovers
    }
}

/// A participant is in another epoch, or lacks the state that an epoch starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the machine is in a different epoch")]
pub struct OtherEpoch;

/// Why the decided transactions were not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotInstalled {
    /// The participant is not sealed for the epoch.
    #[error(transparent)]
    OtherEpoch(#[from] OtherEpoch),
    /// A table cannot store a change that the others have: the machine cannot continue.
    #[error("cannot store what other machines have committed: {0}")]
    NoRoom(LockError),
}

impl<S: Store> Participant<S> {
    /// For a membership that changes: it serves only when it is told to. If it has not loaded the database's initial
    /// contents it has joined later, and copies.
    #[must_use]
    pub fn recovering(mut self, loaded: bool) -> Self {
        self.standing.empty = !loaded;
        if !loaded {
            self.store.learn(true);
        }
        self.standing.serving = false;
        self.standing.recovers = true;
        self
    }

    /// Its epoch.
    pub fn epoch(&self) -> Epoch {
        self.standing.epoch
    }

    /// Whether it answers the coordinators of its epoch.
    pub fn is_serving(&self) -> bool {
        self.standing.serving
    }

    pub(super) fn serves(&self, epoch: Epoch) -> bool {
        let careless = self.mistakes.has(Mistake::OldEpochServed);
        self.standing.serving && (careless || epoch == self.standing.epoch)
    }

    /// Keeps what a recovery needs to know about a transaction.
    pub(super) fn record(&self, slot: &mut Slot, append: &[Update], apply: &[Update]) {
        slot.record.extend_from_slice(append);
        if self.standing.recovers {
            for update in apply {
                if !slot.record.contains(update) {
                    slot.record.push(update.clone());
                }
                slot.applied.push(update.key.clone());
            }
        }
    }

    /// Begins an epoch that follows one that served: nothing is answered any more, and the set of decided transactions
    /// no longer changes.
    ///
    /// # Errors
    /// When the participant is in a later epoch, or was not present when `base` began.
    pub fn seal(&mut self, epoch: Epoch, base: Epoch) -> Result<(), OtherEpoch> {
        let standing = &self.standing;
        if epoch < standing.epoch || (epoch == standing.epoch && standing.serving) {
            return Err(OtherEpoch);
        }
        let fresh = standing.installed == Epoch::FIXED;
        if standing.served < base && standing.installed != base && !fresh {
            return Err(OtherEpoch);
        }
        if self.standing.served < base {
            // It was not notified that `base` served, and so has no slots from it.
            self.begin_anew(base);
        }
        self.standing.epoch = epoch;
        self.standing.serving = self.mistakes.has(Mistake::SealLeftOut) && self.standing.serving;
        Ok(())
    }

    /// The transactions that have been logged here since the last serving epoch began, with their changes.
    pub fn decided(&self) -> impl Iterator<Item = (TransactionId, &[Update])> {
        let slots = self.slots.iter();
        let decided = slots.filter(|(_, slot)| !slot.record.is_empty());
        decided.map(|(name, slot)| (transaction(*name, slot), &slot.record[..]))
    }

    /// Executes the decided transactions that have not been executed here yet, and releases all locks. `keeps` tells
    /// which keys have a copy here.
    ///
    /// # Errors
    /// When the participant is not sealed for this epoch, or there is no space: then the machine cannot continue.
    pub fn install(
        &mut self,
        epoch: Epoch,
        records: &[Record],
        keeps: impl Fn(&Key) -> bool,
    ) -> Result<(), NotInstalled> {
        self.install_by(epoch, records, keeps, S::apply)
    }

    /// The same, with another function that applies changes to the store.
    pub(super) fn install_by(
        &mut self,
        epoch: Epoch,
        records: &[Record],
        keeps: impl Fn(&Key) -> bool,
        mut apply: impl FnMut(&mut S, &[Update]) -> Result<(), LockError>,
    ) -> Result<(), NotInstalled> {
        if epoch != self.standing.epoch || self.standing.serving {
            return Err(OtherEpoch.into());
        }
        let none = self.mistakes.has(Mistake::DecidedForgotten);
        let twice = self.mistakes.has(Mistake::InstalledTwice);
        let is_left = |(id, _): &&Record| {
            // If the slot has gone on to a later transaction, this one is complete everywhere.
            let slot = self.slots.get(&(id.coordinator, id.slot));
            let is_done = slot.is_some_and(|slot| {
                slot.sequence > id.sequence || (slot.sequence == id.sequence && slot.installed)
            });
            !none && (twice || !is_done)
        };
        let left: Vec<&Record> = records.iter().filter(is_left).collect();
        let mut missing: Vec<Update> = Vec::new();
        for (id, updates) in left.iter().copied() {
            let slot = self.slots.get(&(id.coordinator, id.slot));
            let slot = slot.filter(|slot| slot.sequence >= id.sequence);
            let empty = self.standing.empty;
            let is_left = |update: &&Update| {
                let is_applied = slot.is_some_and(|slot| slot.applied.contains(&update.key));
                !empty && keeps(&update.key) && !is_applied
            };
            for update in updates.iter().filter(is_left) {
                if !self.store.install(update, *id) {
                    missing.push(update.clone());
                }
            }
        }
        if !self.mistakes.has(Mistake::LocksKept) {
            for (name, slot) in &mut self.slots {
                let id = transaction(*name, slot);
                for key in slot.locked.drain(..) {
                    self.store.unlock(&key, id);
                }
            }
        }
        // A primary that lost its memory may lack one transaction and another that saw its changes: they are applied in
        // the order of versions; those with the same version belong to one transaction if they share a header, and are
        // applied together.
        missing.sort_by_key(|update| update.version);
        for updates in missing.chunk_by(|one, next| one.version == next.version) {
            let applied = apply(&mut self.store, updates);
            applied.map_err(NotInstalled::NoRoom)?;
        }
        // Only now: if the install is repeated it must not appear to have been done.
        for (id, updates) in left {
            let slot = self.slots.entry((id.coordinator, id.slot)).or_default();
            if slot.sequence < id.sequence {
                *slot = Slot {
                    sequence: id.sequence,
                    ..Slot::default()
                };
            }
            slot.record.clone_from(updates);
            slot.installed = true;
        }
        self.standing
            .committed
            .extend(records.iter().map(|(id, _)| *id));
        self.standing.installed = epoch;
        Ok(())
    }

    /// All machines of the epoch have installed: coordinators of this epoch are answered from now on.
    ///
    /// # Errors
    /// When this one has not installed, or is in another epoch.
    pub fn serve(&mut self, epoch: Epoch) -> Result<(), OtherEpoch> {
        let standing = &self.standing;
        if standing.serving && standing.epoch == epoch {
            return Ok(());
        }
        let first = epoch == Epoch::FIRST && standing.epoch == Epoch::FIXED;
        if !first && (standing.epoch != epoch || standing.installed != epoch) {
            return Err(OtherEpoch);
        }
        self.begin_anew(epoch);
        self.standing.empty = false;
        self.store.new_epoch(epoch);
        self.standing.epoch = epoch;
        self.standing.serving = true;
        Ok(())
    }

    /// Drops the state of the last epoch that served: it is decided and installed.
    fn begin_anew(&mut self, served: Epoch) {
        for (coordinator, slot) in self.slots.drain().map(|(name, _)| name) {
            self.store.forget(coordinator, slot);
        }
        let standing = &mut self.standing;
        let committed = std::mem::take(&mut standing.committed);
        if standing.served > Epoch::FIXED {
            standing.outcomes.push_back((standing.served, committed));
        }
        if standing.outcomes.len() > OUTCOMES {
            standing.outcomes.pop_front();
        }
        standing.served = served;
        standing.installed = served;
        standing.crowded = false;
    }

    /// The outcome of a transaction of this epoch.
    pub(super) fn fate(&self, id: TransactionId, epoch: Epoch) -> Fate {
        let mut outcomes = self.standing.outcomes.iter();
        match outcomes.find(|(of, _)| *of == epoch) {
            Some((_, committed)) if committed.contains(&id) => Fate::Committed,
            Some(_) => Fate::Aborted,
            None if epoch < self.standing.served && self.standing.serving => Fate::Forgotten,
            None => Fate::Undecided,
        }
    }

    /// Transactions that hold locks, with their last step: if that does not change they have lost their coordinator.
    pub fn holders(&self) -> Vec<(TransactionId, u16)> {
        let holds = |(name, slot): &(&(u64, u16), &Slot)| {
            let id = transaction(**name, slot);
            let owns = |key: &Key| self.store.read(key).owner == Some(id);
            slot.locked.iter().any(owns)
        };
        let slots = self.slots.iter().filter(holds);
        slots
            .map(|(name, slot)| (transaction(*name, slot), slot.step))
            .collect()
    }

    /// Whether there was no space for another slot in this epoch.
    pub fn is_crowded(&self) -> bool {
        self.standing.crowded
    }

    /// Stores items copied from another machine, except where a later change has arrived.
    ///
    /// # Errors
    /// When the store has no space.
    pub fn adopt(&mut self, items: &[Update]) -> Result<(), LockError> {
        self.store.adopt(items)
    }
}

pub(super) fn transaction((coordinator, number): (u64, u16), slot: &Slot) -> TransactionId {
    TransactionId {
        coordinator,
        slot: number,
        sequence: slot.sequence,
    }
}
