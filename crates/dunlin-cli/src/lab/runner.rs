//! Runs figures one after the other, the points of each on several real threads, with a progress bar.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dunlin_lab::caught::caught;
use dunlin_lab::figure::{merged, Effort, Figure, Findings};
use dunlin_lab::freeze::{self, Freeze};
use dunlin_lab::parallel::PROGRESS;
use dunlin_lab::score::{Failed, Scorecard};

use super::replaced::Replaced;
use crate::commands::Failure;
use crate::interrupt;
use crate::output::progress_bar;

/// Interval at which the progress bar is drawn.
const REDRAW: Duration = Duration::from_millis(200);
/// Time that runs may take to end after Ctrl-C.
const PATIENCE: Duration = Duration::from_millis(400);

/// Real threads for independent points.
pub fn threads(wanted: Option<u16>) -> usize {
    wanted.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        usize::from,
    )
}

/// Runs `work` on a separate thread, which Ctrl-C abandons: a run in virtual time may have minutes to go. Returns its
/// result if it ends in time, else `None`. `look` is called from time to time.
pub fn awaited<T: Send + 'static>(
    mut look: impl FnMut(),
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, end) = mpsc::channel();
    // The result of an abandoned run is dropped.
    let worker = thread::spawn(move || drop(sender.send(work())));
    let mut since = None;
    loop {
        look();
        match end.recv_timeout(REDRAW) {
            Ok(result) => return Some(result),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                // It sends before it ends, unless it panics.
                return worker
                    .join()
                    .map_or_else(|panic| resume_unwind(panic), |()| None);
            }
        }
        if interrupt::came() && since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
            return None;
        }
    }
}

/// Runs work that has nothing to report before its end, or has printed it by then.
///
/// # Errors
/// The error of the work, or an interruption if Ctrl-C came before its end.
pub fn whole(work: impl FnOnce() -> Result<(), Failure> + Send + 'static) -> Result<(), Failure> {
    interrupt::listen()?;
    awaited(|| {}, work).unwrap_or_else(|| Err(Failure::interrupted()))
}

/// Does `work` under a progress bar with the time that is left; `None` when Ctrl-C came and it did not end. `look` says
/// which part of it is done, from 0 to 1, and what is worked on.
fn watched<T: Send + 'static>(
    look: impl Fn() -> (f64, String),
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let bar = progress_bar();
    let started = Instant::now();
    let mut most = 0.0f64;
    let draw = || {
        let (done, what) = look();
        // A figure may find out that it has more points: the bar waits then.
        most = most.max(done.clamp(0.0, 1.0));
        bar.set_position((most * 1000.0) as u64);
        bar.set_message(match time_left(started.elapsed(), most) {
            // First what is not to be cut off on a narrow terminal.
            Some(left) => format!("about {left} left, {what}"),
            None => what,
        });
    };
    let result = awaited(draw, work);
    bar.finish_and_clear();
    result
}

/// The remaining time, extrapolated from what is done; unknown at the beginning.
fn time_left(elapsed: Duration, done: f64) -> Option<String> {
    if done <= 0.0 {
        return None;
    }
    let left = elapsed.as_secs_f64() * (1.0 - done) / done;
    Some(match left {
        short if short < 100.0 => format!("{short:.0} s"),
        long => format!("{:.0} min", long / 60.0),
    })
}

/// The part of the points that is done, of those known of since there were `before`.
fn points_done(before: (usize, usize)) -> (f64, usize) {
    let (done, known) = PROGRESS.get();
    let (done, known) = (done - before.0, known.saturating_sub(before.1));
    (done as f64 / known.max(1) as f64, done)
}

/// The results of figures.
#[derive(Debug, Default)]
pub struct Ran {
    /// Those that ran.
    pub results: Vec<(&'static Figure, Findings)>,
    /// Those that could not, and why.
    failed: Vec<Failed>,
    /// Ctrl-C came before all had ended.
    interrupted: bool,
}

impl Ran {
    /// The claims by what ran, with the parameters of this program, but for what was replaced.
    pub fn score(&self, replaced: &Replaced, (quick, seeds): (bool, u16)) -> Scorecard {
        let freeze = Freeze {
            replaced: replaced.words(),
            ..freeze::check()
        };
        Scorecard::new(&self.results, &freeze)
            .ran(quick, seeds)
            .without(&self.failed, self.interrupted)
    }

    /// Whether all figures ran.
    ///
    /// # Errors
    /// When a figure could not run, with its name.
    pub fn check(&self) -> Result<(), Failure> {
        check(&self.failed)
    }
}

/// The result of a command that has run all figures except these.
///
/// # Errors
/// When there is one, with its name.
pub fn check(failed: &[Failed]) -> Result<(), Failure> {
    let said: Vec<String> = failed.iter().map(Failed::to_string).collect();
    match said.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(said.join("\n")).help(
            "the other figures ran; a figure may fail with another NIC, --set or seed; RUST_BACKTRACE=1 shows where",
        )),
    }
}

/// Runs figures, each by several seeds, until Ctrl-C comes: those that have ended by then count. One that panics costs
/// nothing but itself.
pub fn run(figures: &[&'static Figure], effort: Effort, seeds: u16) -> Ran {
    let count = figures.len();
    // The figure that is worked on, and the points before it.
    let at = Arc::new(Mutex::new((0, PROGRESS.get())));
    let ran = Arc::new(Mutex::new(Ran::default()));
    let look = || {
        let (number, before) = *lock(&at);
        let (part, points) = points_done(before);
        let name = figures.get(number).map_or("", |figure| figure.name);
        let words = format!("{name} ({} of {count}), {points} points done", number + 1);
        ((number as f64 + part) / count as f64, words)
    };
    let (begun, ended, all) = (Arc::clone(&at), Arc::clone(&ran), figures.to_vec());
    let ended = watched(look, move || {
        for (number, figure) in all.into_iter().enumerate() {
            *lock(&begun) = (number, PROGRESS.get());
            if interrupt::came() {
                return false;
            }
            let by_seed = (0..u64::from(seeds)).map(|more| {
                let seed = effort.seed.wrapping_add(more);
                (figure.run)(Effort { seed, ..effort })
            });
            let found = caught(|| merged(by_seed.collect()));
            let mut ran = lock(&ended);
            match found {
                Ok(findings) => ran.results.push((figure, findings)),
                Err(why) => ran.failed.push(Failed {
                    figure: figure.name.to_owned(),
                    why,
                }),
            }
        }
        true
    });
    let mut ran = std::mem::take(&mut *lock(&ran));
    ran.interrupted = ended != Some(true);
    ran
}

/// Takes what the threads share with the one that waits for them.
pub fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `work` on this many points of one kind; Ctrl-C leaves what has not ended.
pub fn points(count: usize, what: &str, work: impl FnOnce() + Send + 'static) {
    let before = PROGRESS.get();
    let look = || {
        let (part, done) = points_done(before);
        (part, format!("{done} of {count} {what}"))
    };
    let _ = watched(look, work);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_goes_as_fast_as_what_is_done() {
        let left = |elapsed, done| time_left(Duration::from_secs(elapsed), done);
        assert_eq!(left(10, 0.0), None);
        assert_eq!(left(10, 0.5).as_deref(), Some("10 s"));
        assert_eq!(left(60, 0.1).as_deref(), Some("9 min"));
        assert_eq!(left(60, 1.0).as_deref(), Some("0 s"));
    }
}
