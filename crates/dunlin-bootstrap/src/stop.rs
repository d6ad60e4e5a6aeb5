//! Stops an accept loop from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use rustix::event::{eventfd, EventfdFlags};

#[derive(Debug)]
struct Inner {
    stopped: AtomicBool,
    // Becomes readable at the stop, and is never read: every waiter sees it.
    event: OwnedFd,
}

/// Wakes and ends everything that waits on it. Clones are handles to the same stop.
#[derive(Clone, Debug)]
pub struct StopHandle {
    inner: Arc<Inner>,
}

impl StopHandle {
    /// Creates a handle that has not been stopped.
    ///
    /// # Errors
    /// When the process has no file descriptors left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            inner: Arc::new(Inner {
                stopped: AtomicBool::new(false),
                event,
            }),
        })
    }

    /// Stops, permanently. Further calls have no effect.
    pub fn stop(&self) {
        if !self.inner.stopped.swap(true, Ordering::SeqCst) {
            // A single write to a fresh counter neither blocks nor fails.
            let _ = rustix::io::write(&self.inner.event, &1_u64.to_ne_bytes());
        }
    }

    /// Whether it has been stopped.
    pub fn is_stopped(&self) -> bool {
        self.inner.stopped.load(Ordering::SeqCst)
    }

    /// Readable once stopped.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.inner.event.as_fd()
    }
}
