//! `dunlin call`: one request by hand.

use std::ffi::OsString;

use dunlin::Address;

use super::payload::payload;
use super::{connect, Failure};
use crate::output;

/// Send one request and print the response
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples (with `dunlin serve echo` in another shell):\n  \
  dunlin call 127.0.0.1:7400 1 hello\n  \
  head -c 1000000 /dev/urandom | dunlin call 127.0.0.1:7400 1 - | wc -c")]
pub struct Args {
    /// Server
    address: Address,
    /// Id of the handler
    handler: u16,
    /// Request, any bytes; `-` reads it from standard input
    #[arg(default_value = "")]
    payload: OsString,
    /// Say on standard error what the connection uses, and why
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    connect: connect::Options,
}

/// Calls.
pub fn run(args: &Args) -> Result<(), Failure> {
    let client = args.connect.connect(&args.address)?;
    if args.verbose {
        let info = client.info();
        output::note(format_args!(
            "{} ({}), {} pages, preset {}",
            info.device, info.why, info.pages, info.preset
        ));
    }
    let payload = payload(&client, &args.payload)?;
    let reply = client.call(args.handler, &payload).map_err(Failure::new)?;
    output::write(&reply)
}
