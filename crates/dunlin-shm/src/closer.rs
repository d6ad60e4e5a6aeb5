//! Closes descriptors in which a peer is involved, on threads that nobody waits for.
//!
//! The last close of a file can block for as long as its creator likes: a TCP connection lingers until its bytes are
//! read, a file of a FUSE file system is flushed by its server. A peer can send such a file, or leave it in the queue
//! of a socket that it shares with us, where it is closed with the socket. So descriptors in which a peer is involved
//! are closed by threads that do nothing else and end when nothing is left to close. One that is known to be harmless
//! (a sealed memory file) is closed immediately: [`Foreign::into_inner`].

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use dunlin_verbs::process::PerProcess;

use crate::core::lock;

/// Maximum number of closing threads: this many files can be stuck, each for as long as its creator lives, before
/// others have to wait to be closed.
const THREADS_MAX: usize = 16;

/// A descriptor that a peer sent, or of a socket whose other end a peer holds.
#[derive(Debug)]
pub(crate) struct Foreign(Option<OwnedFd>);

#[derive(Debug, Default)]
struct Closing {
    files: VecDeque<OwnedFd>,
    threads: usize,
}

/// Separate for each process: a child has none of its parent's threads, one of which may have held the lock at the time
/// of the fork.
static CLOSING: PerProcess<Mutex<Closing>> = PerProcess::new();

impl Foreign {
    /// Returns the descriptor, for a caller that knows that it may be closed on any thread.
    pub(crate) fn into_inner(mut self) -> Option<OwnedFd> {
        self.0.take()
    }
}

impl From<OwnedFd> for Foreign {
    fn from(file: OwnedFd) -> Self {
        Self(Some(file))
    }
}

impl AsFd for Foreign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Some(file) => file.as_fd(),
            None => unreachable!("only `into_inner` and `drop` take it, and both take the value"),
        }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(file) = self.0.take() {
            close(file);
        }
    }
}

fn close(file: OwnedFd) {
    {
        let mut closing = lock(CLOSING.get());
        closing.files.push_back(file);
        if closing.threads == THREADS_MAX {
            return;
        }
        // Starts one more thread although others are running: they may be stuck.
        closing.threads += 1;
    }
    let spawned = std::thread::Builder::new()
        .name("dunlin-shm-close".to_owned())
        .stack_size(64 << 10)
        .spawn(close_all);
    if let Err(error) = spawned {
        // It waits for the next thread.
        lock(CLOSING.get()).threads -= 1;
        tracing::warn!(%error, "cannot start a thread to close a peer's descriptor");
    }
}

fn close_all() {
    let mut closing = lock(CLOSING.get());
    while let Some(file) = closing.files.pop_front() {
        drop(closing);
        drop(file);
        closing = lock(CLOSING.get());
    }
    closing.threads -= 1;
}
