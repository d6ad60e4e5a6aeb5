//! The client: it has exclusive use of the volume, and keeps its copies equal.
//!
//! `engine` is the state machine for reads and writes; `volume` drives it over lanes to the servers. `open` and
//! `repair` have what happens before and alongside: an epoch begins, copies are made equal; `keeper` is the thread that
//! does so while the volume is in use.

mod admin;
mod calls;
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
pub use repair::{Findings, MOST_FAULTS};
pub use volume::{Done, Operation, Volume, LONGEST_REQUEST, LONGEST_TRIM};
