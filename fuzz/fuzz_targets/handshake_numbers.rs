//! The address and the numbers that a peer says in the handshake: no channel that is joined to it panics, or takes
//! memory without a bound.
#![no_main]

use dunlin_rpc::fuzzing::FuzzedHandshake;

thread_local! {
    static SIDE: FuzzedHandshake = FuzzedHandshake::new();
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| SIDE.with(|side| side.join(bytes)));
