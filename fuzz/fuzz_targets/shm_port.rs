//! The port of a queue pair: whatever its sender writes into control words and records, the receiver delivers no more
//! than it has room for.
#![no_main]

use std::cell::RefCell;

use dunlin_shm::fuzzing::FuzzedPort;

thread_local! {
    static PORTS: RefCell<Vec<FuzzedPort>> = RefCell::new((0..3).map(FuzzedPort::new).collect());
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((port, steps)) = bytes.split_first() {
        PORTS.with_borrow_mut(|ports| ports[usize::from(port % 3)].receive(steps));
    }
});
