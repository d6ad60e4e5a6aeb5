//! The epoch of the coordinator is over: nothing that it asks is done any more. Before it had logged anything, the
//! transaction has had no effect, and its locks are gone with the epoch. After it, those who began the next epoch have
//! decided, and tell.
use super::{Accessed, Coordinator, Phase};
use crate::error::TransactionError;
use crate::mistakes::Mistake;
use crate::types::MachineId;
use crate::wire::{Body, Fate, Response};

impl Coordinator {
    /// A machine is not of this epoch, or has no lease. The epoch may not be over: then the machine goes on in it when
    /// it has a lease again, with all the locks that it holds.
    pub(super) fn refused(&mut self, machine: MachineId) {
        match self.phase {
            Phase::Execute | Phase::Validate => {
                if !self.may_hold(machine) {
                    self.holders.remove(&machine);
                }
                self.fail(TransactionError::Superseded);
            }
            // It is asked again: either it has a lease then, or the coordinator hears that the epoch is over.
            _ => {}
        }
    }

    /// Whether a machine that has refused the last request may have locked something before: in an earlier round, or by
    /// the same request whose answer was lost.
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
            // Who reads alone has nothing to log, and is over when it is validated.
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
            // What was asked went to machines as they were in an epoch that is over, too: nobody waits for that.
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

    /// Who does not know is not asked again at once: its answer is overdue at some time.
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
            // It will know.
            _ => drop(self.unanswered.remove(&machine)),
        }
    }

    /// Ends it where some machines have forgotten it and the others do not answer: they may never come back, and one
    /// that does has copied, and knows no more.
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
