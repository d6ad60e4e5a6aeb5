//! The traffic class of a client: its packets and the server's have it, also when it changes between calls.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin_rpc::{Client, Preset};
use dunlin_sim::{
    Cluster, HostId, HostParameters, NicParameters, Observer, SeenPacket, SwitchParameters,
};
use dunlin_verbs::thread;

use crate::calls::{echoing, run_until, ECHO, MILLISECOND};

const TWO: u8 = 2 << 5;
const FIVE: u8 = 5 << 5;

/// Hosts and priorities of the packets that have left.
struct Leaving(BTreeSet<(HostId, u8)>);

impl Observer for Leaving {
    fn packet(&mut self, packet: &SeenPacket<'_>) {
        if packet.leaves {
            self.0.insert((packet.from, packet.priority));
        }
    }
}

/// Priorities of the packets of the client and of the server while it calls: without a class, with that of priority 2,
/// and with that of priority 5.
fn priorities_of(preset: Preset) -> [[Vec<u8>; 2]; 3] {
    let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_5());
    let cluster = Cluster::star(3, 2, &host, &nic, &SwitchParameters::z9264f());
    let (at, from) = (cluster.hosts()[0], cluster.hosts()[1]);
    let seen = Arc::new(Mutex::new(Leaving(BTreeSet::new())));
    cluster.observe(Some(Box::new(Arc::clone(&seen))));
    let server = echoing().serve_on(cluster.device(at)).expect("a server");
    let client = Client::builder()
        .preset(preset)
        .connect_on(cluster.device(from), &server.acceptor())
        .expect("a client");
    let answered = Arc::new(AtomicU64::new(0));
    let [enough, ended, closed] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
    let (caller, count) = (client.clone(), Arc::clone(&answered));
    let (stop, end) = (Arc::clone(&enough), Arc::clone(&ended));
    cluster.spawn_thread(from, 0, move || {
        while !stop.load(Ordering::Relaxed) {
            caller.call(ECHO, &[7; 100]).expect("an answer");
            count.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_micros(20));
        }
        drop(caller);
        end.store(true, Ordering::Relaxed);
    });
    let window = |class: Option<u8>| {
        if let Some(class) = class {
            let changed = client.change_traffic_class(class);
            changed.expect("a way by that class");
        }
        // Packets in flight on the former connections, and those sent when they end.
        cluster.run_for(5 * MILLISECOND);
        let before = answered.load(Ordering::Relaxed);
        seen.lock().expect("no panic").0.clear();
        run_until(&cluster, "answers", || {
            answered.load(Ordering::Relaxed) >= before + 50
        });
        let left = seen.lock().expect("no panic").0.clone();
        [from, at].map(|host| {
            let of_host = left.iter().filter(|(sender, _)| *sender == host);
            of_host.map(|&(_, priority)| priority).collect()
        })
    };
    let found = [None, Some(TWO), Some(FIVE)].map(window);
    cluster.observe(None);
    enough.store(true, Ordering::Relaxed);
    run_until(&cluster, "the end", || ended.load(Ordering::Relaxed));
    let told = Arc::clone(&closed);
    cluster.spawn_thread(from, 0, move || {
        drop(client);
        told.store(true, Ordering::Relaxed);
    });
    run_until(&cluster, "the client's end", || {
        closed.load(Ordering::Relaxed)
    });
    found
}

#[test]
fn a_running_client_changes_its_traffic_class() {
    for preset in [Preset::Plain, Preset::Xrdma, Preset::ScaleRpc, Preset::Flor] {
        let found = priorities_of(preset);
        for (priorities, class) in found.iter().zip([0, 2, 5]) {
            for of_host in priorities {
                assert!(of_host.contains(&class), "{preset}: {found:?}");
                // Flor's acknowledgements use the next priority.
                let known = |priority: u8| preset == Preset::Flor && priority == class + 1;
                let all = of_host.iter();
                let mut others = all.filter(|&&priority| priority != class);
                assert!(others.all(|&other| known(other)), "{preset}: {found:?}");
            }
        }
    }
}
