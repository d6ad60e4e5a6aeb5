//! Headers, descriptors and failures in the ring: no bytes make their readers panic, and what they take is written as
//! the same.
#![no_main]

use dunlin_rpc::fuzzing::{descriptor, failure, header};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    header(bytes);
    descriptor(bytes);
    failure(bytes);
});
