//! Services of a client, which its server calls: unary methods and streams of all kinds, until the client has gone.

use dunlin::{CallableClients, CallbackServer, Client, RunningServer};
use dunlin_service::{Channel, Code, Request, Response, Server, Status, Streaming};
use futures_util::stream::{self, BoxStream, StreamExt};

use crate::common::flow_client::FlowClient;
use crate::common::flow_server::{Flow, FlowServer};
use crate::common::probe_client::{ProbeBlockingClient, ProbeClient};
use crate::common::probe_server::{Probe, ProbeServer};
use crate::common::{until_async, Note};

/// The server's: its methods call its caller.
struct Calling(CallableClients);

impl Calling {
    async fn back(&self, request: &Request<Note>) -> Result<Channel, Status> {
        let peer = request.peer().ok_or_else(|| Status::internal("nobody"))?;
        let caller = self.0.find(peer);
        let caller = caller.ok_or_else(|| Status::failed_precondition("it has no services"))?;
        Channel::from_client(caller.client().clone()).await
    }
}

#[dunlin_service::async_trait]
impl Probe for Calling {
    /// What the caller's own `Echo` brings.
    async fn echo(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let back = ProbeClient::new(self.back(&request).await?);
        back.echo(request.into_inner()).await
    }

    /// What the caller's own `Fail` brings.
    async fn fail(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let back = ProbeClient::new(self.back(&request).await?);
        back.fail(request.into_inner()).await
    }

    async fn sleep(&self, _: Request<Note>) -> Result<Response<Note>, Status> {
        Err(Status::unimplemented("nothing"))
    }

    /// Chats with the caller and adds what came back.
    async fn look(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        let back = FlowClient::new(self.back(&request).await?);
        let asked = request.into_inner().number;
        let said = stream::iter((0..asked).map(|number| Note {
            number,
            ..Note::default()
        }));
        let mut sum = Note::default();
        let mut heard = back.chat(said).await?.into_inner();
        while let Some(note) = heard.next().await {
            sum.number += note?.number;
        }
        let counted = back
            .count(Note {
                number: asked,
                ..Note::default()
            })
            .await?;
        sum.words = counted.into_inner().count().await.to_string();
        Ok(Response::new(sum))
    }
}

/// The client's.
struct Called;

#[dunlin_service::async_trait]
impl Probe for Called {
    async fn echo(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn fail(&self, request: Request<Note>) -> Result<Response<Note>, Status> {
        Err(Status::aborted(request.into_inner().words))
    }

    async fn sleep(&self, _: Request<Note>) -> Result<Response<Note>, Status> {
        Err(Status::unimplemented("nothing"))
    }

    async fn look(&self, _: Request<Note>) -> Result<Response<Note>, Status> {
        Err(Status::unimplemented("nothing"))
    }
}

type Notes = BoxStream<'static, Result<Note, Status>>;

#[dunlin_service::async_trait]
impl Flow for Called {
    type CountStream = Notes;
    type ChatStream = Notes;
    type HangStream = Notes;

    async fn count(&self, request: Request<Note>) -> Result<Response<Notes>, Status> {
        let count = request.into_inner().number;
        let notes = (0..count).map(|_| Ok(Note::default()));
        Ok(Response::new(stream::iter(notes).boxed()))
    }

    async fn sum(&self, request: Request<Streaming<Note>>) -> Result<Response<Note>, Status> {
        let mut notes = request.into_inner();
        let mut sum = Note::default();
        while let Some(note) = notes.next().await {
            sum.number += note?.number;
        }
        Ok(Response::new(sum))
    }

    async fn chat(&self, request: Request<Streaming<Note>>) -> Result<Response<Notes>, Status> {
        Ok(Response::new(request.into_inner().boxed()))
    }

    async fn hang(&self, _: Request<Streaming<Note>>) -> Result<Response<Notes>, Status> {
        Ok(Response::new(stream::pending().boxed()))
    }
}

fn serve(list: &CallableClients) -> RunningServer {
    let server = dunlin::Server::bind("dunlin://127.0.0.1:0").unwrap();
    Server::builder()
        .add_service(ProbeServer::new(Calling(list.clone())))
        .on(server.callable_clients(list))
        .unwrap()
        .serve()
        .unwrap()
}

fn serve_to(client: &Client) -> CallbackServer {
    Server::builder()
        .add_service(ProbeServer::new(Called))
        .add_service(FlowServer::new(Called))
        .serve_to(client)
        .unwrap()
}

fn connect(server: &RunningServer) -> Client {
    Client::connect(&server.address().to_string()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_calls_methods_and_streams_of_its_caller() {
    let list = CallableClients::new(4);
    let server = serve(&list);
    let (client, other) = (connect(&server), connect(&server));
    let (serving, _other_serving) = (serve_to(&client), serve_to(&other));
    assert_eq!(list.len(), 2);
    let channel = Channel::from_client(client.clone()).await.unwrap();
    let probe = ProbeClient::new(channel.clone());
    let echoed = probe.echo(Note::new("there and back")).await.unwrap();
    assert_eq!(echoed.get_ref().words, "there and back");
    let failed = probe.fail(Note::new("not today")).await.unwrap_err();
    assert_eq!(
        (failed.code(), failed.message()),
        (Code::Aborted, "not today")
    );
    let asked = Note {
        number: 500,
        ..Note::default()
    };
    let summed = probe.look(asked).await.unwrap().into_inner();
    assert_eq!(
        (summed.number, summed.words.as_str()),
        (500 * 499 / 2, "500")
    );

    // The server pushes of its own accord, to all.
    for callable in list.list() {
        let back = Channel::from_client(callable.client().clone())
            .await
            .unwrap();
        let notes = stream::iter((0..100).map(|number| Note {
            number,
            ..Note::default()
        }));
        let sum = FlowClient::new(back).sum(notes).await.unwrap();
        assert_eq!(sum.get_ref().number, 4950);
    }

    // A stream that is open ends when the client has gone, and a call says so.
    let gone = list.list().remove(0);
    let back = Channel::from_client(gone.client().clone()).await.unwrap();
    let mut open = FlowClient::new(back.clone())
        .hang(stream::pending())
        .await
        .unwrap()
        .into_inner();
    drop(serving);
    until_async("it has gone", || gone.is_gone()).await;
    let ended = open.next().await.unwrap().unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");
    let refused = ProbeClient::new(back)
        .echo(Note::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let refused = probe.echo(Note::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
}

#[test]
fn a_thread_that_waits_calls_back_as_well() {
    let list = CallableClients::new(1);
    let server = serve(&list);
    let client = connect(&server);
    let _serving = serve_to(&client);
    let back = list.list().remove(0);
    let channel = Channel::from_client_blocking(back.client().clone()).unwrap();
    let probe = ProbeBlockingClient::new(channel);
    assert_eq!(probe.echo(Note::new("x")).unwrap().get_ref().words, "x");
}
