//! Completion channels: the library's event descriptor and an eventfd for waking by hand, behind one epoll descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use dunlin_verbs::{CompletionChannel, VerbsError};
use rustix::event::epoll;
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::{fcntl_getfl, fcntl_setfl, OFlags};
use rustix::io::Errno;

use crate::context::{Core, Shared};
use crate::error::{last, system};
use crate::events::EventThread;
use crate::sys::types;

/// A completion channel, on which a thread sleeps until a completion arrives.
#[derive(Clone, Debug)]
pub struct IbvCompletionChannel {
    inner: Arc<Channel>,
}

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) raw: Shared<types::CompletionChannel>,
    by_hand: OwnedFd,
    both: OwnedFd,
    pub(crate) device: Arc<EventThread>,
}

pub(crate) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = fcntl_getfl(descriptor)?;
    fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)
}

impl Channel {
    fn core(&self) -> &Core {
        self.device.core()
    }

    fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the channel's, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.raw.0).descriptor) }
    }

    /// Consumes the library's events; returns whether there were any.
    fn take_events(&self) -> bool {
        let mut any = false;
        loop {
            let (mut queue, mut user) = (null_mut(), null_mut());
            let api = &self.core().api;
            // SAFETY: the channel is alive, does not block, and both places have space for a pointer.
            if unsafe { (api.get_cq_event)(self.raw.0, &mut queue, &mut user) } != 0 {
                return any;
            }
            // SAFETY: the event is of this queue, which is not destroyed before all its events are acknowledged.
            unsafe { (api.ack_cq_events)(queue, 1) };
            any = true;
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.core().made_in.is_current() {
            return;
        }
        // SAFETY: completion queues hold the channel, so none is left; it is destroyed once.
        unsafe { (self.core().api.destroy_channel)(self.raw.0) };
    }
}

impl IbvCompletionChannel {
    pub(crate) fn new(device: &Arc<EventThread>) -> Result<Self, VerbsError> {
        let by_hand = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(system("eventfd", "of a completion channel"))?;
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(system("epoll_create", "of a completion channel"))?;
        let core = device.core();
        // SAFETY: the context is open.
        let raw = unsafe { (core.api.create_channel)(core.context.0) };
        if raw.is_null() {
            return Err(last(
                "ibv_create_comp_channel",
                format!("a completion channel on {}", core.nic),
            ));
        }
        let inner = Channel {
            raw: Shared(raw),
            by_hand,
            both,
            device: Arc::clone(device),
        };
        set_nonblocking(inner.events())
            .map_err(system("fcntl", "O_NONBLOCK for a completion channel"))?;
        let data = epoll::EventData::new_u64(0);
        for descriptor in [inner.events(), inner.by_hand.as_fd()] {
            epoll::add(&inner.both, descriptor, data, epoll::EventFlags::IN)
                .map_err(system("epoll_ctl", "of a completion channel"))?;
        }
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    pub(crate) fn inner(&self) -> &Arc<Channel> {
        &self.inner
    }
}

impl AsFd for IbvCompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.both.as_fd()
    }
}

impl CompletionChannel for IbvCompletionChannel {
    fn wait(&self, timeout: Duration) -> Result<bool, VerbsError> {
        // A child would take its parent's events.
        self.inner.core().made_in.check()?;
        let mut descriptors = [PollFd::new(&self.inner.both, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(errno) => return Err(system("poll", "of a completion channel")(errno)),
        }
        let mut count = [0; 8];
        let by_hand = match rustix::io::read(&self.inner.by_hand, &mut count) {
            Ok(_) => true,
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(errno) => return Err(system("read", "of a completion channel")(errno)),
        };
        Ok(self.inner.take_events() || by_hand)
    }

    fn wake(&self) {
        if !self.inner.core().made_in.is_current() {
            return;
        }
        // A full counter is an event too, and no other error is possible.
        let _ = rustix::io::write(&self.inner.by_hand, &1u64.to_ne_bytes());
    }
}
