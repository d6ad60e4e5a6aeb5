//! Streams of typed services: frames of any bytes reach either side while its own streams read, write and end. What is
//! held for readers stays within the windows.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dunlin_service::fuzzing::streams(bytes));
