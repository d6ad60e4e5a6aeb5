//! Completion channels: an event that a thread sleeps on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use dunlin_verbs::process::Generation;
use dunlin_verbs::{CompletionChannel, VerbsError};
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::sync::system;

/// An event counter of this process.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> Result<Self, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Raises the event. A failure is ignored, and a full counter is an event too.
    pub(crate) fn raise(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Consumes the event; `false` if there was none.
    pub(crate) fn consume(&self) -> Result<bool, Errno> {
        match rustix::io::read(&self.0, &mut [0; 8]) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Converts a duration for the system call.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// A completion channel, on which a thread sleeps until a completion arrives.
#[derive(Clone, Debug)]
pub struct RoceCompletionChannel {
    event: Arc<Event>,
    made_in: Generation,
}

impl RoceCompletionChannel {
    pub(crate) fn new() -> Result<Self, VerbsError> {
        let event = Event::new().map_err(system("eventfd for a completion channel"))?;
        Ok(Self {
            event: Arc::new(event),
            made_in: Generation::current(),
        })
    }
}

impl AsFd for RoceCompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl CompletionChannel for RoceCompletionChannel {
    fn wait(&self, timeout: Duration) -> Result<bool, VerbsError> {
        // A child would take its parent's events.
        self.made_in.check()?;
        let mut set = [PollFd::new(&*self.event, PollFlags::IN)];
        match poll(&mut set, Some(&timespec(timeout))) {
            Ok(0) | Err(Errno::INTR) => Ok(false),
            Ok(_) => self
                .event
                .consume()
                .map_err(system("read of a completion channel")),
            Err(errno) => Err(system("poll of a completion channel")(errno)),
        }
    }

    fn wake(&self) {
        if self.made_in.is_current() {
            self.event.raise();
        }
    }
}
