//! Code shared by software devices: the completion queue within a process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::completion::{Completion, CompletionChannel, Notify};

const NOT_ARMED: u32 = 0;
const ARMED_NEXT: u32 = 1;
const ARMED_SOLICITED: u32 = 2;

/// Entries of a send queue that are freed when a completion is polled.
#[derive(Debug)]
pub struct Retirement {
    /// Total number of the queue's entries freed so far.
    pub retired: Arc<AtomicU32>,
    /// Its value once this completion has been polled.
    pub until: u32,
}

#[derive(Debug)]
struct Entry {
    completion: Completion,
    retirement: Option<Retirement>,
}

/// The contents of a completion queue, and the channel that is notified of new entries.
#[derive(Debug)]
pub struct Completions<C> {
    entries: Mutex<VecDeque<Entry>>,
    waiting: AtomicUsize,
    capacity: usize,
    overrun: AtomicBool,
    armed: AtomicU32,
    channel: Option<C>,
}

impl<C: CompletionChannel> Completions<C> {
    /// Creates a queue for `capacity` completions, at least one, which raises events on `channel`.
    pub fn new(capacity: usize, channel: Option<C>) -> Self {
        Self {
            entries: Mutex::new(VecDeque::new()),
            waiting: AtomicUsize::new(0),
            capacity: capacity.max(1),
            overrun: AtomicBool::new(false),
            armed: AtomicU32::new(NOT_ARMED),
            channel,
        }
    }

    /// Number of completions that it holds at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether it can raise events.
    pub fn has_channel(&self) -> bool {
        self.channel.is_some()
    }

    /// Whether a poll would find nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        // The contents are consistent between any two statements, so a panic elsewhere does no harm.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether more completions arrived than fit. Its queue pairs are then in the error state.
    #[inline]
    pub fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Relaxed)
    }

    /// Adds a completion, and wakes a thread that waits for one of this kind. If the queue is full, the completion is
    /// lost and the queue has overrun.
    pub fn push(&self, completion: Completion, solicited: bool, retirement: Option<Retirement>) {
        let mut entries = self.lock();
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

    /// Requests one event.
    pub fn arm(&self, notify: Notify) {
        let armed = match notify {
            Notify::Next => ARMED_NEXT,
            Notify::Solicited => ARMED_SOLICITED,
        };
        self.armed.store(armed, Ordering::SeqCst);
    }

    /// Takes as many completions as there are and fit, and frees the entries of their send queues.
    #[inline]
    pub fn take(&self, completions: &mut [Completion]) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut entries = self.lock();
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

    /// Discards the completions of a queue pair.
    pub fn forget(&self, queue_pair: u32) {
        let mut entries = self.lock();
        entries.retain(|entry| entry.completion.queue_pair != queue_pair);
        self.waiting.store(entries.len(), Ordering::Release);
    }
}
