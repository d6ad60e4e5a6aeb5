//! Completion channels.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use dunlin_verbs::{CompletionChannel, VerbsError};
use rustix::event::{eventfd, EventfdFlags};

use crate::inner::Inner;
use crate::stack;

/// Lets a thread sleep until a completion arrives.
///
/// Outside of simulated threads, [`CompletionChannel::wait`] lets virtual time pass; in a thread with a stack it
/// blocks. A step cannot sleep: there it returns at once whether there was an event, and if there was none, lets the
/// next one end a [`crate::Next::Block`].
#[derive(Clone, Debug)]
pub struct SimCompletionChannel {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Arc<Inner>,
    host: u16,
    number: u32,
    event: Arc<OwnedFd>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut world = self.inner.world(self.host);
        world.channels[self.number] = Default::default();
        world.channels.give_back(self.number);
    }
}

impl SimCompletionChannel {
    pub(super) fn new(inner: &Arc<Inner>, host: u16) -> Result<Self, VerbsError> {
        let event =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|errno| {
                VerbsError::System {
                    call: "eventfd for a completion channel",
                    source: errno.into(),
                }
            })?;
        let event = Arc::new(event);
        let mut world = inner.world(host);
        let number = world.channels.take();
        world.channels[number].event = Some(Arc::clone(&event));
        drop(world);
        Ok(Self {
            shared: Arc::new(Shared {
                inner: Arc::clone(inner),
                host,
                number,
                event,
            }),
        })
    }

    pub(super) fn number(&self) -> u32 {
        self.shared.number
    }

    /// Takes the event, if there is one.
    fn take(&self, raised: &mut bool) -> bool {
        let was = std::mem::take(raised);
        if was {
            let mut count = [0; 8];
            // Already empty if the descriptor was read directly.
            let _ = rustix::io::read(&*self.shared.event, &mut count);
        }
        was
    }
}

impl AsFd for SimCompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

impl CompletionChannel for SimCompletionChannel {
    fn wait(&self, timeout: Duration) -> Result<bool, VerbsError> {
        let (inner, host, number) = (&self.shared.inner, self.shared.host, self.shared.number);
        if let Some(thread) = inner.caller_on(host) {
            let mut world = inner.world(host);
            let state = &mut world.channels[number];
            let raised = self.take(&mut state.raised);
            if !raised && !state.waiters.contains(&thread) {
                state.waiters.push(thread);
            }
            drop(world);
            if raised || !stack::is_stacked() {
                return Ok(raised);
            }
            dunlin_verbs::thread::park(timeout);
            let mut world = inner.world(host);
            let state = &mut world.channels[number];
            state.waiters.retain(|&waiter| waiter != thread);
            return Ok(self.take(&mut state.raised));
        }
        Ok(inner.sleep(host, timeout, |world| {
            self.take(&mut world.channels[number].raised)
        }))
    }

    fn wake(&self) {
        let shared = &self.shared;
        shared.inner.world(shared.host).raise(shared.number);
        self.shared.inner.notify();
    }
}
