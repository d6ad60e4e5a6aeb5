//! What errors say: was the call executed, and is it of use to make it again?
//!
//! ```sh
//! cargo run -p dunlin-examples --bin errors
//! ```

use std::time::{Duration, Instant};

use dunlin::{CallError, Client, Execution, HandlerError, Reply, Server};
use dunlin_examples::Failure;

const REFUSE: u16 = 1;
const SLOW: u16 = 2;
const ADD: u16 = 3;

// ANCHOR: again
/// A call that must not be executed twice: made again only where it was not executed, for as long as `patience` lasts.
fn call_once(
    client: &Client,
    handler: u16,
    payload: &[u8],
    patience: Duration,
) -> Result<Reply, CallError> {
    let end = Instant::now() + patience;
    let mut pause = Duration::from_millis(1);
    loop {
        match client.call(handler, payload) {
            Err(error) if error.is_retryable() && Instant::now() < end => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(100));
            }
            other => return other,
        }
    }
}
// ANCHOR_END: again

fn say(error: &CallError) {
    let executed = match error.execution() {
        Execution::NotExecuted => "not executed",
        Execution::Unknown => "perhaps executed",
        Execution::Executed => "executed",
    };
    println!("{error} [{executed}]");
}

fn main() -> Result<(), Failure> {
    let server = Server::bind("dunlin://127.0.0.1:0")?
        .handle(REFUSE, |_, _| Err(HandlerError::new(17, "no such account")))
        .handle_on_workers(SLOW, |_, reply| {
            std::thread::sleep(Duration::from_millis(100));
            reply.write(b"done")
        })
        .handle(ADD, |request, reply| {
            reply.write(&[request.payload().iter().sum()])
        })
        .serve()?;
    let address = server.address();
    let client = Client::connect(&address.to_string())?;
    // ANCHOR: say
    let limit = client.max_message_bytes()?;
    for failed in [
        client.call(REFUSE, b"").err(),
        client.call(99, b"").err(),
        client
            .within(Duration::from_millis(5))
            .call(SLOW, b"")
            .err(),
        client.call(ADD, &vec![1; limit + 1]).err(),
    ] {
        say(&failed.ok_or("that should have failed")?);
    }
    // ANCHOR_END: say
    // ANCHOR: restart
    server.shutdown();
    let begun = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        Server::bind(&address.to_string())?
            .handle(ADD, |request, reply| {
                reply.write(&[request.payload().iter().sum()])
            })
            .serve()
    });
    // The same client: its next call connects anew.
    let sum = call_once(&client, ADD, &[1, 2, 3], Duration::from_secs(20))?;
    println!("{:?} from the server that came after", &*sum);
    // ANCHOR_END: restart
    drop(begun.join().map_err(|_| "it panicked")?);
    Ok(())
}
