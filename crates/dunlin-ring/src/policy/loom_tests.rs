//! A model of how the ring publishes messages, using the production code's pointers, checked in all interleavings:
//! slots first, then the tail; the consumer trusts only slots below the tail, and the producer reuses a slot only after
//! it was read.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p dunlin-ring --release --lib loom`

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::Arc;
use loom::thread;

use super::{Due, Pacing, Receiver, Sender};

/// Slots of the ring, of which one is never used.
const SLOTS: u64 = 4;
/// A little more than one lap.
const MESSAGES: u64 = 6;

struct Ring {
    slots: [UnsafeCell<u64>; SLOTS as usize],
    tail: AtomicU64,
    head: AtomicU64,
}

#[allow(unsafe_code)]
fn check(publish: Ordering, push: Ordering) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let ring = Arc::new(Ring {
            slots: std::array::from_fn(|_| UnsafeCell::new(0)),
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
        });
        let producer = Arc::clone(&ring);
        let thread = thread::spawn(move || {
            let mut sender = Sender::new(SLOTS, 2, 1, Pacing::Thresholds { elastic: true });
            // A device that completes immediately: slot transmission is the store into the slot.
            let advance = |sender: &mut Sender| {
                sender.transmitted();
                producer.tail.store(sender.tail(), publish);
                sender.advanced();
                sender.completed(sender.tail());
            };
            for message in 0..MESSAGES {
                while !sender.has_room(1) {
                    // Full: publish what waits, because the consumer cannot read what has not been published.
                    if sender.is_behind() {
                        advance(&mut sender);
                    }
                    let head = producer.head.load(Ordering::Acquire);
                    sender.heard_head(head).unwrap();
                    thread::yield_now();
                }
                let slot = &producer.slots[(sender.tail() % SLOTS) as usize];
                // SAFETY: loom checks that nobody reads it now, which is the purpose of this model.
                slot.with_mut(|place| unsafe { *place = 100 + message });
                sender.wrote(1);
                match sender.due() {
                    Due::Advance => advance(&mut sender),
                    Due::Transmit => sender.transmitted(),
                    Due::Nothing => {}
                }
            }
            // The sender goes idle: flush what is left.
            if sender.is_behind() {
                advance(&mut sender);
            }
        });
        let mut receiver = Receiver::new(SLOTS, 2);
        for message in 0..MESSAGES {
            while receiver.available() == 0 {
                let tail = ring.tail.load(Ordering::Acquire);
                receiver.heard_tail(tail).unwrap();
                thread::yield_now();
            }
            let slot = &ring.slots[(receiver.head() % SLOTS) as usize];
            // SAFETY: as above for the producer.
            let found = slot.with(|place| unsafe { *place });
            assert_eq!(found, 100 + message);
            if receiver.read(1) {
                ring.head.store(receiver.head(), push);
                receiver.pushed();
            }
        }
        thread.join().unwrap();
    });
}

#[test]
fn loom_every_message_is_read_whole_and_once() {
    check(Ordering::Release, Ordering::Release);
}

/// The model can detect errors: without the ordering it fails.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_tail_that_overtakes_its_slots_is_found() {
    check(Ordering::Relaxed, Ordering::Release);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_head_that_overtakes_the_reading_is_found() {
    check(Ordering::Release, Ordering::Relaxed);
}
