//! What a participant does when one epoch ends and the next begins.
//!
//! It is *sealed* first: it answers no coordinator any more and says which transactions were decided. Then it
//! *installs* all that were decided anywhere, releases every lock, and *serves* when all machines of the epoch have
//! installed. Until then it remembers what it has done with each slot, so that a recovery which is begun again does
//! nothing twice.

use super::{Participant, Slot};
use crate::membership::{Epoch, Record};
use crate::mistakes::Mistake;
use crate::store::{LockError, Store};
use crate::types::{Key, TransactionId, Update};
use crate::wire::Fate;
use std::collections::{BTreeSet, VecDeque};

/// Epochs whose outcomes are kept for coordinators that ask.
const OUTCOMES: usize = 64;

/// Of which epoch a participant is, and how far.
#[derive(Debug, Hash, Clone)]
pub(super) struct Standing {
    pub(super) epoch: Epoch,
    pub(super) serving: bool,
    /// The last epoch that is known to have served: that of the slots.
    pub(super) served: Epoch,
    /// The last epoch whose decided transactions are installed.
    pub(super) installed: Epoch,
    recovers: bool,
    /// It has come without anything, and no epoch has served since: what was decided before it will copy.
    pub(super) empty: bool,
    /// The transactions that were decided before this epoch.
    pub(super) committed: BTreeSet<TransactionId>,
    /// By the epoch whose transactions they are.
    pub(super) outcomes: VecDeque<(Epoch, BTreeSet<TransactionId>)>,
    /// There was no room for another slot: a new epoch begins without any.
    pub(super) crowded: bool,
}

impl Standing {
    /// Of a membership that never changes.
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

/// A participant is of another epoch, or has not what an epoch begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the machine is of another epoch")]
pub struct OtherEpoch;

/// What was decided is not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotInstalled {
    /// The participant is not sealed for the epoch.
    #[error(transparent)]
    OtherEpoch(#[from] OtherEpoch),
    /// A table does not take a change that the others have: the machine cannot go on.
    #[error("what others have committed is not taken here: {0}")]
    NoRoom(LockError),
}

impl<S: Store> Participant<S> {
    /// Of a membership that changes: it serves when it is told to. Where it has not loaded what the database begins
    /// with, it has come later, and copies.
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

    /// Whether it answers coordinators of its epoch.
    pub fn is_serving(&self) -> bool {
        self.standing.serving
    }

    pub(super) fn serves(&self, epoch: Epoch) -> bool {
        let careless = self.mistakes.has(Mistake::OldEpochServed);
        self.standing.serving && (careless || epoch == self.standing.epoch)
    }

    /// Keeps of a transaction what a recovery needs.
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

    /// Begins an epoch that follows one which served: nothing is answered any more, and what was decided stays so.
    ///
    /// # Errors
    /// When the participant is of a later epoch, or was not there when `base` began.
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
            // It has not heard that `base` served, and so has no slots of it.
            self.begin_anew(base);
        }
        self.standing.epoch = epoch;
        self.standing.serving = self.mistakes.has(Mistake::SealLeftOut) && self.standing.serving;
        Ok(())
    }

    /// The transactions that have been logged here since the last epoch that served began, with their changes.
    pub fn decided(&self) -> impl Iterator<Item = (TransactionId, &[Update])> {
        let slots = self.slots.iter();
        let decided = slots.filter(|(_, slot)| !slot.record.is_empty());
        decided.map(|(name, slot)| (transaction(*name, slot), &slot.record[..]))
    }

    /// Executes what was decided and is not here yet, and releases all locks. `keeps` says which keys have a copy here.
    ///
    /// # Errors
    /// When the participant is not sealed for this epoch, or there is no room: then the machine cannot go on.
    pub fn install(
        &mut self,
        epoch: Epoch,
        records: &[Record],
        keeps: impl Fn(&Key) -> bool,
    ) -> Result<(), NotInstalled> {
        if epoch != self.standing.epoch || self.standing.serving {
            return Err(OtherEpoch.into());
        }
        let none = self.mistakes.has(Mistake::DecidedForgotten);
        let twice = self.mistakes.has(Mistake::InstalledTwice);
        let is_left = |(id, _): &&Record| {
            // Where the slot has gone on since, the transaction is everywhere.
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
        // A primary that lost its memory may lack one transaction and another that saw it: in the order of versions,
        // and those of one version, which are of one transaction where they share a header, at once.
        missing.sort_by_key(|update| update.version);
        for updates in missing.chunk_by(|one, next| one.version == next.version) {
            let applied = self.store.apply(updates);
            applied.map_err(NotInstalled::NoRoom)?;
        }
        // Only now: who is told so again must not find that it was done.
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
    /// When this one has not installed, or is of another epoch.
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

    /// What was of the last epoch that served goes: it is decided and installed.
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

    /// What has become of a transaction of this epoch.
    pub(super) fn fate(&self, id: TransactionId, epoch: Epoch) -> Fate {
        let mut outcomes = self.standing.outcomes.iter();
        match outcomes.find(|(of, _)| *of == epoch) {
            Some((_, committed)) if committed.contains(&id) => Fate::Committed,
            Some(_) => Fate::Aborted,
            None if epoch < self.standing.served && self.standing.serving => Fate::Forgotten,
            None => Fate::Undecided,
        }
    }

    /// Transactions that hold locks, with their last step: those that stay so have lost their coordinator.
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

    /// Whether there was no room for another slot in this epoch.
    pub fn is_crowded(&self) -> bool {
        self.standing.crowded
    }

    /// Stores what was copied from another machine, where no later change has come.
    ///
    /// # Errors
    /// When the store has no room.
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
