//! Transactions over several machines, as state machines over values.
//!
//! A [`Coordinator`] runs one transaction: events go in, [`Action`]s come out, and all that may go out at once comes out
//! in one list. A [`Participant`] answers the requests of coordinators over a [`Store`]. Both are written once; a
//! [`Protocol`] says how a transaction validates, logs and commits, and the systems of the papers are its values:
//! [`Protocol::FASST`], [`Protocol::FLOCKTX`], [`Protocol::SCALETX`], [`Protocol::SCALETX_O`].
//!
//! Nothing here knows a device, a clock or a thread: who drives the two sends the requests, posts the one-sided
//! operations and says when an answer is overdue. `docs/transactions.md` has the protocol and why each step is safe.
#![forbid(unsafe_code)]

pub mod checker;
pub mod coordinator;
mod database;
mod driver;
mod error;
mod logic;
mod memory;
mod mistakes;
mod participant;
mod placement;
mod protocol;
pub mod server;
mod store;
mod types;
pub mod wire;
pub mod workload;

pub use coordinator::{Action, Config, Coordinator, Event};
pub use database::{
    Database, DatabaseBuilder, DatabaseError, OpenError, Outcome, ReadTransaction, Table, TableKey,
    TableValue, Transaction,
};
pub use driver::{Driver, Report, TRANSACTIONS, TRANSACTIONS_MAX};
pub use dunlin_store::Header;
pub use error::{Committed, TransactionError};
pub use logic::{Access, Logic, Once, Step, View};
pub use memory::MemoryStore;
pub use mistakes::{Mistake, Mistakes};
pub use participant::Participant;
pub use placement::{Placement, PlacementError};
pub use protocol::{Backups, Commit, Log, Protocol, Validate};
pub use store::{LockError, Store, Stored};
pub use types::{
    Address, Key, KeyTooLong, MachineId, Place, Raised, TransactionId, Update, Value, Version,
    MAX_KEY_BYTES,
};
