//! Execution: the logic is asked for its next step, and the primaries lock and read.
use super::{Accessed, Coordinator, Phase};
use crate::error::TransactionError;
use crate::logic::{Access, Step, View};
use crate::mistakes::Mistake;
use crate::types::{Key, MachineId, Value};
use crate::wire::{Body, Item, Response, MAX_ITEMS};
use litemap::LiteMap;

/// Maximum number of rounds of a transaction. Steps are numbered by 16 bits; the limit bounds a logic that never ends.
const ROUNDS_MAX: u16 = 1024;

impl Coordinator {
    pub(super) fn ask_logic(&mut self) {
        let step = self.logic.step(View { seen: &self.seen });
        self.take_step(step);
    }

    pub(super) fn take_step(&mut self, step: Step) {
        self.waits = false;
        match step {
            Step::Access(access) => self.execute(access),
            Step::Commit(writes) => self.prepare(writes),
            Step::Abort => self.fail(TransactionError::Itself),
            Step::Wait => self.waits = true,
        }
    }

    fn execute(&mut self, access: Access) {
        if self.step >= ROUNDS_MAX || access.keys() > MAX_ITEMS {
            return self.fail_too_large();
        }
        self.enter(Phase::Execute);
        let mut wanted: LiteMap<MachineId, Access> = LiteMap::new();
        let mut named = LiteMap::new_vec();
        for (key, room) in access.writes {
            let locked = self
                .accessed
                .get(&key)
                .is_some_and(|accessed| accessed.locked);
            if !locked && named.insert(key.clone(), ()).is_none() {
                let machine = self.config.placement.primary(&key);
                self.holders.insert(machine);
                wanted.entry(machine).or_default().writes.push((key, room));
            }
        }
        for key in access.reads {
            if !self.accessed.contains_key(&key) && named.insert(key.clone(), ()).is_none() {
                let machine = self.config.placement.primary(&key);
                wanted.entry(machine).or_default().reads.push(key);
            }
        }
        for (machine, Access { reads, writes }) in wanted {
            self.send(machine, Body::Execute { writes, reads });
        }
        self.advance_when_answered();
    }

    fn fail_too_large(&mut self) {
        let (rounds, keys) = (ROUNDS_MAX, MAX_ITEMS);
        self.fail(TransactionError::TooLarge { rounds, keys });
    }

    pub(super) fn executed(&mut self, machine: MachineId, response: Response) {
        let Some(pending) = self.pending.remove(&machine) else {
            return;
        };
        let Body::Execute { writes, reads } = pending.request.body else {
            return;
        };
        let locked = writes.len();
        let keys = writes
            .into_iter()
            .map(|(key, _)| key)
            .chain(reads)
            .collect::<Vec<_>>();
        match response {
            Response::Executed(items) if items.len() == keys.len() => {
                for (number, (key, item)) in keys.into_iter().zip(items).enumerate() {
                    if let Err(error) = self.take(machine, key, item, number < locked) {
                        return self.fail(error);
                    }
                }
                self.advance_when_answered();
            }
            Response::Locked { item, owner } => {
                self.holders.remove(&machine);
                match keys.into_iter().nth(item as usize) {
                    Some(key) => self.fail(TransactionError::Locked { key, owner }),
                    None => self.fail(TransactionError::Violation { machine }),
                }
            }
            Response::Refused(refusal) => self.fail(TransactionError::Refused { machine, refusal }),
            _ => self.fail(TransactionError::Violation { machine }),
        }
    }

    fn take(
        &mut self,
        machine: MachineId,
        key: Key,
        item: Item,
        locked: bool,
    ) -> Result<(), TransactionError> {
        // A key that was read in an earlier round and is locked in this one must not have changed in between.
        if let Some(((seen, _), accessed)) = self.seen.get(&key).zip(self.accessed.get(&key)) {
            let found = item.raised.map_or(item.version, |raised| raised.from);
            if self.raised_by_us(machine, accessed.place.header, *seen) != found {
                return Err(TransactionError::Changed { key });
            }
        }
        self.raised
            .extend(item.raised.map(|raised| (machine, raised)));
        self.accessed.insert(
            key.clone(),
            Accessed {
                machine,
                place: item.place,
                locked,
            },
        );
        self.seen.insert(key, (item.version, item.value));
        Ok(())
    }

    fn prepare(&mut self, writes: Vec<(Key, Option<Value>)>) {
        for (key, value) in writes {
            let length = value.as_ref().map_or(0, |value| value.len() as u64);
            let is_taken = |accessed: &Accessed| {
                // Checked here because no machine could refuse it later: what is logged cannot be rolled back.
                let most = accessed.place.capacity.map_or(u64::MAX, u64::from);
                accessed.locked && length <= most
            };
            let writable = self.accessed.get(&key).is_some_and(is_taken);
            let version = self.seen.get(&key).and_then(|(version, _)| version.next());
            let Some(mut version) = version.filter(|_| writable) else {
                self.updates.clear();
                return self.fail(TransactionError::NotWritable { key });
            };
            if self.config.mistakes.has(Mistake::VersionNotRaised) {
                version.0 -= 1;
            }
            self.updates.insert(key, (value, version));
        }
        if self.updates.len() > MAX_ITEMS {
            // The rounds together may have locked more keys than one request carries. Once logged, the transaction
            // could not be rolled back.
            self.updates.clear();
            return self.fail_too_large();
        }
        self.validate();
    }
}
