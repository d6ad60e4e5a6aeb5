//! Validation: whether everything that was read is unchanged, now that the write set is locked.
use super::{Action, Coordinator, OneSided, Phase};
use crate::error::TransactionError;
use crate::mistakes::Mistake;
use crate::protocol::Validate;
use crate::types::{Key, MachineId, Version};
use crate::wire::{Body, Response, MAX_ITEMS};
use dunlin_store::Header;
use litemap::LiteMap;

impl Coordinator {
    pub(super) fn validate(&mut self) {
        self.enter(Phase::Validate);
        let checks = match self.reads_to_check() {
            Ok(checks) => checks,
            Err(error) => return self.fail(error),
        };
        let single = self.accessed.len() == 1;
        let skipped = self.config.mistakes.has(Mistake::ValidationLeftOut);
        // A single key that is only read is a snapshot by itself.
        if !single && !skipped {
            match self.config.protocol.validate {
                Validate::Rpc => {
                    self.unchecked = checks;
                    self.check_some();
                }
                Validate::Read => self.read_headers(checks),
            }
        }
        self.advance_when_answered();
    }

    /// Sends as many checks as one request carries; the rest is checked in a further step after the answer. All locks
    /// have been held since before the first check, so whatever is found unchanged later was unchanged at that moment,
    /// too.
    fn check_some(&mut self) {
        for (machine, mut checks) in std::mem::take(&mut self.unchecked) {
            let rest = checks.split_off(checks.len().min(MAX_ITEMS));
            if !rest.is_empty() {
                self.unchecked.insert(machine, rest);
            }
            self.send(machine, Body::Validate(checks));
        }
    }

    /// All checks so far found no change.
    pub(super) fn check_on(&mut self) {
        if self.unchecked.is_empty() {
            return self.log();
        }
        self.enter(Phase::Validate);
        self.check_some();
    }

    /// Returns the read set by machine, each header of absent keys once. A header that this transaction has locked
    /// itself cannot change any more; whether it had changed before is checked at once. If this transaction has locked
    /// the item's place for another key, the item is gone.
    fn reads_to_check(&self) -> Result<LiteMap<MachineId, Vec<(Key, Version)>>, TransactionError> {
        let mut own = LiteMap::new_vec();
        for (key, accessed) in self.accessed.iter().filter(|(_, accessed)| accessed.locked) {
            let place = accessed.place;
            let locked = (self.seen[key].0, place.item);
            own.insert((accessed.machine, place.header), locked);
        }
        let mut checks: LiteMap<MachineId, Vec<(Key, Version)>> = LiteMap::new();
        let mut named = LiteMap::new_vec();
        for (key, accessed) in self
            .accessed
            .iter()
            .filter(|(_, accessed)| !accessed.locked)
        {
            let (machine, header) = (accessed.machine, accessed.place.header);
            let version = self.raised_by_us(machine, header, self.seen[key].0);
            let header = (machine, header);
            let is_item = accessed.place.is_item();
            match own.get(&header) {
                Some((locked, item))
                    if *locked != version || is_item && *item == accessed.place.item =>
                {
                    return Err(TransactionError::Changed { key: key.clone() });
                }
                Some(_) => {}
                None if is_item || named.insert((header, version), ()).is_none() => {
                    checks
                        .entry(accessed.machine)
                        .or_default()
                        .push((key.clone(), version));
                }
                None => {}
            }
        }
        Ok(checks)
    }

    fn read_headers(&mut self, checks: LiteMap<MachineId, Vec<(Key, Version)>>) {
        for (machine, checks) in checks {
            for (key, version) in checks {
                let token = self.token();
                let place = self.accessed[&key].place;
                self.actions.push(Action::Read {
                    machine,
                    address: place.header,
                    item: place.is_item(),
                    token,
                });
                self.one_sided.insert(
                    token,
                    OneSided::Read {
                        machine,
                        key,
                        version,
                    },
                );
            }
        }
    }

    /// `header`: the header found, with the key behind it if it is an item's.
    pub(super) fn header(&mut self, token: u32, header: Option<(Header, Option<u64>)>) {
        let Some(OneSided::Read {
            machine,
            key,
            version,
        }) = self.one_sided.remove(&token)
        else {
            return;
        };
        let mistakes = self.config.mistakes;
        match header {
            None => self.fail(TransactionError::Unavailable { machine }),
            Some((_, Some(found))) if key.as_number() != Some(found) => {
                self.fail(TransactionError::Changed { key });
            }
            Some((header, _))
                if (header.version() != version.0
                    && !mistakes.has(Mistake::VersionIgnoredAtValidation))
                    || (header.is_locked() && !mistakes.has(Mistake::LockIgnoredAtValidation)) =>
            {
                self.fail(TransactionError::Changed { key });
            }
            Some(_) => self.advance_when_answered(),
        }
    }

    pub(super) fn validated(&mut self, machine: MachineId, response: Response) {
        let Some(pending) = self.pending.remove(&machine) else {
            return;
        };
        let Body::Validate(checks) = pending.request.body else {
            return;
        };
        match response {
            Response::Valid => self.advance_when_answered(),
            Response::Invalid { item } => match checks.into_iter().nth(item as usize) {
                Some((key, _)) => self.fail(TransactionError::Changed { key }),
                None => self.fail(TransactionError::Violation { machine }),
            },
            Response::Refused(refusal) => self.fail(TransactionError::Refused { machine, refusal }),
            _ => self.fail(TransactionError::Violation { machine }),
        }
    }
}
