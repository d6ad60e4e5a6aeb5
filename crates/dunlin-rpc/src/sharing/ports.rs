//! The ports of a connection handle, and how answers reach them.
//!
//! The leader of a lane hands out what arrived on it: to its own calls directly, to others through the mailbox of their
//! port.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::calls::{port_of, slot_of, Calls, MOST_PORTS};
use super::port::{Port, CALL};
use crate::call::core::{no_such_call, two_answers};
use crate::call::lane::{Answer, CallId, Sink};
use crate::call::reply::Reply;
use crate::channel::ChannelError;
use crate::error::CallError;

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
        port.open();
        Some(Arc::clone(port))
    }

    /// Called when the owner has gone. The id is free again when nothing is outstanding.
    pub(crate) fn close(&self, port: &Port) {
        port.close();
        self.release(port);
    }

    pub(super) fn release(&self, port: &Port) {
        // Under the lock under which ids are given out: a thread that has seen a former owner go must not free the port
        // of a new one.
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if port.is_closed() && !port.has_calls_out() && port.release() {
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
            .filter(|port| !port.is_closed())
    }

    /// Called when the lane with this serial number is lost: ends the calls of ports that no longer have an owner.
    pub(crate) fn reap(&self, serial: u64) {
        for port in self.table.iter().map_while(OnceLock::get) {
            if port.is_closed() && port.serial.load(Ordering::Relaxed) == serial {
                port.end_all();
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
        match self.find(call, CALL)?.begin_fetch(slot_of(call)) {
            true => Ok(()),
            false => Err(two_answers()),
        }
    }

    /// Ends a call with a short response, by far the most frequent case, or an operation that the device has completed
    /// (`what`). Returns whether it belongs to another thread than `mine`.
    #[inline]
    pub(super) fn answer(
        &self,
        call: CallId,
        what: u64,
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
        if port.is_closed() {
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
                "mailbox full: the completion of a call is lost"
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
