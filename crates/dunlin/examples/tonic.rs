//! gRPC over a byte stream of Dunlin, tonic at both ends, unmodified, and the same over TCP beside it. Two processes
//! that find each other by address:
//!
//! ```sh
//! cargo run --release -p dunlin --example tonic -- serve dunlin://127.0.0.1:7460 127.0.0.1:7461
//! cargo run --release -p dunlin --example tonic -- call dunlin://127.0.0.1:7460 127.0.0.1:7461 20000
//! ```
//!
//! The second makes so many calls of 64 bytes over each, one after the other and then 32 at once, in turns, and prints
//! rates and medians. The first serves until it is ended. The service is written by hand, so that no compiler for
//! .proto files is needed; generated code calls the same functions. A third argument of `call` that is a device
//! (`roce`) asks for it.

use std::convert::Infallible;
use std::error::Error;
use std::future::{poll_fn, ready, Future, Ready};
use std::io::Write;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dunlin::Stream;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::codegen::http;
use tonic::server::{Grpc, UnaryService};
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;
use tower::ServiceExt;

type Failure = Box<dyn Error + Send + Sync>;
type Codec = ProstCodec<Bytes, Bytes>;

/// Bytes of a request and of its answer.
const SIZE: usize = 64;
/// Calls at once in the second half.
const TOGETHER: usize = 32;
/// Turns of each way.
const TURNS: u64 = 5;

/// What is said, both ways.
#[derive(Clone, PartialEq, prost::Message)]
struct Bytes {
    #[prost(bytes = "vec", tag = "1")]
    bytes: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Echo;

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = Ready<Result<tonic::Response<Bytes>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        ready(Ok(tonic::Response::new(request.into_inner())))
    }
}

impl tower::Service<http::Request<tonic::body::Body>> for Echo {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(async { Ok(Grpc::new(Codec::default()).unary(Echo, request).await) })
    }
}

/// Serves one connection, of either kind.
async fn converse(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let echo = Echo.map_request(|request: http::Request<hyper::body::Incoming>| {
        request.map(tonic::body::Body::new)
    });
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(io), TowerToHyperService::new(echo))
        .await;
    if let Err(error) = served {
        eprintln!("a connection ended: {error}");
    }
}

async fn serve(address: &str, tcp: &str) -> Result<(), Failure> {
    let rings = Stream::bind(address)?;
    let sockets = tokio::net::TcpListener::bind(tcp).await?;
    println!("listening on {} {}", rings.address(), sockets.local_addr()?);
    std::io::stdout().flush()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = sockets.accept().await {
            let _ = socket.set_nodelay(true);
            tokio::spawn(converse(socket));
        }
    });
    loop {
        let stream = poll_fn(|context| rings.poll_accept(context)).await?;
        tokio::spawn(converse(stream));
    }
}

/// A channel of tonic's over a stream of Dunlin's.
async fn over_dunlin(address: &str, device: Option<&str>) -> Result<(Channel, String), Failure> {
    let mut builder = Stream::builder();
    if let Some(device) = device {
        builder = builder.device(device);
    }
    let stream = builder.connect(address)?;
    let device = stream.device().to_owned();
    // There is one stream, and tonic asks for a connection once.
    let place = Mutex::new(Some(TokioIo::new(stream)));
    let connect = tower::service_fn(move |_: http::Uri| {
        let stream = place.lock().ok().and_then(|mut place| place.take());
        ready(stream.ok_or_else(|| std::io::Error::other("the stream is taken")))
    });
    let channel = Endpoint::from_static("http://dunlin")
        .connect_with_connector(connect)
        .await?;
    Ok((channel, device))
}

/// A channel of tonic's over TCP, made by tonic itself but for the connector, which its `transport` feature has.
async fn over_tcp(address: &str) -> Result<Channel, Failure> {
    let address = address.to_owned();
    let connect = tower::service_fn(move |_: http::Uri| {
        let address = address.clone();
        async move {
            let socket = tokio::net::TcpStream::connect(address).await?;
            socket.set_nodelay(true)?;
            Ok::<_, std::io::Error>(TokioIo::new(socket))
        }
    });
    Ok(Endpoint::from_static("http://tcp")
        .connect_with_connector(connect)
        .await?)
}

/// One call; how long it took.
async fn one(client: &mut tonic::client::Grpc<Channel>) -> Result<Duration, Failure> {
    let start = Instant::now();
    client.ready().await?;
    let request = tonic::Request::new(Bytes {
        bytes: vec![7; SIZE],
    });
    let path = http::uri::PathAndQuery::from_static("/example.Echo/Echo");
    let answer = client
        .unary(request, path, Codec::default())
        .await?
        .into_inner();
    if answer.bytes != [7; SIZE] {
        return Err("another answer".into());
    }
    Ok(start.elapsed())
}

/// So many calls, so many at once; their durations, and how long all took.
async fn many(
    channel: &Channel,
    calls: u64,
    together: usize,
) -> Result<(Vec<Duration>, Duration), Failure> {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..together {
        let mut client = tonic::client::Grpc::new(channel.clone());
        let share = calls / together as u64;
        tasks.spawn(async move {
            let mut took = Vec::with_capacity(share as usize);
            for _ in 0..share {
                took.push(one(&mut client).await?);
            }
            Ok::<_, Failure>(took)
        });
    }
    let mut took = Vec::new();
    while let Some(done) = tasks.join_next().await {
        took.extend(done??);
    }
    Ok((took, start.elapsed()))
}

async fn call(address: &str, tcp: &str, calls: u64, device: Option<&str>) -> Result<(), Failure> {
    let (rings, device) = over_dunlin(address, device).await?;
    let sockets = over_tcp(tcp).await?;
    for together in [1, TOGETHER] {
        let mut all = [(Vec::new(), Duration::ZERO), (Vec::new(), Duration::ZERO)];
        for _ in 0..TURNS {
            for (channel, (took, elapsed)) in [&rings, &sockets].into_iter().zip(&mut all) {
                let (more, lasted) = many(channel, calls / TURNS, together).await?;
                took.extend(more);
                *elapsed += lasted;
            }
        }
        for (name, (mut took, elapsed)) in [device.as_str(), "tcp"].into_iter().zip(all) {
            took.sort_unstable();
            let median = took.get(took.len() / 2).copied().unwrap_or_default();
            let rate = took.len() as f64 / elapsed.as_secs_f64();
            println!("{name}: {together} at once: {rate:.0} calls/s, median {median:?}");
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", address, tcp] => serve(address, tcp).await,
        ["call", address, tcp, calls] => call(address, tcp, calls.parse()?, None).await,
        ["call", address, tcp, calls, device] => {
            call(address, tcp, calls.parse()?, Some(device)).await
        }
        _ => Err("usage: tonic serve|call DUNLIN_ADDRESS TCP_ADDRESS [CALLS [DEVICE]]".into()),
    }
}
