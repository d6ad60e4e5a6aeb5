//! The raw limits of this machine, measured without a framework.
//!
//! Every limit is a function of a duration (some 20 ms is enough), so that limits and measurements can alternate within
//! the same second. Each runs two threads, pinned to the first two cores available to this process, and leaves nothing
//! running.

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
