//! A peer whose acknowledgements are lost fills the send queue of its lane. That holds up its own calls alone: the poller that serves it waits for
//! nobody, and other clients of the same poller are served as before.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use dunlin_rpc::{Client, LocalServer, Preset, Server};
use dunlin_sim::{
    Cluster, Fault, FaultRule, HostId, HostParameters, NicParameters, SwitchParameters, Traffic,
};

const ECHO: u16 = 1;
const MILLISECOND: u64 = 1_000_000;
/// Of virtual time.
const PATIENCE_MS: u64 = 10_000;
/// Of virtual time: a hundredth of what a queue pair takes to give up.
const STALL_MS: u64 = 5;

/// What a client has seen.
#[derive(Default)]
struct Seen {
    answered: AtomicU64,
    failed: AtomicU64,
    enough: AtomicBool,
    ended: AtomicBool,
}

impl Seen {
    fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }
}

fn run_until(cluster: &Cluster, what: &str, mut reached: impl FnMut() -> bool) {
    for _ in 0..PATIENCE_MS {
        if reached() {
            return;
        }
        cluster.run_for(MILLISECOND);
    }
    panic!("not within ten seconds of virtual time: {what}");
}

/// Calls one after the other from a host until it is enough.
fn calling(cluster: &Cluster, from: HostId, server: &LocalServer) -> Arc<Seen> {
    let client = Client::builder().preset(Preset::Plain);
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
                }
            }
        }
        drop(client);
        log.ended.store(true, Ordering::Relaxed);
    });
    seen
}

#[test]
fn it_holds_up_its_own_lane_alone() {
    let host = HostParameters::epyc_7452();
    let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
    let cluster = Cluster::star(23, 3, &host, &nic, &switch);
    let [at, silent, other] = [0, 1, 2].map(|i| cluster.hosts()[i]);
    let server = Server::unbound()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .pollers(1)
        .pin_pollers(0)
        .serve_on(cluster.device(at))
        .expect("a server");
    let held_up = calling(&cluster, silent, &server);
    let served = calling(&cluster, other, &server);
    run_until(&cluster, "both are answered", || {
        held_up.answered() > 100 && served.answered() > 100
    });
    let lost = FaultRule {
        traffic: Traffic::Answers,
        ..FaultRule::new(Fault::Drop, 1.0).between(silent, at)
    };
    let rule = cluster.fault(lost);
    let mut before = u64::MAX;
    run_until(&cluster, "its send queue is full", || {
        let answered = held_up.answered();
        std::mem::replace(&mut before, answered) == answered
    });
    let pace = served.answered();
    cluster.run_for(STALL_MS * MILLISECOND);
    assert_eq!(held_up.answered(), before, "no answer fits");
    let pace = served.answered() - pace;
    assert!(
        pace > 100 * STALL_MS,
        "the other client got {pace} answers in {STALL_MS} ms"
    );
    drop(rule);
    run_until(&cluster, "it goes on where it stood", || {
        held_up.answered() > before + 100
    });
    for seen in [&held_up, &served] {
        assert_eq!(seen.failed.load(Ordering::Relaxed), 0);
        seen.enough.store(true, Ordering::Relaxed);
        run_until(&cluster, "the end", || seen.ended.load(Ordering::Relaxed));
    }
}
