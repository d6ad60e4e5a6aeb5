//! Clients that use channels of different kinds to one server with one polling thread: each is served as if the others
//! were of its kind, and none waits for another's time slice on the core.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use dunlin_rpc::{Client, Preset, Server};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

const ECHO: u16 = 1;
const MILLISECOND: u64 = 1_000_000;
const PRESETS: [Preset; 5] = [
    Preset::Plain,
    Preset::Fasst,
    Preset::RawWrite,
    Preset::ScaleRpc,
    Preset::Xrdma,
];
/// Calls of each client, one after the other: a few microseconds each, where a time slice is three milliseconds.
const CALLS: u64 = 200;

#[test]
fn clients_of_all_kinds_are_served_together() {
    let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
    let host = HostParameters::epyc_7452();
    let cluster = Cluster::star(3, 1 + PRESETS.len(), &host, &nic, &switch);
    let server = Server::unbound()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .pollers(1)
        .pin_pollers(0)
        .serve_on(cluster.device(cluster.hosts()[0]))
        .expect("a server");
    let answered: Arc<[AtomicU64]> = PRESETS.iter().map(|_| AtomicU64::new(0)).collect();
    for (number, preset) in PRESETS.into_iter().enumerate() {
        let host = cluster.hosts()[1 + number];
        let client = Client::builder()
            .preset(preset)
            .connect_on(cluster.device(host), &server.acceptor())
            .expect("a client");
        let answered = Arc::clone(&answered);
        cluster.spawn_thread(host, 0, move || {
            for call in 0..CALLS {
                let answer = client.call(ECHO, &call.to_le_bytes()).expect("an answer");
                assert_eq!(*answer, call.to_le_bytes());
                answered[number].fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let all = || -> Vec<u64> { answered.iter().map(|n| n.load(Ordering::Relaxed)).collect() };
    for _ in 0..60 {
        cluster.run_for(MILLISECOND);
        if all().iter().all(|&calls| calls == CALLS) {
            break;
        }
    }
    // One of them is served in turns of 100 us.
    assert_eq!(all(), [CALLS; PRESETS.len()], "within 60 ms");
    assert_eq!(server.statistics().requests, CALLS * PRESETS.len() as u64);
    cluster.run_for(100 * MILLISECOND);
}
