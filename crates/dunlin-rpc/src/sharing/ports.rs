//! Ports: what a connection handle knows of its threads, and how answers reach them.
//!
//! The leader of a lane hands out what arrived on it: to its own calls directly, to others through the mailbox of their
//! port.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use dunlin_verbs::thread;

use super::calls::{generation_of, name, next_generation, port_of, slot_of, Calls, MOST_PORTS};
use super::statistics::Counts;
use crate::call::core::{no_such_call, two_answers};
use crate::call::lane::{Answer, CallId, Sink};
use crate::call::reply::Reply;
use crate::channel::buffers::BytesMut;
use crate::channel::ChannelError;
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
    fn new(id: u16, slots: usize) -> Self {
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

    /// Whether the call or operation with this name has not ended.
    pub(super) fn is_out(&self, call: CallId) -> bool {
        self.is_out_as(call, CALL) || self.is_out_as(call, OPERATION)
    }

    /// Whether a call, or an operation, with this name is outstanding.
    #[inline]
    fn is_out_as(&self, call: CallId, what: u64) -> bool {
        let word = self.slots.get(usize::from(slot_of(call)));
        let word = word.map_or(0, |word| word.load(Ordering::Relaxed));
        word >> 32 == generation_of(call) && word & OPERATION == what
    }

    fn has_calls_out(&self) -> bool {
        self.slots
            .iter()
            .any(|word| word.load(Ordering::Acquire) & OUT != 0)
    }

    /// Puts the end of a call into the mailbox, and wakes its thread. Returns `false` if the mailbox, which has a place
    /// for each call that may be outstanding, is full; the caller will then wait until its deadline.
    #[must_use]
    fn deliver(&self, call: CallId, result: Result<Reply, CallError>) -> bool {
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

/// The ports of a handle.
pub(crate) struct Ports {
    table: Box<[OnceLock<Arc<Port>>]>,
    /// Free ids that were used before, and the first that never was.
    free: Mutex<(Vec<u16>, usize)>,
    slots: usize,
    undelivered: AtomicU64,
}

impl Ports {
    /// Makes the table, for ports with this many outstanding calls each.
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            table: (0..MOST_PORTS).map(|_| OnceLock::new()).collect(),
            free: Mutex::new((Vec::new(), 0)),
            slots,
            undelivered: AtomicU64::new(0),
        }
    }

    /// Returns a port for a new thread; `None` if there are [`MOST_PORTS`] already.
    pub(crate) fn open(&self) -> Option<Arc<Port>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let id = match free.0.pop() {
            Some(id) => usize::from(id),
            None if free.1 < MOST_PORTS => {
                free.1 += 1;
                free.1 - 1
            }
            None => return None,
        };
        let port = self.table[id].get_or_init(|| Arc::new(Port::new(id as u16, self.slots)));
        while port.mailbox.try_recv().is_ok() {}
        port.sleeping.store(false, Ordering::Relaxed);
        port.released.store(false, Ordering::Relaxed);
        port.closed.store(false, Ordering::SeqCst);
        Some(Arc::clone(port))
    }

    /// Called when the owner has gone. The id is free again when nothing is outstanding.
    pub(crate) fn close(&self, port: &Port) {
        port.closed.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.release(port);
    }

    pub(super) fn release(&self, port: &Port) {
        // Under the lock under which ids are given out: a thread that has seen a former owner go must not free the port
        // of a new one.
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = port.closed.load(Ordering::SeqCst) && !port.has_calls_out();
        if is_free && !port.released.swap(true, Ordering::SeqCst) {
            free.0.push(port.id);
        }
    }

    /// Whether any thread waits for a call on the lane with this serial number.
    pub(super) fn are_awaited(&self, serial: u64) -> bool {
        let mut ports = self.living();
        ports.any(|port| port.serial.load(Ordering::Relaxed) == serial && port.has_calls_out())
    }

    /// All ports that are in use.
    pub(crate) fn living(&self) -> impl Iterator<Item = &Arc<Port>> {
        self.table
            .iter()
            .map_while(OnceLock::get)
            .filter(|port| !port.closed.load(Ordering::Relaxed))
    }

    /// Called when the lane with this serial number is lost: ends the calls of ports that no longer have an owner.
    pub(crate) fn reap(&self, serial: u64) {
        for port in self.table.iter().map_while(OnceLock::get) {
            let closed = port.closed.load(Ordering::SeqCst);
            if closed && port.serial.load(Ordering::Relaxed) == serial {
                for slot in 0..port.slots.len() {
                    if port.slots[slot].load(Ordering::Relaxed) & OUT != 0 {
                        port.end(slot as u16);
                    }
                }
                self.release(port);
            }
        }
    }

    /// Finds the port of the outstanding call or operation with this name.
    ///
    /// # Errors
    /// If there is no such call or operation.
    #[inline]
    fn find(&self, call: CallId, what: u64) -> Result<&Port, ChannelError> {
        let port = self.port_of(call);
        port.filter(|port| port.is_out_as(call, what))
            .ok_or_else(no_such_call)
    }

    #[inline]
    fn port_of(&self, call: CallId) -> Option<&Port> {
        let port = self.table.get(port_of(call))?.get()?;
        Some(port.as_ref())
    }

    /// Checks that a call is outstanding that a message ends by something other than a short response.
    pub(super) fn expect_answer(&self, call: CallId) -> Result<(), ChannelError> {
        self.find(call, CALL).map(drop)
    }

    /// Records that the long response of a call is being fetched.
    pub(crate) fn begin_fetch(&self, call: CallId) -> Result<(), ChannelError> {
        let port = self.find(call, CALL)?;
        let word = &port.slots[usize::from(slot_of(call))];
        match word.fetch_or(FETCHING, Ordering::Relaxed) & FETCHING {
            0 => Ok(()),
            _ => Err(two_answers()),
        }
    }

    /// Ends a call with a short response, by far the most frequent case. Returns whether it belongs to another thread
    /// than `mine`.
    #[inline]
    pub(crate) fn answer(
        &self,
        call: CallId,
        response: &[u8],
        mine: &mut Option<Mine<'_>>,
    ) -> Result<bool, ChannelError> {
        self.end_as(CALL, call, response, mine)
    }

    /// The same for an operation that the device has completed.
    pub(super) fn operated(
        &self,
        call: CallId,
        result: &[u8],
        mine: &mut Option<Mine<'_>>,
    ) -> Result<bool, ChannelError> {
        self.end_as(OPERATION, call, result, mine)
    }

    #[inline]
    fn end_as(
        &self,
        what: u64,
        call: CallId,
        response: &[u8],
        mine: &mut Option<Mine<'_>>,
    ) -> Result<bool, ChannelError> {
        if let Some(Mine::Thread { port, calls, sink }) = mine {
            if usize::from(port.id) == port_of(call) {
                if !port.is_out_as(call, what) {
                    return Err(no_such_call());
                }
                port.end(slot_of(call));
                if let Some(tag) = calls.finish(call) {
                    sink.answer(tag, response);
                }
                return Ok(false);
            }
        }
        let port = self.find(call, what)?;
        port.end(slot_of(call));
        Ok(self.post_or_hold(port, call, Ok(Answer::Short(response)), mine))
    }

    /// Ends a call in another way.
    pub(crate) fn complete(
        &self,
        call: CallId,
        result: Result<Answer<'_>, CallError>,
        mine: &mut Option<Mine<'_>>,
    ) -> Result<(), ChannelError> {
        let port = self.port_of(call).filter(|port| port.is_out(call));
        let port = port.ok_or_else(no_such_call)?;
        port.end(slot_of(call));
        match mine {
            Some(Mine::Thread {
                port: own,
                calls,
                sink,
            }) if own.id == port.id => {
                if let Some(tag) = calls.finish(call) {
                    sink.complete(tag, result);
                }
            }
            _ => {
                self.post_or_hold(port, call, result, mine);
            }
        }
        Ok(())
    }

    /// Hands out the end of another thread's call, or leaves it with the dispatcher until that no longer leads; returns
    /// whether it was handed out.
    #[inline]
    fn post_or_hold(
        &self,
        port: &Port,
        call: CallId,
        result: Result<Answer<'_>, CallError>,
        mine: &mut Option<Mine<'_>>,
    ) -> bool {
        let result = result.map(Reply::new);
        if let Some(Mine::Dispatcher(held)) = mine {
            held.push((call, result));
            return false;
        }
        self.post(port, call, result);
        true
    }

    /// Hands out what the dispatcher took while it led a lane.
    pub(crate) fn hand_out(&self, (call, result): Held) {
        if let Some(port) = self.port_of(call) {
            self.post(port, call, result);
        }
    }

    #[inline]
    fn post(&self, port: &Port, call: CallId, result: Result<Reply, CallError>) {
        // The owner closes and then checks for outstanding calls; we have ended the call and check whether the port was
        // closed.
        std::sync::atomic::fence(Ordering::SeqCst);
        if port.closed.load(Ordering::SeqCst) {
            self.release(port);
        } else if !port.deliver(call, result) {
            self.lose(port, call);
        }
    }

    /// Reports an end of a call that found no place, which cannot happen if the bound of the mailbox is right.
    #[cold]
    fn lose(&self, port: &Port, call: CallId) {
        let before = self.undelivered.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            tracing::error!(
                port = port.id,
                call,
                "a mailbox was full: a call's end is lost"
            );
        }
    }

    /// Number of ends of calls that found no place in a mailbox since the start.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn undelivered(&self) -> u64 {
        self.undelivered.load(Ordering::Relaxed)
    }
}

/// The end of a call that is still to be handed out.
pub(crate) type Held = (CallId, Result<Reply, CallError>);

/// Who polls, and what happens to what arrives.
pub(crate) enum Mine<'a> {
    /// A thread with calls of its own: their answers are given to it directly.
    Thread {
        port: &'a Port,
        calls: &'a mut Calls,
        sink: &'a mut dyn Sink,
    },
    /// The dispatcher: it hands answers out when it no longer leads, so that threads that have got theirs may send
    /// (FLOCK §4.3 keeps it apart from senders).
    Dispatcher(&'a mut Vec<Held>),
}
