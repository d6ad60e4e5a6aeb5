//! Message pools and HERD's zones: whatever the other end has written into blocks, entries and turns, it is messages
//! within the limits or an error.
#![no_main]

use std::cell::RefCell;

use dunlin_rpc::fuzzing::FuzzedPools;

thread_local! {
    static POOLS: RefCell<FuzzedPools> = RefCell::new(FuzzedPools::new());
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| POOLS.with_borrow_mut(|pools| pools.run(bytes)));
