//! What is run: a workload of `dunlin-txn` with its size.

use dunlin::txn::workload::{Objects, SmallBank, Tatp, Workload};

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// TATP over so many subscribers.
    Tatp(u64),
    /// SmallBank.
    SmallBank {
        /// Customers.
        customers: u64,
        /// Those of them that are hot.
        hot: u64,
        /// Percent of the transactions that go to these.
        percent: u8,
    },
    /// The object store.
    Objects {
        /// Keys.
        keys: u64,
        /// Keys of a transaction.
        all: usize,
        /// Those that it changes.
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
