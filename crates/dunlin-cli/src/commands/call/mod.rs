//! `dunlin call`: makes one call by hand, by a handler's number with bytes, or by a method's name with JSON.

mod by_name;
mod descriptors;
mod messages;
mod show;

use std::ffi::OsString;
use std::path::PathBuf;

use dunlin::{Address, Client};
use dunlin_service::{MetadataMap, Status};
use serde_json::json;

use super::payload::payload;
use super::{connect, Failure};
use crate::output;

/// Call a handler by its number or a method by its name
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A method of a typed service is called by its name. Its message types come from the server's reflection service or \
from a .proto file (--proto). Requests are JSON: one for a unary method, any number one after the other for a stream; \
an omitted request is {}. Responses are printed as JSON, those of a stream as they arrive.\n\n\
Examples (with `dunlin serve echo` in another shell):\n  \
  dunlin call 127.0.0.1:7400 1 hello\n  \
  head -c 1000000 /dev/urandom | dunlin call 127.0.0.1:7400 1 - | wc -c\n  \
  dunlin call 127.0.0.1:7400 --list\n  \
  dunlin call 127.0.0.1:7400 --describe dunlin.Measure\n  \
  dunlin call 127.0.0.1:7400 dunlin.Measure/Echo '{\"words\": \"hello\"}'\n  \
  dunlin call db1:7400 routeguide.RouteGuide/RouteChat - --proto route_guide.proto < notes.json\n\n\
Exit codes: 0 success; 1 no call could be made; 2 incorrect usage, and nothing was called: no such service, method or \
field, invalid JSON; 64 plus gRPC's number of the status with which the call ended: 69 NOT_FOUND, 76 UNIMPLEMENTED.")]
pub struct Args {
    /// Address of the server
    address: Address,
    /// Number of the handler, or SERVICE/METHOD; with --list a service, with --describe also a message
    #[arg(value_name = "HANDLER|METHOD", required_unless_present_any = ["list", "describe"])]
    what: Option<String>,
    /// Request: any bytes, or JSON for a method; `-` reads standard input
    #[arg(default_value = "", conflicts_with_all = ["list", "describe"])]
    payload: OsString,
    /// List all services, or the methods of a service
    #[arg(long, conflicts_with = "describe")]
    list: bool,
    /// Describe a service, a method or a message; without a name, all services
    #[arg(long)]
    describe: bool,
    /// Take message types from this .proto file or descriptor set instead of asking the server
    #[arg(long, value_name = "FILE")]
    proto: Vec<PathBuf>,
    /// Folder to search for imports of --proto, in addition to the file's own
    #[arg(long, short = 'I', value_name = "DIR")]
    include: Vec<PathBuf>,
    /// Metadata of the call; may be given several times
    #[arg(long, short = 'H', value_name = "NAME=VALUE", value_parser = parse_header)]
    header: Vec<(String, String)>,
    /// Print JSON, each message, list or status of a failed call on one line
    #[arg(long)]
    json: bool,
    /// Print on standard error what the connection uses and why, and the response metadata of a method
    #[arg(long, short)]
    verbose: bool,
    #[command(flatten)]
    connect: connect::Options,
}

/// Parses `NAME=VALUE`.
fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let mut map = MetadataMap::new();
    let added = map.append(name, value);
    added.map_err(|error| error.to_string())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let what = args.what.as_deref().unwrap_or_default();
    let number = what.parse::<u16>().ok();
    if number.is_none() && !args.list && !args.describe && !what.contains('/') {
        let words = "is neither a handler number nor SERVICE/METHOD";
        return Err(Failure::usage(format!("'{what}' {words}"))
            .help("`dunlin call ADDRESS --list` lists a server's services"));
    }
    let client = args.connect.connect(&args.address)?;
    if args.verbose {
        let info = client.info();
        output::note(format_args!(
            "{} ({}), {} pages, preset {}",
            info.device, info.why, info.pages, info.preset
        ));
    }
    match number {
        Some(number) if !args.list && !args.describe => by_number(args, &client, number),
        _ => by_name::run(args, client),
    }
}

fn by_number(args: &Args, client: &Client, number: u16) -> Result<(), Failure> {
    let named = !args.proto.is_empty() || !args.header.is_empty() || args.json;
    if named {
        let words =
            "--proto, --header and --json can only be used with methods called by name, not with handlers called by \
             number";
        return Err(Failure::usage(words));
    }
    let payload = payload(client, &args.payload)?;
    let reply = client.call(number, &payload).map_err(Failure::new)?;
    output::write(&reply)
}

/// The failure when a request made before the call ended with a status, which --json prints as an object, too.
fn not_called(args: &Args, status: &Status) -> Failure {
    let mut failure = failed(status);
    failure.message = format!(
        "the method was not called, because the server did not list its methods: {}",
        failure.message
    );
    match args.json {
        true => print_status(status).err().unwrap_or(failure),
        false => failure,
    }
}

fn print_status(status: &Status) -> Result<(), Failure> {
    let (code, message) = (status.code(), status.message());
    let object = json!({ "code": code.name(), "number": i32::from(code), "message": message });
    output::print_message(&json!({ "status": object }))
}

/// The failure for a call that ended with a status.
fn failed(status: &Status) -> Failure {
    let code = 64 + u8::try_from(i32::from(status.code())).unwrap_or(2);
    Failure::new(status).with_exit_code(code)
}
