//! Ends an accept loop from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use rustix::event::{eventfd, EventfdFlags};

#[derive(Debug)]
struct Inner {
    stopped: AtomicBool,
    // Readable from the moment of stopping, and never read: every waiter sees it.
    event: OwnedFd,
}

/// Wakes and ends whatever waits on it. Clones are handles to the same stop.
#[derive(Clone, Debug)]
pub struct StopHandle {
    inner: Arc<Inner>,
}

impl StopHandle {
    /// One that has not been stopped.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            inner: Arc::new(Inner {
                stopped: AtomicBool::new(false),
                event,
            }),
        })
    }

    /// Stops, once and for all. Further calls change nothing.
    pub fn stop(&self) {
        if !self.inner.stopped.swap(true, Ordering::SeqCst) {
            // One write to a fresh counter neither blocks nor fails.
            let _ = rustix::io::write(&self.inner.event, &1_u64.to_ne_bytes());
        }
    }

    /// Whether it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.inner.stopped.load(Ordering::SeqCst)
    }

    /// Readable once stopped.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.inner.event.as_fd()
    }
}
