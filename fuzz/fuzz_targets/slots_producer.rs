//! The producer of RB²'s ring and of its rivals: whatever a consumer writes into all it may write, it waits, sends on,
//! or fails.
#![no_main]

use dunlin_ring::fuzzing::lying_consumer;
use dunlin_shm::{ShmConfig, ShmDevice};

thread_local! {
    static DEVICES: [ShmDevice; 2] = std::array::from_fn(|_| {
        ShmDevice::open(ShmConfig::default()).expect("shared memory")
    });
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| DEVICES.with(|devices| lying_consumer(devices, bytes)));
