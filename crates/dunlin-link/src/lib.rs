//! What every channel needs of a queue pair, whatever its messages look like.
//!
//! [`SendQueue`] is the account of a send queue: how many requests are outstanding, which of them are signaled, and
//! what a completion says about all of them. A value that the device works on is [`InFlight`] until that account gives
//! it back as [`Completed`], which nothing else can make. [`SleepWord`] is how the two ends of a queue pair tell each
//! other of their sleeps. [`failure_of`] says why a queue pair failed.
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
