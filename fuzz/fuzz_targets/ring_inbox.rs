//! The inbox: whatever a peer has written into the ring, it is messages within the limits or an error.
#![no_main]

use dunlin_rpc::fuzzing::FuzzedRing;

thread_local! {
    static RING: FuzzedRing = FuzzedRing::new();
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| RING.with(|ring| ring.receive(bytes)));
