//! What the coordinator does when its epoch has ended and its requests are no longer executed. If it had logged nothing
//! yet, the transaction has had no effect, and its locks are gone with the epoch. If it had, the machines that began
//! the next epoch have decided the outcome, and it asks them.
use super::{Accessed, Coordinator, Phase};
use crate::error::TransactionError;
use crate::mistakes::Mistake;
use crate::types::MachineId;
use crate::wire::{Body, Fate, Response};

impl Coordinator {
    /// A machine is not in this epoch, or has no lease. The epoch may still go on: then the machine continues in it
    /// once it has a lease again, with all the locks that it holds.
    pub(super) fn refused(&mut self, machine: MachineId) {
        match self.phase {
            Phase::Execute | Phase::Validate => {
                if !self.may_hold(machine) {
                    self.holders.remove(&machine);
                }
                self.fail(TransactionError::Superseded);
            }
            // The request is repeated: either the machine has a lease by then, or the coordinator learns that the epoch
            // is over.
            _ => {}
        }
    }

    /// Whether a machine that has refused the last request may hold a lock: from an earlier round, or from the same
    /// request whose answer was lost.
    fn may_hold(&self, machine: MachineId) -> bool {
        let repeated = self.pending.get(&machine).is_some_and(|p| p.sent > 1);
        let locked = |accessed: &Accessed| accessed.machine == machine && accessed.locked;
        repeated || self.accessed.values().any(locked)
    }

    /// The epoch is over.
    pub(super) fn superseded(&mut self) {
        match self.phase {
            Phase::Execute | Phase::Validate => {
                self.report(Err(TransactionError::Superseded));
                self.enter(Phase::Finished);
            }
            // A transaction that only reads has nothing to log, and is finished once it is validated.
            Phase::Log | Phase::Backups | Phase::Commit if self.updates.is_empty() => {
                self.pending.clear();
                self.finish();
            }
            Phase::Log | Phase::Backups | Phase::Commit => {
                if self.config.mistakes.has(Mistake::OutcomeAssumed) {
                    return self.over(Fate::Aborted);
                }
                self.inquire();
            }
            Phase::Release => self.enter(Phase::Finished),
            // Earlier inquiries went to the machines of an epoch that has also ended: do not wait for them.
            Phase::Inquire => self.inquire(),
            Phase::Finished => {}
        }
    }

    fn inquire(&mut self) {
        self.enter(Phase::Inquire);
        let first = MachineId((self.id.coordinator % self.machines()) as u16);
        self.send(first, Body::Outcome);
    }

    pub(super) fn inquire_of_next(&mut self, machine: MachineId) {
        if self.pending.remove(&machine).is_some() {
            *self.unanswered.entry(machine).or_default() += 1;
            if self.is_known_to_nobody(machine) {
                return;
            }
            let next = (u64::from(machine.0) + 1) % self.machines();
            self.send(MachineId(next as u16), Body::Outcome);
        }
    }

    /// A machine that does not know the outcome is not asked again at once, but when its answer is overdue.
    pub(super) fn inquired(&mut self, machine: MachineId, response: Response) {
        match response {
            Response::Outcome(fate @ (Fate::Committed | Fate::Aborted)) => {
                self.pending.remove(&machine);
                self.over(fate);
            }
            Response::Outcome(Fate::Forgotten) => {
                self.forgotten.insert(machine);
                self.is_known_to_nobody(machine);
            }
            // It will know later.
            _ => drop(self.unanswered.remove(&machine)),
        }
    }

    /// Ends the inquiry if some machines have forgotten the transaction and the others do not answer: they may never
    /// come back, and one that does has copied its state and knows no more.
    fn is_known_to_nobody(&mut self, machine: MachineId) -> bool {
        let attempts = self.config.attempts;
        let silent = |id: &MachineId| self.unanswered.get(id).is_some_and(|n| *n >= attempts);
        let all = (0..self.machines()).map(|number| MachineId(number as u16));
        let knows = |id: MachineId| !self.forgotten.contains(&id) && !silent(&id);
        if self.forgotten.is_empty() || all.into_iter().any(knows) {
            return false;
        }
        self.lost = true;
        self.report(Err(TransactionError::Unknown {
            machine,
            refusal: None,
        }));
        self.enter(Phase::Finished);
        true
    }

    fn over(&mut self, fate: Fate) {
        self.enter(Phase::Finished);
        if fate == Fate::Committed {
            return self.finish();
        }
        self.updates.clear();
        self.report(Err(TransactionError::Superseded));
    }

    fn machines(&self) -> u64 {
        self.config.placement.shards() as u64
    }
}
