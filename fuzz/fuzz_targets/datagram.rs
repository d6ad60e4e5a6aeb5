//! Datagrams of the preset `fasst`, which anybody may send: no bytes make their readers panic or leave the datagram.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dunlin_rpc::fuzzing::datagram(bytes));
