//! Ctrl-C during a measurement: what was measured until then is reported, and the exit code is 130. A second Ctrl-C
//! ends the process at once.

use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::commands::{Failure, INTERRUPTED};

static CAME: AtomicBool = AtomicBool::new(false);
static AGAIN: AtomicBool = AtomicBool::new(false);
static FIRST: OnceLock<Instant> = OnceLock::new();

/// What comes so soon after the first is the same Ctrl-C once more: `timeout` signals a process and then its group.
pub const ONCE: Duration = Duration::from_millis(200);

/// From now on Ctrl-C is heard by [`came`] instead of ending the process; once in a process.
///
/// # Errors
/// When the system refuses a handler.
pub fn listen() -> Result<(), Failure> {
    ctrlc::set_handler(hear).map_err(Failure::new)
}

/// The same for a command that has processes to end first: the second Ctrl-C is heard by [`came_again`].
///
/// # Errors
/// When the system refuses a handler.
pub fn listen_twice() -> Result<(), Failure> {
    let hear = || {
        if is_second() {
            AGAIN.store(true, Ordering::Relaxed);
        }
    };
    ctrlc::set_handler(hear).map_err(Failure::new)
}

fn hear() {
    if is_second() {
        exit(INTERRUPTED.into());
    }
}

fn is_second() -> bool {
    let first = FIRST.get_or_init(Instant::now);
    CAME.swap(true, Ordering::Relaxed) && first.elapsed() > ONCE
}

/// Waits for Ctrl-C. The second one ends the process, as after [`listen`]; once in a process.
///
/// # Errors
/// When the system refuses a handler.
pub fn wait() -> Result<(), Failure> {
    let (tell, told) = std::sync::mpsc::channel();
    let heard = move || {
        hear();
        let _ = tell.send(());
    };
    ctrlc::set_handler(heard).map_err(Failure::new)?;
    let _ = told.recv();
    Ok(())
}

/// Leaves Ctrl-C to the process that has started this one, which ends it in time.
///
/// # Errors
/// When the system refuses a handler.
pub fn ignore() -> Result<(), Failure> {
    ctrlc::set_handler(|| {}).map_err(Failure::new)
}

/// Acts as on Ctrl-C: the process that started this one requests what was measured so far.
pub fn end() {
    CAME.store(true, Ordering::Relaxed);
}

/// Whether Ctrl-C came.
pub fn came() -> bool {
    CAME.load(Ordering::Relaxed)
}

/// Whether Ctrl-C came a second time, after [`listen_twice`].
pub fn came_again() -> bool {
    AGAIN.load(Ordering::Relaxed)
}

/// The end of a command that has reported what it had.
///
/// # Errors
/// When Ctrl-C came before all was done.
pub fn check() -> Result<(), Failure> {
    if came() {
        return Err(Failure::interrupted());
    }
    Ok(())
}
