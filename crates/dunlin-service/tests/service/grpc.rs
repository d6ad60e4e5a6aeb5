//! tonic over streams of Dunlin, by the feature `tonic`: calls, streams, statuses, who the handler's client is, a
//! server that is started anew.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin_service::tonic::{connect, incoming, ConnectInfo, Incoming};
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::task::JoinHandle;
use tonic::codegen::http;
use tonic::server::{Grpc, NamedService, StreamingService, UnaryService};
use tonic_prost::ProstCodec;

use crate::common::{Note, PATIENCE};

type Codec = ProstCodec<Note, Note>;

#[derive(Clone)]
struct Echo;

type Answering<T> = Pin<Box<dyn Future<Output = Result<tonic::Response<T>, tonic::Status>> + Send>>;

impl UnaryService<Note> for Echo {
    type Response = Note;
    type Future = Answering<Note>;

    fn call(&mut self, request: tonic::Request<Note>) -> Self::Future {
        Box::pin(async move {
            let info = request.extensions().get::<ConnectInfo>().cloned();
            let note = request.into_inner();
            match note.words.as_str() {
                "fail" => Err(tonic::Status::data_loss("as asked")),
                "device" => Ok(Note::new(&info.expect("a connection").device)),
                _ => Ok(note),
            }
            .map(tonic::Response::new)
        })
    }
}

impl StreamingService<Note> for Echo {
    type Response = Note;
    type ResponseStream = BoxStream<'static, Result<Note, tonic::Status>>;
    type Future = Answering<Self::ResponseStream>;

    fn call(&mut self, request: tonic::Request<tonic::Streaming<Note>>) -> Self::Future {
        Box::pin(async move { Ok(tonic::Response::new(request.into_inner().boxed())) })
    }
}

impl NamedService for Echo {
    const NAME: &'static str = "test.Grpc";
}

impl tower::Service<http::Request<tonic::body::Body>> for Echo {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(async {
            let mut grpc = Grpc::new(Codec::default());
            Ok(match request.uri().path() {
                "/test.Grpc/Echo" => grpc.unary(Echo, request).await,
                _ => grpc.streaming(Echo, request).await,
            })
        })
    }
}

fn serve(incoming: Incoming) -> JoinHandle<()> {
    let server = tonic::transport::Server::builder().add_service(Echo);
    tokio::spawn(async move { server.serve_with_incoming(incoming).await.unwrap() })
}

type Client = tonic::client::Grpc<tonic::transport::Channel>;

async fn echo(client: &mut Client, words: &str) -> Result<String, tonic::Status> {
    let ready = client.ready().await;
    ready.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
    let path = http::uri::PathAndQuery::from_static("/test.Grpc/Echo");
    let request = tonic::Request::new(Note::new(words));
    let answer = client.unary(request, path, Codec::default()).await?;
    Ok(answer.into_inner().words)
}

#[tokio::test]
async fn tonic_calls_over_streams_of_dunlin() {
    let incoming = incoming("dunlin://127.0.0.1:0").unwrap();
    let address = incoming.address().to_string();
    let server = serve(incoming);
    let mut client = Client::new(connect(&address).await.unwrap());
    assert_eq!(echo(&mut client, "hello").await.unwrap(), "hello");
    assert_eq!(echo(&mut client, "device").await.unwrap(), "shm");
    let long = "w".repeat(1 << 20);
    assert_eq!(echo(&mut client, &long).await.unwrap(), long);
    let failed = echo(&mut client, "fail").await.unwrap_err();
    assert_eq!(
        (failed.code(), failed.message()),
        (tonic::Code::DataLoss, "as asked")
    );

    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/test.Grpc/Chat");
    let notes = |number| Note {
        number,
        ..Note::default()
    };
    let said = tonic::Request::new(stream::iter((0..500).map(notes)));
    let heard = client
        .streaming(said, path, Codec::default())
        .await
        .unwrap();
    let heard: Vec<u64> = heard
        .into_inner()
        .map(|note| note.unwrap().number)
        .collect()
        .await;
    assert!(heard.into_iter().eq(0..500));
    server.abort();
}

#[tokio::test]
async fn a_channel_of_tonic_connects_again_when_its_server_was_started_anew() {
    let first = incoming("dunlin://127.0.0.1:0").unwrap();
    let address = first.address().to_string();
    let server = serve(first);
    let mut client = Client::new(connect(&address).await.unwrap());
    assert_eq!(echo(&mut client, "one").await.unwrap(), "one");
    server.abort();
    let _ = server.await;
    // The port is free when the last of the listener has gone.
    let until = tokio::time::Instant::now() + PATIENCE;
    let again = loop {
        match incoming(&address) {
            Ok(again) => break again,
            Err(error) => assert!(tokio::time::Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let server = serve(again);
    // Calls that were on the lost connection's way may fail.
    let answer = loop {
        match echo(&mut client, "two").await {
            Ok(answer) => break answer,
            Err(status) => assert!(tokio::time::Instant::now() < until, "{status}"),
        }
    };
    assert_eq!(answer, "two");
    server.abort();
}

#[tokio::test]
async fn without_a_server_there_is_no_channel() {
    let gone = incoming("dunlin://127.0.0.1:0").unwrap().address();
    let error = connect(&gone.to_string()).await.unwrap_err();
    assert!(!error.to_string().is_empty());
}
