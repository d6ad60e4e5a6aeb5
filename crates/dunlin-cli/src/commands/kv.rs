//! `dunlin kv`: calls the key-value service by hand.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Subcommand;
use dunlin::{Address, CallError};

use super::payload::payload;
use super::{connect, Failure};
use crate::output;
use crate::services::kv;

/// Use the key-value service
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples (with `dunlin serve kv` in another shell):\n  \
  dunlin kv put bird dunlin\n  \
  dunlin kv get bird\n  \
  dunlin kv get photo --raw > photo   only its bytes\n  \
  dunlin kv get bird --one-sided     READ from the server's memory, bypassing its processor\n  \
  dunlin kv scan --limit 10")]
pub struct Args {
    /// Address of the server
    #[arg(long, default_value = "dunlin://127.0.0.1:7400", global = true)]
    address: Address,
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    connect: connect::Options,
}

/// Operation on the map.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Print the value of a key; exit code 1 if there is none
    Get {
        /// The key, any bytes
        key: OsString,
        /// READ it from the server's memory, bypassing the server's processor
        #[arg(long)]
        one_sided: bool,
        /// Print only its bytes, without a trailing newline
        #[arg(long)]
        raw: bool,
        /// Print one JSON object as `scan --json` prints entries, with `key_hex` and `value_hex` for bytes that are not
        /// UTF-8
        #[arg(long, conflicts_with = "raw")]
        json: bool,
    },
    /// Set the value of a key
    Put {
        /// The key, any bytes
        key: OsString,
        /// The value; `-` reads it from standard input
        value: OsString,
    },
    /// Remove a key; exit code 1 if there was none
    Del {
        /// The key, any bytes
        key: OsString,
    },
    /// Print entries in the order of their keys, with a tab between key and value
    Scan {
        /// First key
        #[arg(default_value = "")]
        from: OsString,
        /// Maximum number of entries
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Print one JSON object for each entry, with `key_hex` and `value_hex` for bytes that are not UTF-8
        #[arg(long)]
        json: bool,
    },
}

/// An entry as a line of JSON, lossless for any bytes.
fn json_line(key: &[u8], value: &[u8]) -> String {
    let mut object = serde_json::Map::new();
    for (name, bytes) in [("key", key), ("value", value)] {
        let hex = || {
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        match std::str::from_utf8(bytes) {
            Ok(text) => object.insert(name.into(), text.into()),
            Err(_) => object.insert(format!("{name}_hex"), hex().into()),
        };
    }
    format!("{}\n", serde_json::Value::Object(object))
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let client = args.connect.connect(&args.address)?;
    let missing = |key: &OsStr| Failure::new(format!("no key '{}'", key.to_string_lossy()));
    let failed = |error: CallError| match error {
        CallError::UnknownHandler(_) => Failure::new(format!(
            "the server at {} has no key-value store",
            args.address
        ))
        .help("start one with `dunlin serve kv`"),
        other => Failure::new(other),
    };
    match &args.action {
        Action::Get {
            key,
            one_sided,
            raw,
            json,
        } => {
            let get = match one_sided {
                true => kv::get_by_reads,
                false => kv::get_value,
            };
            let value = get(&client, key.as_bytes()).map_err(failed)?;
            let mut line = value.ok_or_else(|| missing(key))?;
            if *json {
                line = json_line(key.as_bytes(), &line).into_bytes();
            } else if !raw {
                line.push(b'\n');
            }
            output::write(&line)?;
        }
        Action::Put { key, value } => {
            if key.len() > kv::MAX_KEY_BYTES {
                let words = format!(
                    "key too long: {} bytes, the limit is {}",
                    key.len(),
                    kv::MAX_KEY_BYTES
                );
                return Err(Failure::usage(words));
            }
            let value = payload(&client, value)?;
            let request = kv::put_request(key.as_bytes(), &value);
            client.call(kv::PUT, &request).map_err(failed)?;
        }
        Action::Del { key } => {
            let reply = client.call(kv::DELETE, key.as_bytes()).map_err(failed)?;
            if *reply != [1] {
                return Err(missing(key));
            }
        }
        Action::Scan { from, limit, json } => {
            let entries = kv::scan_entries(&client, from.as_bytes(), *limit).map_err(failed)?;
            let lines = entries.into_iter().map(|(key, value)| match json {
                true => json_line(&key, &value).into_bytes(),
                false => [&key[..], b"\t", &value, b"\n"].concat(),
            });
            output::write(&lines.collect::<Vec<_>>().concat())?;
        }
    }
    Ok(())
}
