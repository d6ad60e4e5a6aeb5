//! A thread of a client, which runs many transactions at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::txn::workload::Workload;
use dunlin::txn::{Driver, Report, TransactionError};
use dunlin_verbs::thread;

use super::super::shared::Shared;

/// Interval between two transactions of a paced thread.
pub(super) const PACE: Duration = Duration::from_micros(250);

/// Counters in addition to those of calls.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) committed: AtomicU64,
    pub(super) aborted: AtomicU64,
    pub(super) declined: AtomicU64,
}

/// A thread of a client.
pub(super) struct Thread {
    pub(super) driver: Driver,
    pub(super) workload: Box<dyn Workload>,
    pub(super) random: fastrand::Rng,
    /// Start of the transaction with each name.
    pub(super) begun: Vec<Option<Instant>>,
    pub(super) shared: Arc<Shared>,
    pub(super) counts: Arc<Counts>,
}

impl Thread {
    pub(super) fn run(self) {
        let Self {
            mut driver,
            mut workload,
            mut random,
            mut begun,
            shared,
            counts,
        } = self;
        loop {
            let (paced, stopping) = (
                shared.paced.load(Ordering::Relaxed),
                shared.stopping.load(Ordering::Relaxed),
            );
            if stopping && driver.running() == 0 {
                break;
            }
            let most = match (stopping, paced) {
                (true, _) => 0,
                (false, true) => 1,
                (false, false) => begun.len(),
            };
            let out = begun.iter().flatten().count();
            for _ in out..most.min(out + driver.free()) {
                let Some(name) = begun.iter().position(Option::is_none) else {
                    break;
                };
                begun[name] = Some(thread::now());
                driver.begin(name as u64, workload.next(&mut random));
            }
            let busy = driver.poll(|name, _, report| {
                let since = begun[name as usize].take();
                take(report, since, &shared, &counts);
            });
            match (paced && !stopping, busy) {
                (true, true) => thread::sleep(PACE),
                (_, false) => driver.rest(),
                _ => {}
            }
        }
        drop(driver);
        shared.running.fetch_sub(1, Ordering::Relaxed);
    }
}

fn take(report: Report, since: Option<Instant>, shared: &Shared, counts: &Counts) {
    let count = match report {
        Report::Ended(Ok(_)) => {
            shared.calls.fetch_add(1, Ordering::Relaxed);
            if let Some(since) = since.filter(|_| shared.measuring.load(Ordering::Relaxed)) {
                let took = thread::now().duration_since(since).as_nanos();
                let mut all = shared.latencies_ns.lock().expect("no thread panicked");
                all.push(took as u64);
            }
            &counts.committed
        }
        Report::Ended(Err(TransactionError::Itself)) => &counts.declined,
        Report::Ended(Err(TransactionError::Locked { .. } | TransactionError::Changed { .. })) => {
            &counts.aborted
        }
        Report::Ended(Err(_)) => &shared.failed,
        Report::Settled(_) | Report::Undone => return,
    };
    count.fetch_add(1, Ordering::Relaxed);
}
