//! Layers of tower's on both sides.

use std::future::{ready, Ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::common::probe_client::ProbeClient;
use crate::common::probe_server::{Probe, ProbeServer};
use crate::common::{until_async, Note, ProbeEcho, ProbeSleep};
use dunlin_service::layers::Call;
use dunlin_service::{Channel, Code, Request, Response, Server, Status};
use tower::retry::Policy;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

#[derive(Clone, Default)]
struct Tested {
    calls: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
}

struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[dunlin_service::async_trait]
impl Probe for Tested {
    async fn echo(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    /// Is not there for the first calls, as many as the number says.
    async fn fail(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) as u64;
        match call < request.get_ref().number {
            true => Err(Status::unavailable("not yet")),
            false => Ok(Response::new(Note {
                number: call,
                ..Note::default()
            })),
        }
    }

    async fn sleep(&self, _: Request<Note>) -> Result<Response<Note>, Status> {
        self.running.fetch_add(1, Ordering::SeqCst);
        let _guard = Guard(Arc::clone(&self.running));
        std::future::pending().await
    }

    async fn look(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        Ok(Response::new(Note::new(
            request.metadata().get("x-user").unwrap_or_default(),
        )))
    }
}

/// Lets those in who say a token, and says who they are.
fn authorize(mut call: Call) -> Result<Call, BoxError> {
    match call.metadata().get("x-token") {
        Some("open") => {
            let method = call
                .path()
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            call.metadata_mut()
                .insert("x-user", format!("ada at {method}"))
                .unwrap();
            Ok(call)
        }
        _ => Err(Status::unauthenticated("no token").into()),
    }
}

fn with_token(note: Note) -> Request<Note> {
    let mut request = Request::new(note);
    request.metadata_mut().insert("x-token", "open").unwrap();
    request
}

#[tokio::test]
async fn layers_at_the_server_see_every_call_and_may_refuse_it() {
    let tested = Tested::default();
    let running = Arc::clone(&tested.running);
    let layers = ServiceBuilder::new()
        .load_shed()
        .concurrency_limit(1)
        .filter(authorize);
    let server = Server::builder()
        .layer(layers)
        .add_service(ProbeServer::new(tested));
    let server = server.start("dunlin://127.0.0.1:0").unwrap();
    let client = ProbeClient::connect(server.address().to_string())
        .await
        .unwrap();
    let status = client.echo(Note::new("hi")).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unauthenticated, "no token")
    );
    let echoed = client.echo(with_token(Note::new("hi"))).await.unwrap();
    assert_eq!(echoed.into_inner(), Note::new("hi"));
    let looked = client.look(with_token(Note::new(""))).await.unwrap();
    assert_eq!(looked.get_ref().words, "ada at Look");
    // One at a time.
    let first = client.clone();
    let first = tokio::spawn(async move { first.sleep(with_token(Note::default())).await });
    until_async("the first sleeps", || running.load(Ordering::SeqCst) == 1).await;
    let shed = client.sleep(with_token(Note::default())).await.unwrap_err();
    assert_eq!(shed.code(), Code::ResourceExhausted, "{shed}");
    first.abort();
    until_async("its handler is dropped", || {
        running.load(Ordering::SeqCst) == 0
    })
    .await;
}

#[tokio::test]
async fn a_layer_that_ends_a_call_drops_its_handler() {
    let tested = Tested::default();
    let running = Arc::clone(&tested.running);
    let timeout = ServiceBuilder::new().timeout(Duration::from_millis(20));
    let server = Server::builder()
        .layer(timeout)
        .add_service(ProbeServer::new(tested));
    let server = server.start("dunlin://127.0.0.1:0").unwrap();
    let client = ProbeClient::connect(server.address().to_string())
        .await
        .unwrap();
    let late = client.sleep(Note::default()).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
    until_async("its handler is dropped", || {
        running.load(Ordering::SeqCst) == 0
    })
    .await;
}

/// Again, up to so many times, what may pass.
#[derive(Clone)]
struct Again(usize);

impl<R: Clone, T> Policy<R, T, Status> for Again {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut R, result: &mut Result<T, Status>) -> Option<Ready<()>> {
        let may_pass = matches!(result, Err(status) if status.code() == Code::Unavailable);
        let again = may_pass && self.0 > 0;
        self.0 -= usize::from(again);
        again.then(|| ready(()))
    }

    fn clone_request(&mut self, request: &R) -> Option<R> {
        Some(request.clone())
    }
}

#[tokio::test]
async fn layers_at_the_client_stand_before_each_method() {
    let server = Server::builder().add_service(ProbeServer::new(Tested::default()));
    let server = server.start("dunlin://127.0.0.1:0").unwrap();
    let channel = Channel::connect(&server.address().to_string())
        .await
        .unwrap();
    let mut failing = ServiceBuilder::new()
        .retry(Again(5))
        .service(channel.service::<crate::common::ProbeFail>());
    let request = Request::new(Note {
        number: 3,
        ..Note::default()
    });
    let response = failing.ready().await.unwrap().call(request).await.unwrap();
    assert_eq!(response.get_ref().number, 3, "the fourth call");
    let mut sleeping = ServiceBuilder::new()
        .timeout(Duration::from_millis(20))
        .service(channel.service::<ProbeSleep>());
    let late = sleeping
        .ready()
        .await
        .unwrap()
        .call(Request::new(Note::default()))
        .await;
    assert!(late.unwrap_err().is::<tower::timeout::error::Elapsed>());
    let echo = channel.service::<ProbeEcho>();
    let echoed = echo.oneshot(Request::new(Note::new("hi"))).await.unwrap();
    assert_eq!(echoed.into_inner(), Note::new("hi"));
}
