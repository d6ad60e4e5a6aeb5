//! The beginning of an epoch, as its manager drives it: all members are sealed, all install what any of them has
//! logged, and then the membership records that the epoch serves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::pages::{changes, page};
use crate::membership::peer::{PeerAnswer, PeerRequest};
use crate::membership::{Configuration, Epoch};
use crate::mistakes::{Mistake, Mistakes};
use crate::types::{MachineId, TransactionId, Update};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Seal,
    Install,
    Publish,
}

/// The progress of a machine in a stage.
#[derive(Debug, Default, Hash, Clone)]
struct Asked {
    /// Number of changes in all pages before the one that is requested from it or sent to it.
    cursor: u64,
    /// The last transaction that it has reported, which may continue on the next page.
    last: Option<TransactionId>,
    /// When the request is repeated.
    due: Duration,
}

/// The beginning of one epoch.
#[derive(Debug, Hash, Clone)]
pub(super) struct Beginning {
    pub(super) epoch: Epoch,
    base: Epoch,
    stage: Stage,
    members: BTreeSet<MachineId>,
    /// The machines that have not answered everything.
    waiting: BTreeMap<MachineId, Asked>,
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
            waiting: all_of(&members),
            members,
            records: BTreeMap::new(),
            mistakes,
        }
    }

    /// Whether all machines have installed, so that the epoch may serve.
    pub(super) fn is_installed(&self) -> bool {
        self.stage == Stage::Publish
    }

    /// Returns the machines to be asked now with their requests, with pages of this many bytes.
    pub(super) fn asks(
        &mut self,
        (now, again): (Duration, Duration),
        page_bytes: usize,
    ) -> Vec<(MachineId, PeerRequest)> {
        let due = self
            .waiting
            .iter_mut()
            .filter(|(_, asked)| asked.due <= now);
        let due: Vec<(MachineId, u64)> = due
            .map(|(machine, asked)| {
                asked.due = now + again;
                (*machine, asked.cursor)
            })
            .collect();
        due.into_iter()
            .map(|(machine, cursor)| (machine, self.request(cursor, page_bytes)))
            .collect()
    }

    fn request(&self, cursor: u64, page_bytes: usize) -> PeerRequest {
        let (epoch, base) = (self.epoch, self.base);
        match self.stage {
            Stage::Seal => PeerRequest::Seal {
                epoch,
                base,
                cursor,
            },
            _ => {
                let (records, next) = page(self.decided(), cursor, page_bytes);
                PeerRequest::Install {
                    epoch,
                    cursor,
                    records,
                    more: next.is_some(),
                }
            }
        }
    }

    /// One record is enough: a coordinator logs only when nothing can keep its transaction from committing, and never
    /// requests an abort afterwards.
    fn decided(&self) -> Vec<(TransactionId, &[Update])> {
        let wanted = match self.mistakes.has(Mistake::RecordWantedEverywhere) {
            true => self.members.len(),
            false => 1,
        };
        let decided = self
            .records
            .iter()
            .filter(|(_, (count, _))| *count >= wanted);
        decided
            .map(|(id, (_, updates))| (*id, &updates[..]))
            .collect()
    }

    /// Handles the answer to a request; one for an earlier page is late.
    pub(super) fn answered(&mut self, from: MachineId, request: &PeerRequest, answer: PeerAnswer) {
        let Some(asked) = self.waiting.get_mut(&from) else {
            return;
        };
        match (self.stage, request, answer) {
            (Stage::Seal, PeerRequest::Seal { cursor, .. }, PeerAnswer::Report(records, next))
                if *cursor == asked.cursor =>
            {
                for (id, updates) in records {
                    let (count, known) = self.records.entry(id).or_default();
                    *count += usize::from(asked.last != Some(id));
                    asked.last = Some(id);
                    for update in updates {
                        if !known.contains(&update) {
                            known.push(update);
                        }
                    }
                }
                match next {
                    Some(next) => (asked.cursor, asked.due) = (next, Duration::ZERO),
                    None => drop(self.waiting.remove(&from)),
                }
                if self.waiting.is_empty() {
                    self.stage = Stage::Install;
                    self.waiting = all_of(&self.members);
                }
            }
            (
                Stage::Install,
                PeerRequest::Install {
                    cursor,
                    records,
                    more,
                    ..
                },
                PeerAnswer::Done,
            ) if *cursor == asked.cursor => {
                if *more {
                    (asked.cursor, asked.due) = (cursor + changes(records), Duration::ZERO);
                    return;
                }
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

fn all_of(members: &BTreeSet<MachineId>) -> BTreeMap<MachineId, Asked> {
    let each = members.iter();
    each.map(|machine| (*machine, Asked::default())).collect()
}
