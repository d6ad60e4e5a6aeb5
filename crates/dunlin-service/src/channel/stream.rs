//! Streaming calls.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use dunlin::thread;
use futures_core::Stream;
use futures_util::future::FutureExt;
use futures_util::stream::StreamExt;

use super::call::outgoing_header;
use super::callee::{ByType, Callee};
use super::{Channel, Routes};
use crate::codec::{Codec, Encode};
use crate::directory::features;
use crate::method::Method;
use crate::stream::driver::Driver;
use crate::stream::feed;
use crate::stream::frame::{Open, FIRST_CREDIT};
use crate::stream::mux::Side;
use crate::stream::pump;
use crate::stream::session::Session;
use crate::tasks::{Task, Tasks};
use crate::{Code, MetadataMap, Request, Response, Status, Streaming};

/// Returns a session number that is unique and cannot be guessed. On simulated hosts, whose runs are reproducible,
/// sessions are numbered in order.
fn new_session_id() -> Result<u128, Status> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if thread::is_simulated() {
        return Ok(NEXT.fetch_add(1, Ordering::Relaxed).into());
    }
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| Status::unavailable(error.to_string()))?;
    Ok(u128::from_le_bytes(id))
}

fn panicked() -> Status {
    Status::internal("the stream of requests panicked")
}

impl Channel {
    /// The session of this channel's streams, which is created with the first of them, and whether it was created just
    /// now.
    fn session(&self) -> Result<(Arc<Session>, bool), Status> {
        let mut place = self
            .0
            .session
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = place.as_ref().filter(|session| !session.is_over()) {
            return Ok((Arc::clone(session), false));
        }
        let id = new_session_id()?;
        let session = Arc::new(Session::client());
        let driver = Driver::new(Arc::clone(&session), self.client().clone(), id);
        self.tasks().spawn(Box::pin(driver));
        *place = Some(Arc::clone(&session));
        Ok((session, true))
    }

    /// Opens a stream; `pump` creates the task that sends the user's messages.
    async fn open<T, A: Default, C: Codec<A>>(
        &self,
        callee: &impl Callee,
        request: &mut Request<T>,
        pump: impl FnOnce(&Arc<Session>, u64) -> Option<Task>,
    ) -> Result<Streaming<A>, Status> {
        let mut observed = self.1.client(callee.path(), request);
        match self.begin::<T, A, C>(callee, request, pump).await {
            Ok(streaming) => Ok(streaming.observed(observed)),
            Err(status) => {
                observed.end(Some(&status));
                Err(status)
            }
        }
    }

    async fn begin<T, A: Default, C: Codec<A>>(
        &self,
        callee: &impl Callee,
        request: &mut Request<T>,
        pump: impl FnOnce(&Arc<Session>, u64) -> Option<Task>,
    ) -> Result<Streaming<A>, Status> {
        if self.known().directory.features & features::STREAMS == 0 {
            return Err(Status::unimplemented("the server does not support streams"));
        }
        let (mut header, until) = outgoing_header(request)?;
        let method = match callee.number() {
            Some(number) => number,
            None => {
                let left = || until.map(|until| until.saturating_duration_since(thread::now()));
                let method = self.find(callee, false, left()).await?;
                if let (Some(left), Some(header)) = (left(), &mut header) {
                    header.timeout = Some(left);
                }
                method
            }
        };
        let mut bytes = Vec::new();
        if let Some(header) = &header {
            header.encode(&mut bytes);
        }
        let window = self.0.window.load(Ordering::Relaxed);
        let open = Open {
            method,
            check: callee.check(),
            credit: window,
            header: &bytes,
        };
        let body = open.encode();
        let mut pump = Some(pump);
        loop {
            let (session, has_begun) = self.session()?;
            let begin = |id| pump.take().and_then(|pump| pump(&session, id));
            if let Some(id) = session.open(&body, (FIRST_CREDIT, window), until, begin) {
                return Ok(Streaming::new::<C>(session, id, Side::Client));
            }
            // A session that already existed may have ended meanwhile: retry with a new one. A new one that ends
            // immediately has no driver, and neither would the next.
            if has_begun {
                return Err(Status::unavailable(
                    "the driver of the channel's streams cannot run: its runtime has shut down",
                ));
            }
        }
    }

    /// Waits for the head of the server's answer.
    async fn head<A: Default>(
        &self,
        callee: &impl Callee,
        streaming: &mut Streaming<A>,
    ) -> Result<MetadataMap, Status> {
        let head = poll_fn(|context| streaming.poll_head(context)).await;
        if matches!(&head, Err(status) if status.code() == Code::Unimplemented) {
            // The number may belong to another method by now.
            callee.learn(None);
            self.forget();
        }
        head
    }

    /// A call with one request and a stream of responses.
    ///
    /// # Errors
    /// The status with which the call ended before its first message; a later one is returned by the stream.
    pub async fn server_streaming<M: Method>(
        &self,
        routes: &Routes,
        mut request: Request<M::Request>,
    ) -> Result<Response<Streaming<M::Response>>, Status> {
        let callee = ByType::<M>::new(routes);
        let opened = self.open::<_, _, M::Codec>(&callee, &mut request, |_, _| None);
        let mut streaming = opened.await?;
        streaming.say::<M::Request, M::Codec>(request.get_ref())?;
        let metadata = self.head(&callee, &mut streaming).await?;
        Ok(Response::with_metadata(streaming, metadata))
    }

    /// A call with a stream of requests and one response.
    ///
    /// # Errors
    /// The status with which the call ended.
    pub async fn client_streaming<M: Method, S>(
        &self,
        routes: &Routes,
        request: Request<S>,
    ) -> Result<Response<M::Response>, Status>
    where
        S: Stream<Item = M::Request> + Send + 'static,
    {
        let mut response = self.bidirectional::<M, S>(routes, request).await?;
        let streaming = response.get_mut();
        let message = streaming.message().await?;
        let message = message
            .ok_or_else(|| Status::internal("the server ended the call without a response"))?;
        if streaming.message().await?.is_some() {
            return Err(Status::internal("the server sent more than one response"));
        }
        Ok(response.map(|_| message))
    }

    /// A call with a stream in each direction.
    ///
    /// # Errors
    /// As for [`Channel::server_streaming`].
    pub async fn bidirectional<M: Method, S>(
        &self,
        routes: &Routes,
        request: Request<S>,
    ) -> Result<Response<Streaming<M::Response>>, Status>
    where
        S: Stream<Item = M::Request> + Send + 'static,
    {
        self.open_both::<_, _, M::Codec>(&ByType::<M>::new(routes), request)
            .await
    }

    /// Turns an iterator into a stream, for the streaming calls of a blocking client.
    #[doc(hidden)]
    pub fn feed<I>(
        &self,
        messages: I,
    ) -> Result<impl Stream<Item = I::Item> + Send + 'static, Status>
    where
        I: Iterator + Send + 'static,
        I::Item: Send + 'static,
    {
        let threads = self.tasks().threads();
        feed::feed(&threads, messages).map_err(|error| {
            Status::unavailable(format!(
                "cannot start a thread that sends the messages: {error}"
            ))
        })
    }

    fn tasks(&self) -> Tasks {
        let tasks = self.0.tasks.lock();
        tasks.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends the messages of a stream, encoded by `C`, and returns the stream of responses.
    pub(super) async fn open_both<S, A: Default, C>(
        &self,
        callee: &impl Callee,
        request: Request<S>,
    ) -> Result<Response<Streaming<A>>, Status>
    where
        S: Stream + Send + 'static,
        C: Encode<S::Item> + Codec<A>,
    {
        let mut place = None;
        let mut bare = request.map(|stream| place = Some(stream));
        let opened = self.open::<_, A, C>(callee, &mut bare, |session, id| {
            let session = Arc::clone(session);
            let stream = place?;
            Some(Box::pin(async move {
                let source = stream.map(Ok);
                // The driver runs this for all streams of the channel, so a panic is caught here.
                let pumped = AssertUnwindSafe(pump::pump::<S::Item, C>(&session, id, source));
                let pumped = pumped.catch_unwind().await;
                match pumped.unwrap_or_else(|_| Err(panicked())) {
                    Ok(true) => session.with(|mux| mux.half_close(id)),
                    Ok(false) => {}
                    Err(status) => session.with(|mux| mux.end_locally(id, status)),
                }
            }))
        });
        let mut streaming = opened.await?;
        let metadata = self.head(callee, &mut streaming).await?;
        Ok(Response::with_metadata(streaming, metadata))
    }
}
