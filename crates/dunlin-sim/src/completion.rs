//! Completion queues and channels as the world keeps them.

use std::collections::VecDeque;

use dunlin_verbs::{Completion, Notify};

/// A completion with what it gives back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqEntry {
    pub(crate) completion: Completion,
    pub(crate) qp: u32,
    pub(crate) stamp: u32,
    /// Requests of the send queue that its polling gives back; none for a RECEIVE.
    pub(crate) retires: Option<u64>,
}

impl Default for CqEntry {
    fn default() -> Self {
        Self {
            completion: Completion::EMPTY,
            qp: 0,
            stamp: 0,
            retires: None,
        }
    }
}

/// A completion on its way to its queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) cq: u32,
    pub(crate) entry: CqEntry,
    pub(crate) solicited: bool,
}

/// A completion queue.
#[derive(Debug, Default)]
pub(crate) struct Cq {
    pub(crate) alive: bool,
    pub(crate) host: u16,
    /// Among those that its host has had: its place in the world's table hangs on what other hosts have.
    pub(crate) number: u32,
    pub(crate) limit: usize,
    pub(crate) entries: VecDeque<CqEntry>,
    pub(crate) overrun: bool,
    pub(crate) channel: Option<u32>,
    pub(crate) armed: Option<Notify>,
    /// The thread that polls it.
    pub(crate) poller: Option<u32>,
}

impl Cq {
    /// Its key in the cache of its NIC, made like that of a queue pair.
    #[inline]
    pub(crate) fn context(&self) -> u64 {
        u64::from(self.host) << 32 | u64::from(self.number)
    }
}
