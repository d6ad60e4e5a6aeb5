//! One program for two hosts: a server, and a client that says how it got there.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin two_hosts -- serve dunlin://127.0.0.1:7410    # until Ctrl-C
//! cargo run -p dunlin-examples --bin two_hosts -- call dunlin://127.0.0.1:7410
//! cargo run -p dunlin-examples --bin two_hosts -- call dunlin://127.0.0.1:7410 roce
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use dunlin::{Client, Server};

const UPPER_CASE: u16 = 1;

fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let server = Server::bind(address)?
        .handle(UPPER_CASE, |request, reply| {
            reply.write(&request.payload().to_ascii_uppercase())
        })
        .serve()?;
    println!("listening on {}", server.address());
    // Until Ctrl-C, or what `kill` and service managers say.
    let (told, end) = mpsc::channel();
    ctrlc::set_handler(move || {
        let _ = told.send(());
    })?;
    end.recv()?;
    server.shutdown(); // what was taken is answered
    Ok(())
}

fn call(address: &str, device: Option<&str>) -> Result<(), Box<dyn Error>> {
    let mut builder = Client::builder()
        .connect_timeout(Duration::from_secs(3))
        .deadline(Duration::from_secs(1));
    if let Some(device) = device {
        builder = builder.device(device); // this one, or an error
    }
    let client = builder.connect(address)?;
    let info = client.info();
    println!("over {} ({})", info.device, info.why);
    let answer = client.call(UPPER_CASE, b"hello from here")?;
    println!("{}", String::from_utf8_lossy(&answer));
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["serve", address] => serve(address),
        ["call", address] => call(address, None),
        ["call", address, device] => call(address, Some(device)),
        _ => Err("two_hosts serve ADDRESS | call ADDRESS [DEVICE]".into()),
    };
    if let Err(error) = done {
        eprintln!("error: {error}"); // a sentence; `{error:?}` is for debuggers
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
