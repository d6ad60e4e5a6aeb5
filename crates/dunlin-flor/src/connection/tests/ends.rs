//! How messages end that do not end well at once.

use super::*;

/// A sender of this message, which the peer has granted memory for, and the WRITEs that are handed out of it.
fn written(bytes: u32, tag: u32) -> (Connection, MessageId, Vec<WorkRequest>) {
    let mut sender = connection(modules(1 << 20, 32 << 10));
    let message = sender.submit(0, bytes, tag).unwrap();
    posts(&mut sender, 0);
    sender.completed(1, GlobalNumber(0), Some(1));
    acknowledge(&mut sender, 1, &[AckedNumber::Send(GlobalNumber(0))]);
    let place = PLACE;
    hear(&mut sender, 0, Content::Grant { message: 1, place }, 0);
    let writes = posts(&mut sender, 2);
    (sender, message, writes)
}

/// A tagged message is written however short it is; the repetition of a WRITE without bytes has none either.
#[test]
fn a_written_message_without_bytes_is_repaired() {
    let (mut sender, message, writes) = written(0, 7);
    assert_eq!(writes.len(), 1);
    sender.completed(3, writes[0].global, Some(3));
    let repairs = posts(&mut sender, 1_000_000_000);
    let chunk = header(&repairs[0]);
    let number = crate::number::WriteNumber {
        hint: false,
        message: 1,
        offset_units: 0,
    };
    assert_eq!(
        (chunk.content, chunk.payload_bytes),
        (Content::Chunk(number), 0)
    );
    let now_ns = 1_000_000_001;
    sender.completed(now_ns, repairs[0].global, Some(now_ns));
    acknowledge(&mut sender, now_ns, &[AckedNumber::Send(repairs[0].global)]);
    let finished = Action::Finished(message, Ok(()));
    assert_eq!(sender.cx.actions.pop_front(), Some(finished));

    // And it makes the message whole where it arrives.
    let mut receiver = connection(modules(1 << 20, 32 << 10));
    let announced = Content::Announce {
        message: 1,
        total: 0,
        tag: 7,
    };
    hear(&mut receiver, 0, announced, 0);
    receiver.provide(1, PLACE);
    let delivered = hear(&mut receiver, 1, Content::Chunk(number), 0);
    let is_delivery = |action: &Action| matches!(action, Action::Deliver(_));
    assert!(delivered.iter().any(is_delivery), "{delivered:?}");
}
