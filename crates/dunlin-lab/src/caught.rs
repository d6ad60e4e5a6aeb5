//! Contains panics, so that a figure that panics does not end the others.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};

/// Runs `work`. A panic is returned with the message of the first thread that panicked, since a figure has points on
/// several. Only one call runs at a time in a process: meanwhile a panic of any thread is taken for its own.
///
/// # Errors
/// When it panicked.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static WHY: Mutex<Option<String>> = Mutex::new(None);
    let why = || WHY.lock().unwrap_or_else(PoisonError::into_inner);
    *why() = None;
    let usual = Arc::new(panic::take_hook());
    let for_backtraces = Arc::clone(&usual);
    panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().map(|&text| text.to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "a panic without a message".to_owned());
        let place = info
            .location()
            .map_or(String::new(), |at| format!(" ({at})"));
        why().get_or_insert(text + &place);
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            for_backtraces(info);
        }
    }));
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    panic::set_hook(Box::new(move |info| usual(info)));
    result.map_err(|_| why().take().unwrap_or_default())
}
