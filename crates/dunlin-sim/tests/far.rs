//! Times near the end of their range: waiting without a limit.

mod support;

use dunlin_sim::{
    Cluster, ClusterBuilder, Fault, FaultRule, HostParameters, NicParameters, SwitchParameters,
};
use dunlin_verbs::ConnectAttributes;

fn cluster(parts: usize) -> Cluster {
    let mut builder = ClusterBuilder::new(1).parts(parts);
    let switch = builder.switch(SwitchParameters::z9264f());
    for _ in 0..2 {
        let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_5());
        builder.host(host, nic, switch);
    }
    builder.build()
}

#[test]
fn a_requester_that_waits_for_ever_does_not_retry() {
    let cluster = cluster(1);
    let hosts = cluster.hosts();
    let endless = ConnectAttributes {
        timeout_ns: u64::MAX,
        ..ConnectAttributes::default()
    };
    let mut ends = support::connected_between(&cluster, [hosts[0], hosts[1]], endless);
    let lost = cluster.fault(FaultRule::new(Fault::Drop, 1.0));
    support::write(&mut ends, 64, 1);
    cluster.run_for(1_000_000_000);
    drop(lost);
    let counted = cluster.counters(hosts[0]);
    assert_eq!((counted.timeouts, counted.retransmissions), (0, 0));
    assert_eq!(support::done(&mut ends), 0);
}

#[test]
fn time_that_passes_without_an_end_ends() {
    for parts in [1, 2] {
        let cluster = cluster(parts);
        let mut ends = support::connected(&cluster);
        support::write(&mut ends, 64, 1);
        assert!(cluster.settle(u64::MAX), "nothing is left");
        assert_eq!(support::done(&mut ends), 1);
        support::read(&mut ends, 64, 1);
        cluster.run_for(u64::MAX);
        assert_eq!(support::done(&mut ends), 1);
        // And beyond.
        let late = cluster.now_ns();
        cluster.stall_dma(cluster.hosts()[1], u64::MAX);
        cluster.pause(cluster.hosts()[1], u64::MAX);
        support::write(&mut ends, 64, 1);
        cluster.run_for(u64::MAX);
        assert_eq!(cluster.now_ns(), late);
    }
}

#[test]
fn a_packet_that_is_late_for_ever_is_lost() {
    let cluster = cluster(1);
    let mut ends = support::connected(&cluster);
    let (least_ns, most_ns) = (u64::MAX - 1, u64::MAX);
    let fault = Fault::Delay { least_ns, most_ns };
    let late = cluster.fault(FaultRule::new(fault, 1.0).at_most(1));
    support::write(&mut ends, 64, 1);
    cluster.run_for(10_000_000);
    drop(late);
    assert_eq!(support::done(&mut ends), 1, "it was sent again");
}
