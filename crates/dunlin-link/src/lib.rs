//! What every channel needs of a queue pair, regardless of the format of its messages.
//!
//! [`SendQueue`] keeps the account of a send queue: which requests are outstanding, which of them are signaled, and
//! which of them a completion ends. A value that the device uses is [`InFlight`] until that account returns it as
//! [`Completed`], which nothing else can create. By [`SleepWord`], the two ends of a queue pair announce to each other
//! that they sleep. [`failure_of`] describes why a queue pair failed.
#![forbid(unsafe_code)]

mod failure;
mod in_flight;
#[cfg(test)]
mod model_tests;
mod send_queue;
#[cfg(test)]
mod sleep_tests;
mod sleep_word;

pub use failure::failure_of;
pub use in_flight::{Completed, InFlight, Ticket};
pub use send_queue::{Ended, SendQueue};
pub use sleep_word::{SleepWord, WAKE_RECEIVES};
