//! The same echo of 64 bytes in several ways, in turns: typed services, raw calls, and tonic over TCP, over a Unix
//! socket and over a stream of Dunlin's. Client and server are two processes, each with one tokio thread; the client's
//! tasks are a `LocalSet`'s.
//!
//! ```sh
//! cargo build --release -p dunlin-examples --features tonic --bin compare
//! target/release/compare           # starts its server, measures, prints a table
//! target/release/compare typed Unix    # only the ways whose names contain one of these
//! ```

use std::convert::Infallible;
use std::future::{ready, Future, Ready};
use std::io::{BufRead, BufReader, Write};
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dunlin::{Client, LocalClient};
use dunlin_examples::Failure;
use dunlin_service::codec::Protobuf;
use dunlin_service::{Request, Response, Server, Status};
use hyper_util::rt::TokioIo;
use tonic::codegen::http;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use async_echo_client::AsyncEchoClient;
use async_echo_server::{AsyncEcho, AsyncEchoServer};
use inline_echo_client::{InlineEchoClient, InlineEchoLocalClient};
use inline_echo_server::{SyncInlineEcho, SyncInlineEchoServer};

/// Text of a message as protobuf.
const SIZE: usize = 64;
/// Turns of each way, after one that does not count.
const TURNS: usize = 5;
/// How long a turn of one way lasts.
const TURN: Duration = Duration::from_millis(400);
/// The same with `--quick`, which shows that it works and measures nothing.
const QUICK: Duration = Duration::from_millis(10);
/// The raw handler.
const RAW: u16 = 1;

#[derive(Clone, PartialEq, prost::Message, dunlin_service::protobuf::Message)]
struct Text {
    #[prost(string, tag = "1")]
    words: String,
}

dunlin_service::service! {
    /// An echo whose handler is a future.
    service AsyncEcho = "compare.AsyncEcho" with Protobuf {
        /// The same.
        rpc echo as Echo(Text) -> Text;
    }
}

dunlin_service::service! {
    /// An echo on the polling thread.
    service InlineEcho = "compare.InlineEcho" with Protobuf {
        /// The same.
        rpc echo as Echo(Text) -> Text;
    }
}

#[derive(Clone, Copy)]
struct Echo;

#[dunlin_service::async_trait]
impl AsyncEcho for Echo {
    async fn echo(&self, request: Request<Text>) -> Result<Response<Text>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

impl SyncInlineEcho for Echo {
    fn echo(&self, request: &mut Request<Text>, reply: &mut Response<Text>) -> Result<(), Status> {
        std::mem::swap(reply.get_mut(), request.get_mut());
        Ok(())
    }
}

impl UnaryService<Text> for Echo {
    type Response = Text;
    type Future = Ready<Result<tonic::Response<Text>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<Text>) -> Self::Future {
        ready(Ok(tonic::Response::new(request.into_inner())))
    }
}

impl NamedService for Echo {
    const NAME: &'static str = "compare.Echo";
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
            let codec = ProstCodec::<Text, Text>::default();
            Ok(Grpc::new(codec).unary(Echo, request).await)
        })
    }
}

/// Where the server is, by each way.
struct Addresses {
    typed: String,
    polled: String,
    stream: String,
    tcp: String,
    unix: String,
}

/// Serves in all ways until standard input ends.
async fn serve(unix: &str) -> Result<(), Failure> {
    let raw = dunlin::Server::bind("dunlin://127.0.0.1:0")?
        .handle(RAW, |request, reply| reply.write(request.payload()));
    let typed = Server::builder()
        .add_service(AsyncEchoServer::new(Echo))
        .add_service(SyncInlineEchoServer::inline(Echo))
        .on(raw)?
        .serve()?;
    let polled = Server::builder()
        .add_service(AsyncEchoServer::new(Echo))
        .poll_inline()
        .start("dunlin://127.0.0.1:0")?;
    let incoming = dunlin_service::tonic::incoming("dunlin://127.0.0.1:0")?;
    let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let unix = tokio::net::UnixListener::bind(unix)?;
    println!(
        "{} {} {} {}",
        typed.address(),
        polled.address(),
        incoming.address(),
        tcp.local_addr()?
    );
    std::io::stdout().flush()?;
    let server = || tonic::transport::Server::builder().add_service(Echo);
    tokio::spawn(server().serve_with_incoming(incoming));
    let sockets = futures_util::stream::unfold(tcp, |tcp| async {
        let socket = tcp.accept().await.map(|(socket, _)| socket);
        if let Ok(socket) = &socket {
            let _ = socket.set_nodelay(true);
        }
        Some((socket, tcp))
    });
    tokio::spawn(server().serve_with_incoming(sockets));
    let sockets = futures_util::stream::unfold(unix, |unix| async {
        Some((unix.accept().await.map(|(socket, _)| socket), unix))
    });
    tokio::spawn(server().serve_with_incoming(sockets));
    let mut end = [0];
    let _ = tokio::io::AsyncReadExt::read(&mut tokio::io::stdin(), &mut end).await;
    Ok(())
}

/// One way to call.
#[derive(Clone)]
enum Way {
    Raw(Client),
    RawLocal(LocalClient),
    Async(AsyncEchoClient),
    Inline(InlineEchoClient),
    InlineLocal(InlineEchoLocalClient),
    Tonic(Channel),
}

fn message() -> Text {
    Text {
        words: "w".repeat(SIZE - 2),
    }
}

/// Calls until then; how long each took.
async fn calls(way: Way, until: Instant) -> Result<Vec<Duration>, Failure> {
    let mut took = Vec::new();
    let mut grpc = match &way {
        Way::Tonic(channel) => Some(tonic::client::Grpc::new(channel.clone())),
        _ => None,
    };
    let raw = vec![7; SIZE];
    loop {
        let start = Instant::now();
        let right = match (&way, &mut grpc) {
            (Way::Raw(client), _) => client.call_async(RAW, &raw).await?[..] == raw,
            (Way::RawLocal(client), _) => client.call_async(RAW, &raw).await?[..] == raw,
            (Way::Async(client), _) => client.echo(message()).await?.into_inner() == message(),
            (Way::Inline(client), _) => client.echo(message()).await?.into_inner() == message(),
            (Way::InlineLocal(client), _) => {
                client.echo(message()).await?.into_inner() == message()
            }
            (Way::Tonic(_), Some(grpc)) => {
                grpc.ready().await?;
                let path = http::uri::PathAndQuery::from_static("/compare.Echo/Echo");
                let codec = ProstCodec::<Text, Text>::default();
                let answer = grpc
                    .unary(tonic::Request::new(message()), path, codec)
                    .await?;
                answer.into_inner() == message()
            }
            (Way::Tonic(_), None) => false,
        };
        if !right {
            return Err("another answer".into());
        }
        took.push(start.elapsed());
        if Instant::now() >= until {
            return Ok(took);
        }
    }
}

/// A turn of one way with so many calls at once: calls a second, and the median.
async fn turn(way: &Way, together: usize, lasts: Duration) -> Result<(f64, Duration), Failure> {
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..together {
        tasks.spawn_local(calls(way.clone(), start + lasts));
    }
    let mut took = Vec::new();
    while let Some(done) = tasks.join_next().await {
        took.extend(done??);
    }
    let rate = took.len() as f64 / start.elapsed().as_secs_f64();
    took.sort_unstable();
    Ok((rate, took.get(took.len() / 2).copied().unwrap_or_default()))
}

fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    values.get(values.len() / 2).copied()
}

async fn measure(at: Addresses, only: &[&str], lasts: Duration) -> Result<(), Failure> {
    let channel = dunlin_service::Channel::connect(&at.typed).await?;
    let polled = dunlin_service::Channel::connect(&at.polled).await?;
    let nodelay = {
        let tcp = at.tcp.clone();
        tower::service_fn(move |_: http::Uri| {
            let tcp = tcp.clone();
            async move {
                let socket = tokio::net::TcpStream::connect(tcp).await?;
                socket.set_nodelay(true)?;
                Ok::<_, std::io::Error>(TokioIo::new(socket))
            }
        })
    };
    let unix = {
        let unix = at.unix.clone();
        tower::service_fn(move |_: http::Uri| {
            let unix = unix.clone();
            async move {
                tokio::net::UnixStream::connect(unix)
                    .await
                    .map(TokioIo::new)
            }
        })
    };
    let raw = Client::connect(&at.typed)?;
    let (raw_local, driver) = raw.local()?;
    tokio::task::spawn_local(driver);
    let (typed_local, driver) = channel.local()?;
    tokio::task::spawn_local(driver);
    let endpoint = || Endpoint::from_static("http://localhost");
    let mut ways = vec![
        ("raw calls, futures", Way::Raw(raw)),
        ("raw calls, of one thread", Way::RawLocal(raw_local)),
        (
            "typed, inline server",
            Way::Inline(InlineEchoClient::new(channel.clone())),
        ),
        (
            "typed, inline server, of one thread",
            Way::InlineLocal(InlineEchoLocalClient::new(typed_local)),
        ),
        (
            "typed, async server",
            Way::Async(AsyncEchoClient::new(channel)),
        ),
        (
            "typed, async server, polled inline",
            Way::Async(AsyncEchoClient::new(polled)),
        ),
        (
            "tonic over Stream",
            Way::Tonic(dunlin_service::tonic::connect(&at.stream).await?),
        ),
        (
            "tonic over a Unix socket",
            Way::Tonic(endpoint().connect_with_connector(unix).await?),
        ),
        (
            "tonic over TCP",
            Way::Tonic(endpoint().connect_with_connector(nodelay).await?),
        ),
    ];
    ways.retain(|(name, _)| only.is_empty() || only.iter().any(|part| name.contains(part)));
    println!("| way | 1 at once: calls/s | p50 | 32 at once: calls/s | p50 |");
    println!("|---|---|---|---|---|");
    let mut rows: Vec<Vec<(f64, Duration)>> = vec![Vec::new(); 2 * ways.len()];
    for counted in 0..=TURNS {
        for (at, (_, way)) in ways.iter().enumerate() {
            for (column, together) in [1, 32].into_iter().enumerate() {
                let measured = turn(way, together, lasts).await?;
                if counted > 0 {
                    rows[2 * at + column].push(measured);
                }
            }
        }
    }
    for (at, (name, _)) in ways.iter().enumerate() {
        print!("| {name} |");
        for row in &rows[2 * at..2 * at + 2] {
            let rate = median(row.iter().map(|(rate, _)| *rate).collect()).unwrap_or_default();
            let half = median(row.iter().map(|(_, half)| *half).collect()).unwrap_or_default();
            print!(" {rate:.0} | {:.1} us |", half.as_secs_f64() * 1e6);
        }
        println!();
    }
    Ok(())
}

/// Starts the server, measures, and ends it.
async fn compare(only: &[&str], lasts: Duration) -> Result<(), Failure> {
    let unix = std::env::temp_dir().join(format!("dunlin-compare-{}", std::process::id()));
    let unix = unix.to_string_lossy().into_owned();
    let mut server = Command::new(std::env::current_exe()?)
        .args(["serve", &unix])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(output) = server.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let measured = match words.as_slice() {
        &[typed, polled, stream, tcp] => {
            let [typed, polled, stream, tcp] = [typed, polled, stream, tcp].map(str::to_owned);
            let unix = unix.clone();
            measure(
                Addresses {
                    typed,
                    polled,
                    stream,
                    tcp,
                    unix,
                },
                only,
                lasts,
            )
            .await
        }
        _ => Err("the server did not start".into()),
    };
    drop(server.stdin.take());
    let _ = server.wait();
    let _ = std::fs::remove_file(unix);
    measured
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    tokio::task::LocalSet::new().run_until(run()).await
}

async fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["--quick"] => compare(&[], QUICK).await,
        ["serve", unix] => serve(unix).await,
        only if only.iter().all(|way| !way.starts_with('-')) => compare(only, TURN).await,
        _ => Err("usage: compare [--quick | WAY...]".into()),
    }
}
