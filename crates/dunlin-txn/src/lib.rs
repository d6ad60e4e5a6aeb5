//! Transactions over several machines, as state machines over values.
//!
//! ```
//! use dunlin_txn::{Database, DatabaseError, Table};
//!
//! let bank = Database::in_process();
//! let accounts: Table<u64, i64> = bank.table("accounts")?;
//! let left: i64 = bank.run(|t| {
//!     let left = t.get(&accounts, &1)?.unwrap_or(100) - 10;
//!     t.put(&accounts, &1, &left)?;
//!     Ok::<_, DatabaseError>(left)
//! })?;
//! assert_eq!(left, 90);
//! # Ok::<(), DatabaseError>(())
//! ```
//!
//! [`Database::open`] takes the addresses of machines instead, each a [`server::StoreServer`]; a [`Driver`] runs many
//! transactions at once in one thread. Below both are the protocols, as state machines.
//!
//! A [`Coordinator`] runs one transaction: it takes events and returns [`Action`]s, with those that may be sent
//! together in one list. A [`Participant`] answers the requests of coordinators over a [`Store`]. Both are the same for
//! all protocols; a [`Protocol`] determines how a transaction validates, logs and commits, and the systems of the
//! papers are its values: [`Protocol::FASST`], [`Protocol::FLOCKTX`], [`Protocol::SCALETX`], [`Protocol::SCALETX_O`].
//!
//! Both are independent of devices, clocks and threads: their driver sends the requests, posts the one-sided operations
//! and reports when an answer is overdue. `docs/transactions.md` describes the protocol and why each step is safe.
#![forbid(unsafe_code)]

pub mod checker;
pub mod coordinator;
mod database;
mod driver;
mod effort;
mod error;
mod host;
pub mod log;
mod logic;
pub mod membership;
mod memory;
mod mistakes;
mod participant;
mod placement;
mod protocol;
pub mod recovery;
pub mod server;
mod short;
mod store;
mod types;
pub mod wire;
pub mod workload;

pub use coordinator::{Action, Config, Coordinator, Event};
pub use database::{
    AsyncReadTransaction, AsyncTransaction, Database, DatabaseBuilder, DatabaseError, OpenError,
    Outcome, ReadTransaction, Table, TableKey, TableValue, Transaction,
};
pub use driver::{Driver, Report, TRANSACTIONS, TRANSACTIONS_MAX};
pub use dunlin_store::Header;
pub use error::{Committed, TransactionError};
pub use host::LocalAddresses;
pub use logic::{Access, Logic, Once, Step, View};
pub use memory::MemoryStore;
pub use mistakes::{Mistake, Mistakes};
pub use participant::{replay, NotInstalled, NotReplayed, OtherEpoch, Participant};
pub use placement::{Placement, PlacementError};
pub use protocol::{Backups, Commit, Log, Protocol, Validate};
pub use store::{LockError, Store, Stored};
pub use types::{
    Address, Key, KeyTooLong, MachineId, Place, Raised, TransactionId, Update, Value, Version,
    MAX_KEY_BYTES,
};
