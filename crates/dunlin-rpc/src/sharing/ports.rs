//! Ports: what a connection handle knows of its threads, and how an answer finds its thread.
//!
//! A call's name is FLOCK's thread id and sequence id (§4.1): `port (16 bits) | slot (16 bits) | generation (32 bits)`. The port is the
//! thread's; slot and generation together never repeat within 2^32 uses of a slot, so a late answer is not taken for another call's.
//! Whoever leads a lane hands out what arrived on it: to its own calls at once, to others through their port's mailbox.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use dunlin_verbs::thread;

use super::statistics::Counts;
use crate::channel::ChannelError;
use crate::client::lane::{Answer, CallId, Sink};
use crate::client::reply::Reply;
use crate::config::REST;
use crate::error::CallError;

/// Threads, futures' lanes and pipelines that one handle serves at once.
pub(crate) const MOST_PORTS: usize = 4096;

/// The call is out.
const OUT: u64 = 1;
/// Its long response is being fetched.
const FETCHING: u64 = 2;
/// An entry of `exports` is its.
const EXPORTS: u64 = 4;

/// What came for a port: the call, and how it ended.
pub(crate) struct Delivered {
    pub(crate) call: CallId,
    pub(crate) result: Result<Reply, CallError>,
}

/// One thread's (or pipeline's) part that others see.
pub(crate) struct Port {
    pub(crate) id: u16,
    /// Generation and flags of each call.
    slots: Box<[AtomicU64]>,
    inbound: Sender<Delivered>,
    pub(crate) mailbox: Receiver<Delivered>,
    /// Long requests while the server may read them.
    exports: Mutex<Vec<(u16, Box<dyn Any + Send>)>>,
    /// The lane that the thread scheduler wants for it, and the serial number of the one that its calls are out on.
    pub(crate) assigned: AtomicUsize,
    /// The lane that it was given when it came.
    pub(crate) home: AtomicUsize,
    pub(crate) serial: AtomicU64,
    pub(crate) counts: Counts,
    /// Its owner has gone; calls may be out.
    closed: AtomicBool,
    /// It is in the list of free ports.
    released: AtomicBool,
    sleeping: AtomicBool,
    /// Something may be in the mailbox: a look costs less than at the mailbox itself.
    mail: AtomicBool,
    notified: Mutex<bool>,
    bell: Condvar,
    /// Its thread, when that is simulated: it sleeps in virtual time.
    simulated: Mutex<Option<Waker>>,
}

impl Port {
    fn new(id: u16, slots: usize) -> Self {
        // A place for each slot, and some for what may yet come for a former owner.
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
            bell: Condvar::new(),
            simulated: Mutex::new(None),
        }
    }

    /// Names a call in a slot that is free.
    #[inline]
    fn begin(&self, slot: u16) -> CallId {
        let word = &self.slots[usize::from(slot)];
        let generation = word.load(Ordering::Relaxed) >> 32;
        word.store(generation << 32 | OUT, Ordering::Relaxed);
        u64::from(self.id) << 48 | u64::from(slot) << 32 | generation
    }

    /// Keeps a long request until its answer.
    pub(crate) fn keep(&self, slot: u16, export: Box<dyn Any + Send>) {
        self.exports().push((slot, export));
        self.slots[usize::from(slot)].fetch_or(EXPORTS, Ordering::Relaxed);
    }

    fn exports(&self) -> MutexGuard<'_, Vec<(u16, Box<dyn Any + Send>)>> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the call in a slot. Its owner may do so only when nobody can answer it any more.
    #[inline]
    pub(crate) fn end(&self, slot: u16) {
        let word = &self.slots[usize::from(slot)];
        let was = word.load(Ordering::Relaxed);
        if was & EXPORTS != 0 {
            self.exports().retain(|(owner, _)| *owner != slot);
        }
        let generation = ((was >> 32) as u32).wrapping_add(1);
        word.store(u64::from(generation) << 32, Ordering::Release);
    }

    #[inline]
    fn is_out(&self, call: CallId) -> Option<u64> {
        let word = self.slots.get((call >> 32) as u16 as usize)?;
        let word = word.load(Ordering::Relaxed);
        (word >> 32 == call & 0xffff_ffff && word & OUT != 0).then_some(word)
    }

    fn has_calls_out(&self) -> bool {
        self.slots
            .iter()
            .any(|word| word.load(Ordering::Acquire) & OUT != 0)
    }

    /// Puts an end of a call into the mailbox, and wakes its thread.
    fn deliver(&self, call: CallId, result: Result<Reply, CallError>) {
        let _ = self.inbound.try_send(Delivered { call, result });
        self.mail.store(true, Ordering::Release);
        // The thread says that it sleeps and then looks; we deliver and then look whether it sleeps.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Whether the mailbox is to be emptied. The mark goes before the mail is taken, so later mail marks again.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.mail.load(Ordering::Relaxed) && self.mail.swap(false, Ordering::Acquire)
    }

    /// From now on a delivery wakes it.
    pub(crate) fn will_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Wakes the thread, or lets its next sleep be none.
    pub(crate) fn wake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
        *self.notified.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_all();
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

    /// From now on the calling simulated thread is woken in virtual time.
    fn is_of_simulated(&self) {
        let waker = thread::waker();
        let mut simulated = self.simulated();
        if !simulated.as_ref().is_some_and(|own| own.will_wake(&waker)) {
            *simulated = Some(waker);
        }
    }

    /// A simulated thread that has looked in vain rests until there is something to see.
    #[cold]
    pub(crate) fn rest(&self, yields: bool) {
        self.is_of_simulated();
        self.will_sleep();
        if !self.mail.load(Ordering::Relaxed) {
            thread::idle(REST, yields);
        }
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Sleeps until it is woken, for `timeout` at most.
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
            .bell
            .wait_timeout_while(notified, timeout, |notified| !*notified)
            .unwrap_or_else(PoisonError::into_inner);
        *notified = false;
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

/// The ports of a handle.
pub(crate) struct Ports {
    table: Box<[OnceLock<Arc<Port>>]>,
    /// Ids that were used before, and the first that was not.
    free: Mutex<(Vec<u16>, usize)>,
    slots: usize,
}

impl Ports {
    /// For ports with so many calls out each.
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            table: (0..MOST_PORTS).map(|_| OnceLock::new()).collect(),
            free: Mutex::new((Vec::new(), 0)),
            slots,
        }
    }

    /// A port for a newcomer; `None`: there are [`MOST_PORTS`].
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

    /// The owner has gone. The id is free again when nothing is out.
    pub(crate) fn close(&self, port: &Port) {
        port.closed.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.release(port);
    }

    fn release(&self, port: &Port) {
        if !port.has_calls_out() && !port.released.swap(true, Ordering::SeqCst) {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.0.push(port.id);
        }
    }

    /// All that are in use.
    pub(crate) fn living(&self) -> impl Iterator<Item = &Arc<Port>> {
        self.table
            .iter()
            .map_while(OnceLock::get)
            .filter(|port| !port.closed.load(Ordering::Relaxed))
    }

    /// The lane with this serial number is lost, and with it the calls of ports that have no owner any more.
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

    /// The port of an answer to a call that is out.
    ///
    /// # Errors
    /// When there is no such call.
    #[inline]
    fn find(&self, call: CallId) -> Result<(&Port, u64), ChannelError> {
        let port = self.table.get((call >> 48) as usize);
        port.and_then(OnceLock::get)
            .and_then(|port| Some((port.as_ref(), port.is_out(call)?)))
            .ok_or_else(no_such_call)
    }

    /// The long response of a call begins to be fetched.
    pub(crate) fn begin_fetch(&self, call: CallId) -> Result<(), ChannelError> {
        let (port, word) = self.find(call)?;
        if word & FETCHING != 0 {
            return Err(ChannelError::violation("two answers to one call"));
        }
        port.slots[(call >> 32) as u16 as usize].fetch_or(FETCHING, Ordering::Relaxed);
        Ok(())
    }

    /// A call has ended with a short response: by far the most frequent end. Says whether it was another's than `mine`.
    #[inline]
    pub(crate) fn answer(
        &self,
        call: CallId,
        response: &[u8],
        mine: &mut Option<Mine<'_>>,
    ) -> Result<bool, ChannelError> {
        if let Some(mine) = mine {
            if u64::from(mine.port.id) == call >> 48 {
                mine.port.is_out(call).ok_or_else(no_such_call)?;
                mine.port.end(slot_of(call));
                if let Some(tag) = mine.calls.finish(call) {
                    mine.sink.answer(tag, response);
                }
                return Ok(false);
            }
        }
        let (port, _) = self.find(call)?;
        port.end(slot_of(call));
        self.post(port, call, Ok(Answer::Short(response)));
        Ok(true)
    }

    /// A call has ended otherwise.
    pub(crate) fn complete(
        &self,
        call: CallId,
        result: Result<Answer<'_>, CallError>,
        mine: &mut Option<Mine<'_>>,
    ) -> Result<(), ChannelError> {
        let (port, _) = self.find(call)?;
        port.end(slot_of(call));
        match mine {
            Some(mine) if mine.port.id == port.id => {
                if let Some(tag) = mine.calls.finish(call) {
                    mine.sink.complete(tag, result);
                }
            }
            _ => self.post(port, call, result),
        }
        Ok(())
    }

    #[inline]
    fn post(&self, port: &Port, call: CallId, result: Result<Answer<'_>, CallError>) {
        // The owner closes and then looks for calls that are out; we ended the call and look whether it closed.
        std::sync::atomic::fence(Ordering::SeqCst);
        if port.closed.load(Ordering::SeqCst) {
            self.release(port);
        } else {
            port.deliver(call, result.map(Reply::new));
        }
    }
}

#[cold]
fn no_such_call() -> ChannelError {
    ChannelError::violation("an answer to no call of ours")
}

/// The thread that polls, when it has calls of its own.
pub(crate) struct Mine<'a> {
    pub(crate) port: &'a Port,
    pub(crate) calls: &'a mut Calls,
    pub(crate) sink: &'a mut dyn Sink,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Waiting,
    Abandoned,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    tag: u64,
    generation: u32,
    state: State,
}

/// The calls of a port as its owner sees them.
#[derive(Debug)]
pub(crate) struct Calls {
    slots: Box<[Slot]>,
    free: Vec<u16>,
    abandoned: usize,
}

/// The slot in a call's name.
#[inline]
pub(crate) fn slot_of(call: CallId) -> u16 {
    (call >> 32) as u16
}

impl Calls {
    pub(crate) fn new(most: usize) -> Self {
        let free = Slot {
            tag: 0,
            generation: 0,
            state: State::Free,
        };
        Self {
            slots: vec![free; most].into(),
            free: (0..most).rev().map(|slot| slot as u16).collect(),
            abandoned: 0,
        }
    }

    /// Names a call, unless as many as there may be are out.
    #[inline]
    pub(crate) fn begin(&mut self, tag: u64, port: &Port) -> Option<CallId> {
        let slot = self.free.pop()?;
        let call = port.begin(slot);
        self.slots[usize::from(slot)] = Slot {
            tag,
            generation: call as u32,
            state: State::Waiting,
        };
        Some(call)
    }

    /// Frees the slot and says whose call it was, unless nobody wants the answer, or it was a former owner's.
    #[inline]
    pub(crate) fn finish(&mut self, call: CallId) -> Option<u64> {
        let slot = slot_of(call);
        let Slot {
            tag,
            generation,
            state,
        } = *self.slots.get(usize::from(slot))?;
        if generation != call as u32 || state == State::Free {
            return None;
        }
        self.slots[usize::from(slot)].state = State::Free;
        self.free.push(slot);
        if state == State::Abandoned {
            self.abandoned -= 1;
        }
        (state == State::Waiting).then_some(tag)
    }

    /// Whether the call was waited for until now.
    pub(crate) fn abandon(&mut self, call: CallId) -> bool {
        let slot = self.slots.get_mut(usize::from(slot_of(call)));
        let waiting =
            slot.filter(|slot| slot.generation == call as u32 && slot.state == State::Waiting);
        let Some(slot) = waiting else {
            return false;
        };
        slot.state = State::Abandoned;
        self.abandoned += 1;
        true
    }

    /// Calls that are out; of their names, only the lower half (slot and generation) is said.
    pub(crate) fn out(&self) -> impl Iterator<Item = CallId> + '_ {
        let out = self.slots.iter().enumerate();
        out.filter(|(_, slot)| slot.state != State::Free)
            .map(|(index, slot)| (index as u64) << 32 | u64::from(slot.generation))
    }

    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether calls are out, and all of them are abandoned.
    pub(crate) fn only_abandoned(&self) -> bool {
        self.abandoned > 0 && self.abandoned == self.outstanding()
    }

    pub(crate) fn limit(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a port's owner was told.
    #[derive(Default)]
    struct Told(Vec<u64>);

    impl Sink for Told {
        fn complete(&mut self, tag: u64, _result: Result<Answer<'_>, CallError>) {
            self.0.push(tag);
        }
    }

    #[test]
    fn answers_to_no_call_are_violations() {
        let ports = Ports::new(4);
        let port = ports.open().unwrap();
        let mut calls = Calls::new(4);
        let call = calls.begin(1, &port).unwrap();
        for wrong in [
            call + 1,
            call + (1 << 32),
            call + (1 << 48),
            u64::MAX,
            call | 1 << 60,
        ] {
            assert!(ports
                .answer(wrong, b"", &mut None)
                .unwrap_err()
                .is_violation());
        }
        ports.begin_fetch(call).unwrap();
        assert!(ports.begin_fetch(call).is_err(), "one answer for each call");
        ports.answer(call, b"", &mut None).unwrap();
        assert!(ports.answer(call, b"", &mut None).is_err());
    }

    #[test]
    fn a_port_with_calls_out_is_not_given_to_another() {
        let ports = Ports::new(4);
        let port = ports.open().unwrap();
        let call = Calls::new(4).begin(1, &port).unwrap();
        ports.close(&port);
        let other = ports.open().unwrap();
        assert_ne!(other.id, port.id);
        ports.answer(call, b"late", &mut None).unwrap();
        assert_eq!(ports.open().unwrap().id, port.id);
        assert!(port.mailbox.try_recv().is_err());
    }

    proptest! {
        /// Any order of calls, answers by anybody, abandonment and changes of owner: each call that is waited for ends once, with its own
        /// answer.
        #[test]
        fn every_answer_finds_its_caller(steps in prop::collection::vec((0u8..6, 0usize..3, 0usize..8), 0..400)) {
            let ports = Ports::new(4);
            let mut owners: Vec<_> = (0..3).map(|_| (ports.open().unwrap(), Calls::new(4), Vec::<u64>::new())).collect();
            let mut out: Vec<(usize, CallId, u64)> = Vec::new();
            let mut next = 0;
            for (step, who, which) in steps {
                match step {
                    0 | 1 => {
                        let (port, calls, waiting) = &mut owners[who];
                        if let Some(call) = calls.begin(next, port) {
                            waiting.push(next);
                            out.push((who, call, next));
                        }
                        next += 1;
                    }
                    2 | 3 if !out.is_empty() => {
                        // Somebody leads, and may be the one whom it is for.
                        let (_, call, _) = out.swap_remove(which % out.len());
                        let (port, calls, waiting) = &mut owners[who];
                        let mut told = Told::default();
                        let mine = Mine { port, calls, sink: &mut told };
                        ports.answer(call, b"", &mut Some(mine)).unwrap();
                        for tag in told.0 {
                            let place = waiting.iter().position(|&t| t == tag);
                            prop_assert!(place.is_some());
                            waiting.swap_remove(place.unwrap());
                        }
                    }
                    4 => {
                        let (_, calls, waiting) = &mut owners[who];
                        if let Some(&(_, call, tag)) = out.iter().find(|o| o.0 == who && waiting.contains(&o.2)) {
                            prop_assert!(calls.abandon(call));
                            prop_assert!(!calls.abandon(call));
                            waiting.retain(|&t| t != tag);
                        }
                    }
                    5 => {
                        // The owner goes, its calls stay out; another comes.
                        let fresh = (ports.open().unwrap(), Calls::new(4), Vec::new());
                        let (port, _, _) = std::mem::replace(&mut owners[who], fresh);
                        ports.close(&port);
                        out.iter_mut().filter(|o| o.0 == who).for_each(|o| o.0 = usize::MAX);
                    }
                    _ => {}
                }
                for (port, calls, waiting) in &mut owners {
                    while let Ok(delivered) = port.mailbox.try_recv() {
                        if let Some(tag) = calls.finish(delivered.call) {
                            let place = waiting.iter().position(|&t| t == tag);
                            prop_assert!(place.is_some());
                            waiting.swap_remove(place.unwrap());
                        }
                    }
                }
            }
            for (who, (_, _, waiting)) in owners.iter().enumerate() {
                let mut expected: Vec<u64> =
                    out.iter().filter(|o| o.0 == who).map(|o| o.2).filter(|t| waiting.contains(t)).collect();
                expected.sort_unstable();
                let mut waiting = waiting.clone();
                waiting.sort_unstable();
                prop_assert_eq!(waiting, expected);
            }
        }
    }
}
