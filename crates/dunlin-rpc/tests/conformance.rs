//! The conformance suite of every preset over shared memory, and with a dispatcher of one that queues and of one that
//! spins.

const WORLD: dunlin_rpc::conformance::Loopback =
    dunlin_rpc::conformance::Loopback { device: "shm" };

dunlin_rpc::rpc_conformance!(WORLD);

const DISPATCHED: dunlin_rpc::conformance::Dispatched<dunlin_rpc::conformance::Loopback> =
    dunlin_rpc::conformance::Dispatched(WORLD);

dunlin_rpc::rpc_conformance! { some DISPATCHED;
    flock_dispatched Flock, spinlock_4_dispatched Spinlock4
}
