//! What completion queues hold: completions of finished work, and who is to be woken by them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dunlin_verbs::{Completion, CompletionChannel, Notify};

use crate::channel::RoceCompletionChannel;
use crate::sync::lock;

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

/// See the module.
#[derive(Debug)]
pub(crate) struct Completions {
    entries: Mutex<VecDeque<Entry>>,
    waiting: AtomicUsize,
    capacity: usize,
    overrun: AtomicBool,
    armed: AtomicU32,
    channel: Option<RoceCompletionChannel>,
}

impl Completions {
    pub(crate) fn new(capacity: usize, channel: Option<RoceCompletionChannel>) -> Self {
        Self {
            entries: Mutex::new(VecDeque::new()),
            waiting: AtomicUsize::new(0),
            capacity: capacity.max(1),
            overrun: AtomicBool::new(false),
            armed: AtomicU32::new(NOT_ARMED),
            channel,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn has_channel(&self) -> bool {
        self.channel.is_some()
    }

    /// Whether more came than fits. Its queue pairs are in error then.
    #[inline]
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

    /// Asks for one event.
    pub(crate) fn arm(&self, notify: Notify) {
        let armed = match notify {
            Notify::Next => ARMED_NEXT,
            Notify::Solicited => ARMED_SOLICITED,
        };
        self.armed.store(armed, Ordering::SeqCst);
    }

    /// Takes as many as there are and fit, and gives their senders' entries back.
    #[inline]
    pub(crate) fn take(&self, completions: &mut [Completion]) -> usize {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut entries = lock(&self.entries);
        let count = completions.len().min(entries.len());
        for (place, entry) in completions.iter_mut().zip(entries.drain(..count)) {
            *place = entry.completion;
            if let Some(retirement) = entry.retirement {
                retirement
                    .retired
                    .store(retirement.until, Ordering::Release);
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
