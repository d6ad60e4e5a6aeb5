//! Copies and hashes of participants, for who explores all their states.
use super::{Participant, Slot};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

impl<S: Clone> Participant<S> {
    /// A copy, which goes its own way. A log is not copied: of a participant that has one there is none.
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

/// Equal for participants that answer alike. How long ago a slot was used is left out: as long as there is room for all
/// slots, nobody asks.
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
