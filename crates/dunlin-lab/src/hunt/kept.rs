//! Values that must not be dropped when a seed panics.

use std::ops::{Deref, DerefMut};

/// A value whose drop needs virtual time, like that of a client, which waits for the threads of its lanes. When the
/// hunt panics, virtual time no longer passes, and dropping it would wait for ever: it is forgotten then.
#[derive(Debug)]
pub(super) struct Kept<T>(Option<T>);

impl<T> Kept<T> {
    pub(super) fn new(kept: T) -> Self {
        Self(Some(kept))
    }

    pub(super) fn into_inner(mut self) -> T {
        self.0.take().expect(UNTIL_DROPPED)
    }
}

const UNTIL_DROPPED: &str = "it is there until it is dropped";

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(UNTIL_DROPPED)
    }
}

impl<T> DerefMut for Kept<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(UNTIL_DROPPED)
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::mem::forget(self.0.take());
        }
    }
}
