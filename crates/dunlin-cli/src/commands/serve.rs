//! `dunlin serve`: runs a service until Ctrl-C.

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, ValueEnum};
use dunlin::{Address, Client, RunningServer, Secret, Server, ServerBuilder, WaitMode};

use super::{connect, Failure};
use crate::input::parse_bytes;
use crate::services::{blocks, echo, fs, kv, metrics::MetricsPort, store, typed};
use crate::tls::ServerOptions;
use crate::{affinity, input, interrupt, output, rights, settings};

/// The default listen address, reachable from this host only.
const LISTEN: &str = "dunlin://127.0.0.1:7400";

/// A service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Service {
    /// Key-value store with an ordered index, for `dunlin kv` and `dunlin perf kv`
    Kv,
    /// Echo service, which returns the payload of each request, for `dunlin call` and `dunlin perf`
    Echo,
    /// One machine of a transactional database, for `dunlin txn`, `dunlin perf txn` and programs
    Store,
    /// Metadata server of a file system, for `dunlin mount` and `dunlin perf meta`
    Meta,
    /// Data server of a file system: memory backed by a file, which clients read and write one-sided
    Data,
    /// Block server with copies of the blocks of volumes, for `dunlin volume`
    Blocks,
}

/// Run a service
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Serves until Ctrl-C or SIGTERM, answers the requests that it has accepted, and ends with exit code 0, or 1 when some \
answers could not be delivered.\n\n\
Examples:\n  \
  dunlin serve kv                                        on port 7400\n  \
  dunlin serve echo --listen dunlin://127.0.0.1:7500\n  \
  dunlin serve store --table accounts:10000:8            a database of one machine\n  \
  dunlin serve store --machine 1 --machines 3 --load smallbank --listen dunlin://127.0.0.1:7401\n  \
  dunlin serve store --machine 1 --machines 3 --membership /tmp/bank --table accounts:10000:8 \\\n      \
      --listen dunlin://127.0.0.1:7401                   the others replace it when it fails\n  \
  dunlin serve store --membership /var/bank/who --log /var/bank/log0 --table accounts:10000:8\n      \
                                                         what was acknowledged survives kill -9 and a host crash\n  \
  dunlin serve kv --memory 3GiB --keys 10000000          room for ten million keys\n  \
  dunlin serve data --file /tmp/d0 --size 1GiB --listen dunlin://127.0.0.1:7501\n  \
  dunlin serve meta --store /tmp/meta --data dunlin://127.0.0.1:7501\n  \
  dunlin serve blocks --log /var/blocks0 --listen dunlin://127.0.0.1:7601\n  \
  dunlin serve kv --secret-file key                      clients must have the same file\n  \
  dunlin serve kv --tls-cert db1.pem --tls-key db1.key --tls-ca clients.pem --rights rights.toml\n      \
                                                         clients by certificate, with rights for each\n  \
  dunlin serve echo --metrics 127.0.0.1:9464             metrics for Prometheus\n  \
  dunlin --config dunlin.toml serve kv                   other settings from `[server]` of a file")]
pub struct Args {
    /// Service to run
    #[arg(value_enum)]
    service: Service,
    /// Address to listen on; with port 0 a free port is chosen, and the first line of output shows it [default:
    /// dunlin://127.0.0.1:7400]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Address>,
    /// Memory of the key-value store, less than 4 GiB, allocated at start; clients can read all of it
    #[arg(long, default_value = "256MiB", value_name = "BYTES", value_parser = parse_bytes(1 << 20..=u32::MAX))]
    memory: u32,
    /// Size of a region 'memory' of the echo service that clients may read and write
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes(1..=u32::MAX))]
    region: Option<u32>,
    /// Number of keys that the key-value store is sized for [default: one for every 256 bytes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// Serve over this device only (see `dunlin devices`)
    #[arg(long, value_parser = connect::parse_device)]
    device: Option<String>,
    /// Threads that poll for requests [default: 1]
    #[arg(long, value_name = "N")]
    pollers: Option<usize>,
    /// Threads for slow handlers [default: 4]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Maximum number of connections for each device; further ones are refused [default: 4096]
    #[arg(long, value_name = "N")]
    max_connections: Option<usize>,
    /// Longest request accepted, such as 64KiB or 1GiB [default: 16MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes(24..=u32::MAX))]
    max_message_bytes: Option<u32>,
    /// Maximum number of calls outstanding on a connection [default: 1024]
    #[arg(long, value_name = "N")]
    max_outstanding: Option<usize>,
    /// Pin polling threads to consecutive cores, starting at this one
    #[arg(long, value_name = "CORE")]
    pin: Option<usize>,
    /// Never sleep: lowest latency, but each poller occupies a core
    #[arg(long)]
    spin: bool,
    /// Answer `GET /metrics` at this address, for Prometheus; with port 0 a free port is chosen, and the second line of
    /// output shows it
    #[arg(long, value_name = "IP:PORT")]
    metrics: Option<SocketAddr>,
    /// Allow clients to capture the calls of all others (`dunlin capture`)
    #[arg(long)]
    allow_capture: bool,
    /// File with the shared secret; both sides must prove that they know it
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    #[command(flatten)]
    tls: ServerOptions,
    /// File of what each client may call and attach (docs/security.md) [default: all may do everything]
    #[arg(long, value_name = "FILE")]
    rights: Option<PathBuf>,
    #[command(flatten)]
    store: store::Options,
    #[command(flatten)]
    fs: fs::FileServerOptions,
    #[command(flatten)]
    blocks: blocks::BlockServerOptions,
    /// End when standard input closes
    #[arg(long, hide = true)]
    with_parent: bool,
}

/// Options that apply to certain services only, by their field names.
const OPTIONS_OF: [(&[&str], &[Service]); 8] = [
    (&["memory", "keys"], &[Service::Kv]),
    (&["region"], &[Service::Echo]),
    (
        &[
            "machine",
            "machines",
            "replicas",
            "tables",
            "load",
            "rows",
            "one_sided_writes",
            "membership",
            "replace_after",
            "advertise",
            "snapshot_after",
        ],
        &[Service::Store],
    ),
    (&["log"], &[Service::Store, Service::Blocks]),
    (&["store", "data", "lease"], &[Service::Meta]),
    (&["file", "size"], &[Service::Data]),
    (
        &["durability"],
        &[Service::Meta, Service::Data, Service::Blocks],
    ),
    (&["capacity"], &[Service::Blocks]),
];

impl Args {
    /// Rejects options given on the command line that do not apply to the service, since users would believe them in
    /// effect.
    ///
    /// # Errors
    /// Names the first of them.
    pub fn check(&self, said: &ArgMatches) -> Result<(), Failure> {
        for (options, services) in OPTIONS_OF {
            if services.contains(&self.service) {
                continue;
            }
            let on_command_line =
                |option: &&&str| said.value_source(option) == Some(ValueSource::CommandLine);
            if let Some(option) = options.iter().find(on_command_line) {
                let option = match *option {
                    "tables" => "table".to_owned(),
                    option => option.replace('_', "-"),
                };
                let name = |service: &Service| {
                    let value = service.to_possible_value();
                    value.map_or_else(String::new, |value| value.get_name().to_owned())
                };
                let services = Vec::from_iter(services.iter().map(name)).join("`, `");
                return Err(Failure::usage(format!(
                    "--{option} cannot be used with `serve {}`; it is for `{services}`",
                    name(&self.service)
                )));
            }
        }
        Ok(())
    }
}

/// Reads a secret, and rejects a file longer than a secret may be without reading it all.
///
/// # Errors
/// When the file cannot be read, is empty or is too long; the message has its name.
pub fn read_secret(file: impl AsRef<Path>) -> Result<Secret, Failure> {
    let file = file.as_ref();
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("secret file {}: {error}", file.display()))
    };
    let most = Secret::MAX_BYTES;
    let bytes = std::fs::File::open(file)
        .and_then(|open| input::read_at_most(open, most))
        .map_err(|error| wrong(&error))?
        .ok_or_else(|| {
            wrong(&format_args!(
                "longer than the limit of {most} bytes for a secret"
            ))
        })?;
    Secret::new(bytes).map_err(|error| wrong(&error))
}

/// The address for Prometheus. A server started by another command does not use the settings' port.
fn metrics(args: &Args) -> Option<SocketAddr> {
    let set = settings::get().server.metrics;
    args.metrics.or(set.filter(|_| !args.with_parent))
}

/// The builder of a server with these options.
fn builder(
    args: &Args,
    listen: &Address,
    secret: Option<&Secret>,
) -> Result<ServerBuilder, Failure> {
    let set = &settings::get().server;
    let mut channel = set.channel;
    if let Some(bytes) = args.max_message_bytes {
        channel.max_message_bytes = Some(bytes as usize);
    }
    channel.max_outstanding = args.max_outstanding.or(channel.max_outstanding);
    let mut config = channel.config();
    if args.service == Service::Blocks {
        // A block crosses in one message.
        let least = dunlin_volume::client::channel();
        config.ring_bytes = config.ring_bytes.max(least.ring_bytes);
        config.eager_bytes = config.eager_bytes.max(least.eager_bytes);
    }
    let allows_capture = args.allow_capture || set.allows_capture == Some(true);
    let mut server = Server::bind(&listen.to_string())?
        .channel(config)
        .allows_capture(allows_capture);
    let pollers = args.pollers.or(set.pollers);
    if let Some(pollers) = pollers {
        server = server.pollers(pollers);
    }
    if let Some(workers) = args.workers.or(set.workers) {
        server = server.workers(workers);
    }
    if let Some(most) = args.max_connections.or(set.max_connections) {
        if most == 0 {
            return Err(Failure::usage(
                "max_connections is 0: no client could connect",
            ));
        }
        server = server.max_connections(most);
    }
    if let Some(most) = set.max_active_queue_pairs {
        server = server.max_active_queue_pairs(most);
    }
    if let Some(datagrams) = set.datagrams {
        server = server.datagrams(datagrams);
    }
    if let Some(timeout) = set.handshake_timeout {
        server = server.handshake_timeout(timeout);
    }
    if let Some(device) = args.device.as_ref().or(set.device.as_ref()) {
        server = server.device(device);
    }
    if let Some(core) = args.pin.or(set.pin_pollers) {
        let last = core.saturating_add(pollers.unwrap_or(1)).saturating_sub(1);
        if !affinity::can_pin(core) || !affinity::can_pin(last) {
            let words = "this process cannot run on all of these cores";
            return Err(Failure::usage(format!(
                "--pin: cores {core} to {last}: {words}"
            )));
        }
        server = server.pin_pollers(core);
    }
    if args.spin {
        server = server.wait(WaitMode::Spin);
    }
    if let Some(secret) = secret {
        server = server.secret(secret.clone());
    }
    if let Some(tls) = args.tls.server(&set.tls, set.tls_optional == Some(true))? {
        if args.service == Service::Meta {
            let words =
                "serve meta does not support TLS yet, because its clients and data servers do not";
            return Err(Failure::usage(words));
        }
        server = server.tls(tls);
    }
    if let Some(file) = args.rights.as_ref().or(set.rights.as_ref()) {
        server = server.rights(rights::read(file)?);
    }
    Ok(server)
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let set = &settings::get().server;
    let listen = args.listen.clone().or_else(|| set.listen.clone());
    let listen = match listen {
        Some(listen) => listen,
        None => LISTEN.parse().map_err(Failure::usage)?,
    };
    run_at(args, &listen).map_err(|failure| failure.naming(&listen))
}

fn run_at(args: &Args, listen: &Address) -> Result<(), Failure> {
    let set = &settings::get().server;
    let secret = args.secret_file.as_ref().or(set.secret_file.as_ref());
    let secret = secret.map(read_secret).transpose()?;
    if args.service == Service::Store && args.store.is_replicated() {
        return run_replicated(args, listen, secret.as_ref());
    }
    let server = builder(args, listen, secret.as_ref())?;
    // Of the metadata server, and of the block server's log; they end after the server.
    let (mut threads, mut log) = (None, None);
    let server = match args.service {
        Service::Kv => {
            let (memory, keys) = (args.memory as usize, args.keys);
            kv::on(server, &kv::Settings { memory, keys })?.serve()?
        }
        Service::Echo => {
            let region = args.region.map(|bytes| bytes as usize);
            typed::on(echo::on(server, region))?.serve()?
        }
        Service::Store => store::serve(server, &args.store)?,
        Service::Meta => {
            let (server, beside) = fs::serve_meta(server, &args.fs, secret)?;
            threads = Some(beside);
            server
        }
        Service::Data => fs::serve_data(server, &args.fs)?,
        Service::Blocks => {
            let (place, durability) = (args.store.log_directory(), args.fs.durability);
            let (server, end) = blocks::serve(server, &args.blocks, place, durability)?;
            log = Some(end);
            server
        }
    };
    let metrics = metrics(args)
        .map(|address| MetricsPort::open(address, server.observer()))
        .transpose()?;
    output::print(format_args!("listening on {}", server.address()))?;
    if let Some(port) = &metrics {
        output::print(format_args!("metrics on http://{}/metrics", port.address()))?;
    }
    if args.with_parent {
        interrupt::ignore()?;
        wait_for_parent();
    } else {
        interrupt::wait()?;
        let statistics = server.statistics();
        output::note(format_args!(
            "served {} requests on {} connections",
            statistics.requests, statistics.accepted
        ));
    }
    let finished = finish(server);
    drop((threads, log));
    finished
}

/// Runs a machine of a replicated database, which rejoins in a new life after it was replaced.
fn run_replicated(args: &Args, listen: &Address, secret: Option<&Secret>) -> Result<(), Failure> {
    let set = &settings::get().server;
    let mut client = Client::builder();
    if let Some(device) = args.device.as_ref().or(set.device.as_ref()) {
        client = client.device(device);
    }
    if let Some(secret) = secret {
        client = client.secret(secret.clone());
    }
    if let Some(tls) = args.tls.among_equals(&set.tls)? {
        client = client.tls(tls);
    }
    let parent_gone = Arc::new(AtomicBool::new(false));
    if args.with_parent {
        interrupt::ignore()?;
        let gone = Arc::clone(&parent_gone);
        std::thread::spawn(move || {
            wait_for_parent();
            gone.store(true, Ordering::Relaxed);
        });
    } else {
        interrupt::listen()?;
    }
    let begins = store::Begins {
        server: &|listen| builder(args, listen, secret),
        listen,
        client,
        metrics: metrics(args),
    };
    let is_over = || interrupt::came() || parent_gone.load(Ordering::Relaxed);
    store::serve_replicated(&begins, &args.store, &is_over)
}

/// Returns when the process that started this one ends, or closes its standard input.
pub fn wait_for_parent() {
    let mut byte = [0];
    // An end of file or an error: the other side is closed in either case.
    while matches!(std::io::stdin().read(&mut byte), Ok(1..)) {}
}

fn finish(server: RunningServer) -> Result<(), Failure> {
    if server.shutdown() {
        return Ok(());
    }
    // Clients that read no more are cut off.
    std::thread::sleep(Duration::from_millis(10));
    Err(Failure::new(
        "some answers could not be delivered before the end",
    ))
}
