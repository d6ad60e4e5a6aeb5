//! Handlers that do not answer at once: on worker threads, and from wherever the request was handed on to.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin later
//! ```

use std::sync::mpsc;
use std::sync::Mutex;
use std::time::Duration;

use dunlin::{Client, HandlerError, OwnedRequest, OwnedResponder, Server};
use dunlin_examples::Failure;

const SLOW: u16 = 1;
const QUEUED: u16 = 2;

fn main() -> Result<(), Failure> {
    // ANCHOR: server
    let (queue, work) = mpsc::channel::<(OwnedRequest, OwnedResponder)>();
    let queue = Mutex::new(queue);
    let server = Server::bind("dunlin://127.0.0.1:0")?
        .workers(2)
        .handle_on_workers(SLOW, |request, reply| {
            std::thread::sleep(Duration::from_millis(10)); // may block: nobody else waits for it
            reply.write(request.payload())
        })
        .handle_deferred(QUEUED, move |request, responder| {
            let queue = queue.lock().expect("no panic while it is held");
            // Where the thread is gone the responder is dropped, and the caller told so.
            drop(queue.send((request, responder)));
        })
        .serve()?;
    let writer = std::thread::spawn(move || {
        // One thread that owns what it changes: a log, a connection, a file.
        let mut log: Vec<Vec<u8>> = Vec::new();
        for (request, responder) in work {
            if responder.is_cancelled() {
                continue;
            }
            match request.payload() {
                [] => responder.fail(HandlerError::new(1, "an entry has at least one byte")),
                entry => {
                    log.push(entry.to_vec());
                    responder.reply(log.len().to_string().into_bytes());
                }
            }
        }
        log.len()
    });
    // ANCHOR_END: server

    let client = Client::connect(&server.address().to_string())?;
    println!("{}", String::from_utf8_lossy(&client.call(SLOW, b"slow")?));
    for entry in ["first", "second", ""] {
        match client.call(QUEUED, entry.as_bytes()) {
            Ok(place) => println!("{entry} is entry {}", String::from_utf8_lossy(&place)),
            Err(error) => println!("{error}"),
        }
    }
    drop(client);
    server.shutdown();
    println!(
        "{} entries in the log",
        writer.join().map_err(|_| "the writer panicked")?
    );
    Ok(())
}
