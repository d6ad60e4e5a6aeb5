//! Completion channels: an eventfd that completion queues and peers write and a thread waits on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use dunlin_verbs::process::Generation;
use dunlin_verbs::{CompletionChannel, VerbsError};
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::system;

/// Where a thread sleeps until a completion comes.
#[derive(Clone, Debug)]
pub struct ShmCompletionChannel {
    event: Arc<OwnedFd>,
    made_in: Generation,
}

/// Raises the event of a descriptor; nothing can be done about a failure, and a full counter is an event too.
pub(crate) fn raise(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Consumes the event of a descriptor.
pub(crate) fn consume(event: &OwnedFd) -> Result<bool, Errno> {
    let mut count = [0; 8];
    match rustix::io::read(event, &mut count) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// A new event descriptor.
pub(crate) fn create_event() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

impl ShmCompletionChannel {
    pub(crate) fn new() -> Result<Self, VerbsError> {
        Ok(Self {
            event: Arc::new(create_event().map_err(system("eventfd for a completion channel"))?),
            made_in: Generation::current(),
        })
    }

    pub(crate) fn event(&self) -> &Arc<OwnedFd> {
        &self.event
    }
}

impl AsFd for ShmCompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl CompletionChannel for ShmCompletionChannel {
    fn wait(&self, timeout: Duration) -> Result<bool, VerbsError> {
        // A child would take the events of its parent.
        self.made_in.check()?;
        let mut descriptors = [PollFd::new(&*self.event, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => Ok(false),
            Ok(_) => consume(&self.event).map_err(system("read of a completion channel")),
            Err(errno) => Err(system("poll of a completion channel")(errno)),
        }
    }

    fn wake(&self) {
        if self.made_in.is_current() {
            raise(&self.event);
        }
    }
}
