//! The atomics of modelled code: the standard library's, or loom's under the model checker.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{fence, AtomicU64, Ordering},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{fence, AtomicU64, Ordering},
    sync::{Mutex, MutexGuard},
};

#[cfg(not(loom))]
pub(crate) use dunlin_verbs::thread::yield_now;
