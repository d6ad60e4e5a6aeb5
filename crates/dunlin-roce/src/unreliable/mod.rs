//! UC as two state machines: what is lost stays lost, and takes its whole message with it (IBTA vol. 1 §9.8).

mod receiver;
mod sender;

pub use receiver::{Receiver, Verdict};
pub use sender::Sender;
