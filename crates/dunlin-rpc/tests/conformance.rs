//! The conformance suite for every preset over shared memory, and with a dispatcher for one that queues and one that
//! spins.

const WORLD: dunlin_rpc::conformance::Loopback =
    dunlin_rpc::conformance::Loopback { device: "shm" };

dunlin_rpc::rpc_conformance!(WORLD);

const DISPATCHED: dunlin_rpc::conformance::Dispatched<dunlin_rpc::conformance::Loopback> =
    dunlin_rpc::conformance::Dispatched(WORLD);

dunlin_rpc::rpc_conformance! { some DISPATCHED;
    flock_dispatched Flock, spinlock_4_dispatched Spinlock4
}
