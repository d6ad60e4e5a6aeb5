//! A part of a state that many states share, with its digest: a step copies what it changes, and hashes that alone.
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

pub(crate) struct Part<T> {
    value: Arc<T>,
    pub(crate) digest: u64,
}

impl<T: Hash> Part<T> {
    pub(crate) fn new(value: T) -> Part<T> {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Part {
            value: Arc::new(value),
            digest: hasher.finish(),
        }
    }
}

impl<T> Clone for Part<T> {
    fn clone(&self) -> Part<T> {
        Part {
            value: Arc::clone(&self.value),
            digest: self.digest,
        }
    }
}

impl<T> PartialEq for Part<T> {
    fn eq(&self, other: &Part<T>) -> bool {
        self.digest == other.digest
    }
}

impl<T> Deref for Part<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Hash for Part<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl<T: fmt::Debug> fmt::Debug for Part<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
