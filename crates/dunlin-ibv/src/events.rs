//! Asynchronous events, which no work request reports.
//!
//! A thread of the device sleeps on the library's descriptor. It marks an overrun completion queue and moves its queue
//! pairs to error (soft-RoCE only drops the completion), keeps events for [`dunlin_verbs::Device::poll_async_event`],
//! and tracks the port, so that later connections use its current state.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use dunlin_verbs::{AsyncEvent, VerbsError};
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;

use crate::context::Core;
use crate::error::system;
use crate::link::look_again;
use crate::sys::{constants as c, types};

/// Number of events kept until they are fetched; older ones are dropped.
const KEPT: usize = 1024;

/// The events that have not been fetched.
#[derive(Debug, Default)]
pub(crate) struct Events {
    waiting: Mutex<VecDeque<AsyncEvent>>,
}

impl Events {
    fn push(&self, event: AsyncEvent) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() == KEPT {
            waiting.pop_front();
        }
        waiting.push_back(event);
    }

    pub(crate) fn pop(&self) -> Option<AsyncEvent> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop_front()
    }
}

/// The event thread of a device; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct EventThread {
    core: Arc<Core>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl EventThread {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn start(core: Arc<Core>) -> Result<Self, VerbsError> {
        crate::channel::set_nonblocking(core.async_descriptor())
            .map_err(system("fcntl", "O_NONBLOCK for asynchronous events"))?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system(
            "eventfd",
            "to end the thread of asynchronous events",
        ))?;
        let stop = Arc::new(stop);
        let (theirs, ears) = (Arc::clone(&core), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("dunlin-ibv".into())
            .spawn(move || listen(&theirs, &ears))
            .map_err(|source| VerbsError::System {
                call: "spawning the thread of asynchronous events",
                source,
            })?;
        Ok(Self {
            core,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for EventThread {
    fn drop(&mut self) {
        let thread = self.thread.take();
        if !self.core.made_in.is_current() {
            // A child has no such thread.
            return std::mem::forget(thread);
        }
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = thread {
            // The thread itself may briefly hold the last queue pair, and so this value.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn listen(core: &Core, stop: &OwnedFd) {
    loop {
        let mut descriptors = [
            PollFd::from_borrowed_fd(core.async_descriptor(), PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        match poll(&mut descriptors, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        if !descriptors[1].revents().is_empty() || descriptors[0].revents().intersects(gone) {
            return;
        }
        while take(core) {}
    }
}

/// Handles one event, if there is one.
pub(crate) fn take(core: &Core) -> bool {
    let mut event = types::AsyncEvent {
        element: types::EventElement { port: 0 },
        kind: u32::MAX,
    };
    // SAFETY: the context is open, its descriptor does not block, and `event` has space for one.
    if unsafe { (core.api.get_async_event)(core.context.0, &mut event) } != 0 {
        return false;
    }
    // Handled before it is acknowledged, because until then the object is not destroyed. The last handle of the object
    // must not be dropped before, so the queue is released afterwards.
    let overrun = report(core, &event);
    // SAFETY: the event came from the library and is acknowledged once.
    unsafe { (core.api.ack_async_event)(&mut event) };
    if let Some(queue) = overrun {
        queue.fail();
    }
    true
}

fn report(core: &Core, event: &types::AsyncEvent) -> Option<Arc<crate::completion_queue::CqCore>> {
    match event.kind {
        c::EVENT_CQ_ERROR => {
            core.events.push(AsyncEvent::CompletionQueueOverrun);
            // SAFETY: an event of this kind contains a queue.
            return core.queue(unsafe { event.element.cq } as usize);
        }
        c::EVENT_QP_FATAL | c::EVENT_QP_REQUEST_ERROR | c::EVENT_QP_ACCESS_ERROR => {
            // SAFETY: an event of this kind contains a queue pair, which lives until the event is acknowledged.
            let number = unsafe { (*event.element.qp).number };
            core.events.push(AsyncEvent::QueuePairFatal(number));
        }
        c::EVENT_QP_LAST_RECEIVE => {
            // SAFETY: an event of this kind contains a queue pair.
            core.last_receives.say(unsafe { event.element.qp } as usize);
        }
        c::EVENT_DEVICE_FATAL => {
            core.events.push(AsyncEvent::DeviceFatal);
            tracing::error!(device = %core.nic, "the device failed; reopen it after its reset");
        }
        c::EVENT_PORT_ACTIVE | c::EVENT_PORT_ERROR | c::EVENT_GID_CHANGE | c::EVENT_LID_CHANGE => {
            // SAFETY: an event of this kind contains a port.
            let port = unsafe { event.element.port };
            if let Ok(port) = u8::try_from(port) {
                core.events.push(match event.kind {
                    c::EVENT_PORT_ACTIVE => AsyncEvent::PortActive(port),
                    c::EVENT_PORT_ERROR => AsyncEvent::PortDown(port),
                    _ => AsyncEvent::AddressesChanged(port),
                });
                if port == core.link.port().number {
                    look_again(core);
                }
            }
        }
        _ => {}
    }
    None
}
