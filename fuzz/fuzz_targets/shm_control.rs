//! The control thread of a device: whatever peers say, in any order, with any descriptors, it answers the others.
#![no_main]

use dunlin_shm::fuzzing::FuzzedControl;

thread_local! {
    static CONTROL: FuzzedControl = FuzzedControl::new();
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| CONTROL.with(|control| control.run(bytes)));
