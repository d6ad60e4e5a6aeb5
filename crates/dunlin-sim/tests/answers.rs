//! What a NIC sends as an answer keeps to what holds for requests: pauses.

mod support;

use dunlin_sim::{
    Cluster, ClusterBuilder, HostParameters, NicParameters, SwitchId, SwitchParameters,
};
use dunlin_verbs::ConnectAttributes;

/// Hosts on one switch. READs of a packet are answered without a turn of the engine that sends.
const PACKET: usize = 1024;

fn cluster(hosts: usize, nic: &NicParameters, switch: SwitchParameters) -> (Cluster, SwitchId) {
    let mut builder = ClusterBuilder::new(1);
    let switch = builder.switch(switch);
    for _ in 0..hosts {
        builder.host(HostParameters::epyc_7452(), nic.clone(), switch);
    }
    (builder.build(), switch)
}

/// So many queue pairs of the first host to each of the others.
fn fan_in(cluster: &Cluster, pairs: usize) -> Vec<support::Ends> {
    let hosts = cluster.hosts();
    let owners = hosts[1..].iter().flat_map(|&owner| vec![owner; pairs]);
    let connect = |owner| {
        let patient = ConnectAttributes::default();
        support::connected_between(cluster, [hosts[0], owner], patient)
    };
    owners.map(connect).collect()
}

/// Everybody answers at once, and more than the switch holds: it pauses them, and they wait.
#[test]
fn a_switch_that_pauses_drops_no_response_of_a_packet() {
    for shared_pipeline in [0.0, 1.0] {
        let mut nic = NicParameters::connectx_6_dx();
        (nic.mtu_bytes, nic.congestion_control) = (PACKET as f64, 0.0);
        nic.shared_pipeline = shared_pipeline;
        let mut switch = SwitchParameters::z9264f();
        (switch.buffer_bytes, switch.ecn_min_bytes) = (150_000.0, 0.0);
        (switch.pause_bytes, switch.resume_bytes) = (6_000.0, 3_000.0);
        let (cluster, switch) = cluster(9, &nic, switch);
        let mut ends = fan_in(&cluster, 4);
        for ends in &mut ends {
            support::read(ends, PACKET, 16);
        }
        cluster.run_for(1_000_000);
        let counted = cluster.switch_counters(switch);
        assert!(counted.pauses > 0, "{counted:?}");
        assert_eq!(counted.drops, 0, "{counted:?}");
        for ends in &mut ends {
            assert_eq!(support::done(ends), 16);
        }
    }
}
