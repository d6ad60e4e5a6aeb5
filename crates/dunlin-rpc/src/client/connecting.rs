//! Connecting as a future: the handshake looks up names and waits for sockets, so it runs on a separate thread.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::thread_future::ThreadFuture;
use super::{Client, ClientBuilder};
use crate::error::ConnectError;

/// A future of a connected client; works under any executor. It takes at most [`ClientBuilder::connect_timeout`].
/// Dropping it cancels the connection. Made by [`ClientBuilder::connect_async`].
#[must_use = "the connection attempt is cancelled when the future is dropped"]
#[derive(Debug)]
pub struct ConnectFuture(ThreadFuture<Result<Client, ConnectError>>);

impl ConnectFuture {
    pub(super) fn start(builder: ClientBuilder, address: &str) -> Self {
        let failed = |error| Err(ConnectError::Thread(error));
        let address = address.to_owned();
        let run = move || builder.connect_apart(&address);
        Self(ThreadFuture::start("dunlin-connect", failed, run))
    }
}

impl Future for ConnectFuture {
    type Output = Result<Client, ConnectError>;

    /// # Panics
    /// When polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}
