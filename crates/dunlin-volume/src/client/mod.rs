//! The client: it has the volume open alone, and is what keeps its copies equal.
//!
//! `engine` is what becomes of reads and writes, as a state machine; `volume` drives it over lanes to the servers.
//! `open` and `repair` are what happens before and beside: an epoch begins, copies are made equal; `keeper` is the
//! thread that does so while the volume is used.

mod admin;
mod engine;
mod error;
mod event;
mod keeper;
mod link;
mod open;
mod repair;
mod volume;

pub use admin::{check, create, remove};
pub use error::VolumeError;
pub use link::{channel, VolumeOptions};
pub use repair::Findings;
pub use volume::{Done, Operation, Volume, LONGEST_REQUEST, LONGEST_TRIM};
