//! Room: what the peer's ring holds, and what happens to messages without room.

use super::batch::Form;
use super::message::{Header, Kind};
use super::outbox::Outbox;

/// A caller that forgets to make room gets an error, instead of overwriting what the peer has not read.
#[test]
fn a_batch_without_room_is_an_error() {
    for form in [Form::Sealed, Form::Twice] {
        let mut outbox = Outbox::new(256, 4096, 7, form);
        let header = || Header::new(Kind::Response, 0, 1, 4096);
        let mut lines = 256usize;
        while outbox.fits(4096) {
            outbox.place().put(header(), &[1; 4096]);
            assert!(outbox.pieces(0).is_ok());
            outbox.written();
            lines -= 65;
        }
        assert!(lines < 65);
        outbox.place().put(header(), &[1; 4096]);
        let error = outbox.pieces(0).unwrap_err();
        assert!(!error.is_violation(), "it is our own fault: {error}");
    }
}
