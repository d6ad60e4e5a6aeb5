//! `dunlin mpi`: runs programs of several processes that exchange messages.

use std::ffi::OsString;

use clap::Subcommand;

use super::{connect, Failure};
use crate::mpi::launch::{launch, Job};

/// Run programs of several processes that exchange messages
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run a program as several processes of this host
    #[command(after_help = "\
Each process gets its rank, the number of ranks and the address of rank 0 in its environment, where \
dunlin_mpi::World::from_env() finds them. Rank 0 has the standard input. When a process fails the others are \
ended, and the command ends with the exit code of the one that failed first, or 128 plus the number of its signal; \
after Ctrl-C or SIGTERM the processes get SIGTERM, and the command ends with 130.\n\n\
Examples:\n  \
  dunlin mpi run -n 4 -- target/release/examples/heat\n  \
  dunlin mpi run -n 2 --prefix --device roce -- ./program --its-option")]
    Run {
        /// Number of processes
        #[arg(short = 'n', long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
        ranks: u16,
        /// Device between all ranks (see `dunlin devices`) [default: that of
        /// DUNLIN_MPI_DEVICE, or shm]
        #[arg(long, value_parser = connect::parse_own_device)]
        device: Option<String>,
        /// Print the rank before each line of output
        #[arg(long)]
        prefix: bool,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        program: Vec<OsString>,
    },
}

/// Runs the action.
pub fn run(args: &Args) -> Result<(), Failure> {
    let Action::Run {
        ranks,
        device,
        prefix,
        program,
    } = &args.action;
    launch(&Job {
        ranks: usize::from(*ranks),
        device: device.as_deref(),
        prefix: *prefix,
        program,
    })
}
