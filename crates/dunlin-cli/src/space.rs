//! Waits for space in a file system whose servers have just been started.

use std::time::{Duration, Instant};

use dunlin_fs::FileSystem;

use crate::commands::Failure;
use crate::interrupt;

/// Pause between two polls of the space.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Waits until the metadata server has met a data server, or had met one before: until then it has no space to give
/// out.
///
/// # Errors
/// When there is none within `patience`, or on Ctrl-C.
pub fn wait_for_space(system: &FileSystem, patience: Duration) -> Result<(), Failure> {
    let began = Instant::now();
    while system.space().map_err(Failure::new)?.bytes == 0 {
        if began.elapsed() >= patience {
            let words = format!("no data server was found within {} s", patience.as_secs());
            return Err(Failure::new(words)
                .help("are the servers given by `dunlin serve meta --data` running?"));
        }
        interrupt::check()?;
        std::thread::sleep(POLL_EVERY);
    }
    Ok(())
}
