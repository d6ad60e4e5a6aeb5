//! Runs figures one after the other, the points of each on several real threads, with a progress bar.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin_lab::figure::{Effort, Figure, Findings};
use dunlin_lab::freeze;
use dunlin_lab::parallel::PROGRESS;
use dunlin_lab::score::Scorecard;

use crate::output::progress_bar;

/// How often the bar is drawn.
const REDRAW: Duration = Duration::from_millis(200);

/// Real threads for independent points.
pub fn threads(wanted: Option<u16>) -> usize {
    wanted.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        usize::from,
    )
}

/// Runs them.
pub fn run(figures: &[&'static Figure], effort: Effort) -> Vec<(&'static Figure, Findings)> {
    let bar = progress_bar();
    /// Ends the painter, also when a figure panics.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    let count = figures.len();
    std::thread::scope(|scope| {
        let painter = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::thread::park_timeout(REDRAW);
                bar.tick();
            }
        });
        let ended = Over(&over);
        let mut results = Vec::with_capacity(count);
        for (number, figure) in figures.iter().enumerate() {
            bar.set_position((1000 * number / count) as u64);
            let (done, _) = PROGRESS.get();
            bar.set_message(format!("{}, {done} points done", figure.name));
            results.push((*figure, (figure.run)(effort)));
        }
        drop(ended);
        painter.thread().unpark();
        bar.finish_and_clear();
        results
    })
}

/// The claims by these results, with the parameters of this program.
pub fn score(results: &[(&'static Figure, Findings)]) -> Scorecard {
    Scorecard::new(results, &freeze::check())
}
