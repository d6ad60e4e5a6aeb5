//! The loads of applications: each operation is carried out and answered correctly, and costs its time on the server.

use dunlin::{ChannelConfig, Grouping, Preset, WaitMode};
use dunlin_lab::load::{Application, Cost, Index, IndexLoad, Metadata, Operation};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

const COST_NS: u64 = 2_000;

fn operations(preset: Preset, operation: Operation) -> f64 {
    let (host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connectx_3());
    let cluster = Cluster::star(1, 4, &host, &nic, &SwitchParameters::sx1012());
    let load = Metadata {
        application: Application {
            preset,
            threads: 12,
            outstanding: 1,
            pollers: 4,
            dispatched: false,
            paced: false,
            channel: ChannelConfig {
                ring_bytes: 16 << 10,
                wait: WaitMode::Spin,
                ..ChannelConfig::default()
            },
        },
        grouping: Grouping::default(),
        operation,
        files: 200,
        cost_ns: COST_NS,
    };
    let bench = load.serve(cluster);
    let result = bench.measure(0, 100_000, 200_000);
    assert_eq!(bench.stop(), (0, 0), "{preset}, {operation:?}");
    result.rpc.mops
}

#[test]
fn every_operation_is_done_by_any_preset_and_the_same_each_time() {
    for preset in [Preset::SelfRpc, Preset::ScaleRpc, Preset::Auto] {
        for operation in Operation::ALL {
            let rate = operations(preset, operation);
            assert!(rate > 0.1, "{preset}, {operation:?}: {rate}");
            assert_eq!(
                operations(preset, operation),
                rate,
                "{preset}, {operation:?}"
            );
        }
    }
}

#[test]
fn changes_wait_for_each_other_and_questions_do_not() {
    let alone = 1e3 / COST_NS as f64;
    let made = operations(Preset::SelfRpc, Operation::Mknod);
    assert!(made <= alone * 1.01, "{made} of {alone}");
    let asked = operations(Preset::SelfRpc, Operation::Stat);
    assert!(asked > alone * 1.5, "{asked} of {alone}");
}

fn cluster() -> Cluster {
    let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_5());
    Cluster::star(1, 3, &host, &nic, &SwitchParameters::z9264f())
}

#[test]
fn a_range_has_its_keys_and_a_key_its_value() {
    let cluster = cluster();
    let index = Index::new(&cluster, cluster.hosts()[0], 500);
    let range = |first: u64, end: u64| [first.to_be_bytes(), end.to_be_bytes()].concat();
    for (first, end, count) in [(0, 64, 64), (400, 464, 64), (490, 600, 10), (9, 9, 0)] {
        let found = index.scan(&range(first, end)).map(u64::from_le_bytes);
        assert_eq!(found, Some(count), "{first} to {end}");
    }
    assert_eq!(index.scan(&[1, 2, 3]), None);
    let found = index.get(&7u64.to_be_bytes()).expect("a value");
    assert_eq!(found.len(), 8);
    assert_ne!(Some(found), index.get(&8u64.to_be_bytes()));
    assert_eq!(index.get(&500u64.to_be_bytes()), None);
}

#[test]
fn the_index_is_asked_by_any_preset_and_the_same_each_time() {
    let mops = |preset| {
        let load = IndexLoad {
            application: Application {
                preset,
                threads: 6,
                outstanding: 3,
                pollers: 2,
                dispatched: preset == Preset::Flock,
                paced: true,
                channel: ChannelConfig {
                    ring_bytes: 16 << 10,
                    wait: WaitMode::Spin,
                    ..ChannelConfig::default()
                },
            },
            most_active: 256,
            keys: 500,
            range: 64,
            scans: 10,
            get: Cost {
                instructions: 100,
                memory_ns: 100,
            },
            scan: Cost {
                instructions: 1_000,
                memory_ns: 1_000,
            },
        };
        let bench = load.serve(cluster());
        let result = bench.measure(300_000, 300_000, 100_000);
        assert_eq!(bench.stop(), (0, 0), "{preset}");
        let [get, scan] = result.kinds;
        assert!(get.0 < scan.0 && get.0 <= get.1, "{preset}: {result:?}");
        result.rpc.mops
    };
    for preset in [Preset::Flock, Preset::Erpc, Preset::Auto] {
        let rate = mops(preset);
        assert!(rate > 0.1, "{preset}: {rate}");
        assert_eq!(mops(preset), rate, "{preset}");
    }
}
