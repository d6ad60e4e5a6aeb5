//! Tracks what a receiver has received: SENDs by number, chunks of a message by offset.

mod coverage;
mod numbers;

pub use coverage::{Coverage, OutOfMessage};
pub use numbers::{Novelty, ReceivedNumbers};
