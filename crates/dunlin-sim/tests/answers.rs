//! A NIC's answers follow the same rules as requests: pauses, and the rates of congestion control.

mod support;

use std::sync::{Arc, Mutex};

use dunlin_sim::{
    Cluster, ClusterBuilder, HostParameters, NicParameters, Observer, SwitchId, SwitchParameters,
};
use dunlin_verbs::ConnectAttributes;

/// Payload of a packet. A READ of this size is answered at once if nothing prevents it.
const PACKET: usize = 1024;

/// Hosts on one switch.
fn cluster(hosts: usize, nic: &NicParameters, switch: SwitchParameters) -> (Cluster, SwitchId) {
    let mut builder = ClusterBuilder::new(1);
    let switch = builder.switch(switch);
    for _ in 0..hosts {
        builder.host(HostParameters::epyc_7452(), nic.clone(), switch);
    }
    (builder.build(), switch)
}

/// Connects this many queue pairs of the first host to each of the others.
fn fan_in(cluster: &Cluster, pairs: usize) -> Vec<support::Ends> {
    let hosts = cluster.hosts();
    let owners = hosts[1..].iter().flat_map(|&owner| vec![owner; pairs]);
    let connect = |owner| {
        let patient = ConnectAttributes::default();
        support::connected_between(cluster, [hosts[0], owner], patient)
    };
    owners.map(connect).collect()
}

/// All answer at once, with more than the switch holds: it pauses them, and they wait.
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

/// Bytes queued at the first port of a switch, over time.
#[derive(Default)]
struct Waiting {
    bytes: u64,
    since_ps: u64,
    byte_ps: u128,
}

impl Observer for Waiting {
    fn port(&mut self, at_ps: u64, _switch: SwitchId, port: u16, queued_bytes: u64) {
        if port == 0 {
            self.byte_ps += u128::from(self.bytes) * u128::from(at_ps - self.since_ps);
            (self.bytes, self.since_ps) = (queued_bytes, at_ps);
        }
    }
}

/// Mean queue in KiB at the port of the host to which all others repeatedly send 64 KiB.
fn queue_kib(reads: bool) -> u64 {
    const STEPS: u64 = 200;
    let nic = NicParameters::connectx_5();
    let mut switch = SwitchParameters::z9264f();
    (switch.ecn_min_bytes, switch.ecn_max_bytes) = (40_000.0, 160_000.0);
    let (cluster, _) = cluster(9, &nic, switch);
    let hosts = cluster.hosts();
    let connect = |&other| {
        let between = match reads {
            true => [hosts[0], other],
            false => [other, hosts[0]],
        };
        support::connected_between(&cluster, between, ConnectAttributes::default())
    };
    let post = |ends: &mut support::Ends, count: usize| match reads {
        true => support::read(ends, 1 << 16, count as u64),
        false => support::write(ends, 1 << 16, count as u64),
    };
    let mut ends: Vec<_> = hosts[1..].iter().map(connect).collect();
    ends.iter_mut().for_each(|ends| post(ends, 8));
    let waiting = Arc::new(Mutex::new(Waiting::default()));
    let mut done = 0;
    for step in 0..STEPS {
        if step == STEPS / 2 {
            waiting.lock().expect("nobody panics").since_ps = cluster.now_ns() * 1_000;
            cluster.observe(Some(Box::new(Arc::clone(&waiting))));
        }
        cluster.run_for(50_000);
        for ends in &mut ends {
            let count = support::done(ends);
            done += count;
            post(ends, count);
        }
    }
    cluster.observe(None);
    assert!(done > 100, "{done}");
    let waiting = waiting.lock().expect("nobody panics");
    (waiting.byte_ps / u128::from(STEPS / 2 * 50_000_000) / 1024) as u64
}

/// A notification slows down responses of READs, too.
#[test]
fn responses_are_slowed_down_as_requests_are() {
    let (reads, writes) = (queue_kib(true), queue_kib(false));
    assert!(writes > 0 && reads < 10 * writes, "{reads} and {writes}");
}
