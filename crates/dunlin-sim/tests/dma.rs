//! NICs that cannot access their host's memory, or only slowly: the effects on the network.

mod support;

use dunlin_sim::{
    Cluster, ClusterBuilder, HostParameters, NicParameters, SwitchId, SwitchParameters,
};

const MESSAGE: usize = 64 << 10;
/// Less than the timeout after which the queue pair would be given up.
const STALL_NS: u64 = 100_000;
const LATER_NS: u64 = 10_000_000;

/// Two hosts that send to a third, over a switch that pauses or drops.
fn cluster(lossless: bool) -> (Cluster, SwitchId) {
    let mut switch = SwitchParameters::z9264f();
    (switch.lossless, switch.ecn_min_bytes) = (f64::from(u8::from(lossless)), 0.0);
    let mut nic = NicParameters::connectx_5();
    nic.congestion_control = 0.0;
    let mut builder = ClusterBuilder::new(1);
    let switch = builder.switch(switch);
    for _ in 0..3 {
        builder.host(HostParameters::epyc_7452(), nic.clone(), switch);
    }
    (builder.build(), switch)
}

#[test]
fn a_receiver_that_cannot_write_pauses_its_senders() {
    let (cluster, switch) = cluster(true);
    let hosts = cluster.hosts();
    let mut ends = [0, 1].map(|from| {
        support::connected_between(&cluster, [hosts[from], hosts[2]], support::of_class(0))
    });
    cluster.stall_dma(hosts[2], STALL_NS);
    ends.iter_mut()
        .for_each(|ends| support::write(ends, MESSAGE, 32));
    cluster.run_for(STALL_NS - 10_000);
    assert!(cluster.counters(hosts[2]).pauses_sent > 0);
    // The pause storm: the switch passes it on to both senders.
    assert!(cluster.switch_counters(switch).pauses > 0);
    for host in &hosts[..2] {
        assert!(cluster.counters(*host).pauses_received > 0);
    }
    assert_eq!(ends.iter_mut().map(support::done).sum::<usize>(), 0);
    cluster.run_for(LATER_NS);
    assert_eq!(cluster.counters(hosts[2]).buffer_drops, 0);
    assert_eq!(cluster.switch_counters(switch).drops, 0);
    assert!(ends.iter_mut().all(|ends| support::done(ends) == 32));
}

#[test]
fn where_nothing_pauses_it_drops_what_it_has_no_room_for() {
    let (cluster, switch) = cluster(false);
    let hosts = cluster.hosts();
    let mut ends = support::connected_between(&cluster, [hosts[0], hosts[2]], support::of_class(0));
    cluster.stall_dma(hosts[2], STALL_NS);
    support::write(&mut ends, MESSAGE, 32);
    cluster.run_for(STALL_NS - 10_000);
    let receiver = cluster.counters(hosts[2]);
    assert!(receiver.buffer_drops > 0);
    assert_eq!(receiver.pauses_sent, 0);
    assert_eq!(cluster.switch_counters(switch).pauses, 0);
    cluster.run_for(LATER_NS);
    assert_eq!(support::done(&mut ends), 32);
}

#[test]
fn a_sender_that_cannot_read_sends_nothing() {
    let (cluster, _) = cluster(true);
    let hosts = cluster.hosts();
    let mut ends = support::connected(&cluster);
    let before = cluster.counters(hosts[0]).packets_sent;
    cluster.stall_dma(hosts[0], STALL_NS);
    support::write(&mut ends, MESSAGE, 2);
    cluster.run_for(STALL_NS - 10_000);
    assert_eq!(cluster.counters(hosts[0]).packets_sent, before);
    cluster.run_for(LATER_NS);
    assert_eq!(support::done(&mut ends), 2);
}

/// Time of 32 messages with this share of the memory's bandwidth at the receiver.
fn took(share: f64) -> u64 {
    let (cluster, _) = cluster(true);
    let hosts = cluster.hosts();
    let mut ends = support::connected_between(&cluster, [hosts[0], hosts[2]], support::of_class(0));
    cluster.limit_dma(hosts[2], share);
    support::write(&mut ends, MESSAGE, 32);
    let mut completed = 0;
    while completed < 32 {
        cluster.run_for(1_000);
        completed += support::done(&mut ends);
    }
    assert_eq!(cluster.counters(hosts[2]).pauses_sent > 0, share < 1.0);
    cluster.now_ns()
}

#[test]
fn a_starved_memory_bus_holds_the_network_up() {
    let (all, some) = (took(1.0), took(0.1));
    // A tenth of PCIe 3.0's 14 GB/s, while the port has 12.
    assert!(some > 6 * all, "{all} and {some} ns");
}
