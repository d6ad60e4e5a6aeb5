//! The conformance suite of every preset over shared memory, and of those that share lanes with a dispatcher, too.

const WORLD: dunlin_rpc::conformance::Loopback =
    dunlin_rpc::conformance::Loopback { device: "shm" };

dunlin_rpc::rpc_conformance!(WORLD);

const DISPATCHED: dunlin_rpc::conformance::Dispatched<dunlin_rpc::conformance::Loopback> =
    dunlin_rpc::conformance::Dispatched(WORLD);

dunlin_rpc::rpc_conformance! { some DISPATCHED;
    flock_dispatched Flock, spinlock_4_dispatched Spinlock4, flock_no_coalescing_dispatched FlockNoCoalescing,
    flock_no_scheduling_dispatched FlockNoScheduling
}
