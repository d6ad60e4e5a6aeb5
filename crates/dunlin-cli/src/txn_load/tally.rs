//! Counts how the transactions of a thread or a period have ended.

use std::thread::ScopedJoinHandle;

use dunlin::txn::{Report, TransactionError};

use super::Outcome;
use crate::clock::now_ns;
use crate::commands::Failure;
use crate::histogram::Latencies;

/// The counts.
#[derive(Debug, Default)]
pub struct Tally {
    /// Committed.
    pub committed: u64,
    /// Aborted by others.
    pub aborted: u64,
    /// Aborted by themselves.
    pub declined: u64,
    /// Ended because a machine or an epoch did.
    pub superseded: u64,
    /// With an outcome that is not known yet.
    pub(super) unknown: u64,
    /// Whether machines replace each other, so that one that does not answer is not an error.
    pub(super) replaces: bool,
    /// Ended in any other way.
    pub errors: u64,
    /// The reason of one of these.
    pub last_error: Option<String>,
    /// Latencies of those that committed.
    pub latencies: Latencies,
    /// The time taken.
    pub elapsed_ns: u64,
}

impl Tally {
    /// Adds the counts of another thread during the same time.
    fn merge_beside(&mut self, other: Self) {
        let elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.merge_after(other);
        self.elapsed_ns = elapsed_ns;
    }

    /// The sum of threads that ran at the same time.
    ///
    /// # Errors
    /// The first failure of a thread; a panic counts as one.
    pub fn of_threads(
        threads: Vec<ScopedJoinHandle<'_, Result<Self, Failure>>>,
    ) -> Result<Self, Failure> {
        let gone = || Err(Failure::new("a client thread ended early"));
        let mut sum = Self::default();
        // All threads end before the first failure is returned.
        let tallies: Vec<_> = (threads.into_iter())
            .map(|thread| thread.join().unwrap_or_else(|_| gone()))
            .collect();
        for tally in tallies {
            sum.merge_beside(tally?);
        }
        Ok(sum)
    }

    /// Adds the counts of another period.
    pub fn merge_after(&mut self, other: Self) {
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.declined += other.declined;
        self.superseded += other.superseded;
        self.errors += other.errors;
        self.last_error = self.last_error.take().or(other.last_error);
        self.latencies.merge(&other.latencies);
        self.elapsed_ns += other.elapsed_ns;
    }

    /// Committed transactions per second.
    pub fn rate_per_s(&self) -> f64 {
        self.committed as f64 / (self.elapsed_ns as f64 / 1e9).max(1e-9)
    }

    /// The share of transactions aborted by others among those that others could abort.
    pub fn abort_share(&self) -> f64 {
        self.aborted as f64 / (self.committed + self.aborted).max(1) as f64
    }

    /// Counts the end of a transaction on a competitor's engine.
    pub(super) fn ended(&mut self, began: u64, outcome: Outcome) {
        match outcome {
            Outcome::Committed => {
                self.committed += 1;
                self.latencies.record(now_ns().saturating_sub(began));
            }
            Outcome::Declined => self.declined += 1,
            Outcome::Aborted => self.aborted += 1,
            Outcome::Failed(why) => {
                self.errors += 1;
                self.last_error.get_or_insert(why);
            }
        }
    }

    /// Counts the end of a transaction on Dunlin's database.
    pub(super) fn take(&mut self, began: u64, report: Report) {
        match report {
            Report::Ended(Ok(_)) => self.ended(began, Outcome::Committed),
            Report::Ended(Err(TransactionError::Itself)) => self.declined += 1,
            Report::Ended(Err(
                TransactionError::Locked { .. } | TransactionError::Changed { .. },
            )) => {
                self.aborted += 1;
            }
            Report::Ended(Err(TransactionError::Superseded)) => self.superseded += 1,
            Report::Ended(Err(TransactionError::Unavailable { .. })) if self.replaces => {
                self.superseded += 1;
            }
            Report::Ended(Err(TransactionError::Unknown { .. })) => self.unknown += 1,
            Report::Ended(Err(error)) => self.ended(began, Outcome::Failed(error.to_string())),
            Report::Settled(_) | Report::Undone => self.settle(&report),
        }
    }

    /// Counts a transaction whose outcome was unknown until now. It is late, so it has no latency.
    pub(super) fn settle(&mut self, report: &Report) {
        match report {
            Report::Settled(_) => {
                self.unknown = self.unknown.saturating_sub(1);
                self.committed += 1;
            }
            Report::Undone => {
                self.unknown = self.unknown.saturating_sub(1);
                self.superseded += 1;
            }
            Report::Ended(_) => {}
        }
    }
}
