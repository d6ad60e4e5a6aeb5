//! `dunlin call`: one request by hand.

use std::io::{Read, Write};

use super::{connect, Failure};

/// Send one request and print the response
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples (with `dunlin serve echo` in another shell):\n  \
  dunlin call 127.0.0.1:7400 1 hello\n  \
  head -c 1000000 /dev/urandom | dunlin call 127.0.0.1:7400 1 - | wc -c")]
pub struct Args {
    /// Server
    address: String,
    /// Id of the handler
    handler: u16,
    /// Request; `-` reads it from standard input
    #[arg(default_value = "")]
    payload: String,
    /// Say on standard error what the connection uses, and why
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    connect: connect::Options,
}

/// Calls.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut payload = args.payload.clone().into_bytes();
    if payload == b"-" {
        payload.clear();
        std::io::stdin().read_to_end(&mut payload)?;
    }
    let client = args.connect.connect(&args.address)?;
    if args.verbose {
        let info = client.info();
        eprintln!(
            "{} ({}), {} pages, preset {}",
            info.device, info.why, info.pages, info.preset
        );
    }
    let reply = client.call(args.handler, &payload).map_err(Failure::new)?;
    let mut output = std::io::stdout();
    output.write_all(&reply)?;
    output.flush()?;
    Ok(())
}
