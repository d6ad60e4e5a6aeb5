//! Data and acknowledgements have the priorities that their traffic classes say (Flor §4.1, §7.1), in virtual time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use dunlin_flor::connection::Deployment;
use dunlin_flor::logical::{LinkConfig, LinkEvent, LogicalConnection, Source};
use dunlin_sim::{
    Cluster, HostParameters, NicParameters, Observer, SeenPacket, SimDevice, SwitchParameters,
};
use dunlin_verbs::Transport;

/// Long enough to be written and cut into chunks.
const BYTES: u32 = 256 << 10;
const DATA: u8 = 1 << 5;
const ACKS: u8 = 6 << 5;

/// Packets by whether they are datagrams, and by priority.
#[derive(Default)]
struct Seen(BTreeMap<(bool, u8), u64>);

impl Observer for Seen {
    fn packet(&mut self, packet: &SeenPacket<'_>) {
        let datagram = packet.transport == Transport::UnreliableDatagram;
        *self.0.entry((datagram, packet.priority)).or_default() += 1;
    }
}

type Link = LogicalConnection<SimDevice>;

/// What is seen of a message between two hosts.
fn seen(change: impl Fn(&mut LinkConfig)) -> BTreeMap<(bool, u8), u64> {
    let (host, nic) = (
        HostParameters::xeon_gold_5118(),
        NicParameters::connectx_5(),
    );
    let cluster = Cluster::star(1, 2, &host, &nic, &SwitchParameters::z9264f());
    let observed = Arc::new(Mutex::new(Seen::default()));
    cluster.observe(Some(Box::new(Arc::clone(&observed))));
    let mut config = LinkConfig::new(Deployment::IntraPodUnreliable);
    change(&mut config);
    let mut ends = [0, 1].map(|end| {
        let device = cluster.device(cluster.hosts()[end]);
        Link::new(device, config.clone()).unwrap()
    });
    let addresses = ends.each_ref().map(Link::address);
    ends[0].connect(&addresses[1], 0, 0).unwrap();
    ends[1].connect(&addresses[0], 0, 0).unwrap();
    let source = Source {
        region: ends[0].allocate(BYTES as usize).unwrap(),
        offset: 0,
        bytes: BYTES,
    };
    ends[0].submit(cluster.now_ns(), source).unwrap();
    let mut finished = false;
    for _ in 0..2_000 {
        cluster.run_for(1_000);
        let now = cluster.now_ns();
        for end in &mut ends {
            while let Some(event) = end.poll(now).unwrap() {
                match event {
                    LinkEvent::Landed { landing, .. } => end.release(landing),
                    LinkEvent::Finished(_, result) => {
                        result.unwrap();
                        finished = true;
                    }
                    _ => {}
                }
            }
        }
    }
    assert!(finished);
    cluster.observe(None);
    let observed = observed.lock().unwrap();
    observed.0.clone()
}

#[test]
fn traffic_classes_say_the_priorities_of_data_and_acknowledgements() {
    let usual = seen(|_| {});
    let kinds: Vec<_> = usual.keys().copied().collect();
    assert_eq!(kinds, [(false, 0), (true, 0)]);
    let set = seen(|config| (config.traffic_class, config.ack_traffic_class) = (DATA, ACKS));
    let kinds: Vec<_> = set.keys().copied().collect();
    assert_eq!(kinds, [(false, 1), (true, 6)]);
    // By themselves classes change nothing where all are treated alike.
    assert!(usual.values().eq(set.values()), "{usual:?} {set:?}");
}
