//! The result of a separate thread as a future: for name lookups and waiting for sockets, so that no thread of an
//! executor blocks.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// The result of a thread's work; works under any executor. If it is dropped, the thread continues and its result is
/// discarded.
#[must_use = "the result of the thread is dropped with the future"]
pub struct ThreadFuture<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    ended: Option<T>,
    over: bool,
    waker: Option<Waker>,
}

impl<T> std::fmt::Debug for ThreadFuture<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadFuture").finish_non_exhaustive()
    }
}

/// Reports the thread's result, also if it panics.
struct Notifier<T> {
    state: Arc<Mutex<State<T>>>,
    failed: fn(io::Error) -> T,
}

impl<T> Notifier<T> {
    fn tell(&self, result: T) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let late = match state.ended.is_some() || state.over {
            true => Some(result),
            false => {
                state.ended = Some(result);
                None
            }
        };
        let waker = state.waker.take();
        drop(state);
        drop(late);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Notifier<T> {
    fn drop(&mut self) {
        let words = "the thread that does it panicked";
        self.tell((self.failed)(io::Error::other(words)));
    }
}

impl<T: Send + 'static> ThreadFuture<T> {
    /// Starts a thread with this name. `failed` is the result if no thread can be started, or it panics.
    pub fn start(
        name: &str,
        failed: fn(io::Error) -> T,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Self {
        let thread = std::thread::Builder::new().name(name.to_owned());
        Self::start_by(|run| thread.spawn(run).map(drop), failed, run)
    }

    /// As [`ThreadFuture::start`], on a thread that `spawn` starts: a simulated one, perhaps.
    pub(super) fn start_by(
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>,
        failed: fn(io::Error) -> T,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Self {
        let state = Arc::new(Mutex::new(State {
            ended: None,
            over: false,
            waker: None,
        }));
        let notifier = Notifier {
            state: Arc::clone(&state),
            failed,
        };
        if let Err(error) = spawn(Box::new(move || notifier.tell(run()))) {
            let mut place = state.lock().unwrap_or_else(PoisonError::into_inner);
            let former = place.ended.replace(failed(error));
            drop(place);
            drop(former);
        }
        Self(state)
    }
}

impl<T> ThreadFuture<T> {
    /// Whether there is a result.
    pub(super) fn is_ready(&self) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.ended.is_some()
    }
}

impl<T> Future for ThreadFuture<T> {
    type Output = T;

    /// # Panics
    /// When polled after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let waker = context.waker().clone();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = state.ended.take() {
            state.over = true;
            return Poll::Ready(result);
        }
        assert!(!state.over, "a future was polled after completion");
        let former = state.waker.replace(waker);
        drop(state);
        drop(former);
        Poll::Pending
    }
}

impl<T> Drop for ThreadFuture<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.over = true;
        let (ended, waker) = (state.ended.take(), state.waker.take());
        drop(state);
        drop((ended, waker));
    }
}
