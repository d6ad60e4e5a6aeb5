//! Copies and hashes of coordinators, for exploring all their states.
use super::Coordinator;
use crate::logic::Logic;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

impl Coordinator {
    /// Returns an independent copy with this logic, which should be in the same state as the original's.
    pub fn copied(&self, logic: Box<dyn Logic>) -> Coordinator {
        Coordinator {
            id: self.id,
            config: Arc::clone(&self.config),
            logic,
            phase: self.phase,
            step: self.step,
            pending: self.pending.clone(),
            one_sided: self.one_sided.clone(),
            next_token: self.next_token,
            seen: self.seen.clone(),
            accessed: self.accessed.clone(),
            unchecked: self.unchecked.clone(),
            holders: self.holders.clone(),
            updates: self.updates.clone(),
            raised: self.raised.clone(),
            reported: self.reported,
            forgotten: self.forgotten.clone(),
            unanswered: self.unanswered.clone(),
            lost: self.lost,
            waits: self.waits,
            actions: self.actions.clone(),
        }
    }
}

/// Equal for coordinators of one configuration that behave alike: their logic is a function of what they have seen, and
/// the epoch identifies what they share.
impl Hash for Coordinator {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.id, self.config.epoch, self.phase, self.step).hash(state);
        (&self.pending, &self.one_sided, self.next_token).hash(state);
        (&self.seen, &self.accessed, &self.unchecked, &self.holders).hash(state);
        (&self.updates, &self.raised, self.reported).hash(state);
        (&self.forgotten, &self.unanswered, self.lost, self.waits).hash(state);
    }
}
