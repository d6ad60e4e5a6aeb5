//! What a transaction does: read and write sets, and functions of what was read.
use crate::types::{Key, Value, Version};
use litemap::LiteMap;
use std::fmt;

/// Keys that a transaction asks for in one round (FaSST: `AddToReadSet`, `AddToWriteSet`, then `Execute`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Keys that are read.
    pub reads: Vec<Key>,
    /// Keys that are read and locked, each with the bytes to make room for where it is absent.
    pub writes: Vec<(Key, u32)>,
}

impl Access {
    /// How many keys it names.
    pub(crate) fn keys(&self) -> usize {
        self.reads.len() + self.writes.len()
    }
}

/// What a transaction wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// More keys.
    Access(Access),
    /// To commit with these values, or without a value where the key goes. All of them are in the write set.
    Commit(Vec<(Key, Option<Value>)>),
    /// To abort.
    Abort,
    /// To be told what it wants by [`crate::Coordinator::proceed`].
    Wait,
}

/// What a transaction has seen so far.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(crate) seen: &'a LiteMap<Key, (Version, Option<Value>)>,
}

impl<'a> View<'a> {
    /// Whether the key was asked for.
    pub fn has(&self, key: &Key) -> bool {
        self.seen.contains_key(key)
    }

    /// The value of a key that was asked for and has one.
    pub fn value(&self, key: &Key) -> Option<&'a Value> {
        self.seen.get(key).and_then(|(_, value)| value.as_ref())
    }
}

/// A transaction's own part: a function of what it has seen, asked after each round. It has no effect outside itself.
pub trait Logic: fmt::Debug + Send {
    /// What it wants next. At first nothing has been seen.
    fn step(&mut self, view: View<'_>) -> Step;
}

/// Logic of one round: a set of keys, then a function of their values.
pub struct Once<F> {
    access: Option<Access>,
    then: F,
}

impl<F: FnMut(View<'_>) -> Step> Once<F> {
    /// Logic that asks for these keys and then does as the function says.
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
