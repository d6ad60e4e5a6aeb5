//! Threads that make calls on request, for `perf rpc` and `perf typed`.

use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::affinity;
use crate::clock::now_ns;
use crate::commands::Failure;
use crate::interrupt;
use crate::report::Tally;

/// Calls before the measurement starts, so that both sides are awake.
pub(super) const WARM_UP: usize = 64;
/// Rounds of a pipeline between two reads of the clock, if rounds are short.
const STRIDE: usize = 64;
/// If that many rounds take longer than this, the clock is read after each.
const LONG_STRIDE_NS: u64 = 1_000_000;
/// One in this many pipelined calls is timed, because reading the clock costs as much as a call.
const SAMPLE: u64 = 16;
/// The tag of a call that is not timed, and its latency.
const UNTIMED: u64 = u64::MAX;
/// Requests longer than this are filled in place.
pub(super) const LONG_BYTES: usize = 4096;
/// Time measured between two updates of the progress bar.
pub(super) const SLICE: Duration = Duration::from_millis(250);

/// What each thread does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) size: usize,
    pub(super) response: u32,
    pub(super) outstanding: usize,
    /// Calls before the measurement starts.
    pub(super) warm_up: usize,
}

impl Shape {
    /// Bytes of a response, if different from those of a request.
    pub(super) fn response_size(&self) -> Option<usize> {
        let response = self.response as usize;
        (response != self.size).then_some(response)
    }
}

/// A kind of calls: one after the other, or many outstanding in a pipeline.
pub(super) trait Load: Send + 'static {
    fn shape(&self) -> Shape;

    /// Makes one call, and returns the bytes of its response.
    fn call(&mut self) -> Result<usize, Failure>;

    /// Creates the pipeline, if there is none yet.
    fn open(&mut self) -> Result<(), Failure>;

    fn outstanding(&self) -> usize;

    /// Puts a call into the pipeline; returns `false` if there is no room.
    fn submit(&mut self, tag: u64) -> Result<bool, Failure>;

    /// Passes on the responses that have arrived: tag and bytes, `None` for an error, whose message is kept.
    fn wait(&mut self, take: impl FnMut(u64, Option<usize>)) -> Result<(), Failure>;

    /// The message of the pipeline's first error, until it is taken.
    fn first_error(&mut self) -> &mut Option<String>;
}

pub(super) fn no_pipeline() -> Failure {
    Failure::new("cannot open the pipeline")
}

/// Measures one slice on all threads, with the load of this number.
pub(super) fn measure(threads: &[Loader], load: usize, slice: Duration) -> Result<Tally, Failure> {
    for thread in threads {
        thread.begin(load, slice)?;
    }
    let mut sum = Tally::default();
    for thread in threads {
        sum.merge_beside(&thread.end()?);
    }
    // Pollers go to sleep now; the next to measure has the cores to itself.
    std::thread::sleep(Duration::from_millis(1));
    Ok(sum)
}

/// Measures for this time on all threads with their first load, in slices of at most `longest`, so that the progress
/// bar moves.
pub(super) fn in_slices(
    threads: &[Loader],
    time: Duration,
    longest: Duration,
    mut progress: impl FnMut(f64),
) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    while tally.elapsed < time && !interrupt::came() {
        let left = time - tally.elapsed;
        tally.merge_after(&measure(threads, 0, left.min(longest))?);
        progress(tally.elapsed.as_secs_f64() / time.as_secs_f64());
    }
    Ok(tally)
}

/// A client thread that makes calls on request.
pub(super) struct Loader {
    begin: Option<Sender<(usize, Duration)>>,
    end: Receiver<Result<Tally, Failure>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Starts the thread; each slice uses one of `loads`.
    pub(super) fn start<L: Load>(mut loads: Vec<L>, core: Option<usize>) -> Result<Self, Failure> {
        let (begin, begins) = channel::<(usize, Duration)>();
        let (tell, end) = channel();
        let thread = std::thread::Builder::new()
            .name("dunlin-load".into())
            .spawn(move || {
                if let Some(core) = core {
                    affinity::pin(core);
                }
                for (load, slice) in begins {
                    let load = &mut loads[load];
                    let Shape {
                        outstanding, size, ..
                    } = load.shape();
                    let tally = if outstanding == 1 && size <= LONG_BYTES {
                        one_by_one(load, slice)
                    } else {
                        many(load, slice)
                    };
                    if tell.send(tally).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            begin: Some(begin),
            end,
            thread: Some(thread),
        })
    }

    fn begin(&self, load: usize, slice: Duration) -> Result<(), Failure> {
        let sent = self.begin.as_ref().map(|begin| begin.send((load, slice)));
        sent.ok_or_else(thread_gone)?.map_err(|_| thread_gone())
    }

    fn end(&self) -> Result<Tally, Failure> {
        self.end.recv().map_err(|_| thread_gone())?
    }
}

fn thread_gone() -> Failure {
    Failure::new("a client thread ended early")
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.begin = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn one_by_one(load: &mut impl Load, slice: Duration) -> Result<Tally, Failure> {
    let shape = load.shape();
    for _ in 0..shape.warm_up {
        load.call()?;
    }
    let mut tally = Tally::default();
    let start = now_ns();
    let limit = slice.as_nanos() as u64;
    let mut elapsed = 0;
    // A call lasts as long as its deadline when the server stands still: there is a look after each.
    while elapsed < limit && !interrupt::came() {
        let before = now_ns();
        let ended = load.call();
        let after = now_ns();
        match ended {
            Ok(length) => count(&mut tally, shape, after - before, length),
            Err(error) => tally.fail(|| error.message().to_owned()),
        }
        elapsed = after - start;
    }
    tally.elapsed = Duration::from_nanos(elapsed);
    Ok(tally)
}

/// Counts a response and its latency, unless that is [`UNTIMED`]. A failed call has no latency.
#[inline(always)]
fn count(tally: &mut Tally, shape: Shape, latency_ns: u64, length: usize) {
    if length == shape.response as usize {
        tally.operations += 1;
        tally.bytes += shape.size as u64;
        if latency_ns != UNTIMED {
            tally.latencies.record(latency_ns);
        }
    } else {
        other_length(tally, shape.response, length);
    }
}

/// Out of line, so that the counting of responses stays short enough to be inlined where they are taken.
#[cold]
#[inline(never)]
fn other_length(tally: &mut Tally, expected: u32, length: usize) {
    tally.fail(|| format!("unexpected answer of {length} bytes instead of {expected}"));
}

fn many(load: &mut impl Load, slice: Duration) -> Result<Tally, Failure> {
    load.open()?;
    let shape = load.shape();
    let mut warm = Run::new(shape, false);
    for _ in 0..shape.warm_up.min(shape.outstanding) {
        load.submit(UNTIMED)?;
        load.wait(|tag, answered| warm.take(tag, answered))?;
    }
    let mut run = Run::new(shape, true);
    let limit = slice.as_nanos() as u64;
    let start = now_ns();
    let (mut elapsed, mut sent, mut stride) = (0, 0u64, 1);
    while elapsed < limit && !interrupt::came() {
        for _ in 0..stride {
            for _ in load.outstanding()..shape.outstanding {
                sent += 1;
                let tag = if sent % SAMPLE == 0 {
                    now_ns()
                } else {
                    UNTIMED
                };
                if !load.submit(tag)? {
                    break;
                }
            }
            let failed = run.tally.errors;
            load.wait(|tag, answered| run.take(tag, answered))?;
            // What fails may have lasted as long as its deadline.
            if run.tally.errors > failed || interrupt::came() {
                break;
            }
        }
        let now = now_ns() - start;
        stride = match now - elapsed < LONG_STRIDE_NS {
            true => (stride * 2).min(STRIDE),
            false => 1,
        };
        elapsed = now;
    }
    while load.outstanding() > 0 {
        load.wait(|tag, answered| run.take(tag, answered))?;
    }
    run.tally.elapsed = Duration::from_nanos(now_ns() - start);
    let first = load.first_error().take();
    run.tally.first_error = first.or(run.tally.first_error);
    Ok(run.tally)
}

struct Run {
    tally: Tally,
    shape: Shape,
    timing: bool,
}

impl Run {
    fn new(shape: Shape, timing: bool) -> Self {
        Self {
            tally: Tally::default(),
            shape,
            timing,
        }
    }

    #[inline(always)]
    fn take(&mut self, tag: u64, answered: Option<usize>) {
        let Some(length) = answered else {
            self.tally.errors += 1;
            return;
        };
        if tag != UNTIMED && self.timing {
            self.take_timed(tag, length);
        } else {
            count(&mut self.tally, self.shape, UNTIMED, length);
        }
    }

    /// One in [`SAMPLE`].
    #[inline(never)]
    fn take_timed(&mut self, tag: u64, length: usize) {
        count(&mut self.tally, self.shape, now_ns() - tag, length);
    }
}
