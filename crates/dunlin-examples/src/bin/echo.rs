//! The first five minutes: a server and a client in one program, calls, an error, several calls at once.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin echo
//! ```

// ANCHOR: all
use dunlin::{CallError, Client, HandlerError, Server};

const ECHO: u16 = 1;
const DIVIDE: u16 = 2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::bind("dunlin://127.0.0.1:0")? // port 0: the system chooses
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle(DIVIDE, |request, reply| match request.payload() {
            [_, 0] => Err(HandlerError::new(1, "division by zero")),
            [a, b] => reply.write(&[a / b]),
            _ => Err(HandlerError::new(2, "a request has two bytes")),
        })
        .serve()?;

    let client = Client::connect(&server.address().to_string())?;
    println!("{}", String::from_utf8_lossy(&client.call(ECHO, b"hello")?));

    match client.call(DIVIDE, &[8, 0]) {
        Err(CallError::Handler { code, message }) => println!("refused with {code}: {message}"),
        other => println!("unexpected: {other:?}"),
    }

    // Both leave together; the answers come in the order of the calls.
    let answers = client
        .batch()
        .call(ECHO, b"one")
        .call(DIVIDE, &[8, 2])
        .send()?;
    for answer in answers {
        println!("{:?}", &*answer?);
    }

    // True: everything that was taken has been answered.
    println!("answered all: {}", server.shutdown());
    Ok(())
}
// ANCHOR_END: all
