//! Asynchronous calls: futures of the client, and a descriptor that is readable when there is something to do for them.
//!
//! This is an executor whose loop is the C program's own: it polls the descriptor beside its others, and asks for
//! answers when it is readable. A call that is woken stands in a queue; who asks polls what stands there, once each, so
//! that asking never waits. The descriptor counts one as long as anything stands in either queue.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use dunlin::{CallError, CallFuture, Reply};
use rustix::event::{eventfd, EventfdFlags};

/// A call that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The caller's name for it.
    pub(crate) tag: u64,
    pub(crate) result: Result<Reply, CallError>,
}

/// All asynchronous calls of one client.
#[derive(Debug)]
pub(crate) struct Completions {
    event: OwnedFd,
    /// Calls that are out or whose answer was not taken, at most.
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Calls that are out, by number.
    out: HashMap<u64, Arc<Call>>,
    next: u64,
    woken: VecDeque<Arc<Call>>,
    ended: VecDeque<Ended>,
    /// Whether the descriptor is readable.
    signalled: bool,
}

/// A call that is out.
#[derive(Debug)]
struct Call {
    number: u64,
    tag: u64,
    /// It stands in the queue of those that were woken.
    queued: AtomicBool,
    future: Mutex<Option<CallFuture>>,
    completions: Weak<Completions>,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            if let Some(completions) = self.completions.upgrade() {
                let mut state = completions.lock();
                state.woken.push_back(self);
                completions.signal(&mut state);
            }
        }
    }
}

impl Completions {
    /// # Errors
    /// When there is no descriptor.
    pub(crate) fn new(limit: usize) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            limit,
            state: Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Calls that are out, with those whose answer was not taken.
    pub(crate) fn outstanding(&self) -> usize {
        let state = self.lock();
        state.out.len() + state.ended.len()
    }

    /// Begins a call. It ends here with an error, or with an answer that [`Completions::next`] gives.
    ///
    /// # Errors
    /// When it could not be sent.
    pub(crate) fn start(
        self: &Arc<Self>,
        tag: u64,
        begin: impl FnOnce() -> CallFuture,
    ) -> Result<(), CallError> {
        let mut state = self.lock();
        if state.out.len() + state.ended.len() >= self.limit {
            return Err(CallError::TooManyOutstanding { limit: self.limit });
        }
        let number = state.next;
        state.next += 1;
        let call = Arc::new(Call {
            number,
            tag,
            // Whoever wakes it now finds it looked at anyway.
            queued: AtomicBool::new(true),
            future: Mutex::new(None),
            completions: Arc::downgrade(self),
        });
        state.out.insert(number, Arc::clone(&call));
        drop(state);
        let mut future = begin();
        call.queued.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(&call));
        let mut place = lock(&call.future);
        match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => {
                *place = Some(future);
                Ok(())
            }
            Poll::Ready(result) => {
                drop(place);
                let mut state = self.lock();
                state.out.remove(&number);
                let reply = result?;
                state.ended.push_back(Ended {
                    tag,
                    result: Ok(reply),
                });
                self.signal(&mut state);
                Ok(())
            }
        }
    }

    /// A call that has ended, if there is one now.
    pub(crate) fn next(&self) -> Option<Ended> {
        let mut left = self.lock().woken.len();
        loop {
            let mut state = self.lock();
            if let Some(ended) = state.ended.pop_front() {
                self.settle(&mut state);
                return Some(ended);
            }
            let call = match left {
                0 => None,
                _ => state.woken.pop_front(),
            };
            let Some(call) = call else {
                self.settle(&mut state);
                return None;
            };
            drop(state);
            left -= 1;
            self.look(&call);
        }
    }

    /// Looks for the answer of a call that was woken.
    fn look(&self, call: &Arc<Call>) {
        // From here on it can be woken again, and then it is looked at again.
        call.queued.store(false, Ordering::Release);
        let mut future = lock(&call.future);
        let waker = Waker::from(Arc::clone(call));
        let Some(asked) = future.as_mut() else {
            return;
        };
        if let Poll::Ready(result) = Pin::new(asked).poll(&mut Context::from_waker(&waker)) {
            *future = None;
            drop(future);
            let mut state = self.lock();
            state.out.remove(&call.number);
            state.ended.push_back(Ended {
                tag: call.tag,
                result,
            });
            self.signal(&mut state);
        }
    }

    /// Makes the descriptor readable. A write to an event that counts nothing cannot fail.
    fn signal(&self, state: &mut State) {
        if !state.signalled {
            state.signalled = rustix::io::write(&self.event, &1u64.to_ne_bytes()).is_ok();
        }
    }

    /// Makes the descriptor unreadable when there is nothing to do.
    fn settle(&self, state: &mut State) {
        if state.signalled && state.woken.is_empty() && state.ended.is_empty() {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
            state.signalled = false;
        }
    }

    /// Gives up all calls that are out.
    pub(crate) fn give_up(&self) {
        let mut state = self.lock();
        let State {
            out, woken, ended, ..
        } = &mut *state;
        let given_up = (
            std::mem::take(out),
            std::mem::take(woken),
            std::mem::take(ended),
        );
        // A future that is dropped may wake another.
        drop(state);
        for call in given_up.0.values() {
            let future = lock(&call.future).take();
            drop(future);
        }
    }
}

fn lock(future: &Mutex<Option<CallFuture>>) -> MutexGuard<'_, Option<CallFuture>> {
    future.lock().unwrap_or_else(PoisonError::into_inner)
}
