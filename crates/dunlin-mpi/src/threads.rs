//! A job whose ranks are threads of this process, for tests and examples.

use std::panic::resume_unwind;
use std::thread;

use crate::error::JoinError;
use crate::join::Rendezvous;
use crate::settings::Settings;
use crate::world::World;

/// Runs `body` as each of `size` ranks, on a thread for each, and returns what they return, in the order of the ranks.
/// The ranks connect over the loopback interface as processes do.
///
/// # Errors
/// When the job does not assemble: the first error by rank.
///
/// # Panics
/// When `body` panics in a rank, or no thread can be started.
pub fn run_threads<T: Send>(
    size: usize,
    settings: &Settings,
    body: impl Fn(World) -> T + Sync,
) -> Result<Vec<T>, JoinError> {
    let root = Rendezvous::bind("dunlin://127.0.0.1:0", size, settings)?;
    let address = root.address().to_string();
    let (body, address) = (&body, &address);
    let joined = |(rank, thread): (usize, thread::ScopedJoinHandle<'_, _>)| {
        let ended: thread::Result<Result<T, JoinError>> = thread.join();
        tracing::debug!(rank, "a rank has ended");
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    };
    thread::scope(|scope| {
        let others = (1..size)
            .map(|rank| scope.spawn(move || Ok(body(World::join(rank, size, address, settings)?))));
        let others: Vec<_> = others.collect();
        let first = root.join().map(body);
        let others: Vec<_> = (1..).zip(others).map(joined).collect();
        std::iter::once(first).chain(others).collect()
    })
}
