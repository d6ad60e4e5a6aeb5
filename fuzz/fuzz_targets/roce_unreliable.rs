//! UC's receiver: whatever a sender sends, only what was granted is written, and each message is delivered whole.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/dunlin-roce/tests/hostile/choices.rs"]
mod choices;
#[path = "../../crates/dunlin-roce/tests/hostile/packets.rs"]
mod packets;
#[path = "../../crates/dunlin-roce/tests/hostile/unreliable.rs"]
mod unreliable;
#[path = "../../crates/dunlin-roce/tests/hostile/watched.rs"]
mod watched;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unreliable::hostile_sender(bytes));
