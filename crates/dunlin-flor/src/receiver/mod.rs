//! What a receiver knows of what has come: SENDs by their numbers, chunks of a message by their places.

mod coverage;
mod numbers;

pub use coverage::{Coverage, OutOfMessage};
pub use numbers::{Novelty, ReceivedNumbers};
