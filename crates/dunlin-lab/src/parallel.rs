//! Independent points of an experiment on several real threads: each has a cluster of its own, so the result does not depend on how many.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

/// Calls `work` for each item and gives the results in the order of the items.
pub fn map<T: Sync, R: Send>(threads: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(index) else { return };
                let result = work(item);
                *results[index].lock().expect("only this thread has it") = Some(result);
            });
        }
    });
    let taken = results
        .into_iter()
        .map(|slot| slot.into_inner().expect("no thread panicked"));
    taken
        .map(|result| result.expect("every item was worked on"))
        .collect()
}
