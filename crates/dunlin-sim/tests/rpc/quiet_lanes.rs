//! Lanes from which a server expects nothing, since it asks for datagrams: a poller that is always busy polls them in
//! turn, so that a client that still calls over one is answered.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use dunlin_rpc::{Client, Datagrams, Preset, Region, Server};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::thread;

use crate::calls::{keep_out, run_in_steps, run_until, ECHO, MILLISECOND};

const REGION: &str = "memory";
/// Threads that keep the poller busy, and the outstanding calls of each.
const BUSY: usize = 8;
const OUT: usize = 16;
/// Calls of the client over a ring, and the pause before each: several times the number of passes after which its lane
/// is quiet.
const CALLS: u64 = 5;
const PAUSE_MS: u64 = 20;
/// Poller time of a call: more calls arrive than it answers, so none of its passes is idle.
const TAKES: Duration = Duration::from_nanos(500);

#[test]
fn a_call_over_a_quiet_lane_is_answered_by_a_poller_that_is_never_idle() {
    let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_3());
    let cluster = Cluster::star(3, 3, &host, &nic, &SwitchParameters::z9264f());
    let [at, busy, quiet] = cluster.hosts()[..] else {
        unreachable!("three hosts")
    };
    let server = Server::unbound()
        .handle(ECHO, |request, reply| {
            thread::sleep(TAKES);
            reply.write(request.payload())
        })
        .datagrams(Datagrams::Always)
        .pollers(1)
        .pin_pollers(0)
        .region(&Region::new(REGION, 4096))
        .serve_on(cluster.device(at))
        .expect("a server");
    let connect = |from| {
        let client = Client::builder().preset(Preset::Auto);
        let client = client.connect_on(cluster.device(from), &server.acceptor());
        client.expect("a client")
    };
    let others = connect(busy);
    let stopping = Arc::new(AtomicBool::new(false));
    let running = Arc::new(AtomicUsize::new(BUSY));
    let answered = Arc::new(AtomicU64::new(0));
    for core in 0..BUSY {
        let pipeline = others.pipeline().expect("a lane");
        let (stopping, running) = (Arc::clone(&stopping), Arc::clone(&running));
        let answered = Arc::clone(&answered);
        cluster.spawn_thread(busy, core, move || {
            keep_out(pipeline, (OUT, false), &stopping, || {
                answered.fetch_add(1, Ordering::Relaxed);
            });
            running.fetch_sub(1, Ordering::Release);
        });
    }
    // A client that accesses the server's memory uses rings, whatever the server asks for.
    let client = connect(quiet);
    let by_ring = client.clone();
    let done = Arc::new(AtomicU64::new(0));
    let calls = Arc::clone(&done);
    cluster.spawn_thread(quiet, 0, move || {
        let region = by_ring.attach(REGION).expect("a region");
        for number in 0..CALLS {
            thread::sleep(Duration::from_millis(PAUSE_MS));
            let answer = by_ring.call(ECHO, &number.to_le_bytes());
            assert_eq!(&answer.expect("an answer")[..], number.to_le_bytes());
            calls.fetch_add(1, Ordering::Relaxed);
        }
        drop(region);
    });
    // The others are answered in every millisecond, and soon after the pauses all calls are.
    let mut steps = 0;
    run_in_steps(&cluster, MILLISECOND, "the calls over a ring", || {
        let before = answered.swap(0, Ordering::Relaxed);
        assert!(before > 0 || steps < 3, "in millisecond {steps}");
        steps += 1;
        done.load(Ordering::Relaxed) == CALLS
    });
    assert!(
        steps <= CALLS * (PAUSE_MS + 1),
        "{steps} ms for {CALLS} calls"
    );
    let figures = client.figures().expect("a connection handle");
    let by_rings: u64 = figures.lanes.iter().map(|lane| lane.requests).sum();
    assert!(by_rings >= CALLS);
    stopping.store(true, Ordering::Relaxed);
    run_until(&cluster, "the end", || running.load(Ordering::Acquire) == 0);
    drop((client, others));
    cluster.run_for(MILLISECOND);
    drop(server);
}
