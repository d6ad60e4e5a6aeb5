//! `dunlin volume`: creates, exports, checks and removes block volumes.

use std::time::Duration;

use clap::Subcommand;
use dunlin::{Address, CallError};
use dunlin_volume::nbd::{Export, ExportError, NbdAddress};
use dunlin_volume::{Volume, VolumeError, VolumeOptions, BLOCK_BYTES};
use serde_json::json;

use super::perf::parse_seconds;
use super::{connect, Failure};
use crate::input::parse_long_bytes;
use crate::{interrupt, output};

/// Create, export, check and remove block volumes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A volume has three copies of each block, on three servers or spread over more; on one server it has one copy. The \
servers must be given in the same order every time.\n\n\
Examples:\n  \
  dunlin serve blocks --log /var/blocks0 --listen dunlin://127.0.0.1:7601 &    and 7602, 7603\n  \
  S=dunlin://127.0.0.1:7601,dunlin://127.0.0.1:7602,dunlin://127.0.0.1:7603\n  \
  dunlin volume create birds --size 1GiB --server $S\n  \
  dunlin volume export birds --server $S --nbd unix:/run/birds.sock &\n  \
  fio --name=t --ioengine=nbd --uri='nbd+unix:///birds?socket=/run/birds.sock' \\\n      \
      --rw=randwrite --bs=4k --size=1g\n  \
  dunlin volume check birds --server $S --json | jq .faults")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

/// What to do.
#[allow(missing_docs)]
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Create a volume
    Create {
        #[command(flatten)]
        of: Which,
        /// Size of the volume, a multiple of 4096 bytes
        #[arg(long, value_name = "BYTES", value_parser = parse_long_bytes(BLOCK_BYTES as u64..=1 << 44))]
        size: u64,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Export a volume by NBD until Ctrl-C; a client that has it open is replaced
    Export {
        #[command(flatten)]
        of: Which,
        /// Address of the export, unix:PATH or tcp:HOST:PORT, where port 0 chooses a free port. There is no password:
        /// every client that can connect can read and write
        #[arg(long, value_name = "WHERE")]
        nbd: NbdAddress,
    },
    /// Compare all copies of all blocks with each other and their checksums while nothing is written; exit code 1 if
    /// some differ. With --json `faulty` is their number, and `faults` has the first 1000
    Check {
        #[command(flatten)]
        of: Which,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove a volume from all of its servers
    Remove {
        #[command(flatten)]
        of: Which,
    },
}

/// The volume, and how its servers are reached.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Name of the volume
    name: String,
    /// Servers of the volume, separated by commas or one at a time, in the same order every time
    #[arg(
        long = "server",
        value_name = "ADDRESS",
        value_delimiter = ',',
        required = true
    )]
    servers: Vec<Address>,
    /// Seconds for which a copy may leave a request unanswered before the others go on without it
    #[arg(long, default_value = "2", value_parser = parse_seconds, value_name = "SECONDS")]
    replace_after: Duration,
    /// Seconds for which a request is retried while too few copies answer
    #[arg(long, default_value = "30", value_parser = parse_seconds, value_name = "SECONDS")]
    patience: Duration,
    #[command(flatten)]
    connect: connect::Options,
}

impl Which {
    fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(ToString::to_string).collect()
    }

    fn options(&self) -> Result<VolumeOptions, Failure> {
        Ok(VolumeOptions {
            client: self.connect.builder()?,
            replace_after: self.replace_after,
            patience: self.patience,
        })
    }
}

fn failed(error: VolumeError) -> Failure {
    match error {
        VolumeError::Shape(_) | VolumeError::Unaligned(_) | VolumeError::Order(_) => {
            Failure::usage(error)
        }
        VolumeError::Exists { .. } => Failure::new(error)
            .help(
                "use another name, export the existing volume with `dunlin volume export`, or remove it with `dunlin \
                 volume remove` first"),
        VolumeError::Server {
            source: CallError::Handler { code, .. },
            ..
        } if is_of_room(code) => Failure::new(error).help(
            "this error is from that server: check that it can write the directory of its --log, and that its \
             --capacity suffices",
        ),
        VolumeError::Server {
            source: CallError::Handler { .. },
            ..
        } => Failure::new(error),
        VolumeError::Server { .. } | VolumeError::TooFew { .. } => {
            Failure::new(error).help("is `dunlin serve blocks` running there?")
        }
        error => Failure::new(error),
    }
}

/// Whether a server refused because of its disk or its space.
fn is_of_room(code: u32) -> bool {
    use dunlin_volume::wire::code::{FULL, LOG};
    [LOG, FULL].contains(&code)
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.action {
        Action::Create { of, size, json } => {
            let shape = dunlin_volume::create(&of.name, *size, &of.addresses(), &of.options()?);
            let shape = shape.map_err(failed)?;
            let (name, blocks) = (&of.name, shape.blocks);
            let (copies, servers) = (shape.copies, shape.servers);
            match json {
                true => output::print_json(&json!({
                    "name": name,
                    "blocks": blocks,
                    "block_bytes": BLOCK_BYTES,
                    "copies": copies,
                    "servers": servers,
                })),
                false => output::print(format_args!(
                    "{name}: {blocks} blocks of {BLOCK_BYTES} bytes, {copies} copies on {servers} servers"
                )),
            }
        }
        Action::Export { of, nbd } => export(of, nbd),
        Action::Check { of, json } => {
            let found = dunlin_volume::check(&of.name, &of.addresses(), &of.options()?);
            let found = found.map_err(failed)?;
            let name = &of.name;
            let (blocks, written, faulty) = (found.blocks, found.written, found.faulty);
            match json {
                true => output::print_json(&json!({
                    "name": name,
                    "blocks": blocks,
                    "written": written,
                    "faulty": faulty,
                    "faults": &found.faults,
                }))?,
                false => output::print(format_args!(
                    "{name}: {blocks} blocks compared, {written} were written"
                ))?,
            }
            if found.faults.is_empty() {
                return Ok(());
            }
            let some: Vec<String> = found.faults.iter().take(10).map(u64::to_string).collect();
            let more = if faulty > some.len() as u64 {
                ", ..."
            } else {
                ""
            };
            let words = format!(
                "copies of {faulty} blocks differ or are damaged: {}{more}",
                some.join(", ")
            );
            Err(Failure::new(words)
                .help("opening the volume makes copies that are not damaged equal"))
        }
        Action::Remove { of } => {
            let removed = dunlin_volume::remove(&of.name, &of.addresses(), &of.options()?);
            removed.map_err(failed)?;
            output::print(format_args!("{} is removed", of.name))
        }
    }
}

fn export(of: &Which, nbd: &NbdAddress) -> Result<(), Failure> {
    interrupt::listen()?;
    let volume = Volume::open(&of.name, &of.addresses(), &of.options()?).map_err(failed)?;
    let mut export = Export::new(volume, nbd).map_err(|error| match &error {
        ExportError::Listen { .. } => Failure::new(error)
            .help("is it in use, of another host, or a file that is not a socket?"),
        _ => Failure::new(error),
    })?;
    let uri = export.address()?.uri(&of.name);
    output::print(format_args!("exported as {uri}"))?;
    export.run(interrupt::came).map_err(Failure::new)
}
