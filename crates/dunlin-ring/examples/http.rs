//! RB²'s case 3: an HTTP server behind a byte stream on two rings, with hyper at both ends, unmodified.
//!
//! `cargo run --release -p dunlin-ring --example http -- 100000`: so many GETs of a file of 1 KB, one after the other, batching off.

mod common;

use std::convert::Infallible;
use std::time::Instant;

use bytes::Bytes;
use common::{count, is_other, quantile, Failure, Pipe};
use http_body_util::{BodyExt, Empty, Full};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

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

async fn serve() -> Result<(), Failure> {
    let stream = Pipe::to_first().stream()?;
    hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await?;
    Ok(())
}

async fn get(requests: u64) -> Result<(), Failure> {
    let mut pipe = Pipe::to_other()?;
    let stream = pipe.stream()?;
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
    pipe.wait()?;
    took.sort_unstable();
    println!(
        "{requests} GETs without an error: {rate:.0} a second, p50 {} ns, p99.9 {} ns",
        quantile(&took, 0.5),
        quantile(&took, 0.999)
    );
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    if is_other() {
        return serve().await;
    }
    get(count(100_000)).await
}
