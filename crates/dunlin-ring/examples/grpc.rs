//! gRPC over a byte stream on two rings: tonic at both ends, unmodified.
//!
//! `cargo run --release -p dunlin-ring --example grpc -- 1000` for so many calls. The service is written by hand, so
//! that no compiler for .proto files is needed; generated code calls the same functions.

mod common;

use std::convert::Infallible;
use std::future::{ready, Future, Ready};
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};

use common::{count, is_other, Failure, Pipe};
use hyper_util::rt::TokioIo;
use tonic::codegen::http;
use tonic::server::{Grpc, UnaryService};
use tonic_prost::ProstCodec;

/// What is said, both ways.
#[derive(Clone, PartialEq, prost::Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

/// Answers in capitals.
#[derive(Clone, Copy)]
struct Shout;

impl UnaryService<Text> for Shout {
    type Response = Text;
    type Future = Ready<Result<tonic::Response<Text>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Text>) -> Self::Future {
        let text = request.into_inner().text.to_uppercase();
        ready(Ok(tonic::Response::new(Text { text })))
    }
}

impl tonic::server::NamedService for Shout {
    const NAME: &'static str = "example.Shout";
}

impl tower::Service<http::Request<tonic::body::Body>> for Shout {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(async {
            let mut grpc = Grpc::new(ProstCodec::<Text, Text>::default());
            Ok(grpc.unary(Shout, request).await)
        })
    }
}

async fn serve() -> Result<(), Failure> {
    let stream = Pipe::to_first().stream()?;
    let served = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new())
        .serve_connection(
            TokioIo::new(stream),
            hyper_util::service::TowerToHyperService::new(tower::ServiceExt::map_request(
                Shout,
                |request: http::Request<hyper::body::Incoming>| request.map(tonic::body::Body::new),
            )),
        )
        .await;
    match served {
        // As with TCP: a client that has its answers may leave before HTTP/2's last frames reach it.
        Err(error) if has_left(&error) => Ok(()),
        ended => Ok(ended?),
    }
}

/// Whether the error is that the client is gone.
fn has_left(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    source.is_some_and(|error: &std::io::Error| {
        matches!(
            error.kind(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        )
    })
}

async fn call(calls: u64) -> Result<(), Failure> {
    let mut pipe = Pipe::to_other()?;
    // There is one stream, and tonic asks for a connection once.
    let stream = Mutex::new(Some(TokioIo::new(pipe.stream()?)));
    let connect = tower::service_fn(move |_: http::Uri| {
        let stream = stream.lock().map(|mut place| place.take());
        ready(match stream {
            Ok(Some(stream)) => Ok(stream),
            _ => Err(std::io::Error::other("the stream is taken")),
        })
    });
    let channel = tonic::transport::Endpoint::from_static("http://ring")
        .connect_with_connector(connect)
        .await?;
    let mut client = tonic::client::Grpc::new(channel);
    for number in 0..calls {
        client.ready().await?;
        let text = format!("call {number}");
        let path = http::uri::PathAndQuery::from_static("/example.Shout/Shout");
        let codec = ProstCodec::<Text, Text>::default();
        let request = tonic::Request::new(Text { text: text.clone() });
        let answer = client.unary(request, path, codec).await?.into_inner();
        if answer.text != text.to_uppercase() {
            return Err(format!("{} to {text}", answer.text).into());
        }
    }
    drop(client);
    // The runtime goes on meanwhile: it has a stream to close.
    tokio::task::spawn_blocking(|| pipe.wait()).await??;
    println!("{calls} calls without an error");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    if is_other() {
        return serve().await;
    }
    call(count(1000)).await
}
