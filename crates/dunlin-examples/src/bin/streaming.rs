//! An echo in all four ways, of the shape of tonic's example `streaming`: the server notices clients that go.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin streaming -- serve dunlin://127.0.0.1:7472
//! cargo run -p dunlin-examples --bin streaming -- call dunlin://127.0.0.1:7472
//! ```

use std::time::Duration;

use dunlin_examples::echo::echo_client::EchoClient;
use dunlin_examples::echo::echo_server::{Echo, EchoServer};
use dunlin_examples::echo::{EchoRequest, EchoResponse, FILE_DESCRIPTOR_SET};
use dunlin_examples::{serve, Failure};
use dunlin_service::{reflection, Request, Response, Server, Status, Streaming};
use futures_util::stream::{self, BoxStream, StreamExt};

struct Echoing;

/// Says so when it goes.
struct Client;

impl Drop for Client {
    fn drop(&mut self) {
        println!("the client has gone");
    }
}

#[dunlin_service::async_trait]
impl Echo for Echoing {
    type ServerStreamingEchoStream = BoxStream<'static, Result<EchoResponse, Status>>;
    type BidirectionalStreamingEchoStream = BoxStream<'static, Result<EchoResponse, Status>>;

    async fn unary_echo(
        &self,
        request: Request<EchoRequest>,
    ) -> Result<Response<EchoResponse>, Status> {
        let message = request.into_inner().message;
        Ok(Response::new(EchoResponse { message }))
    }

    // ANCHOR: server
    /// Without end: it is the client who goes.
    async fn server_streaming_echo(
        &self,
        request: Request<EchoRequest>,
    ) -> Result<Response<Self::ServerStreamingEchoStream>, Status> {
        let message = request.into_inner().message;
        let endless = stream::unfold(Client, move |client| {
            let message = message.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Some((Ok(EchoResponse { message }), client))
            }
        });
        Ok(Response::new(endless.boxed()))
    }
    // ANCHOR_END: server

    async fn client_streaming_echo(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<EchoResponse>, Status> {
        let mut heard = request.into_inner();
        let mut message = String::new();
        while let Some(more) = heard.message().await? {
            message.push_str(&more.message);
        }
        Ok(Response::new(EchoResponse { message }))
    }

    async fn bidirectional_streaming_echo(
        &self,
        request: Request<Streaming<EchoRequest>>,
    ) -> Result<Response<Self::BidirectionalStreamingEchoStream>, Status> {
        let said = request
            .into_inner()
            .map(|heard| heard.map(|EchoRequest { message }| EchoResponse { message }));
        Ok(Response::new(said.boxed()))
    }
}

fn request(message: impl Into<String>) -> EchoRequest {
    EchoRequest {
        message: message.into(),
    }
}

async fn call(address: &str) -> Result<(), Failure> {
    let client = EchoClient::connect(address).await?;
    let said = client.unary_echo(request("once")).await?;
    println!("unary: {}", said.into_inner().message);
    let endless = client
        .server_streaming_echo(request("again"))
        .await?
        .into_inner();
    let five: Vec<_> = endless.take(5).collect().await;
    println!(
        "server: {} of them, then the client goes",
        five.iter().flatten().count()
    );
    let words = ["a", "b", "c"].map(request);
    let said = client.client_streaming_echo(stream::iter(words)).await?;
    println!("client: {}", said.into_inner().message);
    let words = stream::iter((0..17).map(|number| request(format!("message {number}"))));
    let mut said = client
        .bidirectional_streaming_echo(words)
        .await?
        .into_inner();
    while let Some(echo) = said.message().await? {
        println!("both: {}", echo.message);
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", address] => {
            let echo = EchoServer::new(Echoing);
            // ANCHOR: reflection
            let reflection = reflection::service(&[FILE_DESCRIPTOR_SET])?;
            let server = Server::builder().add_service(echo).add_service(reflection);
            // ANCHOR_END: reflection
            serve(server, address).await
        }
        ["call", address] => call(address).await,
        _ => Err("usage: streaming serve ADDRESS | call ADDRESS".into()),
    }
}
