//! Log, backups and commit: from here on the transaction cannot be rolled back.
use super::{Accessed, Action, Coordinator, OneSided, Phase};
use crate::error::TransactionError;
use crate::membership::Epoch;
use crate::mistakes::Mistake;
use crate::protocol::{Backups, Commit, Log};
use crate::types::{Address, Key, MachineId, Update, Value};
use crate::wire::{Body, Refusal, Response};
use dunlin_store::Header;
use litemap::LiteMap;

impl Coordinator {
    pub(super) fn log(&mut self) {
        if self.updates.is_empty() {
            return self.commit();
        }
        self.enter(Phase::Log);
        let config = self.config.clone();
        let mut bodies: LiteMap<MachineId, (Vec<Update>, Vec<Update>)> = LiteMap::new();
        for key in self.updates.keys() {
            match config.protocol.log {
                Log::Coordinator => {
                    for replica in &config.log_replicas {
                        bodies.entry(*replica).or_default().0.push(self.update(key));
                    }
                }
                Log::Primaries => {
                    let primary = config.placement.primary(key);
                    bodies.entry(primary).or_default().0.push(self.update(key));
                }
                Log::Backups => {
                    // A shard that has lost its backups still has a log.
                    let alone = config.placement.backups(key).is_empty();
                    if alone && config.epoch != Epoch::FIXED {
                        let primary = config.placement.primary(key);
                        bodies.entry(primary).or_default().0.push(self.update(key));
                    }
                }
            }
            if config.protocol.backups == Backups::WithLog {
                for backup in config.placement.backups(key) {
                    bodies.entry(*backup).or_default().1.push(self.update(key));
                }
            }
        }
        self.replicate(bodies);
    }

    pub(super) fn update_backups(&mut self) {
        if self.config.protocol.backups == Backups::WithLog {
            return self.commit();
        }
        self.enter(Phase::Backups);
        let mut bodies: LiteMap<MachineId, (Vec<Update>, Vec<Update>)> = LiteMap::new();
        for key in self.updates.keys() {
            for backup in self.config.placement.backups(key) {
                bodies.entry(*backup).or_default().1.push(self.update(key));
            }
        }
        self.replicate(bodies);
    }

    fn replicate(&mut self, bodies: LiteMap<MachineId, (Vec<Update>, Vec<Update>)>) {
        let whole =
            self.config.epoch != Epoch::FIXED && !self.config.mistakes.has(Mistake::RecordsOfParts);
        for (machine, (mut append, apply)) in bodies {
            if whole {
                // Each log record contains the whole transaction, so that one record is enough to finish it.
                let others = self.updates.keys().map(|key| self.update(key));
                append = others.filter(|update| !apply.contains(update)).collect();
            }
            self.send(machine, Body::Replicate { append, apply });
        }
        self.advance_when_answered();
    }

    pub(super) fn commit(&mut self) {
        self.enter(Phase::Commit);
        let lost = self.config.mistakes.has(Mistake::PartOfCommitLost);
        for (number, machine) in std::mem::take(&mut self.holders).into_iter().enumerate() {
            let updates = match self.config.epoch {
                Epoch::FIXED => self.updates_at(machine),
                // A machine that has installed its part can tell the others theirs if all machines that logged it are
                // gone. It ignores the parts for which it holds no lock.
                _ => self.updates.keys().map(|key| self.update(key)).collect(),
            };
            if lost && number > 0 {
                self.send(machine, Body::Commit(Vec::new()));
            } else if self.config.protocol.commit == Commit::Write && self.fits(machine, &updates) {
                self.write(machine, &updates);
            } else {
                self.send(machine, Body::Commit(updates));
            }
        }
        if self.config.protocol.commit == Commit::Write {
            // Only the WRITEs are left, and they need no consent of a participant (ScaleRPC §4.2).
            self.report(Ok(self.footprint()));
        }
        self.advance_when_answered();
    }

    fn updates_at(&self, machine: MachineId) -> Vec<Update> {
        let here = |key: &&Key| self.accessed[*key].machine == machine;
        self.updates
            .keys()
            .filter(here)
            .map(|key| self.update(key))
            .collect()
    }

    /// Whether all values fit into the existing items. A key that is deleted, or that was locked while absent and stays
    /// absent, must be handled by the table itself.
    fn fits(&self, machine: MachineId, updates: &[Update]) -> bool {
        let unused = |(key, accessed): (&Key, &Accessed)| {
            let is_there = self.seen[key].1.is_some() || self.updates.contains_key(key);
            accessed.machine == machine && accessed.locked && !is_there
        };
        if self.accessed.iter().any(unused) {
            return false;
        }
        updates.iter().all(|update| {
            let length = update.value.as_ref().map(|value| value.len() as u64);
            let capacity = self.accessed[&update.key].place.capacity.map(u64::from);
            length
                .zip(capacity)
                .is_some_and(|(length, capacity)| length <= capacity)
        })
    }

    fn write(&mut self, machine: MachineId, updates: &[Update]) {
        let mut headers: LiteMap<Address, Header> = LiteMap::new();
        for (key, accessed) in &self.accessed {
            if accessed.machine == machine && accessed.locked {
                let (version, value) = &self.seen[key];
                let header = Header::new(version.0, value.is_some());
                headers.insert(accessed.place.header, header);
            }
        }
        let mut items: Vec<(Address, Option<Value>)> = Vec::new();
        for update in updates {
            let place = self.accessed[&update.key].place;
            items.push((place.item, update.value.clone()));
            let header = Header::new(update.version.0, update.value.is_some());
            headers.insert(place.header, header);
        }
        let token = self.token();
        let headers = headers.into_iter().collect();
        self.actions.push(Action::Write {
            machine,
            items,
            headers,
            token,
        });
        self.one_sided.insert(token, OneSided::Write { machine });
    }

    /// It is unknown whether a failed WRITE was executed, so it must not be repeated: another transaction may hold the
    /// lock by now. The participant knows who holds it.
    pub(super) fn write_failed(&mut self, token: u32, machine: MachineId) {
        self.one_sided.remove(&token);
        let updates = self.updates_at(machine);
        if self.config.mistakes.has(Mistake::WriteRepeated) {
            self.write(machine, &updates);
        } else {
            self.send(machine, Body::Commit(updates));
        }
    }

    pub(super) fn done(&mut self, machine: MachineId, response: Response) {
        match response {
            Response::Done => {
                self.pending.remove(&machine);
                if self.config.mistakes.has(Mistake::ReportedEarly) && self.phase != Phase::Release
                {
                    self.report(Ok(self.footprint()));
                }
                self.advance_when_answered();
            }
            // Its locks were lost when it restarted.
            Response::Refused(Refusal::Restarted) if self.phase == Phase::Release => {
                self.pending.remove(&machine);
                self.advance_when_answered();
            }
            // It stays pending and the request is repeated, but the caller should not wait for it.
            other => {
                let refusal = match other {
                    Response::Refused(refusal) => Some(refusal),
                    _ => None,
                };
                self.report(Err(TransactionError::Unknown { machine, refusal }));
            }
        }
    }

    pub(super) fn finish(&mut self) {
        self.phase = Phase::Finished;
        let committed = self.footprint();
        self.report(Ok(committed));
    }
}
