//! A port: what a connection handle knows of one of its threads. The thread's calls, as those see them that take their
//! answers; the mailbox for answers that others have taken; and the thread's sleep.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use dunlin_verbs::thread;

use super::calls::{generation_of, name, next_generation, slot_of};
use super::statistics::Counts;
use crate::call::lane::CallId;
use crate::call::reply::Reply;
use crate::channel::buffers::BytesMut;
use crate::config::REST;
use crate::error::CallError;

/// The call is outstanding.
const OUT: u64 = 1;
/// Its long response is being fetched.
const FETCHING: u64 = 2;
/// The call has an entry in `exports`.
const EXPORTS: u64 = 4;
/// The call is a one-sided operation.
const ONE_SIDED: u64 = 8;
/// What may be outstanding: a call, which a message of the server ends, or an operation, which the device ends.
pub(super) const CALL: u64 = OUT;
pub(super) const OPERATION: u64 = OUT | ONE_SIDED;

/// What is delivered to a port: the call, and how it ended.
pub(crate) struct Delivered {
    pub(crate) call: CallId,
    pub(crate) result: Result<Reply, CallError>,
}

/// The part of a thread (or pipeline) that other threads use.
pub(crate) struct Port {
    pub(crate) id: u16,
    /// Generation and flags of each call.
    slots: Box<[AtomicU64]>,
    inbound: Sender<Delivered>,
    pub(crate) mailbox: Receiver<Delivered>,
    /// Long requests, as long as the server may read them.
    exports: Mutex<Vec<(u16, Box<dyn BytesMut>)>>,
    /// The lane that the thread scheduler wants for it, and the serial number of the lane on which its calls are
    /// outstanding.
    pub(crate) assigned: AtomicUsize,
    /// The lane that it was given at the start.
    pub(crate) home: AtomicUsize,
    pub(crate) serial: AtomicU64,
    pub(crate) counts: Counts,
    /// Whether its owner has gone; calls may still be outstanding.
    closed: AtomicBool,
    /// Whether it is in the list of free ports.
    released: AtomicBool,
    sleeping: AtomicBool,
    /// Whether the mailbox may hold something: cheaper to check than the mailbox itself.
    mail: AtomicBool,
    notified: Mutex<bool>,
    event: Condvar,
    /// The waker of its thread, if simulated: it sleeps in virtual time.
    simulated: Mutex<Option<Waker>>,
}

impl Port {
    pub(super) fn new(id: u16, slots: usize) -> Self {
        // A place for each slot, and some for what may still come for a former owner.
        let (inbound, mailbox) = crossbeam_channel::bounded(slots + 64);
        Self {
            id,
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            inbound,
            mailbox,
            exports: Mutex::new(Vec::new()),
            assigned: AtomicUsize::new(0),
            home: AtomicUsize::new(0),
            serial: AtomicU64::new(0),
            counts: Counts::default(),
            closed: AtomicBool::new(false),
            released: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            mail: AtomicBool::new(false),
            notified: Mutex::new(false),
            event: Condvar::new(),
            simulated: Mutex::new(None),
        }
    }

    /// Names a call, or an operation, in a free slot.
    #[inline]
    pub(super) fn begin(&self, slot: u16, what: u64) -> CallId {
        let word = &self.slots[usize::from(slot)];
        let generation = word.load(Ordering::Relaxed) >> 32;
        word.store(generation << 32 | what, Ordering::Relaxed);
        name(self.id, slot, generation)
    }

    /// Called when it gets an owner.
    pub(super) fn open(&self) {
        while self.mailbox.try_recv().is_ok() {}
        self.sleeping.store(false, Ordering::Relaxed);
        self.released.store(false, Ordering::Relaxed);
        self.closed.store(false, Ordering::SeqCst);
    }

    /// Called when its owner has gone.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Called when it may get another owner. Returns whether this is the first time since the last one has gone.
    pub(super) fn release(&self) -> bool {
        !self.released.swap(true, Ordering::SeqCst)
    }

    /// Keeps a long request until its answer.
    pub(crate) fn keep(&self, slot: u16, export: Box<dyn BytesMut>) {
        self.exports().push((slot, export));
        self.slots[usize::from(slot)].fetch_or(EXPORTS, Ordering::Relaxed);
    }

    /// Takes what was kept for a slot.
    pub(crate) fn take_kept(&self, slot: u16) -> Option<Box<dyn BytesMut>> {
        let mut exports = self.exports();
        let place = exports.iter().position(|(owner, _)| *owner == slot)?;
        self.slots[usize::from(slot)].fetch_and(!EXPORTS, Ordering::Relaxed);
        Some(exports.swap_remove(place).1)
    }

    fn exports(&self) -> MutexGuard<'_, Vec<(u16, Box<dyn BytesMut>)>> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the call in a slot. Its owner may do so only when no other thread can answer it any more.
    #[inline]
    pub(crate) fn end(&self, slot: u16) {
        let word = &self.slots[usize::from(slot)];
        let was = word.load(Ordering::Relaxed);
        if was & EXPORTS != 0 {
            self.exports().retain(|(owner, _)| *owner != slot);
        }
        word.store(next_generation(was >> 32) << 32, Ordering::Release);
    }

    /// Ends all calls, as [`Port::end`].
    pub(super) fn end_all(&self) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].load(Ordering::Relaxed) & OUT != 0 {
                self.end(slot as u16);
            }
        }
    }

    /// Records that the long response of the call in a slot is being fetched; returns whether it was not before.
    pub(super) fn begin_fetch(&self, slot: u16) -> bool {
        let word = &self.slots[usize::from(slot)];
        word.fetch_or(FETCHING, Ordering::Relaxed) & FETCHING == 0
    }

    /// Whether the call or operation with this name has not ended.
    pub(super) fn is_out(&self, call: CallId) -> bool {
        self.is_out_as(call, CALL) || self.is_out_as(call, OPERATION)
    }

    /// Whether a call, or an operation, with this name is outstanding.
    #[inline]
    pub(super) fn is_out_as(&self, call: CallId, what: u64) -> bool {
        let word = self.slots.get(usize::from(slot_of(call)));
        let word = word.map_or(0, |word| word.load(Ordering::Relaxed));
        word >> 32 == generation_of(call) && word & OPERATION == what
    }

    pub(super) fn has_calls_out(&self) -> bool {
        self.slots
            .iter()
            .any(|word| word.load(Ordering::Acquire) & OUT != 0)
    }

    /// Puts the end of a call into the mailbox, and wakes its thread. Returns `false` if the mailbox, which has a place
    /// for each call that may be outstanding, is full; the caller will then wait until its deadline.
    #[must_use]
    pub(super) fn deliver(&self, call: CallId, result: Result<Reply, CallError>) -> bool {
        let delivered = self.inbound.try_send(Delivered { call, result }).is_ok();
        self.mail.store(true, Ordering::Release);
        // The thread announces its sleep and then checks the mailbox; we deliver and then check whether it sleeps.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            self.wake();
        }
        delivered
    }

    /// Whether the mailbox is to be emptied. The mark is cleared before the mail is taken, so later mail sets it again.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.mail.load(Ordering::Relaxed) && self.mail.swap(false, Ordering::Acquire)
    }

    /// Announces sleep: from now on a delivery wakes the thread.
    pub(crate) fn will_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Wakes the thread, or makes its next sleep return at once.
    pub(crate) fn wake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
        *self.notified.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.event.notify_all();
        let simulated = self.simulated();
        if let Some(thread) = &*simulated {
            thread.wake_by_ref();
        }
    }

    fn simulated(&self) -> MutexGuard<'_, Option<Waker>> {
        self.simulated
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the calling simulated thread, to be woken in virtual time.
    fn is_of_simulated(&self) {
        let waker = thread::waker();
        let mut simulated = self.simulated();
        if !simulated.as_ref().is_some_and(|own| own.will_wake(&waker)) {
            *simulated = Some(waker);
        }
    }

    /// Lets a simulated thread that has polled in vain rest until something arrives.
    #[cold]
    pub(crate) fn rest(&self, yields: bool) {
        self.is_of_simulated();
        self.will_sleep();
        if !self.mail.load(Ordering::Relaxed) {
            thread::idle(REST, yields);
        }
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Sleeps until woken, for at most `timeout`.
    pub(crate) fn sleep(&self, timeout: Duration) {
        if thread::is_simulated() {
            self.is_of_simulated();
            if !std::mem::take(&mut *self.notified.lock().unwrap_or_else(PoisonError::into_inner)) {
                thread::park(timeout);
            }
            self.sleeping.store(false, Ordering::Relaxed);
            return;
        }
        let notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut notified, _) = self
            .event
            .wait_timeout_while(notified, timeout, |notified| !*notified)
            .unwrap_or_else(PoisonError::into_inner);
        *notified = false;
        self.sleeping.store(false, Ordering::Relaxed);
    }
}
