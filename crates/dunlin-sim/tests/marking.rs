//! Which packets of a burst a switch marks.

mod support;

use std::sync::{Arc, Mutex};

use dunlin_sim::{
    Cluster, ClusterBuilder, HostId, HostParameters, NicParameters, Observer, SeenPacket,
    SwitchParameters,
};
use dunlin_verbs::{Operation, Payload, QueuePair, Region, Segment, SendFlags, SendRequest};

const PACKET: usize = 1024;
const PACKETS: usize = 64;

/// For the packets that arrive at a host, in order: whether they are marked.
struct Arrivals(HostId, Vec<bool>);

impl Observer for Arrivals {
    fn packet(&mut self, packet: &SeenPacket<'_>) {
        if !packet.leaves && packet.host == self.0 {
            self.1.push(packet.congested);
        }
    }
}

/// A fast host and a slow one, with a switch that marks all packets beyond its threshold.
fn cluster(threshold: f64) -> Cluster {
    let mut switch = SwitchParameters::z9264f();
    (switch.ecn_min_bytes, switch.ecn_max_bytes) = (threshold, threshold);
    let mut builder = ClusterBuilder::new(1);
    let switch = builder.switch(switch);
    for gbit_s in [100.0, 10.0] {
        let mut nic = NicParameters::connectx_6_dx();
        (nic.link_gbit_s, nic.mtu_bytes) = (gbit_s, PACKET as f64);
        // A burst is sent at the rate of the link.
        nic.congestion_control = 0.0;
        builder.host(HostParameters::epyc_7452(), nic, switch);
    }
    builder.build()
}

fn marked(threshold: f64) -> Vec<bool> {
    let cluster = cluster(threshold);
    let (regions, _queues, [mut pair, _other]) = support::connected(&cluster);
    let arrivals = Arc::new(Mutex::new(Arrivals(cluster.hosts()[1], Vec::new())));
    cluster.observe(Some(Box::new(Arc::clone(&arrivals))));
    let segments = [Segment {
        region: &regions[0],
        offset: 0,
        length: PACKET * PACKETS,
    }];
    let operation = Operation::Write {
        remote: regions[1].remote(),
        immediate: None,
    };
    let payload = Payload::Segments(&segments);
    let request = SendRequest::new(1, operation, payload, SendFlags::SIGNALED);
    pair.post_send(&[request]).expect("room");
    cluster.run_for(1_000_000);
    cluster.observe(None);
    let mut arrivals = arrivals.lock().expect("nobody panics");
    std::mem::take(&mut arrivals.1)
}

/// A packet is marked according to the queue that it leaves behind, as test plans for switches require (SONiC's ECN
/// test plan): of a burst the first packets are marked, behind which most of it waits, and not the last, which found
/// the longest queue on arrival.
#[test]
fn a_packet_is_marked_by_what_it_leaves_behind() {
    let threshold = (20 * PACKET) as f64;
    let marked = marked(threshold);
    assert_eq!(marked.len(), PACKETS);
    let last = marked.iter().rposition(|&marked| marked).expect("a mark");
    // The number of packets that leave with less than the threshold behind them.
    let unmarked = PACKETS - 1 - last;
    assert!((17..=20).contains(&unmarked), "{unmarked}: {marked:?}");
    // The first passed without waiting; then the queue grows, and from there on all are marked.
    let first = marked.iter().position(|&marked| marked).expect("a mark");
    assert!((1..=5).contains(&first), "{first}: {marked:?}");
    assert!(marked[first..last].iter().all(|&marked| marked));
}

#[test]
fn a_switch_without_a_threshold_marks_nothing() {
    assert!(!marked(0.0).contains(&true));
}
