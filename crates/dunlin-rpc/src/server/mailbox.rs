//! What reaches a polling thread from other threads: new clients, what workers have done, and that the server ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dunlin_verbs::{Aborter, CompletionChannel};

use super::dispatch::Finished;

/// What comes.
pub(super) enum Mail<N> {
    /// A client was accepted.
    Adopt(Box<N>),
    Finished(Finished),
}

/// The outside of a polling thread. `N` is a client that was accepted; `W` is what the thread sleeps on.
pub(super) struct Mailbox<N, W> {
    mail: Mutex<Vec<Mail<N>>>,
    has_mail: AtomicBool,
    /// Clients that it has or will have.
    pub(super) connections: AtomicUsize,
    /// Set when the server drains, and when it must end at once.
    draining: AtomicBool,
    ending: AtomicBool,
    /// What ends the queue pairs that the thread has, should it never come back from a handler: by connection.
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

    /// A thread that is told to end takes no more: what comes is dropped, and a client's queue pair with it. The caller
    /// of a request whose end comes then hears that its connection is lost, not that nobody will answer.
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

    /// Whether there is any.
    #[inline]
    pub(super) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire)
    }

    /// All of it.
    #[cold]
    pub(super) fn take(&self) -> Vec<Mail<N>> {
        self.has_mail.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.mail())
    }

    /// Whether there are clients, or some are under way.
    #[inline]
    pub(super) fn has_clients(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > 0
    }

    /// The thread has, or will have, a queue pair that this ends.
    pub(super) fn owns(&self, connection: u64, aborter: Option<Aborter>) {
        let mut aborters = self.aborters.lock().unwrap_or_else(PoisonError::into_inner);
        match aborter {
            Some(aborter) => aborters.insert(connection, aborter),
            None => aborters.remove(&connection),
        };
    }

    /// A client is gone, and nothing of it is left.
    pub(super) fn left(&self, connection: u64) {
        self.owns(connection, None);
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// The thread is stuck in a handler: ends its queue pairs under it, so that its clients hear of it. All that it has
    /// stays as it is until it comes back.
    #[cold]
    pub(super) fn abandon(&self) {
        // Clients that it has not even looked at: their queue pairs end with them.
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

    /// No more calls are to be taken.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.wake.wake();
    }

    #[inline]
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// The thread is to end at once. What it has not taken by then it will not: clients that were accepted meanwhile
    /// would keep their queue pairs for as long as anybody could have them accepted.
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
