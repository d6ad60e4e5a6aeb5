//! `dunlin fsck`: checks the consistency of a metadata server's store.

use std::path::PathBuf;

use super::Failure;
use crate::output;

/// Maximum number of faults shown; further ones are only counted.
const SHOWN: usize = 20;

/// Check the store of a metadata server that is not running
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each name must lead to a file, each file must have as many links as names, and each extent must be used once or free. \
Exit code 1 if something is wrong.\n\n\
Examples:\n  \
  dunlin fsck /tmp/meta\n  \
  dunlin fsck /tmp/meta --json")]
pub struct Args {
    /// Folder of `dunlin serve meta --store`
    store: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Checks and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let found = dunlin_fs::meta::check(&args.store).map_err(|error| {
        Failure::new(error).help("specify the directory of a metadata server that is not running")
    })?;
    let faults: Vec<_> = found.faults.iter().map(ToString::to_string).collect();
    let counts = [
        ("directories", found.directories),
        ("files", found.files),
        ("nameless", found.nameless),
        ("sessions", found.sessions),
        ("extents", found.extents),
        ("mapped", found.mapped),
        ("reserved", found.reserved),
        ("quarantined", found.quarantined),
        ("free", found.free),
    ];
    if args.json {
        let mut object: serde_json::Map<_, _> = counts
            .iter()
            .map(|(name, count)| ((*name).to_owned(), (*count).into()))
            .collect();
        object.insert("faults".into(), faults.clone().into());
        output::print_json(&object)?;
    } else {
        for (name, count) in counts {
            output::print(format_args!("{name:12} {count}"))?;
        }
        for fault in faults.iter().take(SHOWN) {
            output::print(format_args!("fault: {fault}"))?;
        }
    }
    match faults.len() {
        0 => Ok(()),
        count => Err(Failure::new(format!("found {count} faults"))),
    }
}
