//! The beginning of an epoch, as its manager sees to it: all members are sealed, all install what any has logged, and
//! then the membership says that the epoch serves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::membership::peer::{PeerAnswer, PeerRequest};
use crate::membership::{Configuration, Epoch, Record};
use crate::mistakes::{Mistake, Mistakes};
use crate::types::{MachineId, TransactionId, Update};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Seal,
    Install,
    Publish,
}

/// One epoch's beginning.
#[derive(Debug, Hash, Clone)]
pub(super) struct Beginning {
    pub(super) epoch: Epoch,
    base: Epoch,
    stage: Stage,
    members: BTreeSet<MachineId>,
    /// Who has not answered, and when it is asked again.
    waiting: BTreeMap<MachineId, Duration>,
    records: BTreeMap<TransactionId, (usize, Vec<Update>)>,
    mistakes: Mistakes,
}

impl Beginning {
    pub(super) fn new(of: &Configuration, mistakes: Mistakes) -> Beginning {
        let members: BTreeSet<MachineId> = of.present().map(|(machine, _)| machine).collect();
        Beginning {
            epoch: of.epoch,
            base: of.base,
            stage: Stage::Seal,
            waiting: members.iter().map(|m| (*m, Duration::ZERO)).collect(),
            members,
            records: BTreeMap::new(),
            mistakes,
        }
    }

    /// Whether all have installed, so that the epoch may serve.
    pub(super) fn is_installed(&self) -> bool {
        self.stage == Stage::Publish
    }

    /// Who is to be asked now, and what.
    pub(super) fn asks(&mut self, now: Duration, again: Duration) -> Vec<(MachineId, PeerRequest)> {
        let due = self.waiting.iter_mut().filter(|(_, due)| **due <= now);
        let due: Vec<MachineId> = due
            .map(|(machine, due)| {
                *due = now + again;
                *machine
            })
            .collect();
        due.into_iter()
            .map(|machine| (machine, self.request()))
            .collect()
    }

    fn request(&self) -> PeerRequest {
        let (epoch, base) = (self.epoch, self.base);
        match self.stage {
            Stage::Seal => PeerRequest::Seal { epoch, base },
            _ => PeerRequest::Install {
                epoch,
                records: self.decided(),
            },
        }
    }

    /// One record is enough: a coordinator logs when nothing can keep its transaction from committing, and asks for it
    /// to be aborted never after that.
    fn decided(&self) -> Vec<Record> {
        let wanted = match self.mistakes.has(Mistake::RecordWantedEverywhere) {
            true => self.members.len(),
            false => 1,
        };
        let decided = self
            .records
            .iter()
            .filter(|(_, (count, _))| *count >= wanted);
        decided
            .map(|(id, (_, updates))| (*id, updates.clone()))
            .collect()
    }

    pub(super) fn answered(&mut self, from: MachineId, answer: PeerAnswer) {
        match (self.stage, answer) {
            (Stage::Seal, PeerAnswer::Report(records)) => {
                if self.waiting.remove(&from).is_none() {
                    return;
                }
                for (id, updates) in records {
                    let (count, known) = self.records.entry(id).or_default();
                    *count += 1;
                    for update in updates {
                        if !known.contains(&update) {
                            known.push(update);
                        }
                    }
                }
                if self.waiting.is_empty() {
                    self.stage = Stage::Install;
                    self.waiting = self.members.iter().map(|m| (*m, Duration::ZERO)).collect();
                }
            }
            (Stage::Install, PeerAnswer::Done) => {
                self.waiting.remove(&from);
                if self.waiting.is_empty() || self.mistakes.has(Mistake::ServedEarly) {
                    self.stage = Stage::Publish;
                    self.waiting.clear();
                }
            }
            _ => {}
        }
    }
}
