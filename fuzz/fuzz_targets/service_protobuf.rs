//! Messages of protobuf by code of their own, by views and by prost: the same bytes are read, and the same refused.
#![no_main]

#[path = "../../crates/dunlin-service/tests/protobuf/messages.rs"]
mod messages;

use messages::{check_both, All, Empty, Week};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    check_both::<All>(bytes, &All::default());
    check_both::<Empty>(bytes, &Empty::default());
    check_both::<Week>(bytes, &Week::default());
});
