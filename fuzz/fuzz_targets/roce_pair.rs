//! RC between honest ends, and packets from elsewhere besides: all requests end well, each carried out once.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/dunlin-roce/tests/hostile/besides.rs"]
mod besides;
#[path = "../../crates/dunlin-roce/tests/hostile/choices.rs"]
mod choices;
#[path = "../../crates/dunlin-roce/tests/hostile/packets.rs"]
mod packets;
#[path = "../../crates/dunlin-roce/tests/hostile/watched.rs"]
mod watched;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| besides::packets_from_elsewhere(bytes));
