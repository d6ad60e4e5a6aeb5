//! Connecting as a future: the handshake asks the system for names and waits for sockets, so a thread of its own does
//! it, and no thread of an executor waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{Client, ClientBuilder};
use crate::error::ConnectError;

/// A client, when it is connected; works under any executor. It takes as long as [`ClientBuilder::connect_timeout`]
/// says, at most. Dropping it gives the connection up. Made by [`ClientBuilder::connect_async`].
#[must_use = "the connection is given up when the future is dropped"]
pub struct ConnectFuture(Arc<Mutex<Connecting>>);

#[derive(Default)]
struct Connecting {
    ended: Option<Result<Client, ConnectError>>,
    over: bool,
    waker: Option<Waker>,
}

impl std::fmt::Debug for ConnectFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectFuture").finish_non_exhaustive()
    }
}

/// What the thread says, also if it panics.
struct Notifier(Arc<Mutex<Connecting>>);

impl Notifier {
    fn tell(&self, result: Result<Client, ConnectError>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

impl Drop for Notifier {
    fn drop(&mut self) {
        let words = "the thread that connects has panicked";
        self.tell(Err(ConnectError::Thread(std::io::Error::other(words))));
    }
}

impl ConnectFuture {
    pub(super) fn start(builder: ClientBuilder, address: &str) -> Self {
        let state = Arc::<Mutex<Connecting>>::default();
        let teller = Notifier(Arc::clone(&state));
        let address = address.to_owned();
        let thread = std::thread::Builder::new().name("dunlin-connect".into());
        let spawned = thread.spawn(move || teller.tell(builder.connect_apart(&address)));
        if let Err(error) = spawned {
            let mut place = state.lock().unwrap_or_else(PoisonError::into_inner);
            place.ended = Some(Err(ConnectError::Thread(error)));
            drop(place);
        }
        Self(state)
    }
}

impl Future for ConnectFuture {
    type Output = Result<Client, ConnectError>;

    /// # Panics
    /// When polled after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker().clone();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = state.ended.take() {
            state.over = true;
            return Poll::Ready(result);
        }
        assert!(!state.over, "a connection was polled after it was made");
        let former = state.waker.replace(waker);
        drop(state);
        drop(former);
        Poll::Pending
    }
}

impl Drop for ConnectFuture {
    fn drop(&mut self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.over = true;
        let (ended, waker) = (state.ended.take(), state.waker.take());
        drop(state);
        drop((ended, waker));
    }
}
