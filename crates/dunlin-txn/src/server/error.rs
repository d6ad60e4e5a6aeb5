//! The errors of starting a machine of a store.

use dunlin_rpc::ServeError;
use dunlin_store::StoreError;

use crate::log::LogError;
use crate::membership::MembershipError;
use crate::placement::PlacementError;

/// Why a machine cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreServerError {
    /// The server could not be started.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A table cannot be created.
    #[error("table '{name}': {source}")]
    Table {
        /// Its name.
        name: String,
        /// The cause.
        source: StoreError,
    },
    /// The copies cannot be placed on the machines.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The machine's number is out of range.
    #[error("invalid machine number {machine} of {machines}: numbers start with 0")]
    Machine {
        /// The number.
        machine: u16,
        /// Number of machines.
        machines: u16,
    },
    /// More copies than machines, or none.
    #[error("invalid number of copies: {replicas} on {machines} machines; each copy needs a machine of its own")]
    Replicas {
        /// Number of copies.
        replicas: u16,
        /// Number of machines.
        machines: u16,
    },
    /// Two tables have the same number or name.
    #[error("duplicate table: number {id} or name '{name}' is used twice")]
    Twice {
        /// The number of the second.
        id: u16,
        /// Its name.
        name: String,
    },
    /// The system does not provide random numbers.
    #[error("cannot get a random number for the machine's incarnation: {0}")]
    Random(String),
    /// Clients that write to tables one-sided cannot be stopped when their epoch is over.
    #[error(
        "one-sided WRITEs cannot be combined with machines that replace each other, because a late WRITE could reach a \
         later epoch; choose one"
    )]
    OneSided,
    /// The log cannot be kept.
    #[error("log: {0}")]
    Log(#[from] LogError),
    /// The membership does not answer.
    #[error(transparent)]
    Membership(#[from] MembershipError),
}
