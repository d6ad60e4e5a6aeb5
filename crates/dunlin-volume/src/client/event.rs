//! Wakes the thread that uses a volume: a waker for its lanes and its keeper, with a descriptor that becomes readable
//! when it is used while the thread sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};

#[derive(Debug)]
pub(super) struct Event {
    descriptor: OwnedFd,
    woken: AtomicBool,
    sleeping: AtomicBool,
}

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        // A thread that is awake checks the flag before it sleeps.
        if self.sleeping.load(Ordering::SeqCst) {
            // This can only fail if the counter is already at its maximum.
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        }
    }
}

impl Event {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            descriptor: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            woken: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
        }))
    }

    /// Whether it was woken since the last call.
    pub(super) fn take(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }

    /// Sleeps until it is woken, one of the other descriptors is ready, or the time is over. Returns whether one of the
    /// others is ready.
    pub(super) fn sleep(
        &self,
        others: &[(BorrowedFd<'_>, PollFlags)],
        most: Duration,
    ) -> io::Result<bool> {
        self.sleeping.store(true, Ordering::SeqCst);
        let most = match self.woken.load(Ordering::SeqCst) {
            true => Duration::ZERO,
            false => most,
        };
        let mut all: Vec<PollFd<'_>> = others
            .iter()
            .map(|(descriptor, flags)| PollFd::from_borrowed_fd(*descriptor, *flags))
            .collect();
        all.push(PollFd::new(&self.descriptor, PollFlags::IN));
        let timeout = Timespec {
            tv_sec: most.as_secs() as i64,
            tv_nsec: most.subsec_nanos().into(),
        };
        let slept = poll(&mut all, Some(&timeout));
        self.sleeping.store(false, Ordering::SeqCst);
        let mut counted = [0; 8];
        // If the counter is zero there is nothing to read.
        let _ = rustix::io::read(self.descriptor.as_fd(), &mut counted);
        match slept {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(all[..others.len()]
            .iter()
            .any(|one| !one.revents().is_empty()))
    }
}
