//! One single-producer single-consumer ring of 64 B messages.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::sync::Arc;

use dunlin_verbs::prefetch_to_write;

use super::Alone;

/// A message of the single-producer single-consumer ring: one cache line.
pub type Message = [u64; 8];

#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Line(UnsafeCell<Message>);

#[derive(Debug)]
struct Spsc {
    lines: Box<[Line]>,
    tail: Alone<AtomicU64>,
    head: Alone<AtomicU64>,
}

// SAFETY: lines from `head` to `tail` belong to the one `Consumer`, all others to the one `Producer`;
// each moves only its own index, with Release after its last access, and reads the other's with Acquire.
unsafe impl Sync for Spsc {}

/// The writing end of a single-producer single-consumer ring.
#[derive(Debug)]
pub struct Producer {
    ring: Arc<Spsc>,
    tail: u64,
    seen_head: u64,
}

/// The reading end of a single-producer single-consumer ring.
#[derive(Debug)]
pub struct Consumer {
    ring: Arc<Spsc>,
    head: u64,
}

/// A single-producer single-consumer ring of `slots` cache lines (a power of two).
pub fn spsc(slots: usize) -> (Producer, Consumer) {
    assert!(
        slots.is_power_of_two(),
        "the number of slots of a ring must be a power of two, not {slots}"
    );
    let lines = (0..slots).map(|_| Line::default()).collect();
    let ring = Arc::new(Spsc {
        lines,
        tail: Alone::default(),
        head: Alone::default(),
    });
    (
        Producer {
            ring: Arc::clone(&ring),
            tail: 0,
            seen_head: 0,
        },
        Consumer { ring, head: 0 },
    )
}

impl Producer {
    /// Writes `count` messages and publishes them together; returns `false`, and writes nothing, if there is no room
    /// for them.
    #[inline]
    pub fn send(&mut self, count: u64, mut message: impl FnMut(u64) -> Message) -> bool {
        let slots = self.ring.lines.len() as u64;
        if self.tail + count > self.seen_head + slots {
            self.seen_head = self.ring.head.0.load(Acquire);
            if self.tail + count > self.seen_head + slots {
                return false;
            }
        }
        for position in self.tail..self.tail + count {
            let line = &self.ring.lines[(position & (slots - 1)) as usize];
            // SAFETY: less than a ring's worth after `head`, so the consumer has let go of this line.
            unsafe { *line.0.get() = message(position) };
            prefetch_to_write(&self.ring.lines[((position + count.max(8)) & (slots - 1)) as usize]);
        }
        self.tail += count;
        self.ring.tail.0.store(self.tail, Release);
        true
    }
}

impl Consumer {
    /// Reads all published messages; returns how many.
    #[inline]
    pub fn receive(&mut self, mut message: impl FnMut(&Message)) -> u64 {
        let slots = self.ring.lines.len() as u64;
        let tail = self.ring.tail.0.load(Acquire);
        for position in self.head..tail {
            let line = &self.ring.lines[(position & (slots - 1)) as usize];
            // SAFETY: before `tail`, so published, and not before `head`, so not yet given back.
            message(unsafe { &*line.0.get() });
        }
        let count = tail - self.head;
        if count != 0 {
            self.head = tail;
            self.ring.head.0.store(tail, Release);
        }
        count
    }
}
