//! The traffic class of a client: its packets and the server's have it, also when it changes while it calls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use dunlin_rpc::{ChannelConfig, Client, Preset};
use dunlin_sim::{ClusterBuilder, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::thread;

use crate::calls::{echoing, run_until, ECHO, MILLISECOND};

const TWO: u8 = 2 << 5;
const FIVE: u8 = 5 << 5;

/// Calls in windows with class 0, with that of priority 2, and with another: the switch marks all packets of priority 2
/// and no others, so its marks say who had that.
fn marks_of(preset: Preset) -> [(u64, u64); 3] {
    let mut parameters = SwitchParameters::z9264f();
    (parameters.ecn_min_bytes, parameters.ecn_max_bytes) = (1.0, 2.0);
    parameters.ecn_probability = 1.0;
    parameters.ecn_priorities = f64::from(1 << (TWO >> 5));
    let mut nic = NicParameters::connectx_5();
    nic.congestion_control = 0.0;
    let mut builder = ClusterBuilder::new(3);
    let switch = builder.switch(parameters);
    let [at, from] = [0, 1].map(|_| builder.host(HostParameters::epyc_7452(), nic.clone(), switch));
    let cluster = builder.build();
    let server = echoing().serve_on(cluster.device(at)).expect("a server");
    let client = Client::builder()
        .preset(preset)
        .channel(ChannelConfig::default())
        .connect_on(cluster.device(from), &server.acceptor())
        .expect("a client");
    let answered = Arc::new(AtomicU64::new(0));
    let (enough, ended) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
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
            client
                .change_traffic_class(class)
                .expect("a way by that class");
        }
        // What is out on the former connections, and what they say at their end.
        cluster.run_for(5 * MILLISECOND);
        let before = (
            answered.load(Ordering::Relaxed),
            cluster.switch_counters(switch).marks,
        );
        run_until(&cluster, "answers", || {
            answered.load(Ordering::Relaxed) >= before.0 + 50
        });
        let marks = cluster.switch_counters(switch).marks - before.1;
        (answered.load(Ordering::Relaxed) - before.0, marks)
    };
    let found = [None, Some(TWO), Some(FIVE)].map(window);
    enough.store(true, Ordering::Relaxed);
    run_until(&cluster, "the end", || ended.load(Ordering::Relaxed));
    let closed = Arc::new(AtomicBool::new(false));
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
        let [(_, none), (calls, marked), (_, after)] = marks_of(preset);
        assert_eq!((none, after), (0, 0), "{preset}");
        // A request and its answer.
        assert!(
            marked >= 2 * calls - 1,
            "{preset}: {marked} of {calls} calls"
        );
    }
}
