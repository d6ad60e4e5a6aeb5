//! Notifications of a region: clients that have written it notify the server.
//!
//! A writer waits until its WRITE is complete and then calls the handler [`NOTIFY`], which finds the bytes written on
//! every device and preset. WRITE with immediate would save that message, but it has only 32 bits for everything, and
//! consumes a RECEIVE at the owner: the few that a connection keeps posted are for wake-ups, and a WRITE that found
//! none would end the connection. The answer to the call is what bounds the notifications that an owner has not taken.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin_bootstrap::Peer;
use dunlin_verbs::{thread, Access};

use super::handler::{Execution, HandlerError, Request};
use super::region::Region;
use crate::call::notify::Notice;
use crate::error::{FailureReason, WireFailure};

/// The longest that a waiting thread sleeps at a time, which bounds the cost of a lost wake-up.
const LOOK: Duration = Duration::from_millis(100);

/// A notification that a client has written into a region.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notification {
    /// Offset of the first byte written.
    pub offset: u64,
    /// Number of bytes written.
    pub length: u64,
    /// A value chosen by the writer.
    pub value: u32,
    /// The writer's identity, as far as its handshake established it.
    pub peer: Arc<Peer>,
}

/// The notifications of a region ([`Region::notified`]), in the order in which they arrived. Clones share one queue;
/// each notification is taken once.
#[derive(Clone)]
pub struct Notifications(Arc<Queue>);

struct Queue {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    events: VecDeque<Notification>,
    refused: u64,
    next_waiter: u64,
    waiters: Vec<(u64, Waker)>,
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifications")
            .field("most", &self.0.most)
            .finish_non_exhaustive()
    }
}

impl Notifications {
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Queue {
            most,
            state: Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        thread::lock(&self.0.state)
    }

    pub(super) fn most(&self) -> usize {
        self.0.most
    }

    /// Takes the next notification, if there is one.
    pub fn poll(&self) -> Option<Notification> {
        self.lock().events.pop_front()
    }

    /// Takes the next notification, waiting for it at most `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<Notification> {
        let until = thread::now().checked_add(timeout);
        let waiter = Waiter::new(self);
        loop {
            if let Some(event) = waiter.take(&thread::waker()) {
                return Some(event);
            }
            let left = until.map(|until| until.saturating_duration_since(thread::now()));
            match left {
                Some(Duration::ZERO) => return None,
                left => thread::park(left.map_or(LOOK, |left| left.min(LOOK))),
            }
        }
    }

    /// Takes the next notification, as a future for any executor. Dropping the future loses nothing.
    pub fn next(&self) -> NextNotification {
        NextNotification(Waiter::new(self))
    }

    /// Number of notifications refused so far for lack of room; their writers got an error.
    pub fn refused(&self) -> u64 {
        self.lock().refused
    }

    /// Adds a notification. Returns `false` if there is no room.
    fn put(&self, event: Notification) -> bool {
        let mut state = self.lock();
        if state.events.len() >= self.0.most {
            state.refused += 1;
            return false;
        }
        state.events.push_back(event);
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().for_each(|(_, waiter)| waiter.wake());
        true
    }
}

/// A waiting task's entry in the queue, removed when it is dropped.
#[derive(Debug)]
struct Waiter {
    queue: Notifications,
    number: u64,
}

impl Waiter {
    fn new(queue: &Notifications) -> Self {
        let mut state = queue.lock();
        let number = state.next_waiter;
        state.next_waiter += 1;
        drop(state);
        let queue = queue.clone();
        Self { queue, number }
    }

    /// Takes the next notification; otherwise `waker` is woken when there may be one.
    fn take(&self, waker: &Waker) -> Option<Notification> {
        let mut state = self.queue.lock();
        let event = state.events.pop_front();
        let mut former = None;
        if event.is_none() {
            let known = state.waiters.iter_mut().find(|(n, _)| *n == self.number);
            match known {
                Some((_, known)) if known.will_wake(waker) => {}
                Some((_, known)) => former = Some(std::mem::replace(known, waker.clone())),
                None => state.waiters.push((self.number, waker.clone())),
            }
        }
        drop(state);
        drop(former);
        event
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        let place = state.waiters.iter().position(|(n, _)| *n == self.number);
        let waker = place.map(|place| state.waiters.swap_remove(place));
        drop(state);
        drop(waker);
    }
}

/// Future of the next notification of a region. Made by [`Notifications::next`].
#[must_use = "no event is taken unless it is polled"]
#[derive(Debug)]
pub struct NextNotification(Waiter);

impl Future for NextNotification {
    type Output = Notification;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Notification> {
        match self.0.take(context.waker()) {
            Some(event) => Poll::Ready(event),
            None => Poll::Pending,
        }
    }
}

/// The built-in handler of [`crate::call::notify::NOTIFY`], for these regions.
pub(super) fn handler(regions: Vec<Region>) -> Execution {
    Execution::Inline(Arc::new(move |request, _| take(&regions, request)))
}

fn take(regions: &[Region], request: &Request<'_>) -> Result<(), HandlerError> {
    let notice = Notice::decode(request.payload());
    let notice =
        notice.ok_or_else(|| HandlerError::new(0, "not a notification of a supported version"))?;
    let unknown = |why: &str| {
        let failure = WireFailure::new(FailureReason::UnknownRegion, 0, why);
        HandlerError::from(failure)
    };
    let mut known = regions.iter();
    let region = known.find(|region| region.name().as_bytes() == notice.region);
    let region = region.ok_or_else(|| unknown("no such region"))?;
    let granted = request.caller.access(notice.region);
    let may_write = granted.is_none_or(|access| access.contains(Access::REMOTE_WRITE));
    if !may_write || !region.access().contains(Access::REMOTE_WRITE) {
        return Err(request.caller.refuse_notice(notice.region).into());
    }
    let events = region.notifications();
    let events = events.ok_or_else(|| unknown("its owner does not accept notifications for it"))?;
    let end = notice.offset.checked_add(notice.length);
    if end.is_none_or(|end| end > region.length() as u64) {
        let words = format!(
            "{} bytes at offset {} exceed the region of {} bytes",
            notice.length,
            notice.offset,
            region.length()
        );
        return Err(HandlerError::new(0, words));
    }
    let event = Notification {
        offset: notice.offset,
        length: notice.length,
        value: notice.value,
        peer: Arc::clone(request.peer()),
    };
    match events.put(event) {
        true => Ok(()),
        false => {
            let words = format!(
                "too many notifications: the owner of the region '{}' has {} pending, its limit",
                region.name(),
                events.most()
            );
            Err(WireFailure::new(FailureReason::Overloaded, 0, words).into())
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn event(value: u32) -> Notification {
        Notification {
            offset: 0,
            length: 8,
            value,
            peer: Arc::default(),
        }
    }

    #[test]
    fn events_are_bounded_and_come_in_order() {
        let events = Notifications::new(2);
        assert!(events.poll().is_none());
        assert!(events.put(event(1)) && events.put(event(2)) && !events.put(event(3)));
        assert_eq!(events.refused(), 1);
        assert_eq!(events.poll().map(|event| event.value), Some(1));
        assert!(events.put(event(4)));
        assert_eq!(events.wait(LOOK).map(|event| event.value), Some(2));
        assert_eq!(events.wait(LOOK).map(|event| event.value), Some(4));
        assert!(events.wait(Duration::from_millis(1)).is_none());
    }

    #[test]
    fn who_gives_up_leaves_nothing_behind_and_who_waits_is_woken() {
        let events = Notifications::new(2);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..10 {
            let mut next = events.next();
            assert!(Pin::new(&mut next).poll(&mut context).is_pending());
            assert!(Pin::new(&mut next).poll(&mut context).is_pending());
            assert_eq!(events.lock().waiters.len(), 1);
        }
        assert!(events.lock().waiters.is_empty());
        let waits = events.clone();
        let waiting = std::thread::spawn(move || waits.wait(Duration::from_secs(60)));
        while events.lock().waiters.is_empty() {
            std::thread::yield_now();
        }
        assert!(events.put(event(5)));
        assert_eq!(waiting.join().unwrap().map(|event| event.value), Some(5));
    }
}
