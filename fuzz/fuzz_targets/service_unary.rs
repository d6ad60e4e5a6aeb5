//! Typed services: requests, answers and directories of any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dunlin_service::fuzzing::unary(bytes));
