//! Rights to methods by their names: unary methods and streams, and who handlers see.

use std::pin::Pin;

use dunlin::{Client, Grant, Rights, Secret, ServeError, Who};
use dunlin_service::{Channel, Code, Request, Response, Server, Status, Streaming};
use futures_util::stream::{self, BoxStream, Stream, StreamExt};

use crate::common::flow_client::FlowClient;
use crate::common::flow_server::{Flow, FlowServer};
use crate::common::probe_client::ProbeClient;
use crate::common::probe_server::{Probe, ProbeServer};
use crate::common::Note;

struct Both;

#[dunlin_service::async_trait]
impl Probe for Both {
    async fn echo(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn fail(&self, _: Request<Note>) -> Result<Response<Note>, Status> {
        Err(Status::internal("it was run"))
    }

    async fn sleep(&self, _: Request<Note>) -> Result<Response<Note>, Status> {
        Err(Status::internal("it was run"))
    }

    async fn look(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let peer = request.peer().ok_or_else(|| Status::internal("nobody"))?;
        Ok(Response::new(Note::new(&peer.to_string())))
    }
}

type Notes = BoxStream<'static, Result<Note, Status>>;

#[dunlin_service::async_trait]
impl Flow for Both {
    type CountStream = Notes;
    type ChatStream = Notes;
    type HangStream = Notes;

    async fn count(&self, request: Request<Note>) -> Result<Response<Notes>, Status> {
        let who = request.peer().map(|peer| peer.to_string());
        let note = Note::new(&who.unwrap_or_default());
        Ok(Response::new(stream::iter([Ok(note)]).boxed()))
    }

    async fn sum(&self, _: Request<Streaming<Note>>) -> Result<Response<Note>, Status> {
        Err(Status::internal("it was run"))
    }

    async fn chat(&self, _: Request<Streaming<Note>>) -> Result<Response<Notes>, Status> {
        Err(Status::internal("it was run"))
    }

    async fn hang(&self, _: Request<Streaming<Note>>) -> Result<Response<Notes>, Status> {
        Err(Status::internal("it was run"))
    }
}

fn serve(rights: Rights) -> Result<dunlin::RunningServer, ServeError> {
    let server = dunlin::Server::bind("dunlin://127.0.0.1:0")?
        .secret(Secret::new("s").unwrap())
        .rights(rights);
    Server::builder()
        .add_service(ProbeServer::new(Both))
        .add_service(FlowServer::new(Both))
        .on(server)?
        .serve()
}

#[tokio::test]
async fn methods_without_a_right_are_permission_denied_and_not_run() {
    let grant = Grant::new()
        .call_named("/test.Probe/Look")
        .call_named("/test.Probe/Ec*")
        .call_named("/test.Flow/Count");
    let server = serve(Rights::new().allow(Who::Secret, grant)).unwrap();
    let client = Client::builder()
        .secret(Secret::new("s").unwrap())
        .connect(&server.address().to_string())
        .unwrap();
    let channel = Channel::from_client(client).await.unwrap();
    let probe = ProbeClient::new(channel.clone());
    assert_eq!(
        probe.echo(Note::new("x")).await.unwrap().get_ref().words,
        "x"
    );
    let who = probe.look(Note::new("")).await.unwrap().into_inner().words;
    assert!(who.starts_with("user "), "{who}");
    let denied = probe.fail(Note::new("")).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied, "{denied}");
    let words = format!("{who} has no right to call /test.Probe/Fail");
    assert!(denied.message().contains(&words), "{denied}");

    let flow = FlowClient::new(channel);
    let counted = flow.count(Note::new("")).await.unwrap().into_inner();
    let counted: Vec<_> = counted.collect().await;
    assert_eq!(counted[0].as_ref().unwrap().words, who);
    let denied = flow.sum(stream::iter([Note::new("")])).await.unwrap_err();
    assert_eq!(denied.code(), Code::PermissionDenied, "{denied}");
    assert!(denied.message().ends_with("/test.Flow/Sum"), "{denied}");
    let denied = first(flow.chat(stream::iter([Note::new("")])).await).await;
    assert_eq!(denied.code(), Code::PermissionDenied, "{denied}");
}

/// The error of a stream, whether it comes at once or as its first item.
async fn first<S>(answer: Result<Response<S>, Status>) -> Status
where
    S: Stream<Item = Result<Note, Status>>,
{
    match answer {
        Err(status) => status,
        Ok(response) => {
            let mut notes: Pin<Box<S>> = Box::pin(response.into_inner());
            notes.next().await.unwrap().unwrap_err()
        }
    }
}

#[test]
fn a_method_that_no_service_has_is_a_slip() {
    let grant = Grant::new().call_named("/test.Probe/Lok");
    let error = serve(Rights::new().allow(Who::Secret, grant)).unwrap_err();
    let words = error.to_string();
    assert!(words.contains("no method `/test.Probe/Lok`"), "{words}");
    assert!(words.contains("/test.Probe/Look, "), "{words}");
}
