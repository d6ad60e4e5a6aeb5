//! What a transaction does: its read and write sets, and functions of what it has read.
use crate::types::{Key, Value, Version};
use litemap::LiteMap;
use std::fmt;

/// Keys that a transaction requests in one round (FaSST: `AddToReadSet`, `AddToWriteSet`, then `Execute`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Keys that are read.
    pub reads: Vec<Key>,
    /// Keys that are read and locked, each with the number of bytes to reserve if it is absent.
    pub writes: Vec<(Key, u32)>,
}

impl Access {
    /// Number of keys in both sets.
    pub(crate) fn keys(&self) -> usize {
        self.reads.len() + self.writes.len()
    }
}

/// The next step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Access more keys.
    Access(Access),
    /// Commit with these values; a key without a value is deleted. All of them are in the write set.
    Commit(Vec<(Key, Option<Value>)>),
    /// Abort.
    Abort,
    /// Wait for [`crate::Coordinator::proceed`] to supply the step.
    Wait,
}

/// What a transaction has seen so far.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) seen: &'a LiteMap<Key, (Version, Option<Value>)>,
}

impl<'a> View<'a> {
    /// Whether the key was requested.
    pub fn has(&self, key: &Key) -> bool {
        self.seen.contains_key(key)
    }

    /// The value of a key that was requested and has one.
    pub fn value(&self, key: &Key) -> Option<&'a Value> {
        self.seen.get(key).and_then(|(_, value)| value.as_ref())
    }
}

/// The application's part of a transaction: a function of what it has seen, called after each round. It has no side
/// effects.
pub trait Logic: fmt::Debug + Send {
    /// Returns the next step. On the first call nothing has been seen.
    fn step(&mut self, view: View<'_>) -> Step;
}

/// Logic of one round: a set of keys, then a function of their values.
pub struct Once<F> {
    access: Option<Access>,
    then: F,
}

impl<F: FnMut(View<'_>) -> Step> Once<F> {
    /// Creates logic that accesses these keys and then acts as the function says.
    pub fn new(access: Access, then: F) -> Once<F> {
        Once {
            access: Some(access),
            then,
        }
    }
}

impl<F> fmt::Debug for Once<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl<F: FnMut(View<'_>) -> Step + Send> Logic for Once<F> {
    fn step(&mut self, view: View<'_>) -> Step {
        match self.access.take() {
            Some(access) => Step::Access(access),
            None => (self.then)(view),
        }
    }
}
