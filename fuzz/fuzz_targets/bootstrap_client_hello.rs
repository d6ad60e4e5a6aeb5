//! `parse_client_hello`: no bytes make it panic, and what it takes is written and read again as the same.
#![no_main]

use dunlin_bootstrap::wire::{encode_client_hello, parse_client_hello, MAX_FRAME};

libfuzzer_sys::fuzz_target!(|frame: &[u8]| {
    if frame.len() > MAX_FRAME {
        return;
    }
    if let Ok(message) = parse_client_hello(frame) {
        let again = encode_client_hello(&message).expect("what was taken keeps the limits");
        assert_eq!(parse_client_hello(&again), Ok(message));
    }
});
