//! Packets of RoCEv2: no bytes make the parser or the CRC panic, and what parses is encoded as the same.
#![no_main]
// The tests of the crate play the same runs; each target needs a part of them.
#![allow(dead_code)]

#[path = "../../crates/dunlin-roce/tests/hostile/choices.rs"]
mod choices;
#[path = "../../crates/dunlin-roce/tests/hostile/packets.rs"]
mod packets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packets::bytes_of_anybody(bytes));
