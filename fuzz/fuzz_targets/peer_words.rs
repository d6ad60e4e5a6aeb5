//! Grants of regions, credits, figures of clients and servers, turns: what a peer says beside its messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else {
        return;
    };
    match choice % 4 {
        0 => dunlin_rpc::fuzzing::grant(bytes),
        1 => dunlin_rpc::fuzzing::credits(bytes),
        _ => dunlin_rpc::fuzzing::figures(bytes),
    }
});
