//! RC's requester: whatever a responder answers, each request ends once and in order, and only what was sent succeeds.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/dunlin-roce/tests/hostile/choices.rs"]
mod choices;
#[path = "../../crates/dunlin-roce/tests/hostile/packets.rs"]
mod packets;
#[path = "../../crates/dunlin-roce/tests/hostile/requester.rs"]
mod requester;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| requester::hostile_responder(bytes));
