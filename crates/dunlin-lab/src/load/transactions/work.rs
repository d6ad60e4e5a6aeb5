//! The workload: one of `dunlin-txn`'s, with its size.

use dunlin::txn::workload::{Objects, SmallBank, Tatp, Workload};

/// A workload and its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// TATP with this number of subscribers.
    Tatp(u64),
    /// SmallBank.
    SmallBank {
        /// Number of customers.
        customers: u64,
        /// Number of hot customers.
        hot: u64,
        /// Percentage of transactions on hot customers.
        percent: u8,
    },
    /// The object store.
    Objects {
        /// Number of keys.
        keys: u64,
        /// Keys per transaction.
        all: usize,
        /// Keys that a transaction changes.
        changed: usize,
    },
}

impl Work {
    pub(super) fn workload(self) -> Box<dyn Workload> {
        match self {
            Self::Tatp(subscribers) => Box::new(Tatp::new(subscribers)),
            Self::SmallBank {
                customers,
                hot,
                percent,
            } => Box::new(SmallBank::with_hot_customers(customers, hot, percent)),
            Self::Objects { keys, all, changed } => Box::new(Objects::new(keys, all, changed)),
        }
    }
}
