//! Bugs that tests plant in loads, to check that hunts find them.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// An idle end of a ring is not woken by what arrives.
    LostWakeUp,
    /// A step of a ring, or a thread that calls, panics.
    Panic,
    /// A server refuses a call with the refusal of another call.
    OtherRefusal,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Planted>> = const { std::cell::Cell::new(None) };
}

/// Runs `work` with this bug, on this thread.
#[cfg(test)]
pub(super) fn with<T>(bug: Planted, work: impl FnOnce() -> T) -> T {
    /// Also after a panic, the next test of this thread runs without the bug.
    struct Mended;
    impl Drop for Mended {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }
    PLANTED.set(Some(bug));
    let _mended = Mended;
    work()
}

#[cfg(test)]
pub(super) fn is_planted(bug: Planted) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(test))]
#[inline(always)]
pub(super) const fn is_planted(_: Planted) -> bool {
    false
}
