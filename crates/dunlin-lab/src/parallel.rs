//! Independent points of an experiment on several real threads: each has a cluster of its own, so the result does not
//! depend on the number of threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

/// Number of points of experiments that this process has begun, and that are done, for progress bars.
#[derive(Debug)]
pub struct Progress {
    points: AtomicUsize,
    done: AtomicUsize,
}

/// Progress of this process.
pub static PROGRESS: Progress = Progress {
    points: AtomicUsize::new(0),
    done: AtomicUsize::new(0),
};

impl Progress {
    /// Number of points done and points known.
    pub fn get(&self) -> (usize, usize) {
        let done = self.done.load(Ordering::Relaxed);
        (done, self.points.load(Ordering::Relaxed))
    }
}

/// Calls `work` for each item and returns the results in the order of the items.
pub fn map<T: Sync, R: Send>(threads: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    PROGRESS.points.fetch_add(items.len(), Ordering::Relaxed);
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, items.len().max(1)) {
            scope.spawn(|| loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(index) else { return };
                let result = work(item);
                PROGRESS.done.fetch_add(1, Ordering::Relaxed);
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

/// Points of an experiment with their results.
#[derive(Debug)]
pub struct Sweep<P, R> {
    points: Vec<P>,
    found: Vec<R>,
}

impl<P: Sync + PartialEq, R: Send> Sweep<P, R> {
    /// Runs all points.
    pub fn new(threads: usize, points: Vec<P>, work: impl Fn(&P) -> R + Sync) -> Self {
        Self {
            found: map(threads, &points, work),
            points,
        }
    }

    /// The result of this point.
    ///
    /// # Panics
    /// When it is not one of the points.
    pub fn of(&self, point: &P) -> &R {
        let place = self.points.iter().position(|other| other == point);
        &self.found[place.expect("a point")]
    }

    /// All points in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&P, &R)> {
        self.points.iter().zip(&self.found)
    }
}
