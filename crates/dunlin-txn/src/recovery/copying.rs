//! How a new machine gets the existing data: chunk by chunk from each primary, while it already receives all changes.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::membership::peer::{PeerAnswer, PeerRequest};
use crate::membership::{Configuration, Epoch, Role};
use crate::types::{MachineId, Update};

/// What is still to be copied in one epoch.
#[derive(Debug, Hash, Clone)]
pub(super) struct Copying {
    epoch: Epoch,
    me: MachineId,
    /// For each source: the position from which to continue, and when to repeat the request.
    sources: BTreeMap<MachineId, (u64, Duration)>,
}

impl Copying {
    pub(super) fn new(of: &Configuration, me: MachineId) -> Copying {
        let whole = of
            .present()
            .filter(|(_, member)| member.role == Role::Whole);
        Copying {
            epoch: of.epoch,
            me,
            sources: whole.map(|(m, _)| (m, (0, Duration::ZERO))).collect(),
        }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(super) fn is_over(&self) -> bool {
        self.sources.is_empty()
    }

    pub(super) fn asks(&mut self, now: Duration, again: Duration) -> Vec<(MachineId, PeerRequest)> {
        let (epoch, machine) = (self.epoch, self.me);
        let due = self.sources.iter_mut().filter(|(_, (_, due))| *due <= now);
        due.map(|(source, (cursor, due))| {
            *due = now + again;
            let cursor = *cursor;
            let request = PeerRequest::Copy {
                epoch,
                machine,
                cursor,
            };
            (*source, request)
        })
        .collect()
    }

    /// The items of an answer to the last request; answers to earlier ones are late.
    pub(super) fn answered(
        &mut self,
        from: MachineId,
        (epoch, cursor): (Epoch, u64),
        answer: PeerAnswer,
    ) -> Option<Vec<Update>> {
        let (at, due) = self.sources.get_mut(&from)?;
        let PeerAnswer::Chunk(items, next) = answer else {
            return None;
        };
        if epoch != self.epoch || *at != cursor {
            return None;
        }
        match next {
            Some(next) => (*at, *due) = (next, Duration::ZERO),
            None => drop(self.sources.remove(&from)),
        }
        Some(items)
    }
}
