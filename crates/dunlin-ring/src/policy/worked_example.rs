//! The example of RB² §IV-B, Fig. 4: N = 8, α = 4, β = 2, γ = 2.

use super::{Due, Pacing, Receiver, Sender};
use crate::error::Violation;

const N: u64 = 8;

fn sender() -> Sender {
    Sender::new(N, 4, 2, Pacing::Thresholds { elastic: true })
}

/// Algorithm 1's reaction to one written slot, with a device that completes immediately. Returns what was done.
fn write(sender: &mut Sender) -> Due {
    assert!(sender.has_room(1));
    sender.wrote(1);
    let due = sender.due();
    if due != Due::Nothing {
        sender.transmitted();
    }
    if due == Due::Advance {
        assert!(sender.may_advance(0));
        sender.advanced();
        sender.completed(sender.esc_tail());
    }
    due
}

/// Fig. 4 (a) to (d). The figure begins with some messages read and one slot written since the last slot transmission.
#[test]
fn the_papers_example() {
    let mut sender = sender();
    let mut receiver = Receiver::new(N, 2);
    // Before (a): four messages written and synchronised, one of them read, and one more message written.
    for due in [Due::Nothing, Due::Transmit, Due::Nothing, Due::Advance] {
        assert_eq!(write(&mut sender), due);
    }
    receiver.heard_tail(sender.synced_tail()).unwrap();
    assert!(!receiver.read(1));
    assert_eq!(write(&mut sender), Due::Nothing);
    assert_eq!(
        (sender.tail(), sender.esc_tail(), sender.synced_tail()),
        (5, 4, 4)
    );

    // (a) to (b), slot transmission: one more message, and two slots are sent ahead of the tail.
    assert_eq!(write(&mut sender), Due::Transmit);
    assert_eq!(
        (sender.tail(), sender.esc_tail(), sender.synced_tail()),
        (6, 6, 4)
    );
    assert_eq!(receiver.local_tail(), 4);

    // (b) to (c), lazy push: of two messages read, the first one pushes the head and the second one only moves it.
    assert!(receiver.read(1));
    receiver.pushed();
    sender.heard_head(receiver.head()).unwrap();
    assert!(!receiver.read(1));
    assert_eq!((receiver.head(), sender.local_head()), (3, 2));

    // (c) to (d), pointer advancement: two more messages; two slots are sent, and the tail moves by four.
    assert_eq!(write(&mut sender), Due::Nothing);
    assert_eq!(write(&mut sender), Due::Advance);
    receiver.heard_tail(sender.synced_tail()).unwrap();
    assert_eq!(receiver.local_tail(), 8);
    assert_eq!(
        (sender.tail(), sender.esc_tail(), sender.synced_tail()),
        (8, 8, 8)
    );
    // The head that was pushed is 2, so one slot is free besides the one that is never used.
    assert!(sender.has_room(1) && !sender.has_room(2));
}

#[test]
fn full_is_against_local_head_and_leaves_one_slot() {
    let mut sender = sender();
    for _ in 0..N - 1 {
        write(&mut sender);
    }
    assert!(!sender.has_room(1));
    // Read by the consumer, but nothing is known to be complete beyond the last advancement.
    sender.heard_head(4).unwrap();
    assert!(sender.has_room(4) && !sender.has_room(5));
}

#[test]
fn an_advancement_that_was_deferred_stays_due_and_transmission_goes_on() {
    let mut sender = sender();
    for _ in 0..2 {
        sender.wrote(1);
    }
    sender.transmitted();
    sender.advanced();
    for _ in 0..4 {
        sender.wrote(1);
    }
    assert_eq!(sender.due(), Due::Advance);
    assert!(!sender.may_advance(1), "the one before is under way");
    sender.transmitted();
    sender.completed(1);
    sender.wrote(1);
    assert_eq!(sender.due(), Due::Advance);
    assert!(!sender.may_advance(1));
    assert!(!sender.transmission_is_due(), "by β, not by each message");
    sender.completed(2);
    assert!(sender.may_advance(1), "others may be under way");
}

#[test]
fn without_the_elastic_threshold_nothing_is_deferred() {
    let mut sender = Sender::new(N, 4, 2, Pacing::Thresholds { elastic: false });
    sender.wrote(1);
    sender.transmitted();
    sender.advanced();
    assert!(sender.may_advance(100));
    let sender = Sender::new(N, 1, 1, Pacing::InFlight { most: 10 });
    assert!(sender.may_advance(9) && !sender.may_advance(10));
}

#[test]
fn a_place_is_free_when_it_was_read_and_its_write_is_complete() {
    let mut sender = sender();
    for _ in 0..7 {
        sender.wrote(1);
    }
    sender.transmitted();
    sender.advanced();
    sender.heard_head(7).unwrap();
    assert_eq!(sender.local_head(), 0);
    sender.completed(5);
    assert_eq!(sender.local_head(), 5);
    sender.completed(7);
    assert_eq!(sender.local_head(), 7);
}

#[test]
fn pointers_that_cannot_be_are_refused() {
    let mut sender = sender();
    for _ in 0..4 {
        write(&mut sender);
    }
    sender.wrote(1);
    let beyond = sender.heard_head(5).unwrap_err();
    assert_eq!(beyond, Violation::Head { by: 5, sent: 4 });
    sender.heard_head(4).unwrap();
    assert!(sender.heard_head(3).is_err());
    assert!(sender.heard_head(u64::MAX).is_err());

    let mut receiver = Receiver::new(N, 2);
    assert!(receiver.heard_tail(8).is_err());
    receiver.heard_tail(7).unwrap();
    assert!(receiver.heard_tail(6).is_err());
    assert!(receiver.heard_tail(8).is_err());
    receiver.read(7);
    assert!(receiver.heard_tail(8).is_err(), "it was not told yet");
    receiver.pushed();
    receiver.heard_tail(14).unwrap();
    assert!(receiver.heard_tail(15).is_err());
}
