//! Memory that two threads share without a lock: the one module of this crate with `unsafe` in it.
//!
//! Every type here is safe to use: whose turn it is to touch a piece of memory follows from counts that
//! only these types move.

mod handed;
mod pair;
mod single;

pub use handed::{baton, Holder, SharedBytes};
pub use pair::{ring_pair, Answerer, Caller, Payload};
pub use single::{spsc, Consumer, Message, Producer};

/// A value alone on its cache lines (two of them: processors fetch lines in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Alone<T>(pub T);
