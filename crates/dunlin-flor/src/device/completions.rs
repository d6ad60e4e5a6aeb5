//! Completion queues of logical queue pairs, and who is woken by what comes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dunlin_verbs::{
    Completion, CompletionChannel, CompletionQueue, CompletionQueueError, Device, Notify,
    VerbsError,
};

use super::core::Handle;
use super::sync::lock;

const NOT_ARMED: u32 = 0;
const ARMED_NEXT: u32 = 1;
const ARMED_SOLICITED: u32 = 2;

/// Entries of a send queue that come back when a completion is polled.
#[derive(Debug)]
pub(crate) struct Retirement {
    /// How many of the queue's entries have ever come back.
    pub(crate) retired: Arc<AtomicU32>,
    /// How many have when this completion is polled.
    pub(crate) until: u32,
}

#[derive(Debug)]
struct Entry {
    completion: Completion,
    retirement: Option<Retirement>,
}

/// What a completion queue holds.
#[derive(Debug)]
pub(crate) struct Completions<C> {
    entries: Mutex<VecDeque<Entry>>,
    waiting: AtomicUsize,
    capacity: usize,
    overrun: AtomicBool,
    armed: AtomicU32,
    channel: Option<C>,
}

impl<C: CompletionChannel> Completions<C> {
    pub(crate) fn new(capacity: usize, channel: Option<C>) -> Self {
        Self {
            entries: Mutex::new(VecDeque::new()),
            waiting: AtomicUsize::new(0),
            capacity: capacity.max(1),
            overrun: AtomicBool::new(false),
            armed: AtomicU32::new(NOT_ARMED),
            channel,
        }
    }

    /// Whether more came than fits. Its queue pairs are in error then.
    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Relaxed)
    }

    /// Adds a completion, and wakes who waits for such a one. Without room it is lost, and the queue overrun.
    pub(crate) fn push(
        &self,
        completion: Completion,
        solicited: bool,
        retirement: Option<Retirement>,
    ) {
        let mut entries = lock(&self.entries);
        if entries.len() >= self.capacity {
            self.overrun.store(true, Ordering::Relaxed);
        } else {
            entries.push_back(Entry {
                completion,
                retirement,
            });
            self.waiting.store(entries.len(), Ordering::SeqCst);
        }
        drop(entries);
        let wakes = solicited || !completion.is_success() || self.is_overrun();
        let armed = self.armed.load(Ordering::SeqCst);
        if armed == ARMED_NEXT || armed == ARMED_SOLICITED && wakes {
            self.wake();
        }
    }

    fn wake(&self) {
        if self.armed.swap(NOT_ARMED, Ordering::SeqCst) != NOT_ARMED {
            if let Some(channel) = &self.channel {
                channel.wake();
            }
        }
    }

    fn take(&self, completions: &mut [Completion]) -> usize {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut entries = lock(&self.entries);
        let count = completions.len().min(entries.len());
        for (place, entry) in completions.iter_mut().zip(entries.drain(..count)) {
            *place = entry.completion;
            if let Some(retirement) = entry.retirement {
                let Retirement { retired, until } = retirement;
                retired.store(until, Ordering::Release);
            }
        }
        self.waiting.store(entries.len(), Ordering::Release);
        count
    }

    /// Forgets what a queue pair has completed.
    pub(crate) fn forget(&self, queue_pair: u32) {
        let mut entries = lock(&self.entries);
        entries.retain(|entry| entry.completion.queue_pair != queue_pair);
        self.waiting.store(entries.len(), Ordering::Release);
    }
}

/// A completion queue of a [`FlorDevice`](super::FlorDevice): polling an empty one has the device work.
#[derive(Debug)]
pub struct FlorCompletionQueue<D: Device> {
    completions: Arc<Completions<D::CompletionChannel>>,
    device: Arc<Handle<D>>,
}

impl<D: Device> FlorCompletionQueue<D> {
    pub(crate) fn new(
        device: &Arc<Handle<D>>,
        completions: Completions<D::CompletionChannel>,
    ) -> Self {
        Self {
            completions: Arc::new(completions),
            device: Arc::clone(device),
        }
    }

    pub(crate) fn completions(&self) -> &Arc<Completions<D::CompletionChannel>> {
        &self.completions
    }
}

impl<D: Device> CompletionQueue for FlorCompletionQueue<D> {
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, CompletionQueueError> {
        let core = self.device.core();
        core.made_in.check()?;
        if self.completions.waiting.load(Ordering::Acquire) == 0 {
            core.poll();
        }
        if self.completions.is_overrun() {
            let limit = self.completions.capacity;
            return Err(CompletionQueueError::Overrun { limit });
        }
        Ok(self.completions.take(completions))
    }

    fn request_notify(&mut self, notify: Notify) -> Result<(), VerbsError> {
        let core = self.device.core();
        core.made_in.check()?;
        if self.completions.channel.is_none() {
            return Err(VerbsError::Invalid {
                argument: "notify",
                why: "the completion queue has no channel".to_owned(),
            });
        }
        let armed = match notify {
            Notify::Next => ARMED_NEXT,
            Notify::Solicited => ARMED_SOLICITED,
        };
        self.completions.armed.store(armed, Ordering::SeqCst);
        // Who polled is about to sleep: the device's thread looks for it.
        core.attend();
        Ok(())
    }
}
