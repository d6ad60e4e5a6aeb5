//! A model of the ring's publication, checked in all interleavings: the commit word last, in the first line or in the
//! last; the reader trusts bodies only after head and commit word of the batch that it expects, and the writer reuses
//! lines only when the reader has counted them as consumed.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p dunlin-rpc --release --lib loom`

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

use super::batch::{self, Canaries, Form};

/// A ring of two batches.
const ROOM: u64 = 2;
/// Two laps.
const BATCHES: u64 = 4;
const SEED: u64 = 3;

/// A line: loom's cells detect when a body is read while it is written.
struct Line {
    head: AtomicU64,
    body: UnsafeCell<u64>,
    commit: AtomicU64,
}

struct Ring {
    form: Form,
    /// A software device may write bytes: half of a head is visible before the other.
    by_halves: bool,
    /// The reader of a sealed batch reads the head once more after the commit word.
    looks_again: bool,
    /// Number of lines of a batch.
    size: u64,
    lines: Vec<Line>,
    /// Number of lines consumed, as the reader told the writer.
    consumed: AtomicU64,
}

#[allow(unsafe_code)]
impl Ring {
    fn new(form: Form, size: u64, by_halves: bool, looks_again: bool) -> Self {
        let line = |_| Line {
            head: AtomicU64::new(0),
            body: UnsafeCell::new(0),
            commit: AtomicU64::new(0),
        };
        Self {
            form,
            by_halves,
            looks_again,
            size,
            lines: (0..ROOM * size).map(line).collect(),
            consumed: AtomicU64::new(0),
        }
    }

    fn line(&self, position: u64) -> &Line {
        &self.lines[position as usize % self.lines.len()]
    }

    /// The line of the batch at `position` whose commit word ends it.
    fn last(&self, position: u64, lines: usize) -> &Line {
        match self.form {
            Form::Twice => self.line(position),
            Form::Sealed => self.line(position + lines as u64 - 1),
        }
    }

    fn write(&self, position: u64, canary: u64, body: u64, publish: Ordering) {
        while position + self.size - self.consumed.load(Ordering::Acquire) > ROOM * self.size {
            thread::yield_now();
        }
        let lines = self.size as usize;
        for messages in u32::from(!self.by_halves)..=1 {
            let head = batch::head(canary, lines, messages);
            self.line(position).head.store(head, Ordering::Relaxed);
        }
        for line in 0..self.size {
            // SAFETY: loom checks that it is not read at the same time; that is the purpose of this model.
            let place = |place: *mut u64| unsafe { *place = body + line };
            self.line(position + line).body.with_mut(place);
        }
        let commit = batch::commit(canary, 0);
        self.last(position, lines).commit.store(commit, publish);
    }

    fn read(&self, position: u64, canary: u64, tell: Ordering) -> u64 {
        let head = || self.line(position).head.load(Ordering::Acquire);
        let committed = |lines| {
            let commit = self.last(position, lines).commit.load(Ordering::Acquire);
            batch::read_commit(commit, canary)
        };
        let arrived = || match self.form {
            Form::Twice => {
                committed(1)?;
                let (_, messages) = batch::read_head(head(), canary)?;
                Some(messages)
            }
            Form::Sealed => {
                let seen = head();
                let (lines, messages) = batch::read_head(seen, canary)?;
                committed(lines)?;
                (!self.looks_again || head() == seen).then_some(messages)
            }
        };
        let messages = loop {
            match arrived() {
                Some(messages) => break messages,
                None => thread::yield_now(),
            }
        };
        assert_eq!(messages, 1, "half of a head");
        let body = |line| {
            // SAFETY: as above for the writer.
            self.line(position + line)
                .body
                .with(|place| unsafe { *place })
        };
        let sum = (0..self.size).map(body).sum();
        self.consumed.store(position + self.size, tell);
        sum
    }
}

fn check(form: Form, size: u64, publish: Ordering, tell: Ordering) {
    check_heads((form, size), false, true, publish, tell);
}

fn check_heads(
    (form, size): (Form, u64),
    by_halves: bool,
    looks_again: bool,
    publish: Ordering,
    tell: Ordering,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let ring = Arc::new(Ring::new(form, size, by_halves, looks_again));
        let writer = Arc::clone(&ring);
        let thread = thread::spawn(move || {
            let mut canaries = Canaries::new(SEED);
            for batch in 0..BATCHES {
                let position = batch * writer.size;
                writer.write(position, canaries.current(), 100 * batch, publish);
                canaries.advance();
            }
        });
        let mut canaries = Canaries::new(SEED);
        for batch in 0..BATCHES {
            let sum = ring.read(batch * size, canaries.current(), tell);
            assert_eq!(sum, 100 * batch * size + size * (size - 1) / 2);
            canaries.advance();
        }
        thread.join().unwrap();
    });
}

#[test]
fn loom_every_body_is_read_whole_and_once() {
    check(Form::Twice, 1, Ordering::Release, Ordering::Release);
}

#[test]
fn loom_every_sealed_body_is_read_whole_and_once() {
    check(Form::Sealed, 2, Ordering::Release, Ordering::Release);
}

/// The model is meaningful: without the order it fails.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_commit_that_overtakes_its_body_is_found() {
    check(Form::Twice, 1, Ordering::Relaxed, Ordering::Release);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_seal_that_overtakes_its_body_is_found() {
    check(Form::Sealed, 2, Ordering::Relaxed, Ordering::Release);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_count_that_overtakes_the_reading_is_found() {
    check(Form::Sealed, 2, Ordering::Release, Ordering::Relaxed);
}

#[test]
fn loom_a_head_that_comes_by_halves_is_seen_whole() {
    let order = Ordering::Release;
    check_heads((Form::Twice, 1), true, true, order, order);
    check_heads((Form::Sealed, 2), true, true, order, order);
}

#[test]
#[should_panic(expected = "half of a head")]
fn loom_a_head_that_is_not_looked_at_again_is_found() {
    let order = Ordering::Release;
    check_heads((Form::Sealed, 2), true, false, order, order);
}
