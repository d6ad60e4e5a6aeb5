//! `parse_open`: no bytes make it panic, and what it takes is written and read again as the same.
#![no_main]

use dunlin_bootstrap::wire::{encode_open, parse_open, MAX_FRAME};

libfuzzer_sys::fuzz_target!(|frame: &[u8]| {
    if frame.len() > MAX_FRAME {
        return;
    }
    if let Ok(message) = parse_open(frame) {
        let again = encode_open(&message).expect("what was taken keeps the limits");
        assert_eq!(parse_open(&again), Ok(message));
    }
});
