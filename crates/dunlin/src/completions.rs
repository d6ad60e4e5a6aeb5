//! Calls for a loop over descriptors: futures of a client, and a descriptor that is readable when there is something to
//! do for them.
//!
//! This is an executor whose loop is the program's own: it polls the descriptor beside its others, and asks for answers
//! when it is readable. A call that is woken stands in a queue; who asks polls what stands there, once each, so that
//! asking never waits. The descriptor counts one as long as anything stands in either queue. The bindings for other
//! languages stand on it: `poll` in C, asyncio in Python.
//!
//! A process that was made by fork has the same descriptor, with the count that its parent sleeps by, and locks that
//! nobody gives back: it touches neither.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_verbs::process::Generation;
use rustix::event::{eventfd, EventfdFlags};

use crate::{CallError, CallFuture, Reply};

/// A call that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The caller's name for it.
    pub tag: u64,
    /// Its number, from [`Completions::start`].
    pub number: u64,
    /// What it has brought.
    pub result: Result<Reply, CallError>,
}

/// Calls that are out, and a descriptor that is readable (`poll`, `epoll`) when [`Completions::next`] has something to
/// do, which may be to look for an answer that is not there yet: call it until it says `None`, and then wait again,
/// level-triggered. In a process that was forked since there are none: the calls are the parent's.
#[derive(Debug)]
pub struct Completions {
    made_in: Generation,
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
                if !completions.is_here() {
                    return;
                }
                let mut state = completions.lock();
                state.woken.push_back(self);
                completions.signal(&mut state);
            }
        }
    }
}

impl Completions {
    /// For so many calls at most that are out or whose answer was not taken.
    ///
    /// # Errors
    /// When there is no descriptor.
    pub fn new(limit: usize) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            made_in: Generation::current(),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            limit,
            state: Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the running process made it, which no child of that one did.
    pub fn is_here(&self) -> bool {
        self.made_in.is_current()
    }

    /// Calls that are out, with those whose answer was not taken.
    pub fn outstanding(&self) -> usize {
        if !self.is_here() {
            return 0;
        }
        let state = self.lock();
        state.out.len() + state.ended.len()
    }

    /// Begins a call and says its number. It ends here with an error, or with an answer that [`Completions::next`]
    /// gives.
    ///
    /// # Errors
    /// When it could not be sent; [`CallError::Forked`] in a child.
    pub fn start(
        self: &Arc<Self>,
        tag: u64,
        begin: impl FnOnce() -> CallFuture,
    ) -> Result<u64, CallError> {
        if !self.is_here() {
            return Err(CallError::Forked);
        }
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
                Ok(number)
            }
            Poll::Ready(result) => {
                drop(place);
                let mut state = self.lock();
                state.out.remove(&number);
                let reply = result?;
                state.ended.push_back(Ended {
                    tag,
                    number,
                    result: Ok(reply),
                });
                self.signal(&mut state);
                Ok(number)
            }
        }
    }

    /// A call that has ended, if there is one now.
    pub fn next(&self) -> Option<Ended> {
        if !self.is_here() {
            return None;
        }
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
                number: call.number,
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

    /// Gives up one call: it does not come any more, unless its answer has come already and waits to be taken. The
    /// server may have executed it.
    pub fn cancel(&self, number: u64) {
        if !self.is_here() {
            return;
        }
        let call = self.lock().out.remove(&number);
        if let Some(call) = call {
            // A future that is dropped may wake another.
            let future = lock(&call.future).take();
            drop(future);
        }
    }

    /// Gives up all calls that are out, and throws answers away that were not taken.
    pub fn give_up(&self) {
        if !self.is_here() {
            return;
        }
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

impl AsFd for Completions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl AsRawFd for Completions {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

fn lock(future: &Mutex<Option<CallFuture>>) -> MutexGuard<'_, Option<CallFuture>> {
    future.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::{Duration, Instant};

    use super::Completions;
    use crate::{Client, Server};

    #[test]
    fn a_call_that_is_given_up_does_not_come() {
        let server = Server::bind("dunlin://127.0.0.1:0")
            .unwrap()
            .handle(1, |request, reply| reply.write(request.payload()))
            .handle_async(2, |_| pending())
            .serve()
            .unwrap();
        let client = Client::connect(&server.address().to_string()).unwrap();
        let completions = Completions::new(1).unwrap();
        let held = completions.start(7, || client.call_async(2, b"")).unwrap();
        assert!(
            completions.start(8, || unreachable!()).is_err(),
            "one is out"
        );
        completions.cancel(held);
        assert_eq!(completions.outstanding(), 0);
        let number = completions.start(9, || client.call_async(1, b"x")).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let ended = loop {
            if let Some(ended) = completions.next() {
                break ended;
            }
            assert!(Instant::now() < until, "the answer has not come");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!((ended.tag, ended.number), (9, number));
        assert_eq!(&*ended.result.unwrap(), b"x");
        assert!(completions.next().is_none());
    }
}
