//! UC as two state machines: a lost packet is not retransmitted, and its whole message is lost (IBTA vol. 1 §9.8).

mod receiver;
mod sender;

pub use receiver::{Receiver, Verdict};
pub use sender::Sender;
