//! `parse_server_hello`: no bytes make it panic, and what it takes is written and read again as the same.
#![no_main]

use dunlin_bootstrap::wire::{encode_server_hello, parse_server_hello, MAX_FRAME};

libfuzzer_sys::fuzz_target!(|frame: &[u8]| {
    if frame.len() > MAX_FRAME {
        return;
    }
    if let Ok(message) = parse_server_hello(frame) {
        let again = encode_server_hello(&message).expect("what was taken keeps the limits");
        assert_eq!(parse_server_hello(&again), Ok(message));
    }
});
