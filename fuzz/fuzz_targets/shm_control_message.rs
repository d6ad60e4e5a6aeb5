//! `Message::decode` of the shared-memory device: no bytes make it panic, and what it takes is written and read again
//! as the same.
#![no_main]

use dunlin_shm::Message;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = Message::decode(bytes) {
        assert_eq!(Message::decode(&message.encode()), Ok(message));
    }
});
