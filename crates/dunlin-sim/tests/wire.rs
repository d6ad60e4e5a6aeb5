//! Packets leave a NIC one after the other.

mod support;

use std::sync::{Arc, Mutex};

use dunlin_sim::{
    Cluster, ClusterBuilder, HostId, HostParameters, NicParameters, Observer, SeenPacket,
    SwitchParameters,
};
use dunlin_verbs::{Operation, Payload, QueuePair, Region, Segment, SendFlags, SendRequest};

const GBIT_S: f64 = 100.0;

/// When packets of a host begin to leave and have left, in their order.
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

/// What a message waits for at its beginning (its element, its context) its later packets do not wait for; they were
/// all on the wire at the same time when the first one was.
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
