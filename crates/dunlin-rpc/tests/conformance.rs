//! The conformance suite of every preset over shared memory.

const WORLD: dunlin_rpc::conformance::Loopback =
    dunlin_rpc::conformance::Loopback { device: "shm" };

dunlin_rpc::rpc_conformance!(WORLD);
