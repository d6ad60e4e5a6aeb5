//! Latencies of loads whose calls take longer than 32 bits of nanoseconds can represent, 4.29 s.

use dunlin::{DatagramBatches, Grouping, Preset};
use dunlin_lab::load::{all_to_all, AllToAll, Crowd, RpcBench, RpcPlan, Window};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

/// Computation of a handler.
const HANDLER_NS: u64 = 4_500_000_000;
/// The same in microseconds.
const HANDLER_US: f64 = 4.5e6;

fn cluster() -> Cluster {
    let (host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connectx_3());
    Cluster::star(1, 2, &host, &nic, &SwitchParameters::sx1012())
}

/// The second call is answered within the time that threads have to end.
fn window(measured_ns: u64) -> Window {
    Window {
        warm_ns: 0,
        measured_ns,
    }
}

#[test]
fn a_call_of_seconds_is_as_long_as_it_is() {
    let plan = RpcPlan {
        handler_ns: HANDLER_NS,
        pollers: 1,
        ..RpcPlan::flock(Preset::Flock, 1, 1)
    };
    let bench = RpcBench::new(cluster(), plan);
    let found = bench.window(8_200_000_000);
    assert!(found.mops > 0.0, "{found:?}");
    for latency in [found.mean_us, found.median_us, found.p99_us] {
        assert!(latency >= HANDLER_US, "{found:?}");
    }
    assert_eq!(bench.stop(), (0, 0));
}

#[test]
fn so_is_one_of_a_crowd() {
    let plan = Crowd {
        preset: Preset::Flock,
        clients: 1,
        threads: 1,
        batch: 1,
        bytes: 32,
        block_bytes: 4096,
        pollers: 1,
        grouping: Grouping::default(),
        datagram_batches: DatagramBatches::default(),
        handler_ns: HANDLER_NS,
        pauses_ns: Vec::new(),
    };
    let bench = RpcBench::crowd(cluster(), &plan);
    let found = bench.measure_crowd(window(8_200_000_000));
    assert!(found.latency_us(0.0) >= HANDLER_US, "{found:?}");
    assert_eq!(bench.stop(), (0, 0));
}

#[test]
fn so_is_one_between_machines_that_all_ask() {
    let plan = AllToAll {
        workers: 1,
        handler_ns: HANDLER_NS,
        ..AllToAll::new(Preset::Flock, 1, 1)
    };
    let found = all_to_all(&cluster(), &plan, window(6_000_000_000));
    assert!(found.calls > 0.0, "{found:?}");
    for latency in [found.median_us, found.p99_us] {
        assert!(latency >= HANDLER_US, "{found:?}");
    }
    assert_eq!(found.failed, (0, 0));
}
