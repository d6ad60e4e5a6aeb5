//! Detects dead coordinators: those that hold locks and make no progress.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::types::TransactionId;

/// When each holder of locks was first seen at its current step.
#[derive(Debug, Default, Hash, Clone)]
pub(super) struct Suspicion {
    since: BTreeMap<(TransactionId, u16), Duration>,
}

impl Suspicion {
    /// Whether any has held locks for this long without another step.
    pub(super) fn look(
        &mut self,
        holders: Vec<(TransactionId, u16)>,
        now: Duration,
        patience: Duration,
    ) -> bool {
        let known = std::mem::take(&mut self.since);
        for holder in holders {
            let since = known.get(&holder).copied().unwrap_or(now);
            self.since.insert(holder, since);
        }
        self.since
            .values()
            .any(|since| now.saturating_sub(*since) > patience)
    }

    pub(super) fn forget(&mut self) {
        self.since.clear();
    }
}
