//! The subcommands. To add one, add a file here with `Args` and `run`, a variant of [`Command`] and its match arm.

pub mod call;
pub mod capture;
pub mod completions;
pub mod connect;
pub mod count_traffic;
pub mod demo;
pub mod devices;
pub mod doctor;
pub mod fsck;
pub mod kv;
pub mod lab;
pub mod man;
#[cfg(feature = "mount")]
pub mod mount;
pub mod mpi;
mod payload;
pub mod perf;
pub mod ping;
pub mod serve;
pub mod sort;
pub mod top;
pub mod txn;
pub mod volume;

use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use dunlin::{BootstrapError, ConnectError, ServeError};

use crate::output;

/// `dunlin`: an RDMA RPC framework, with or without the hardware.
#[derive(Debug, Parser)]
#[command(
    name = "dunlin",
    version,
    about = "Dunlin: RPC over RDMA, with or without the hardware",
    after_help = "Examples:\n  \
        dunlin demo                     show a key-value store under load\n  \
        dunlin perf rpc                 measure the round trip between two processes\n  \
        dunlin perf limits              measure what this machine allows without a framework\n  \
        dunlin doctor                   report what is missing here and how to get it\n\n\
        Exit codes: 0 success, 1 failure, 2 incorrect usage, 130 Ctrl-C (what was measured until then is reported); \
        `call` of a method: 64 plus the number of the status with which it ended. Commands that run until they are \
        stopped (serve, mount, volume export, capture, top on a terminal) end with 0 on Ctrl-C.\n\n\
        Settings: values not given on the command line are taken from the environment (DUNLIN_CLIENT_... and \
        DUNLIN_SERVER_..., such as DUNLIN_CLIENT_DEADLINE=2), then from [client] and [server] of the --config \
        file.\n\n\
        DUNLIN_LOG=debug logs on standard error why connections begin and end; DUNLIN_LOG=dunlin_rpc=trace logs one \
        crate only. Servers warn of clients that they refuse; DUNLIN_LOG=off turns this off.",
    arg_required_else_help = true
)]
pub struct Cli {
    /// Settings file in TOML [env: DUNLIN_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a demonstration: server processes and a load
    Demo(demo::Args),
    /// Run a service
    Serve(Box<serve::Args>),
    /// Call a handler by its number or a method by its name
    Call(Box<call::Args>),
    /// Check whether a server answers, and how fast
    Ping(ping::Args),
    /// Use the key-value service
    Kv(kv::Args),
    /// Mount the file system of a metadata server
    #[cfg(feature = "mount")]
    Mount(mount::Args),
    /// Check the store of a metadata server that is not running
    Fsck(fsck::Args),
    /// Create, export, check and remove block volumes
    Volume(volume::Args),
    /// Sort files of records with several processes
    Sort(sort::Args),
    /// Run programs of several processes that exchange messages
    Mpi(mpi::Args),
    /// Count the traffic in a capture by flow
    CountTraffic(count_traffic::Args),
    /// Run transactions by hand
    Txn(txn::Args),
    /// Watch a running server
    Top(top::Args),
    /// Capture the calls of a running server
    Capture(capture::Args),
    /// Measure performance
    #[command(subcommand)]
    Perf(perf::Command),
    /// Reproduce the papers' figures on the simulated cluster and judge their claims
    #[command(subcommand)]
    Lab(lab::Command),
    /// List devices and their capabilities
    Devices(devices::Args),
    /// Report what is available, what is missing, and how to get it
    Doctor(doctor::Args),
    /// Print a shell completion script
    Completions(completions::Args),
    /// Write the manual pages
    Man(man::Args),
}

impl Command {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Demo(args) => demo::run(&args),
            Self::Serve(args) => serve::run(&args),
            Self::Call(args) => call::run(&args),
            Self::Ping(args) => ping::run(&args),
            Self::Kv(args) => kv::run(&args),
            #[cfg(feature = "mount")]
            Self::Mount(args) => mount::run(&args),
            Self::Fsck(args) => fsck::run(&args),
            Self::Volume(args) => volume::run(&args),
            Self::Sort(args) => sort::run(&args),
            Self::Mpi(args) => mpi::run(&args),
            Self::CountTraffic(args) => count_traffic::run(&args),
            Self::Txn(args) => txn::run(&args),
            Self::Top(args) => top::run(&args),
            Self::Capture(args) => capture::run(&args),
            Self::Devices(args) => devices::run(&args),
            Self::Perf(command) => command.run(),
            Self::Lab(command) => command.run(),
            Self::Doctor(args) => doctor::run(&args),
            Self::Completions(args) => completions::run(&args),
            Self::Man(args) => man::run(&args),
        }
    }
}

/// The exit code after Ctrl-C, as in shells: 128 plus the number of the signal.
pub const INTERRUPTED: u8 = 130;

/// The help for an address that cannot be listened on.
const NOT_OF_THIS_HOST: &str = "no network interface of this host has this address";

/// Why a command failed, and what the user can do about it.
#[derive(Debug)]
pub struct Failure {
    message: String,
    help: Option<String>,
    exit_code: u8,
}

impl Failure {
    /// The operation failed: exit code 1.
    pub fn new(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string(),
            help: None,
            exit_code: 1,
        }
    }

    /// Incorrect usage: exit code 2.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self {
            exit_code: 2,
            ..Self::new(message)
        }
    }

    /// Sets another exit code, which the command's help explains.
    #[must_use]
    pub fn with_exit_code(self, exit_code: u8) -> Self {
        Self { exit_code, ..self }
    }

    /// Ctrl-C ended the command early: exit code 130.
    pub fn interrupted() -> Self {
        Self {
            exit_code: INTERRUPTED,
            ..Self::new("interrupted")
        }
    }

    /// The reader of standard output has gone away (`| head`): the command ends, silently and without an error.
    pub fn output_closed() -> Self {
        Self {
            exit_code: 0,
            ..Self::new("standard output is closed")
        }
    }

    /// Adds a hint of what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl fmt::Display) -> Self {
        self.help = Some(help.to_string());
        self
    }

    /// Adds the address to the message if the system's error only says that this host does not have it.
    #[must_use]
    pub fn naming(self, address: impl fmt::Display) -> Self {
        match self.help.as_deref() {
            Some(NOT_OF_THIS_HOST) => Self {
                message: format!("{address}: {}", self.message),
                ..self
            },
            _ => self,
        }
    }

    /// The message, without the hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Prints the failure on standard error, and returns the exit code.
    pub fn exit(&self) -> ExitCode {
        if self.exit_code != 0 {
            output::note(format_args!("error: {}", self.message));
            if let Some(help) = &self.help {
                output::note(format_args!("help: {help}"));
            }
        }
        ExitCode::from(self.exit_code)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Address(_) | ConnectError::Setting(_) => Self::usage(error),
            _ => Self::new(error),
        }
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        match &error {
            ServeError::Address(_) | ServeError::Setting(_) => Self::usage(error),
            ServeError::Bootstrap(BootstrapError::Io { source, .. })
                if source.kind() == ErrorKind::AddrNotAvailable =>
            {
                Self::new(error).help(NOT_OF_THIS_HOST)
            }
            _ => Self::new(error),
        }
    }
}

/// The whole command: parses the arguments, runs it, and returns the exit code.
pub fn main() -> ExitCode {
    // Before anything pins a thread, so that both cores are known.
    let _ = crate::affinity::cores();
    let matches = Cli::command().get_matches();
    let Cli { config, command } =
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let serves = matches!(command, Command::Serve(_));
    let ready = crate::log::start(serves)
        .and_then(|()| crate::settings::load(config.as_deref()))
        .and_then(|()| match (&command, matches.subcommand_matches("serve")) {
            (Command::Serve(args), Some(said)) => args.check(said),
            _ => Ok(()),
        });
    match ready.and_then(|()| command.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    /// clap wraps at 100 columns unless the terminal is narrower: a paragraph with line breaks of its own would be
    /// wrapped twice, and an example would be broken.
    #[test]
    fn help_fits_100_columns() {
        fn check(command: &clap::Command) {
            let text = command.get_after_help().map(ToString::to_string);
            let text = text.unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            for line in lines.iter().filter(|line| line.starts_with(' ')) {
                assert!(line.chars().count() <= 100, "{line}");
            }
            let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
            for pair in lines.windows(2) {
                assert!(!(is_prose(pair[0]) && is_prose(pair[1])), "{pair:?}");
            }
            command.get_subcommands().for_each(check);
        }
        check(&super::Cli::command());
    }

    #[test]
    fn the_arguments_are_well_formed() {
        super::Cli::command().debug_assert();
    }
}
