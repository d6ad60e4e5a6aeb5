//! RC's responder: whatever a requester sends, it writes only what was granted, does nothing twice and keeps little.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/dunlin-roce/tests/hostile/choices.rs"]
mod choices;
#[path = "../../crates/dunlin-roce/tests/hostile/packets.rs"]
mod packets;
#[path = "../../crates/dunlin-roce/tests/hostile/responder.rs"]
mod responder;
#[path = "../../crates/dunlin-roce/tests/hostile/watched.rs"]
mod watched;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| responder::hostile_requester(bytes));
