//! The server that a thread polls for: a handler there that waited for a response of the same server would wait for
//! itself.
//!
//! User code runs on a polling thread only in handlers and in the thread's own task, so the thread is marked once, for
//! its lifetime, at no cost per call. A server tells its clients its identity; a client checks it when it makes a lane,
//! so a polling thread never gets a lane to its own server. All pollers of a server count as one: each of two could
//! wait for the other.
//!
//! Simulated threads are not marked: they share the thread-local state of a real thread.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};

use dunlin_verbs::thread;

/// Name of the handshake parameter that carries it.
pub(crate) const SERVER_PARAMETER: &str = "server";

/// The identity of a server among all servers: a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u64);

/// No server.
const NOBODY: u64 = 0;

thread_local! {
    static POLLS_FOR: Cell<u64> = const { Cell::new(NOBODY) };
}

impl Identity {
    /// Makes a new identity. It is not a secret: a server that claims the identity of another only gets no calls from
    /// that server's handlers.
    pub(crate) fn new() -> Self {
        Self(RandomState::new().build_hasher().finish().max(1))
    }

    /// The encoding.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Marks the calling thread as one that polls for this server.
    pub(crate) fn mark_thread(self) {
        if !thread::is_simulated() {
            POLLS_FOR.set(self.0);
        }
    }
}

/// Whether the calling thread polls for any server.
#[inline]
pub(crate) fn polls_here() -> bool {
    POLLS_FOR.get() != NOBODY
}

/// Whether the calling thread polls for the server with this number; zero is none.
#[inline]
pub(crate) fn is_polled_here(server: u64) -> bool {
    let here = POLLS_FOR.get();
    here != NOBODY && here == server
}
