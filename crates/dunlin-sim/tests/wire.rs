//! Timing of cables: packets leave a NIC one after the other, and cross none faster than its rate.

mod support;

use std::sync::{Arc, Mutex};

use dunlin_sim::{
    Cluster, ClusterBuilder, HostId, HostParameters, NicParameters, Observer, SeenPacket,
    SwitchParameters,
};
use dunlin_verbs::{
    ConnectAttributes, Operation, Payload, QueuePair, Region, Segment, SendFlags, SendRequest,
};

const GBIT_S: f64 = 100.0;

/// Times at which packets of a host begin to leave and have left, in order.
struct Departures(HostId, Vec<(u64, u64)>);

impl Observer for Departures {
    fn packet(&mut self, packet: &SeenPacket<'_>) {
        if packet.leaves && packet.host == self.0 {
            let time = (f64::from(packet.wire_bytes) * 8_000.0 / GBIT_S) as u64;
            self.1.push((packet.at_ps, packet.at_ps + time));
        }
    }
}

fn cluster() -> Cluster {
    let mut nic = NicParameters::connectx_5();
    (nic.link_gbit_s, nic.mtu_bytes) = (GBIT_S, 1024.0);
    let mut builder = ClusterBuilder::new(1);
    let switch = builder.switch(SwitchParameters::z9264f());
    for _ in 0..2 {
        builder.host(HostParameters::epyc_7452(), nic.clone(), switch);
    }
    builder.build()
}

/// What delays a message at its beginning (its element, its context) does not delay its later packets; these used to be
/// on the wire at the same time as the first one.
#[test]
fn packets_of_a_queue_pair_are_never_on_the_wire_at_once() {
    let cluster = cluster();
    let (regions, _queues, [mut pair, _other]) = support::connected(&cluster);
    let departures = Arc::new(Mutex::new(Departures(cluster.hosts()[0], Vec::new())));
    cluster.observe(Some(Box::new(Arc::clone(&departures))));
    let segments = [Segment {
        region: &regions[0],
        offset: 0,
        length: 64 << 10,
    }];
    let write = Operation::Write {
        remote: regions[1].remote(),
        immediate: None,
    };
    let read = Operation::Read {
        remote: regions[1].remote(),
    };
    for operation in [write, read] {
        let payload = Payload::Segments(&segments);
        let request = SendRequest::new(1, operation, payload, SendFlags::SIGNALED);
        pair.post_send(&[request]).expect("room");
        cluster.run_for(1_000_000);
    }
    cluster.observe(None);
    let departures = &departures.lock().expect("nobody panics").1;
    assert!(departures.len() > 64, "{} packets", departures.len());
    for both in departures.windows(2) {
        let ((_, gone), (begins, _)) = (both[0], both[1]);
        assert!(begins >= gone, "at {begins}, before {gone}");
    }
}

/// Time at which the first packet left its host, and at which the last arrived at its destination.
#[derive(Default)]
struct Way(Option<u64>, u64);

impl Observer for Way {
    fn packet(&mut self, packet: &SeenPacket<'_>) {
        match packet.leaves {
            _ if packet.payload.is_empty() => {}
            true => self.0 = self.0.or(Some(packet.at_ps)),
            false => self.1 = packet.at_ps,
        }
    }
}

/// How long a WRITE takes between hosts of two switches with a cable of this rate, in nanoseconds.
fn crossing_ns(gbit_s: f64, bytes: usize) -> u64 {
    let mut nic = NicParameters::connectx_5();
    (nic.link_gbit_s, nic.congestion_control) = (GBIT_S, 0.0);
    let mut builder = ClusterBuilder::new(1);
    let switches = [(); 2].map(|()| builder.switch(SwitchParameters::z9264f()));
    builder.link(switches[0], switches[1], gbit_s);
    for switch in switches {
        builder.host(HostParameters::epyc_7452(), nic.clone(), switch);
    }
    let cluster = builder.build();
    let hosts = cluster.hosts();
    let patient = ConnectAttributes::default();
    let mut ends = support::connected_between(&cluster, [hosts[0], hosts[1]], patient);
    let way = Arc::new(Mutex::new(Way::default()));
    cluster.observe(Some(Box::new(Arc::clone(&way))));
    support::write(&mut ends, bytes, 1);
    cluster.run_for(100_000_000);
    cluster.observe(None);
    let Way(left, came) = *way.lock().expect("nobody panics");
    (came - left.expect("it left")) / 1_000
}

/// Switches cut through, but not faster than the packet arrives: its end does not leave before it has arrived.
#[test]
fn a_packet_takes_its_time_on_a_slow_cable_between_faster_ones() {
    for bytes in [4096, 65_536] {
        let slow = crossing_ns(0.1, bytes);
        let least = bytes as u64 * 8 * 10;
        assert!((least..least * 11 / 10).contains(&slow), "{bytes}: {slow}");
    }
    // The ends' own cables are the slower ones: those between them add nothing.
    let (even, fast) = (crossing_ns(GBIT_S, 4096), crossing_ns(4.0 * GBIT_S, 4096));
    assert!(fast.abs_diff(even) < 300, "{even} and {fast}");
}
