//! Reports of clients about themselves, kept for observers of the server as long as the clients renew them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::handler::{Execution, HandlerError};
use crate::client::ClientReport;

/// Time after which a report that was not renewed is dropped.
const KEPT: Duration = Duration::from_secs(10);

/// The reports, by connection.
#[derive(Debug)]
pub(super) struct Reports {
    most: usize,
    taken: Mutex<BTreeMap<u64, (Instant, ClientReport)>>,
}

impl Reports {
    /// Keeps reports of at most `most` connections.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: Mutex::default(),
        })
    }

    /// The reports of the last ten seconds; older ones are dropped.
    fn fresh(&self, now: Instant) -> MutexGuard<'_, BTreeMap<u64, (Instant, ClientReport)>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|_, (since, _)| now.duration_since(*since) < KEPT);
        taken
    }

    fn take(&self, connection: u64, report: ClientReport, now: Instant) -> Result<(), String> {
        let mut taken = self.fresh(now);
        if taken.len() >= self.most && !taken.contains_key(&connection) {
            return Err(format!(
                "limit reached: reports of {} connections are kept already",
                self.most
            ));
        }
        taken.insert(connection, (now, report));
        Ok(())
    }

    /// All current reports, in the order of connections.
    pub(super) fn all(&self) -> Vec<ClientReport> {
        let taken = self.fresh(Instant::now());
        taken.values().map(|(_, report)| report.clone()).collect()
    }
}

/// The built-in handler that takes reports.
pub(super) fn handler(reports: Arc<Reports>) -> Execution {
    Execution::Inline(Arc::new(move |request, _| {
        ClientReport::decode(request.payload())
            .and_then(|report| reports.take(request.connection(), report, Instant::now()))
            .map_err(|words| HandlerError::new(1, words))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_bounded_and_grow_old() {
        let reports = Reports::new(2);
        let began = Instant::now();
        let take =
            |connection, after| reports.take(connection, ClientReport::default(), began + after);
        let second = Duration::from_secs(1);
        take(1, second).unwrap();
        take(2, second * 2).unwrap();
        assert!(take(3, second * 3).unwrap_err().contains('2'));
        take(2, second * 4).unwrap();
        // The first has expired by now.
        take(3, second * 12).unwrap();
        assert_eq!(reports.fresh(began + second * 13).len(), 2);
    }
}
