//! Whether all is well again, and whether what happened was right.
use super::{Cluster, Configuration, Role, SmallBank, Store};
use crate::machine::Machine;
use dunlin_txn::{Committed, Key, TransactionId, Version};
use std::collections::{BTreeMap, BTreeSet};

impl Cluster {
    pub(super) fn stable(&self) -> Option<&Configuration> {
        let (_, now) = self.register.now.as_ref()?;
        let whole = now.members.iter().all(|member| member.role == Role::Whole);
        let served = |machine: &Machine| {
            let participant = &machine.local.participant;
            machine.alive && (participant.epoch(), participant.is_serving()) == (now.epoch, true)
        };
        (now.serving && whole && self.machines.iter().all(served)).then_some(now)
    }

    pub(super) fn is_well(&self) -> bool {
        let over = self.left == 0
            && self
                .running
                .keys()
                .all(|(client, _)| self.dead == Some(*client));
        let locks = self.machines.iter().any(|machine| {
            let store = machine.local.participant.store();
            store.owners().next().is_some()
        });
        over && !locks && self.stable().is_some()
    }

    pub(super) fn why_not_well(&self) -> String {
        let machines: Vec<String> = self
            .machines
            .iter()
            .map(|machine| {
                let participant = &machine.local.participant;
                let (epoch, serving) = (participant.epoch(), participant.is_serving());
                let locks: Vec<_> = participant.store().owners().collect();
                format!("{epoch} {serving} {locks:?}")
            })
            .collect();
        let running: Vec<_> = self.running.keys().collect();
        let register = &self.register.now;
        format!(
            "no end: {register:?} {machines:?} running {running:?} left {}",
            self.left
        )
    }

    /// Whoever began after a change was acknowledged must have seen it.
    pub(super) fn committed(&mut self, id: TransactionId, committed: Committed) {
        let before = &self.began[&id];
        for (key, version, _) in &committed.reads {
            if before.get(key).is_some_and(|known| known > version) {
                let now = self.time.now;
                let words = format!("{id} read {key} at {version:?}, {before:?}, at {now}");
                self.run.wrong.get_or_insert(words);
            }
        }
        for update in &committed.writes {
            let known = self.acknowledged.entry(update.key.clone()).or_default();
            *known = update.version.max(*known);
        }
        self.run.history.committed.insert(id, committed);
    }

    pub(super) fn judge(&mut self) {
        for coordinator in self.running.values() {
            let id = coordinator.id();
            if coordinator.is_decided() && !self.run.history.committed.contains_key(&id) {
                self.run.history.unknown.insert(id, coordinator.footprint());
            }
        }
        self.run.epochs = self.register.now.as_ref().map_or(0, |(_, of)| of.epoch.0);
        self.run.locks_of_dead = usize::from(self.dead.is_some());
        self.run.violations = self.run.history.check();
        let Some(of) = self.stable().cloned() else {
            return;
        };
        let placement = of.placement().unwrap();
        let mut expected = self.run.history.initial.clone();
        let mut made: BTreeMap<Key, (Version, Option<dunlin_txn::Value>)> = BTreeMap::new();
        for committed in self.run.history.committed.values() {
            for update in &committed.writes {
                let last = made.entry(update.key.clone()).or_default();
                if update.version > last.0 {
                    *last = (update.version, update.value.clone());
                }
            }
        }
        let mut keys: BTreeSet<Key> = expected.keys().chain(made.keys()).cloned().collect();
        for machine in &self.machines {
            keys.extend(machine.local.participant.store().contents().into_keys());
        }
        let (mut money, mut known) = (0, 0);
        for key in &keys {
            let primary = usize::from(placement.primary(key).0);
            let found = self.machines[primary].local.participant.store().read(key);
            for machine in &self.machines {
                let copy = machine.local.participant.store().read(key);
                if copy.value != found.value {
                    let words = format!("copies of {key} differ: {found:?} {copy:?}");
                    self.run.wrong.get_or_insert(words);
                }
            }
            if let Some((version, value)) = made.get(key) {
                match value {
                    Some(value) => expected.insert(key.clone(), value.clone()),
                    None => expected.remove(key),
                };
                if found.version < *version {
                    let words = format!("an acknowledged change of {key} is lost: {found:?}");
                    self.run.wrong.get_or_insert(words);
                }
            }
            money += found
                .value
                .as_ref()
                .and_then(SmallBank::balance)
                .unwrap_or(0);
            let value = expected.get(key);
            known += value.and_then(SmallBank::balance).unwrap_or(0);
        }
        // Of transactions whose coordinator died, or whose machines are all gone, the history does not know the end.
        if self.run.history.unknown.is_empty() && money != known {
            let words = format!("{money} instead of {known} of money");
            self.run.wrong.get_or_insert(words);
        }
    }
}
