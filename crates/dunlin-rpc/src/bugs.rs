//! Bugs that are put in on purpose, to see that the hunt finds them (`dunlin-lab`, feature `bugs`). Without the feature
//! there are none.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Who has announced its sleep is taken for woken, and is not.
    LostWakeUp,
    /// The answers of deferred handlers are sent twice.
    AnsweredTwice,
    /// The memory of a long request goes back to its pool when the request is sent, while the server still reads it.
    BufferReused,
}

#[cfg(feature = "bugs")]
mod planted {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// From now on simulated threads that the calling real one runs have this bug, and no other.
    pub fn plant(bug: Option<Bug>) {
        PLANTED.set(bug);
    }

    pub(crate) fn is_planted(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}
#[cfg(feature = "bugs")]
pub(crate) use planted::is_planted;
#[cfg(feature = "bugs")]
pub use planted::plant;

#[cfg(not(feature = "bugs"))]
#[inline(always)]
pub(crate) const fn is_planted(_: Bug) -> bool {
    false
}
