//! Memory that two threads share without a lock: the only module of this crate that contains `unsafe` code.
//!
//! Every type here is safe to use: which thread may access a piece of memory follows from counts that only these types
//! change.

mod handed;
mod pair;
mod single;

pub use handed::{baton, Holder, SharedBytes};
pub use pair::{ring_pair, Answerer, Caller, Payload};
pub use single::{spsc, Consumer, Message, Producer};

/// A value on cache lines of its own (two, because processors fetch lines in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Alone<T>(pub T);
