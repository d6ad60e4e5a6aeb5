//! Congestion control of the NICs of three vendors: which senders a mark slows down, and that none waits for something
//! that does not arrive.

mod support;

use dunlin_sim::{
    Cluster, ClusterBuilder, HostParameters, NicParameters, SwitchId, SwitchParameters,
};
use dunlin_verbs::ConnectAttributes;

const MESSAGE: usize = 64 << 10;

/// Hosts with such a NIC at these rates on a lossless switch that marks above 40 KB.
fn cluster(nic: &NicParameters, rates: &[f64]) -> (Cluster, SwitchId) {
    let mut switch = SwitchParameters::z9264f();
    switch.lossless = 1.0;
    (switch.ecn_min_bytes, switch.ecn_max_bytes) = (40_000.0, 80_000.0);
    switch.ecn_probability = 1.0;
    let mut builder = ClusterBuilder::new(1);
    let switch = builder.switch(switch);
    for &gbit_s in rates {
        let mut nic = nic.clone();
        (nic.link_gbit_s, nic.mtu_bytes) = (gbit_s, 1024.0);
        builder.host(HostParameters::xeon_gold_5118(), nic, switch);
    }
    (builder.build(), switch)
}

/// Time until this many have completed, in nanoseconds.
fn time_of(cluster: &Cluster, ends: &mut support::Ends, count: u64) -> u64 {
    let begun = cluster.now_ns();
    let mut completed = 0;
    while completed < count {
        cluster.run_for(500);
        completed += support::done(ends) as u64;
        assert!(cluster.now_ns() < begun + 1_000_000_000, "it stands still");
    }
    cluster.now_ns() - begun
}

/// The factor by which a message of one queue pair takes longer after another queue pair of the host to the same
/// destination was slowed down and has ended.
fn slowed_by_another(nic: &NicParameters) -> f64 {
    let mut slow_to_recover = nic.clone();
    slow_to_recover.increase_period = 5_000_000_000;
    let (cluster, _) = cluster(&slow_to_recover, &[100.0; 4]);
    let hosts = cluster.hosts();
    let to_last = |from: usize| {
        let attributes = ConnectAttributes::default();
        support::connected_between(&cluster, [hosts[from], hosts[3]], attributes)
    };
    let mut congested = [0, 1, 2].map(to_last);
    let mut quiet = to_last(0);
    support::write(&mut quiet, MESSAGE, 1);
    let before = time_of(&cluster, &mut quiet, 1);
    congested
        .iter_mut()
        .for_each(|ends| support::write(ends, MESSAGE, 2));
    for ends in &mut congested {
        time_of(&cluster, ends, 2);
    }

    assert!(cluster.counters(hosts[0]).congestion_notifications > 0);
    cluster.run_for(100_000);
    support::write(&mut quiet, MESSAGE, 1);
    time_of(&cluster, &mut quiet, 1) as f64 / before as f64
}

/// Mellanox: all packets to one destination; Intel: those of one flow (Flor 1).
#[test]
fn a_mark_slows_a_destination_or_a_queue_pair() {
    let times = slowed_by_another(&NicParameters::bluefield_2());
    assert!(times > 1.3, "{times}");
    for nic in [NicParameters::e810(), NicParameters::p2100g()] {
        let times = slowed_by_another(&nic);
        assert!((0.9..1.1).contains(&times), "{} {times}", nic.name);
    }
}

/// Three senders of this many queue pairs each and one receiver; returns the number of notifications, and of pauses of
/// the switch.
fn incast(nic: &NicParameters, queue_pairs: usize) -> (u64, u64) {
    let (cluster, switch) = cluster(nic, &[100.0; 4]);
    let hosts = cluster.hosts();
    let mut ends: Vec<_> = (0..3 * queue_pairs)
        .map(|pair| {
            let attributes = ConnectAttributes::default();
            support::connected_between(&cluster, [hosts[pair % 3], hosts[3]], attributes)
        })
        .collect();
    ends.iter_mut()
        .for_each(|ends| support::write(ends, MESSAGE, 16));
    for ends in &mut ends {
        time_of(&cluster, ends, 16);
    }
    let counters = hosts.iter().map(|&host| cluster.counters(host));
    let (mut notifications, mut timeouts) = (0, 0);
    for counters in counters {
        notifications += counters.congestion_notifications;
        timeouts += counters.timeouts;
    }
    assert_eq!(timeouts, 0, "{}", nic.name);
    (notifications, cluster.switch_counters(switch).pauses)
}

#[test]
fn a_window_never_waits_for_a_timer() {
    for nic in [NicParameters::e810(), NicParameters::p2100g()] {
        for queue_pairs in [1, 8] {
            let (notifications, _) = incast(&nic, queue_pairs);
            assert!(notifications > 0, "{}", nic.name);
        }
    }
}

/// The purpose of a window: less is queued in the switch.
#[test]
fn windows_spare_pauses() {
    for nic in [NicParameters::e810(), NicParameters::p2100g()] {
        let mut uncontrolled = nic.clone();
        uncontrolled.congestion_control = 0.0;
        let (_, pauses) = incast(&nic, 8);
        let (_, without) = incast(&uncontrolled, 8);
        assert!(pauses < without, "{}: {pauses} of {without}", nic.name);
    }
}

/// Many queue pairs share one rate. When it is low all of them wait, and when it rises none waits according to the old
/// one: a burst of three hosts takes little longer than the receiver's port does.
#[test]
fn queue_pairs_that_wait_for_their_turn_hear_of_a_rate_that_rises() {
    let (cluster, _) = cluster(&NicParameters::bluefield_2(), &[100.0; 4]);
    let hosts = cluster.hosts();
    let (of_each, messages) = (64, 4);
    let mut ends: Vec<_> = (0..3 * of_each)
        .map(|pair| {
            let attributes = ConnectAttributes::default();
            support::connected_between(&cluster, [hosts[pair % 3], hosts[3]], attributes)
        })
        .collect();
    ends.iter_mut()
        .for_each(|ends| support::write(ends, MESSAGE, messages));
    let begun = cluster.now_ns();
    for ends in &mut ends {
        time_of(&cluster, ends, messages);
    }
    let of_port = (ends.len() * MESSAGE) as u64 * messages * 8 / 100;
    let took = cluster.now_ns() - begun;
    assert!(took < 4 * of_port, "{took} ns of {of_port}");
}
