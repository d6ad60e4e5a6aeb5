//! Waiting that Ctrl-C can interrupt: Python's signal handlers run on its main thread, between two of its instructions,
//! so that thread returns to Python at bounded intervals while it waits. Other threads wait without such a bound.

use std::cell::OnceCell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Maximum delay of a signal's handler: too short for people to notice, and forty checks a second cost nothing.
const BETWEEN_SIGNALS: Duration = Duration::from_millis(25);

thread_local! {
    static THIS: OnceCell<(bool, Waker)> = const { OnceCell::new() };
}

/// Wakes a thread that is parked here.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

fn of_this_thread<T>(ask: impl FnOnce(&(bool, Waker)) -> T) -> T {
    THIS.with(|this| {
        ask(this.get_or_init(|| {
            let is_main = rustix::thread::gettid() == rustix::process::getpid();
            (
                is_main,
                Waker::from(Arc::new(Parked(std::thread::current()))),
            )
        }))
    })
}

/// Whether this is the thread on which Python handles signals: the first of the process.
pub(crate) fn is_main_thread() -> bool {
    of_this_thread(|(is_main, _)| *is_main)
}

/// Runs a function without the GIL.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(work)
}

/// Waits for a future without the GIL. On the main thread a signal's handler may end the wait with an exception, such
/// as `KeyboardInterrupt`; the future is then dropped.
pub(crate) fn wait<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let mut future = pin!(future);
    let waker = of_this_thread(|(_, waker)| waker.clone());
    loop {
        let ended = detached(py, || {
            let mut context = Context::from_waker(&waker);
            let until = Instant::now() + BETWEEN_SIGNALS;
            loop {
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    return Some(output);
                }
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return None;
                }
                std::thread::park_timeout(left);
            }
        });
        match ended {
            Some(output) => return Ok(output),
            None => py.check_signals()?,
        }
    }
}
