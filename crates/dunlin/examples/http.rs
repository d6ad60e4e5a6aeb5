//! RB²'s case 3: an HTTP server behind byte streams, with hyper at both ends, unmodified. Two processes that find each
//! other by address:
//!
//! ```sh
//! cargo run --release -p dunlin --example http -- serve dunlin://127.0.0.1:7450
//! cargo run --release -p dunlin --example http -- get dunlin://127.0.0.1:7450 100000
//! ```
//!
//! The second GETs a file of 1 KB so many times, one after the other, batching off. The first serves until it is ended.

use std::convert::Infallible;
use std::error::Error;
use std::future::poll_fn;
use std::io::Write;
use std::time::Instant;

use bytes::Bytes;
use dunlin::Stream;
use http_body_util::{BodyExt, Empty, Full};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

type Failure = Box<dyn Error + Send + Sync>;

/// The file.
const FILE: &[u8] = &[b'd'; 1024];

async fn answer(
    request: Request<hyper::body::Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = match request.uri().path() {
        "/file" => (StatusCode::OK, Bytes::from_static(FILE)),
        _ => (StatusCode::NOT_FOUND, Bytes::new()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    Ok(response)
}

async fn serve(address: &str) -> Result<(), Failure> {
    let listener = Stream::bind(address)?;
    println!("listening on {}", listener.address());
    std::io::stdout().flush()?;
    loop {
        let stream = poll_fn(|context| listener.poll_accept(context)).await?;
        tokio::spawn(async move {
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .await;
            if let Err(error) = served {
                eprintln!("a connection ended: {error}");
            }
        });
    }
}

async fn get(address: &str, requests: u64) -> Result<(), Failure> {
    let stream = Stream::connect(address)?;
    let (device, why) = (stream.device().to_owned(), stream.why());
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut took = Vec::with_capacity(requests as usize);
    let start = Instant::now();
    for _ in 0..requests {
        let before = Instant::now();
        let request = Request::get("/file")
            .header("host", "ring")
            .body(Empty::<Bytes>::new())?;
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(format!("{}", response.status()).into());
        }
        let body = response.into_body().collect().await?.to_bytes();
        if body != FILE {
            return Err("another file".into());
        }
        took.push(before.elapsed().as_nanos() as u64);
    }
    let rate = requests as f64 / start.elapsed().as_secs_f64();
    drop(sender);
    connection.await??;
    took.sort_unstable();
    let at = |share: f64| took.get((took.len() as f64 * share) as usize).copied();
    println!(
        "{requests} GETs without an error over {device} ({why}): {rate:.0} a second, p50 {} ns, p99.9 {} ns",
        at(0.5).unwrap_or(0),
        at(0.999).unwrap_or(0)
    );
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", address] => serve(address).await,
        ["get", address] => get(address, 100_000).await,
        ["get", address, requests] => get(address, requests.parse()?).await,
        _ => Err("http serve ADDRESS | http get ADDRESS [REQUESTS]".into()),
    }
}
