//! Priorities: a queue pair's priority follows from its traffic class; pausing, dropping and order of service by
//! priority.

mod support;

use std::sync::{Arc, Mutex};

use dunlin_sim::{
    Cluster, ClusterBuilder, Counters, HostId, HostParameters, NicParameters, Observer, SeenPacket,
    SimQueuePair, SimRegion, SwitchCounters, SwitchId, SwitchParameters,
};
use dunlin_verbs::{
    Access, ConnectAttributes, Destination, Device, Operation, Payload, QueuePair, QueuePairConfig,
    ReceiveQueue, Region, Segment, SendFlags, SendRequest, Transport,
};

const PACKET: usize = 1024;
/// Traffic classes of priorities 1 and 6.
const ONE: u8 = 1 << 5;
const SIX: u8 = 6 << 5;

/// Hosts of these rates on one switch, without congestion control.
fn cluster(rates: &[f64], change: impl FnOnce(&mut SwitchParameters)) -> (Cluster, SwitchId) {
    let mut parameters = SwitchParameters::z9264f();
    (parameters.lossless, parameters.ecn_min_bytes) = (0.0, 0.0);
    change(&mut parameters);
    let mut builder = ClusterBuilder::new(1);
    let switch = builder.switch(parameters);
    for &gbit_s in rates {
        let mut nic = NicParameters::connectx_6_dx();
        (nic.link_gbit_s, nic.mtu_bytes) = (gbit_s, PACKET as f64);
        nic.congestion_control = 0.0;
        builder.host(HostParameters::epyc_7452(), nic, switch);
    }
    (builder.build(), switch)
}

/// Sends this many packets by one WRITE.
fn write(pair: &mut SimQueuePair, regions: &[SimRegion; 2], packets: usize) {
    let segments = [Segment {
        region: &regions[0],
        offset: 0,
        length: PACKET * packets,
    }];
    let operation = Operation::Write {
        remote: regions[1].remote(),
        immediate: None,
    };
    let payload = Payload::Segments(&segments);
    let request = SendRequest::new(1, operation, payload, SendFlags::SIGNALED);
    pair.post_send(&[request]).expect("room");
}

/// For the packets that arrive at a host, in order: the sending host, and the number of its queue pair.
struct Arrivals(HostId, Vec<(HostId, u32)>);

impl Observer for Arrivals {
    fn packet(&mut self, packet: &SeenPacket<'_>) {
        if !packet.leaves && packet.host == self.0 {
            self.1.push((packet.from, packet.source_queue_pair));
        }
    }
}

fn watch(cluster: &Cluster, host: HostId) -> Arc<Mutex<Arrivals>> {
    let arrivals = Arc::new(Mutex::new(Arrivals(host, Vec::new())));
    cluster.observe(Some(Box::new(Arc::clone(&arrivals))));
    arrivals
}

fn arrived(arrivals: &Mutex<Arrivals>) -> Vec<(HostId, u32)> {
    arrivals.lock().expect("nobody panics").1.clone()
}

/// A fast host fills the port of a slow one with messages of these classes, over a switch with a small buffer that
/// pauses only priority 0; returns the counters of the switch and the sender.
fn filled_by(classes: &[u8]) -> (SwitchCounters, Counters) {
    let (cluster, switch) = cluster(&[100.0, 10.0], |switch| {
        (switch.lossless, switch.pfc_priorities) = (1.0, 1.0);
        (switch.buffer_bytes, switch.buffer_alpha) = (100_000.0, 0.25);
        (switch.pause_bytes, switch.resume_bytes) = (20_000.0, 10_000.0);
    });
    let hosts = cluster.hosts();
    let mut ends: Vec<_> = classes
        .iter()
        .map(|&class| {
            support::connected_between(&cluster, [hosts[0], hosts[1]], support::of_class(class))
        })
        .collect();
    for (regions, _, pairs) in &mut ends {
        write(&mut pairs[0], regions, 64);
    }
    cluster.run_for(40_000);
    (cluster.switch_counters(switch), cluster.counters(hosts[0]))
}

#[test]
fn one_priority_pauses_while_another_drops() {
    let (switch, sender) = filled_by(&[0]);
    assert_eq!(switch.drops, 0);
    assert!(switch.pauses > 0 && sender.pauses_received > 0);
    let (switch, sender) = filled_by(&[ONE]);
    assert!(switch.drops > 0);
    assert_eq!((switch.pauses, sender.pauses_received), (0, 0));
    let (switch, sender) = filled_by(&[0, ONE]);
    assert!(switch.drops > 0 && sender.pauses_received > 0);
}

/// A NIC whose buffer fills also pauses or drops by priority.
#[test]
fn a_receiver_pauses_or_drops_by_priority() {
    for (class, pauses) in [(0, true), (ONE, false)] {
        let (cluster, _) = cluster(&[100.0, 100.0], |switch| {
            (switch.lossless, switch.pfc_priorities) = (1.0, 1.0);
        });
        let hosts = cluster.hosts();
        let (regions, _queues, mut pairs) =
            support::connected_between(&cluster, [hosts[0], hosts[1]], support::of_class(class));
        cluster.slow_down(hosts[1], 1_000.0);
        for _ in 0..8 {
            write(&mut pairs[0], &regions, 64);
        }
        cluster.run_for(60_000);
        let receiver = cluster.counters(hosts[1]);
        assert_eq!(receiver.pauses_sent > 0, pauses, "{receiver:?}");
        assert_eq!(receiver.buffer_drops == 0, pauses, "{receiver:?}");
    }
}

/// The position in the order of arrivals of the packet of an urgent WRITE that is posted behind 64 of another queue
/// pair.
fn place_of_urgent(strict: f64, class: u8) -> usize {
    let (cluster, _) = cluster(&[100.0, 10.0], |switch| switch.strict_priorities = strict);
    let hosts = cluster.hosts();
    let between = [hosts[0], hosts[1]];
    let (regions, _queues, mut bulk) = support::connected(&cluster);
    let (small, _others, mut urgent) =
        support::connected_between(&cluster, between, support::of_class(class));
    let arrivals = watch(&cluster, hosts[1]);
    write(&mut bulk[0], &regions, 64);
    cluster.run_for(20_000);
    write(&mut urgent[0], &small, 1);
    cluster.run_for(200_000);
    cluster.observe(None);
    let number = urgent[0].number();
    let all = arrived(&arrivals);
    assert_eq!(all.len(), 65);
    let place = all.iter().position(|&(_, source)| source == number);
    place.expect("it came")
}

#[test]
fn a_strict_priority_passes_what_waits() {
    assert_eq!(place_of_urgent(0.0, 0), 64);
    let strict = place_of_urgent(64.0, SIX);
    assert!((10..40).contains(&strict), "{strict}");
}

/// Two priorities that always have packets for a port share it by their weights.
#[test]
fn weights_divide_a_port() {
    let (cluster, _) = cluster(&[100.0, 100.0, 10.0], |switch| switch.weight_1 = 3.0);
    let hosts = cluster.hosts();
    let mut ends = [(hosts[0], 0), (hosts[1], ONE)].map(|(from, class)| {
        support::connected_between(&cluster, [from, hosts[2]], support::of_class(class))
    });
    let arrivals = watch(&cluster, hosts[2]);
    for (regions, _, pairs) in &mut ends {
        for _ in 0..4 {
            write(&mut pairs[0], regions, 64);
        }
    }
    cluster.run_for(2_000_000);
    cluster.observe(None);
    // While both have packets waiting.
    let all = arrived(&arrivals);
    let of_one = all[20..220].iter().filter(|(from, _)| *from == hosts[1]);
    let count = of_one.count();
    assert!((140..160).contains(&count), "{count} of 200");
}

/// A NIC that is busy sending one priority sends a strict one first, for a datagram according to its address handle.
#[test]
fn a_nic_sends_a_strict_datagram_first() {
    let place = |strict: f64, class: u8| {
        let mut nic = NicParameters::connectx_6_dx();
        (nic.link_gbit_s, nic.mtu_bytes) = (10.0, PACKET as f64);
        nic.strict_priorities = strict;
        let host = HostParameters::epyc_7452();
        let cluster = Cluster::star(1, 2, &host, &nic, &SwitchParameters::z9264f());
        let hosts = cluster.hosts();
        let mut bulk: Vec<_> = (0..16)
            .map(|_| {
                support::connected_between(&cluster, [hosts[0], hosts[1]], support::of_class(0))
            })
            .collect();
        let device = cluster.device(hosts[0]);
        let domain = device.create_protection_domain().expect("a domain");
        let queue = device.create_completion_queue(4, None).expect("a queue");
        let config = QueuePairConfig {
            transport: Transport::UnreliableDatagram,
            send_completions: &queue,
            receive_completions: &queue,
            send_requests: 4,
            receive_queue: ReceiveQueue::Own(1),
            segments: 1,
            inline_bytes: 64,
        };
        let mut pair = device.create_queue_pair(&domain, &config).expect("a pair");
        pair.to_init(Access::LOCAL_WRITE).expect("Init");
        let attributes = ConnectAttributes::default();
        pair.to_ready_to_receive(None, attributes).expect("RTR");
        pair.to_ready_to_send().expect("RTS");
        // It need not be received: its arrival is observed.
        let to = bulk[0].2[1].address();
        let handle = device.create_address_handle_of_class(&domain, &to, class);
        let handle = handle.expect("an address");
        let arrivals = watch(&cluster, hosts[1]);
        for (regions, _, pairs) in &mut bulk {
            write(&mut pairs[0], regions, 8);
        }
        cluster.run_for(10_000);
        let operation = Operation::Send { immediate: None };
        let mut request =
            SendRequest::new(1, operation, Payload::Inline(b"first"), SendFlags::SIGNALED);
        request.destination = Some(Destination {
            handle: &handle,
            queue_pair: to.queue_pair,
            queue_key: to.queue_key,
        });
        pair.post_send(&[request]).expect("room");
        cluster.run_for(1_000_000);
        cluster.observe(None);
        let (all, number) = (arrived(&arrivals), pair.number());
        let place = all.iter().position(|&(_, source)| source == number);
        place.expect("it came")
    };
    let (usual, strict) = (place(0.0, 0), place(64.0, SIX));
    // A few are before it on the wire. Otherwise at least one packet of each queue pair is.
    assert!(strict < 20 && strict + 10 < usual, "{strict} and {usual}");
}
