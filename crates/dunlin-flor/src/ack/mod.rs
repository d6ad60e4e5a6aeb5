//! Software acknowledgements (Flor §5, A.1.2): their format, and when they are sent.

mod codec;
mod generator;

pub use codec::{Ack, AckError, AckedNumber, ACK_HEADER_BYTES, ACK_NUMBERS, MAX_ACK_BYTES};
pub use generator::{AckGenerator, AckTriggers, Arrival};
