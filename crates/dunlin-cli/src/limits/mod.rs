//! What this machine allows, as bare as it can be written.
//!
//! Every limit is a function of a duration (some 20 ms is enough), so that limits and measurements can
//! take turns within the same second. Each runs two threads, pinned to the first two cores this process
//! may use, and leaves nothing running.

pub mod copy;
pub mod duel;
pub mod line;
mod probes;
#[allow(unsafe_code)]
pub mod raw;
pub mod ring;
pub mod survey;
pub mod tcp;
pub mod udp;

pub use survey::{survey, Limits};
