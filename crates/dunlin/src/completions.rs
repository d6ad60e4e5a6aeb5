//! Calls for event loops over file descriptors: a client's futures, and a descriptor that is readable when there is
//! work to do for them.
//!
//! This is an executor whose loop belongs to the program: it polls the descriptor beside its others, and asks for
//! completed calls when it is readable. A call that is woken is put into a queue; asking polls the calls in the queue,
//! once each, so it never blocks. The descriptor's counter is one as long as either queue is not empty. The bindings
//! for other languages are built on this: `poll` in C, asyncio in Python.
//!
//! A process created by fork shares the descriptor, whose counter its parent sleeps on, and has copies of locks that
//! nobody will release: it touches neither.

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
    /// The caller's tag.
    pub tag: u64,
    /// Its number, from [`Completions::start`].
    pub number: u64,
    /// Its result.
    pub result: Result<Reply, CallError>,
}

/// Outstanding calls, and a descriptor that is readable (`poll`, `epoll`) when [`Completions::next`] has something to
/// do, which may be to poll for an answer that has not arrived yet: call it until it returns `None`, and then wait
/// again, level-triggered. In a process forked since its creation there are none: the calls belong to the parent.
#[derive(Debug)]
pub struct Completions {
    made_in: Generation,
    event: OwnedFd,
    /// Maximum number of calls that are outstanding or whose answer was not taken.
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Outstanding calls by number.
    out: HashMap<u64, Arc<Call>>,
    next: u64,
    woken: VecDeque<Arc<Call>>,
    ended: VecDeque<Ended>,
    /// Whether the descriptor is readable.
    signalled: bool,
}

/// An outstanding call.
#[derive(Debug)]
struct Call {
    number: u64,
    tag: u64,
    /// Whether it is in the queue of woken calls.
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
    /// Creates an executor for at most this many calls that are outstanding or whose answer was not taken.
    ///
    /// # Errors
    /// When the descriptor cannot be created.
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

    /// Whether the current process created it; false in a forked child.
    pub fn is_here(&self) -> bool {
        self.made_in.is_current()
    }

    /// Number of calls that are outstanding or whose answer was not taken.
    pub fn outstanding(&self) -> usize {
        if !self.is_here() {
            return 0;
        }
        let state = self.lock();
        state.out.len() + state.ended.len()
    }

    /// Begins a call and returns its number. The call ends here with an error, or with an answer returned by
    /// [`Completions::next`].
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
            // It is polled below anyway, even if it is woken now.
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

    /// Returns a call that has ended, if there is one now.
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

    /// Polls a call that was woken.
    fn look(&self, call: &Arc<Call>) {
        // From here on it can be woken again, and is then polled again.
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

    /// Makes the descriptor readable. A write to an eventfd whose counter is zero cannot fail.
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

    /// Cancels a call: it is not returned any more, unless its answer has already arrived and waits to be taken. The
    /// server may have executed it.
    pub fn cancel(&self, number: u64) {
        if !self.is_here() {
            return;
        }
        let call = self.lock().out.remove(&number);
        if let Some(call) = call {
            // Dropping a future may wake another.
            let future = lock(&call.future).take();
            drop(future);
        }
    }

    /// Cancels all outstanding calls, and discards answers that were not taken.
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
        // Dropping a future may wake another.
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
