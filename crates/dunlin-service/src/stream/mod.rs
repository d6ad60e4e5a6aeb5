//! Streams of messages: many of them share two calls of a channel, each with credit-based flow control in both
//! directions.
//!
//! [`mux`] is a state machine over values: frames in, frames out, and how much each stream may send. A
//! [`session::Session`] is one side of it with a lock and wakers; [`driver`] makes the client's two calls, which
//! `server/sessions.rs` answers.

pub(crate) mod driver;
pub(crate) mod feed;
pub(crate) mod frame;
pub(crate) mod mux;
#[cfg(test)]
mod mux_tests;
mod one;
mod outbox;
pub(crate) mod pump;
pub(crate) mod session;
mod streaming;

pub use streaming::{BlockingStreaming, Streaming};
