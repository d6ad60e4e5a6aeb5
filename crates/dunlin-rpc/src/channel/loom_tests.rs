//! A model of the ring's publication, checked in all interleavings: body first, then the tag; the reader trusts a body only
//! behind a tag of the right lap, and the writer reuses a line only when its reader has counted it as consumed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p dunlin-rpc --release --lib loom`

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

use super::line;

/// A ring of two lines.
const SHIFT: u32 = 1;
const LINES: u64 = 1 << SHIFT;
/// Two laps.
const MESSAGES: u64 = 4;

/// A line: loom's cells notice when a body is read while it is written.
struct Line {
    body: UnsafeCell<u64>,
    tag: AtomicU64,
}

struct Ring {
    lines: [Line; LINES as usize],
    /// Lines consumed, as the reader told the writer.
    consumed: AtomicU64,
}

#[allow(unsafe_code)]
impl Ring {
    fn new() -> Self {
        let line = || Line {
            body: UnsafeCell::new(0),
            tag: AtomicU64::new(0),
        };
        Self {
            lines: [line(), line()],
            consumed: AtomicU64::new(0),
        }
    }

    fn line(&self, position: u64) -> &Line {
        &self.lines[(position & (LINES - 1)) as usize]
    }

    fn write(&self, position: u64, body: u64, publish: Ordering) {
        while position - self.consumed.load(Ordering::Acquire) >= LINES {
            thread::yield_now();
        }
        let line = self.line(position);
        // SAFETY: loom checks that nobody reads it now; that is what this model is for.
        line.body.with_mut(|place| unsafe { *place = body });
        line.tag
            .store(line::tag(line::lap(position, SHIFT), 0), publish);
    }

    fn read(&self, position: u64, tell: Ordering) -> u64 {
        let line = self.line(position);
        while line.tag.load(Ordering::Acquire) as u32 != line::lap(position, SHIFT) {
            thread::yield_now();
        }
        // SAFETY: as above for the writer.
        let body = line.body.with(|place| unsafe { *place });
        self.consumed.store(position + 1, tell);
        body
    }
}

fn check(publish: Ordering, tell: Ordering) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let ring = Arc::new(Ring::new());
        let writer = Arc::clone(&ring);
        let thread = thread::spawn(move || {
            for position in 0..MESSAGES {
                writer.write(position, 100 + position, publish);
            }
        });
        for position in 0..MESSAGES {
            assert_eq!(ring.read(position, tell), 100 + position);
        }
        thread.join().unwrap();
    });
}

#[test]
fn loom_every_body_is_read_whole_and_once() {
    check(Ordering::Release, Ordering::Release);
}

/// The model is worth something: without the order it fails.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_tag_that_overtakes_its_body_is_found() {
    check(Ordering::Relaxed, Ordering::Release);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_count_that_overtakes_the_reading_is_found() {
    check(Ordering::Release, Ordering::Relaxed);
}
