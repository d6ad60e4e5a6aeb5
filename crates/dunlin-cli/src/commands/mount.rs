//! `dunlin mount`: mounts the file system of a metadata server on a folder, through FUSE.

use std::path::PathBuf;
use std::time::Duration;

use dunlin::{Address, Preset};
use dunlin_fs::{FileSystem, FsOptions};
use fuser::{Config, MountOption, SessionACL};

use super::perf::parse_seconds;
use super::{connect, Failure};
use crate::mount::unmount::Unmounter;
use crate::mount::Mounted;
use crate::output;
use crate::space::wait_for_space;

/// Mount the file system of a metadata server
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs root and /dev/fuse, but neither libfuse nor fusermount. Ctrl-C unmounts after everything is synced. If the \
folder is busy, a message says so; a second Ctrl-C detaches the folder, and a third ends the command at once.\n\n\
Examples:\n  \
  dunlin serve data --file /tmp/d0 --size 1GiB --listen dunlin://127.0.0.1:7501 &\n  \
  dunlin serve meta --store /tmp/meta --data dunlin://127.0.0.1:7501 &\n  \
  dunlin mount dunlin://127.0.0.1:7400 /mnt\n  \
  dunlin mount dunlin://127.0.0.1:7400 /mnt --cache 0    several clients: each stat asks the server")]
pub struct Args {
    /// Address of the metadata server
    address: Address,
    /// Folder to mount it on
    folder: PathBuf,
    /// Seconds for which the kernel may cache names and attributes
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    cache: f64,
    /// Seconds for which an operation is retried while a server does not answer
    #[arg(long, default_value = "30", value_parser = parse_seconds, value_name = "SECONDS")]
    patience: Duration,
    /// Use this device or fail (see `dunlin devices`)
    #[arg(long, value_parser = connect::parse_device)]
    device: Option<String>,
    /// Preset used for metadata calls [default: auto]
    #[arg(long)]
    preset: Option<Preset>,
    /// Threads that handle the kernel's requests
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: u8,
    /// File with the shared secret; both sides must prove that they know it
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

/// Mounts, until Ctrl-C or `umount`.
pub fn run(args: &Args) -> Result<(), Failure> {
    let cache = Duration::try_from_secs_f64(args.cache)
        .map_err(|_| Failure::usage("--cache must be a number of seconds, 0 or more"))?;
    let folder = args.folder.display();
    let of_folder = |error: &dyn std::fmt::Display| Failure::new(format!("{folder}: {error}"));
    // The kernel would mount on a file, too.
    let metadata = std::fs::metadata(&args.folder).map_err(|error| of_folder(&error))?;
    if !metadata.is_dir() {
        return Err(of_folder(&"not a directory, which a mount point must be"));
    }
    let options = FsOptions {
        preset: connect::preset(args.preset),
        device: connect::device(args.device.as_deref()).map(str::to_owned),
        patience: args.patience,
        secret: connect::secret(args.secret_file.as_ref())?,
    };
    let system = FileSystem::connect_with(&args.address.to_string(), &options)
        .map_err(|error| Failure::new(error).help("is `dunlin serve meta` running there?"))?;
    wait_for_space(&system, args.patience)?;
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(format!("dunlin:{}", args.address)),
        MountOption::Subtype("dunlin".into()),
        MountOption::DefaultPermissions,
        MountOption::Suid,
        MountOption::Dev,
    ];
    config.acl = SessionACL::All;
    config.n_threads = Some(usize::from(args.threads));
    config.clone_fd = args.threads > 1;
    let mounted = Mounted::new(system, cache);
    // As the kernel lists it, and whatever the working directory is later.
    let path = args.folder.canonicalize();
    let path = path.map_err(|error| of_folder(&error))?;
    let session = fuser::Session::new(mounted, &path, &config)
        .map_err(|error| of_folder(&error).help("mounting requires root and /dev/fuse"))?;
    let mut unmounter = Unmounter::new(path);
    ctrlc::set_handler(move || unmounter.signalled()).map_err(Failure::new)?;
    output::print(format_args!("mounted on {folder}"))?;
    session.run().map_err(Failure::new)
}
