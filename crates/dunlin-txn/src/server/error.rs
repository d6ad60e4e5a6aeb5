//! Why a machine of a store does not serve.

use dunlin_rpc::ServeError;
use dunlin_store::StoreError;

use crate::log::LogError;
use crate::membership::MembershipError;
use crate::placement::PlacementError;

/// Why a machine cannot store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreServerError {
    /// The server does not start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A table cannot be made.
    #[error("table '{name}': {source}")]
    Table {
        /// Its name.
        name: String,
        /// Why.
        source: StoreError,
    },
    /// The machines cannot hold the copies.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The number is none of theirs.
    #[error("machine {machine} of {machines}: numbers begin with 0")]
    Machine {
        /// The number.
        machine: u16,
        /// How many there are.
        machines: u16,
    },
    /// More copies than machines, or none.
    #[error("{replicas} copies on {machines} machines: each copy needs a machine of its own")]
    Replicas {
        /// The copies.
        replicas: u16,
        /// The machines.
        machines: u16,
    },
    /// Two tables have the same number or name.
    #[error("two tables have the number {id} or the name '{name}'")]
    Twice {
        /// The number of the second.
        id: u16,
        /// Its name.
        name: String,
    },
    /// The system has no random numbers.
    #[error("no random number for the machine's incarnation: {0}")]
    Random(String),
    /// Clients that write tables themselves cannot be kept from it when their epoch is over.
    #[error("one-sided WRITEs and machines that replace each other: a late WRITE could not be kept out; choose one")]
    OneSided,
    /// The log cannot be kept.
    #[error("log: {0}")]
    Log(#[from] LogError),
    /// The membership does not answer.
    #[error(transparent)]
    Membership(#[from] MembershipError),
}
