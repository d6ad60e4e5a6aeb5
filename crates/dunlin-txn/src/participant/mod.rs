//! The participant: a state machine that takes requests and returns answers.
//!
//! For each slot of a coordinator it remembers the last step and its answer. A repetition of that step is answered from
//! memory and an earlier step is refused, so requests may be lost, duplicated and late without being executed twice.
//!
//! If machines are replaced when they fail ([`crate::membership`]) it is in one epoch at a time; [`epochs`] has what
//! happens between two. If it has a log ([`crate::log`]), everything that must not be lost is appended before it
//! becomes visible; [`replay`] restores a participant from the log.
#[cfg(feature = "mistakes")]
mod copied;
mod epochs;
mod replay;

use crate::log::{Append, Entry};
use crate::membership::Epoch;
use crate::mistakes::{Mistake, Mistakes};
use crate::store::{LockError, Store};
use crate::types::{Key, SlotMap, TransactionId, Update, Version};
use crate::wire::{Answer, Body, Fate, Item, Refusal, Request, Response};
use epochs::Standing;
pub use epochs::{NotInstalled, OtherEpoch};
pub(crate) use replay::{keeps, Replay};
pub use replay::{replay, NotReplayed};

/// Answers requests of coordinators over a store.
#[derive(Debug)]
pub struct Participant<S> {
    store: S,
    slots: SlotMap<Slot>,
    slots_max: usize,
    requests: u64,
    mistakes: Mistakes,
    standing: Standing,
    /// Present if the log is on a disk.
    log: Option<Box<dyn Append>>,
    /// The position of the last entry that it appended.
    appended: u64,
}

/// The state kept for a coordinator's slot: its last transaction here.
#[derive(Debug, Default, Hash, Clone)]
struct Slot {
    /// When it was last used, counted in requests of the participant.
    used: u64,
    sequence: u64,
    step: u16,
    answer: Response,
    /// The keys that it locked. Some may have been unlocked one-sided since.
    locked: Vec<Key>,
    /// Its log record. The slot's next transaction begins only when this one is complete everywhere, so one record is
    /// enough.
    record: Vec<Update>,
    /// The keys of the record that this machine has applied as a backup.
    applied: Vec<Key>,
    /// Its changes have been installed here: nothing is left to do.
    installed: bool,
}

impl<S: Store> Participant<S> {
    /// Default number of coordinators' slots that are remembered: 1,000 threads of 20 transactions.
    pub const SLOTS_MAX: usize = 20_000;

    /// Creates a participant over this store that remembers at most this number of coordinators' slots.
    pub fn new(store: S, slots_max: usize) -> Participant<S> {
        Participant {
            store,
            slots: SlotMap::default(),
            slots_max,
            requests: 0,
            mistakes: Mistakes::NONE,
            standing: Standing::fixed(),
            log: None,
            appended: 0,
        }
    }

    /// Appends to this log from now on.
    #[must_use]
    pub fn logging(mut self, log: Box<dyn Append>) -> Self {
        self.log = Some(log);
        self
    }

    /// The log position of the last entry that it appended: a request that changed something is not answered before
    /// that position is durable.
    pub fn appended(&self) -> u64 {
        self.appended
    }

    fn append(&mut self, entry: impl FnOnce() -> Entry) {
        if let Some(log) = &mut self.log {
            self.appended = log.append(&entry());
        }
    }

    /// Enables deliberate mistakes.
    #[cfg(feature = "mistakes")]
    pub fn make(&mut self, mistakes: Mistakes) {
        self.mistakes = mistakes;
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The store, for one-sided operations of callers without a device.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Answers a request of a coordinator in this epoch.
    pub fn handle(&mut self, request: &Request, epoch: Epoch) -> Answer {
        let response = match request.body {
            Body::Outcome => Response::Outcome(self.fate(request.transaction, epoch)),
            _ if !self.serves(epoch) => Response::Refused(Refusal::Epoch),
            _ => return self.handle_step(request),
        };
        Answer {
            transaction: request.transaction,
            step: request.step,
            response,
        }
    }

    fn handle_step(&mut self, request: &Request) -> Answer {
        let TransactionId {
            coordinator,
            slot,
            sequence,
        } = request.transaction;
        let response = match self.admit((coordinator, slot), sequence, request) {
            Err(response) => response,
            Ok(mut slot) => {
                let response = self.execute(request, &mut slot);
                let is_refused = matches!(response, Response::Refused(_));
                // A transaction that is being logged cannot be rolled back, so a backup without space is asked again
                // until it has some.
                if !is_refused || !matches!(request.body, Body::Replicate { .. }) {
                    slot.step = request.step;
                    slot.answer = response.clone();
                }
                self.slots
                    .insert((coordinator, request.transaction.slot), slot);
                response
            }
        };
        Answer {
            transaction: request.transaction,
            step: request.step,
            response,
        }
    }

    /// Returns the slot of a request that is to be executed, removed from the map; or the answer to one that is not.
    fn admit(
        &mut self,
        name: (u64, u16),
        sequence: u64,
        request: &Request,
    ) -> Result<Slot, Response> {
        self.requests += 1;
        let used = self.requests;
        let fresh = || Slot {
            used,
            sequence,
            ..Slot::default()
        };
        let Some(slot) = self.slots.get(&name) else {
            // In an epoch that may be recovered, a slot's state is never forgotten.
            let full = self.slots.len() >= self.slots_max;
            if full && (self.standing.recovers() || !self.forget_some()) {
                self.standing.crowded = true;
                return Err(Response::Refused(Refusal::TooManySlots));
            }
            return Ok(fresh());
        };
        let careless = self.mistakes.has(Mistake::LateRequestExecuted);
        if !careless && (sequence, request.step) < (slot.sequence, slot.step) {
            return Err(Response::Refused(Refusal::Stale));
        }
        if !careless && (sequence, request.step) == (slot.sequence, slot.step) {
            return Err(slot.answer.clone());
        }
        if sequence > slot.sequence {
            let last = TransactionId {
                sequence: slot.sequence,
                ..request.transaction
            };
            let holds = |key: &Key| self.store.read(key).owner == Some(last);
            if !careless && slot.locked.iter().any(holds) {
                return Err(Response::Refused(Refusal::Unfinished));
            }
            self.slots.remove(&name);
            return Ok(fresh());
        }
        let slot = self.slots.remove(&name).unwrap_or_else(fresh);
        Ok(Slot { used, ..slot })
    }

    /// Forgets the least recently used quarter of the slots, except those that hold locks. Requests of these slots that
    /// are still in flight would be executed again, so the limit should exceed the number of slots in use.
    fn forget_some(&mut self) -> bool {
        let mut idle: Vec<(u64, (u64, u16))> = self
            .slots
            .iter()
            .filter(|((coordinator, number), slot)| {
                let last = TransactionId {
                    coordinator: *coordinator,
                    slot: *number,
                    sequence: slot.sequence,
                };
                let holds = |key: &Key| self.store.read(key).owner == Some(last);
                !slot.locked.iter().any(holds)
            })
            .map(|(name, slot)| (slot.used, *name))
            .collect();
        idle.sort_unstable();
        idle.truncate(self.slots_max.div_ceil(4));
        for (_, (coordinator, slot)) in &idle {
            self.slots.remove(&(*coordinator, *slot));
            self.store.forget(*coordinator, *slot);
        }
        !idle.is_empty()
    }

    fn execute(&mut self, request: &Request, slot: &mut Slot) -> Response {
        let transaction = request.transaction;
        match &request.body {
            Body::Execute { writes, reads } => {
                let result = self.lock_and_read(transaction, slot, writes, reads);
                result.unwrap_or_else(|refusal| {
                    // The transaction will abort, so all its locks here can be released.
                    self.release(transaction, slot);
                    refusal
                })
            }
            Body::Validate(checks) => {
                let changed = |(key, version): &(Key, Version)| {
                    let found = self.store.read(key);
                    let foreign = found.owner.is_some_and(|owner| owner != transaction);
                    (found.version != *version
                        && !self.mistakes.has(Mistake::VersionIgnoredAtValidation))
                        || (foreign && !self.mistakes.has(Mistake::LockIgnoredAtValidation))
                };
                match checks.iter().position(changed) {
                    Some(item) => Response::Invalid { item: item as u32 },
                    None => Response::Valid,
                }
            }
            Body::Replicate { append, apply } => {
                match self.store.apply(apply) {
                    Ok(()) => {}
                    Err(LockError::Unknown) => return Response::Refused(Refusal::Unknown),
                    Err(_) => return Response::Refused(Refusal::Full),
                }
                self.append(|| Entry::Replicate {
                    id: transaction,
                    append: append.clone(),
                    apply: apply.clone(),
                });
                self.record(slot, append, apply);
                if self.mistakes.has(Mistake::UnlockedAtLog) {
                    self.release(transaction, slot);
                }
                Response::Done
            }
            Body::Commit(updates) => {
                // Appended first, so that others that see the changes append theirs behind it.
                self.append(|| Entry::Commit {
                    id: transaction,
                    updates: updates.clone(),
                });
                self.commit(transaction, updates);
                self.release(transaction, slot);
                if slot.record.is_empty() && self.standing.recovers() {
                    self.record(slot, updates, &[]);
                }
                slot.installed = true;
                Response::Done
            }
            Body::Release => {
                self.release(transaction, slot);
                Response::Done
            }
            // Answered before a slot is looked up.
            Body::Outcome => Response::Outcome(Fate::Undecided),
        }
    }

    fn lock_and_read(
        &mut self,
        transaction: TransactionId,
        slot: &mut Slot,
        writes: &[(Key, u32)],
        reads: &[Key],
    ) -> Result<Response, Response> {
        let mut items = Vec::with_capacity(writes.len() + reads.len());
        let locked = |item: usize, owner| Response::Locked {
            item: item as u32,
            owner,
        };
        for (number, (key, room)) in writes.iter().enumerate() {
            if self.mistakes.has(Mistake::LockTaken) {
                if let Some(owner) = self.store.read(key).owner {
                    self.store.unlock(key, owner);
                }
            }
            let found = match self.store.try_lock(key, transaction, *room) {
                Ok(found) => found,
                Err(LockError::Held(owner)) => return Err(locked(number, owner)),
                Err(LockError::Full) => return Err(Response::Refused(Refusal::Full)),
                Err(LockError::Unknown) => return Err(Response::Refused(Refusal::Unknown)),
            };
            if self.mistakes.has(Mistake::LockLeftOut) {
                self.store.unlock(key, transaction);
            } else {
                slot.locked.push(key.clone());
            }
            items.push(found);
        }
        for (number, key) in reads.iter().enumerate() {
            let found = self.store.read(key);
            // The value of a locked item may be torn by a one-sided WRITE, and would fail validation in any case.
            if let Some(owner) = found.owner.filter(|&owner| owner != transaction) {
                if !self.mistakes.has(Mistake::LockIgnoredAtValidation) {
                    return Err(locked(writes.len() + number, owner));
                }
            }
            items.push(found);
        }
        let item = |found: crate::Stored| Item {
            value: found.value,
            version: found.version,
            raised: found.raised,
            place: found.place,
        };
        Ok(Response::Executed(items.into_iter().map(item).collect()))
    }

    fn commit(&mut self, transaction: TransactionId, updates: &[Update]) {
        let forced = [
            Mistake::LockLeftOut,
            Mistake::LockTaken,
            Mistake::UnlockedAtLog,
            Mistake::LateRequestExecuted,
        ];
        for update in updates {
            if forced.into_iter().any(|mistake| self.mistakes.has(mistake)) {
                if let Some(owner) = self.store.read(&update.key).owner {
                    self.store.unlock(&update.key, owner);
                }
                let _ = self.store.try_lock(&update.key, transaction, 0);
                self.store.install(update, transaction);
                self.store.unlock(&update.key, transaction);
                continue;
            }
            // Without the lock it has already been installed: by a one-sided WRITE that was executed although it
            // failed.
            self.store.install(update, transaction);
        }
    }

    fn release(&mut self, transaction: TransactionId, slot: &mut Slot) {
        for key in slot.locked.drain(..) {
            self.store.unlock(&key, transaction);
        }
    }
}
