//! All queue pairs of a server's NIC go to error: its clients are told, and are served again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use dunlin_rpc::{ChannelConfig, Client, Preset, Server};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::thread;

const ECHO: u16 = 1;
const MILLISECOND: u64 = 1_000_000;
/// Of virtual time.
const PATIENCE_MS: u64 = 60_000;

/// What a client has seen.
#[derive(Default)]
struct Seen {
    answered: AtomicU64,
    failed: AtomicU64,
    enough: AtomicBool,
    ended: AtomicBool,
}

fn run_until(cluster: &Cluster, what: &str, mut reached: impl FnMut() -> bool) {
    for _ in 0..PATIENCE_MS {
        if reached() {
            return;
        }
        cluster.run_for(MILLISECOND);
    }
    panic!("not within a minute of virtual time: {what}");
}

fn fails_and_comes_back(preset: Preset) {
    let host = HostParameters::epyc_7452();
    let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
    let cluster = Cluster::star(11, 2, &host, &nic, &switch);
    let (at, from) = (cluster.hosts()[0], cluster.hosts()[1]);
    let server = Server::unbound()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .pin_pollers(0)
        .serve_on(cluster.device(at))
        .expect("a server");
    // Virtual time in which threads poll is not cheap.
    let config = ChannelConfig {
        loss_timeout: Duration::from_millis(10),
        ..ChannelConfig::default()
    };
    let client = Client::builder().preset(preset).channel(config);
    let client = client
        .connect_on(cluster.device(from), &server.desk())
        .expect("a client");
    let seen = Arc::new(Seen::default());
    let log = Arc::clone(&seen);
    cluster.spawn_thread(from, 0, move || {
        let mut number = 0u64;
        while !log.enough.load(Ordering::Relaxed) {
            number += 1;
            match client.call(ECHO, &number.to_le_bytes()) {
                Ok(answer) => {
                    assert_eq!(&answer[..], number.to_le_bytes());
                    log.answered.fetch_add(1, Ordering::Relaxed);
                }
                Err(_) => {
                    log.failed.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(10));
                }
            }
            thread::sleep(Duration::from_micros(100));
        }
        drop(client);
        log.ended.store(true, Ordering::Relaxed);
    });
    let answered = || seen.answered.load(Ordering::Relaxed);
    for round in 0..2 {
        let before = answered();
        run_until(
            &cluster,
            &format!("{preset}, round {round}: answers"),
            || answered() >= before + 100,
        );
        let failures = seen.failed.load(Ordering::Relaxed);
        cluster.fail_queue_pairs(at);
        run_until(
            &cluster,
            &format!("{preset}, round {round}: an error"),
            || seen.failed.load(Ordering::Relaxed) > failures,
        );
    }
    let before = answered();
    run_until(&cluster, &format!("{preset}: answers at last"), || {
        answered() >= before + 100
    });
    seen.enough.store(true, Ordering::Relaxed);
    run_until(&cluster, &format!("{preset}: the end"), || {
        seen.ended.load(Ordering::Relaxed)
    });
}

#[test]
fn a_server_whose_queue_pairs_fail_serves_its_clients_again() {
    // Seconds of virtual time pass before a reliable connection gives up. Threads that share one look all the while, which is many
    // events: `lab hunt` has those presets.
    for preset in [Preset::Plain, Preset::QpPerThread, Preset::Fasst] {
        fails_and_comes_back(preset);
    }
}
