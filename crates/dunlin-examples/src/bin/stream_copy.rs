//! A byte stream by address, under tokio's traits: a file is sent, and its length comes back.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin stream_copy -- serve dunlin://127.0.0.1:7412    # until Ctrl-C
//! cargo run -p dunlin-examples --bin stream_copy -- send dunlin://127.0.0.1:7412 Cargo.lock
//! ```

use dunlin::Stream;
use dunlin_examples::{until_told_to_end, Failure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

// ANCHOR: serve
async fn serve(address: &str) -> Result<(), Failure> {
    let listener = Stream::bind(address)?;
    println!("listening on {}", listener.address());
    loop {
        let mut stream = listener.accept_async().await?;
        tokio::spawn(async move {
            let taken = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
            stream
                .write_all(format!("{taken} bytes\n").as_bytes())
                .await?;
            stream.shutdown().await
        });
    }
}
// ANCHOR_END: serve

// ANCHOR: send
async fn send(address: &str, path: &str) -> Result<(), Failure> {
    let content = std::fs::read(path)?;
    // Connecting waits for the other host: not on a thread of the executor.
    let address = address.to_owned();
    let connecting = tokio::task::spawn_blocking(move || Stream::connect(&address));
    let mut stream = connecting.await??;
    stream.write_all(&content).await?;
    stream.shutdown().await?; // the end, for the reader; our own reading goes on
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    print!("{answer}");
    Ok(())
}
// ANCHOR_END: send

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", address] => tokio::select! {
            served = serve(address) => served,
            ended = tokio::task::spawn_blocking(until_told_to_end) => ended?,
        },
        ["send", address, path] => send(address, path).await,
        _ => Err("usage: stream_copy serve ADDRESS | send ADDRESS FILE".into()),
    }
}
