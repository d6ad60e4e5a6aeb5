//! The tasks of a server's streams: a handler of any of the three kinds, which runs while its client wants the stream.

use std::future::{poll_fn, Future};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use dunlin::{thread, Peer};
use futures_core::Stream;
use futures_util::stream;

use super::unary::{late, panicked, travelling};
use crate::context::Inherited;
use crate::method::Method;
use crate::observer::{Observed, Observer};
use crate::stream::mux::{Mux, Side};
use crate::stream::pump;
use crate::stream::session::Session;
use crate::tasks::Task;
use crate::{Code, MetadataMap, Request, Response, Status, Streaming};

/// A stream that was just opened.
pub(super) struct Begun {
    pub(super) session: Arc<Session>,
    pub(super) stream: u64,
    pub(super) metadata: MetadataMap,
    pub(super) deadline: Option<Instant>,
    pub(super) connection: u64,
    pub(super) peer: Arc<Peer>,
    pub(super) observer: Observer,
}

/// Creates the task of a stream, for one method.
pub(super) type Begin = Arc<dyn Fn(Begun) -> Task + Send + Sync>;

/// Ends a stream whose task is dropped before its end, even if the task never ran: its executor has ended, or accepts
/// no more tasks. Otherwise the client would wait forever.
struct EndWithTask {
    session: Arc<Session>,
    stream: u64,
}

impl Drop for EndWithTask {
    fn drop(&mut self) {
        // Nothing is sent for a stream that has already ended.
        let status = Status::unavailable("the runtime of the handler has shut down");
        self.session.with(|mux| mux.finish(self.stream, &status));
    }
}

impl Begun {
    fn is_late(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= thread::now())
    }
}

/// Runs a part of a stream's handler while the client wants the stream and its deadline has not passed. The thread that
/// checks the sessions ends a stream shortly after its deadline, which wakes this future.
async fn while_wanted<T>(
    begun: &Begun,
    inherited: Inherited,
    observed: &Observed,
    work: impl Future<Output = Result<T, Status>>,
) -> Option<Result<T, Status>> {
    let mut work = std::pin::pin!(work);
    poll_fn(|context| {
        let is_wanted = |mux: &mut Mux| mux.is_wanted(begun.stream, context.waker());
        if begun.is_late() || !begun.session.with(is_wanted) {
            return Poll::Ready(None);
        }
        let _entered = inherited.enter();
        let _current = observed.enter();
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(polled) => polled.map(Some),
            Err(_) => Poll::Ready(Some(Err(panicked()))),
        }
    })
    .await
}

/// A stream's task: `work` receives the request and sends all messages; the final status is sent here.
fn task<M: Method, F>(
    begun: Begun,
    work: impl FnOnce(Arc<Session>, u64, Request<Streaming<M::Request>>) -> F + Send + 'static,
) -> Task
where
    F: Future<Output = Result<(), Status>> + Send,
{
    let end = EndWithTask {
        session: Arc::clone(&begun.session),
        stream: begun.stream,
    };
    Box::pin(async move {
        let _end = end;
        let deadline = begun.deadline;
        let metadata = begun.metadata.clone();
        let mut inherited = Some(Inherited::of(&metadata, deadline));
        let mut observed = begun.observer.server(M::PATH, &metadata, &mut inherited);
        let inherited = inherited.unwrap_or_default();
        let session = Arc::clone(&begun.session);
        let streaming =
            Streaming::new::<M::Codec>(Arc::clone(&session), begun.stream, Side::Server);
        let mut request = Request::new(streaming);
        request.receive(begun.connection, &begun.peer);
        request.set_header(metadata, deadline);
        let work = work(session, begun.stream, request);
        let ended = while_wanted(&begun, inherited, &observed, work).await;
        let status = match ended {
            None if begun.is_late() => {
                observed.end(Some(&late()));
                // Has no effect if the client has given the stream up or it has already ended.
                return begun.session.with(|mux| mux.finish(begun.stream, &late()));
            }
            None => return,
            Some(Ok(())) => Status::ok(""),
            Some(Err(status)) => travelling(&status),
        };
        observed.end(Some(&status).filter(|status| status.code() != Code::Ok));
        pump::room(&begun.session, begun.stream).await;
        begun.session.with(|mux| mux.finish(begun.stream, &status));
    })
}

/// Returns the only message of a stream.
async fn only<M: Method>(
    request: Request<Streaming<M::Request>>,
) -> Result<Request<M::Request>, Status> {
    let mut message = None;
    let mut rest = None;
    let request = request.map(|streaming| rest = Some(streaming));
    if let Some(mut streaming) = rest {
        message = streaming.message().await?;
    }
    let message = message.ok_or_else(|| Status::invalid_argument("the request is missing"))?;
    Ok(request.map(|()| message))
}

/// Sends a response's head and all its messages.
async fn say<M: Method>(
    session: &Session,
    stream: u64,
    response: Response<impl Stream<Item = Result<M::Response, Status>>>,
) -> Result<(), Status> {
    // Longer metadata must not be sent: it would end all streams of the client.
    response.metadata().check_sendable()?;
    pump::room(session, stream).await;
    session.with(|mux| mux.send_head(stream, response.metadata()));
    let messages = response.into_inner();
    pump::pump::<M::Response, M::Codec>(session, stream, messages)
        .await
        .map(drop)
}

/// The task of a method with one request and a stream of responses.
pub(super) fn server_streaming<M: Method, F, S>(
    handler: impl Fn(Request<M::Request>) -> F + Send + Sync + 'static,
) -> Begin
where
    F: Future<Output = Result<Response<S>, Status>> + Send + 'static,
    S: Stream<Item = Result<M::Response, Status>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |begun| {
        let handler = Arc::clone(&handler);
        task::<M, _>(begun, move |session, stream, request| async move {
            let response = handler(only::<M>(request).await?).await?;
            say::<M>(&session, stream, response).await
        })
    })
}

/// The task of a method with a stream of requests and one response.
pub(super) fn client_streaming<M: Method, F>(
    handler: impl Fn(Request<Streaming<M::Request>>) -> F + Send + Sync + 'static,
) -> Begin
where
    F: Future<Output = Result<Response<M::Response>, Status>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |begun| {
        let handler = Arc::clone(&handler);
        task::<M, _>(begun, move |session, number, request| async move {
            let response = handler(request).await?;
            let response = response.map(|message| stream::iter([Ok(message)]));
            say::<M>(&session, number, response).await
        })
    })
}

/// The task of a method with a stream in each direction.
pub(super) fn bidirectional<M: Method, F, S>(
    handler: impl Fn(Request<Streaming<M::Request>>) -> F + Send + Sync + 'static,
) -> Begin
where
    F: Future<Output = Result<Response<S>, Status>> + Send + 'static,
    S: Stream<Item = Result<M::Response, Status>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |begun| {
        let handler = Arc::clone(&handler);
        task::<M, _>(begun, move |session, stream, request| async move {
            let response = handler(request).await?;
            say::<M>(&session, stream, response).await
        })
    })
}
