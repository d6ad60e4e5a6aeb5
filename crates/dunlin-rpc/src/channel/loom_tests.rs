//! A model of the ring's publication, checked in all interleavings: body first, then the words with the canary; the reader trusts a
//! body only behind head and commit word of the batch that it expects, and the writer reuses lines only when their reader has counted
//! them as consumed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p dunlin-rpc --release --lib loom`

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

use super::batch::{self, Canaries};

/// A ring of two lines, and batches of one.
const LINES: u64 = 2;
/// Two laps.
const BATCHES: u64 = 4;
const SEED: u64 = 3;

/// A line: loom's cells notice when a body is read while it is written.
struct Line {
    head: AtomicU64,
    body: UnsafeCell<u64>,
    commit: AtomicU64,
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
            head: AtomicU64::new(0),
            body: UnsafeCell::new(0),
            commit: AtomicU64::new(0),
        };
        Self {
            lines: [line(), line()],
            consumed: AtomicU64::new(0),
        }
    }

    fn line(&self, position: u64) -> &Line {
        &self.lines[(position & (LINES - 1)) as usize]
    }

    fn write(&self, position: u64, canary: u64, body: u64, publish: Ordering) {
        while position - self.consumed.load(Ordering::Acquire) >= LINES {
            thread::yield_now();
        }
        let line = self.line(position);
        // SAFETY: loom checks that nobody reads it now; that is what this model is for.
        line.body.with_mut(|place| unsafe { *place = body });
        line.head
            .store(batch::head(canary, 1, 1), Ordering::Relaxed);
        line.commit.store(batch::commit(canary, 0), publish);
    }

    fn read(&self, position: u64, canary: u64, tell: Ordering) -> u64 {
        let line = self.line(position);
        while batch::read_head(line.head.load(Ordering::Acquire), canary).is_none()
            || batch::read_commit(line.commit.load(Ordering::Acquire), canary).is_none()
        {
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
            let mut canaries = Canaries::new(SEED);
            for position in 0..BATCHES {
                writer.write(position, canaries.current(), 100 + position, publish);
                canaries.advance();
            }
        });
        let mut canaries = Canaries::new(SEED);
        for position in 0..BATCHES {
            let body = ring.read(position, canaries.current(), tell);
            assert_eq!(body, 100 + position);
            canaries.advance();
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
fn loom_a_commit_that_overtakes_its_body_is_found() {
    check(Ordering::Relaxed, Ordering::Release);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_count_that_overtakes_the_reading_is_found() {
    check(Ordering::Release, Ordering::Relaxed);
}
