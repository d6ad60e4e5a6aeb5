//! Copies and hashes of participants, for exploring all their states.
use super::{Participant, Slot};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

impl<S: Clone> Participant<S> {
    /// Returns an independent copy. A log cannot be copied: for a participant with a log it returns `None`.
    pub fn copied(&self) -> Option<Participant<S>> {
        if self.log.is_some() {
            return None;
        }
        Some(Participant {
            store: self.store.clone(),
            slots: self.slots.clone(),
            slots_max: self.slots_max,
            requests: self.requests,
            mistakes: self.mistakes,
            standing: self.standing.clone(),
            log: None,
            appended: self.appended,
        })
    }
}

/// Equal for participants that answer alike. The time since a slot was used is left out: it does not matter as long as
/// there is space for all slots.
impl<S: Hash> Hash for Participant<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.store.hash(state);
        self.standing.hash(state);
        let slots: BTreeMap<&(u64, u16), &Slot> = self.slots.iter().collect();
        slots.len().hash(state);
        for (name, slot) in slots {
            let Slot {
                used: _,
                sequence,
                step,
                answer,
                locked,
                record,
                applied,
                installed,
            } = slot;
            name.hash(state);
            (sequence, step, answer, locked, record, applied, installed).hash(state);
        }
    }
}
