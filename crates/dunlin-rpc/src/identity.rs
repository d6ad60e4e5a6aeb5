//! Which server a thread polls for: a handler there that waited for an answer of the same server would wait for itself.
//!
//! User code runs on a polling thread in handlers and in the thread's own task alone, so the thread is marked once, for
//! its life, and no call pays for it. A server tells its clients who it is, and a client asks where it makes a lane,
//! which a polling thread thus never has to its own server. Any of the server's pollers counts: what one may wait for
//! another, the other may wait for the one.
//!
//! Simulated threads are not marked: they share what a real thread has.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};

use dunlin_verbs::thread;

/// The name by which a server tells it.
pub(crate) const SERVER_PARAMETER: &str = "server";

/// A server, among all that there are: a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u64);

/// None.
const NOBODY: u64 = 0;

thread_local! {
    static POLLS_FOR: Cell<u64> = const { Cell::new(NOBODY) };
}

impl Identity {
    /// Another one. No secret: who claims to be another server gets no calls of that one's handlers, and nothing else.
    pub(crate) fn new() -> Self {
        Self(RandomState::new().build_hasher().finish().max(1))
    }

    /// As it travels.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// From now on the calling thread polls for this server.
    pub(crate) fn mark_thread(self) {
        if !thread::is_simulated() {
            POLLS_FOR.set(self.0);
        }
    }
}

/// Whether the calling thread polls for a server at all.
#[inline]
pub(crate) fn polls_here() -> bool {
    POLLS_FOR.get() != NOBODY
}

/// Whether the calling thread polls for the server of this number; zero is none.
#[inline]
pub(crate) fn is_polled_here(server: u64) -> bool {
    let here = POLLS_FOR.get();
    here != NOBODY && here == server
}
