//! Messages to a polling thread from other threads: new clients, finished calls of workers, and the end of the server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin_verbs::{Aborter, CompletionChannel};

use super::dispatch::Finished;

/// A message to a polling thread.
pub(super) enum Mail<N> {
    /// A client was accepted.
    Adopt(Box<N>),
    Finished(Finished),
}

/// The part of a polling thread that other threads use. `N` is an accepted client; `W` is what the thread sleeps on.
pub(super) struct Mailbox<N, W> {
    mail: Mutex<Vec<Mail<N>>>,
    has_mail: AtomicBool,
    /// Number of clients that it has or will have.
    pub(super) connections: AtomicUsize,
    /// Set when the server drains, and when it must end at once.
    draining: AtomicBool,
    ending: AtomicBool,
    /// What ends the thread's queue pairs, by connection, if the thread never returns from a handler.
    aborters: Mutex<HashMap<u64, Aborter>>,
    wake: W,
}

impl<N, W: CompletionChannel> Mailbox<N, W> {
    pub(super) fn new(wake: W) -> Self {
        Self {
            mail: Mutex::new(Vec::new()),
            has_mail: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            aborters: Mutex::default(),
            wake,
        }
    }

    fn mail(&self) -> MutexGuard<'_, Vec<Mail<N>>> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message. A thread that was told to end takes no more: the message is dropped, and with it an accepted
    /// client's queue pair. The caller of a call that finishes then gets the error that its connection is lost, not
    /// that it was left unanswered.
    pub(super) fn send(&self, mail: Mail<N>) {
        let mut held = self.mail();
        if self.is_ending() {
            drop(held);
            return drop(mail);
        }
        held.push(mail);
        drop(held);
        self.has_mail.store(true, Ordering::Release);
        self.wake.wake();
    }

    /// Whether there are messages.
    #[inline]
    pub(super) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire)
    }

    /// Takes all messages.
    #[cold]
    pub(super) fn take(&self) -> Vec<Mail<N>> {
        self.has_mail.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.mail())
    }

    /// Whether there are clients, adopted or on their way.
    #[inline]
    pub(super) fn has_clients(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > 0
    }

    /// Registers what ends a queue pair that the thread has or will have.
    pub(super) fn owns(&self, connection: u64, aborter: Option<Aborter>) {
        let mut aborters = self.aborters.lock().unwrap_or_else(PoisonError::into_inner);
        match aborter {
            Some(aborter) => aborters.insert(connection, aborter),
            None => aborters.remove(&connection),
        };
    }

    /// Called when a client is gone and all of its resources are released.
    pub(super) fn left(&self, connection: u64) {
        self.owns(connection, None);
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Called when the thread is stuck in a handler: ends its queue pairs, so that its clients notice. Everything else
    /// that the thread holds stays until it returns.
    #[cold]
    pub(super) fn abandon(&self) {
        // Clients that it has not adopted yet: their queue pairs end with them.
        drop(self.take());
        let mut held = self.aborters.lock().unwrap_or_else(PoisonError::into_inner);
        let aborters = std::mem::take(&mut *held);
        drop(held);
        for abort in aborters.into_values() {
            abort();
        }
    }

    /// What the thread sleeps on.
    pub(super) fn wake(&self) -> &W {
        &self.wake
    }

    /// Tells the thread to take no more calls.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.wake.wake();
    }

    #[inline]
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Tells the thread to end at once. Messages that it has not taken by then are dropped: otherwise clients accepted
    /// meanwhile would keep their queue pairs as long as the acceptor exists.
    pub(super) fn end(&self) {
        let mut held = self.mail();
        self.ending.store(true, Ordering::Release);
        let left = std::mem::take(&mut *held);
        drop(held);
        self.wake.wake();
        drop(left);
    }

    #[inline]
    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use dunlin_shm::{ShmConfig, ShmDevice};
    use dunlin_verbs::Device;

    use super::*;

    #[test]
    fn a_thread_that_is_told_to_end_keeps_no_client() {
        let device = ShmDevice::open(ShmConfig::default()).expect("a device");
        let wake = device.create_completion_channel().expect("a channel");
        let mailbox = Mailbox::new(wake);
        let client = Arc::new(());
        let adopt = || Mail::Adopt(Box::new(Arc::clone(&client)));
        mailbox.send(adopt());
        assert_eq!(Arc::strong_count(&client), 2, "it waits to be taken in");
        mailbox.end();
        assert_eq!(Arc::strong_count(&client), 1, "nobody takes it in");
        mailbox.send(adopt());
        assert_eq!(Arc::strong_count(&client), 1, "it came too late");
        assert!(mailbox.take().is_empty());
    }
}
