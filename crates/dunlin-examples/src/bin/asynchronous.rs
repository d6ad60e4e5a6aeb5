//! Futures on both sides, on tokio: handlers that wait, many calls at once, a call that is given up.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin asynchronous
//! ```

use std::time::Duration;

use dunlin::{CallError, Client, Server};
use dunlin_examples::Failure;
use futures_util::future::try_join_all;

const SLEEP: u16 = 1;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // ANCHOR: server
    let runtime = tokio::runtime::Handle::current();
    let server = Server::bind("dunlin://127.0.0.1:0")?
        .executor(move |task| drop(runtime.spawn(task)))
        .handle_async(SLEEP, |request| async move {
            let ms = request.payload().first().copied().unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(ms.into())).await;
            Ok(format!("slept {ms} ms").into_bytes())
        })
        .serve()?;
    // ANCHOR_END: server

    // ANCHOR: client
    let client = Client::builder()
        .connect_async(&server.address().to_string())
        .await?;
    let answers = try_join_all((0..100).map(|_| client.call_async(SLEEP, &[20]))).await?;
    println!("{} have slept at the same time", answers.len());
    // ANCHOR_END: client

    // ANCHOR: backpressure
    let mut sent = Vec::new();
    for _ in 0..5000 {
        // Waits for a place, of which there are 1024 (max_outstanding); without it the 1025th is an error.
        sent.push(client.ready().await?.call(SLEEP, &[0]));
    }
    println!("{} answers", try_join_all(sent).await?.len());
    // ANCHOR_END: backpressure

    // ANCHOR: cancel
    let hasty = client.within(Duration::from_millis(5));
    match hasty.call_async(SLEEP, &[200]).await {
        // The server knows the deadline, too: it drops the handler's future where it stands.
        Err(CallError::DeadlineExceeded { .. } | CallError::Expired { .. }) => println!("given up"),
        other => println!("unexpected: {other:?}"),
    }
    // ANCHOR_END: cancel

    tokio::task::spawn_blocking(move || server.shutdown()).await?;
    Ok(())
}
