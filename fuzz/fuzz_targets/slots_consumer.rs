//! The consumer of RB²'s ring and of its rivals: whatever a producer writes into all it may write, it is messages
//! within the limits or an error.
#![no_main]

use dunlin_ring::fuzzing::lying_producer;
use dunlin_shm::{ShmConfig, ShmDevice};

thread_local! {
    static DEVICES: [ShmDevice; 2] = std::array::from_fn(|_| {
        ShmDevice::open(ShmConfig::default()).expect("shared memory")
    });
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| DEVICES.with(|devices| lying_producer(devices, bytes)));
