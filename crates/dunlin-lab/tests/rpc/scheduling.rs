//! Which queue pairs are active (FLOCK §5.1), and which threads are on them (§5.2).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use dunlin::{Client, LaneUse, Preset, Server, WaitMode};
use dunlin_sim::Cluster;

use crate::{call, channel, close, cluster, connect, serve, ECHO, LONG};

/// Threads whose long requests name memory of a lane that the server then deactivates: the requests move to another
/// lane.
#[test]
fn long_requests_leave_a_lane_that_gets_no_credits() {
    const THREADS: usize = 6;
    const CALLS: usize = 300;
    for preset in [Preset::Flock, Preset::FlockNoScheduling] {
        let cluster = cluster(1, 2);
        let server = Server::unbound()
            .handle(LONG, |request, reply| reply.write(&request.payload()[..16]))
            .channel(channel(WaitMode::default()))
            .pollers(2)
            .pin_pollers(0)
            .max_active_queue_pairs(1)
            .serve_on(cluster.device(cluster.hosts()[0]))
            .unwrap();
        let client = connect(&cluster, 1, &server, preset, WaitMode::default());
        let done = Arc::new(AtomicU64::new(0));
        for number in 0..THREADS {
            let mut pipeline = client.pipeline().unwrap();
            let done = Arc::clone(&done);
            cluster.spawn_thread(cluster.hosts()[1], number, move || {
                let payload: Vec<u8> = (0..6000).map(|i| (i + number) as u8).collect();
                for _ in 0..CALLS {
                    let answer = call(&mut pipeline, LONG, &payload);
                    assert_eq!(answer, payload[..16]);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Both schedulers run many times, and so do the threads.
        cluster.run_for(2_000_000_000);
        let done = done.load(Ordering::Relaxed);
        assert_eq!(done, (THREADS * CALLS) as u64, "{preset}");
        let lanes = client.figures().unwrap().lanes;
        assert_eq!(lanes.iter().filter(|lane| lane.active).count(), 1);
        close(&cluster, 1, client);
    }
}

/// Threads of a client that call until they are told to end.
fn calling(cluster: &Cluster, host: usize, client: &Client, threads: usize) -> Arc<AtomicBool> {
    let end = Arc::new(AtomicBool::new(false));
    for number in 0..threads {
        let mut pipeline = client.pipeline().unwrap();
        let end = Arc::clone(&end);
        cluster.spawn_thread(cluster.hosts()[host], number, move || {
            while !end.load(Ordering::Relaxed) {
                assert_eq!(call(&mut pipeline, ECHO, &[7; 32]), [7; 32]);
            }
        });
    }
    end
}

/// Lanes that a client's threads are assigned to.
fn lanes_in_use(client: &Client) -> usize {
    let mut lanes = client.figures().unwrap().assignment;
    lanes.sort_unstable();
    lanes.dedup();
    lanes.len()
}

/// Threads with equal load keep their lanes, even if some have sent one call more, so that threads that send together
/// stay together.
#[test]
fn equal_threads_stay_on_their_lanes() {
    const MS: u64 = 1_000_000;
    for (preset, stay) in [(Preset::Auto, true), (Preset::Flock, false)] {
        let cluster = cluster(1, 2);
        let server = serve(&cluster, 2, WaitMode::Spin, &Arc::default());
        let client = connect(&cluster, 1, &server, preset, WaitMode::Spin);
        let end = calling(&cluster, 1, &client, 8);
        cluster.run_for(25 * MS);
        let before = client.figures().unwrap().migrations;
        assert_eq!(lanes_in_use(&client), 4);
        cluster.run_for(50 * MS);
        let after = client.figures().unwrap().migrations;
        assert_eq!(after == before, stay, "{preset}: {before}, {after}");
        end.store(true, Ordering::Relaxed);
        cluster.run_for(MS);
        close(&cluster, 1, client);
    }
}

/// Threads of a client that gets more queue pairs are spread over them when the client learns of that, between two
/// intervals of its own scheduler.
#[test]
fn threads_go_to_a_lane_that_is_activated() {
    const MS: u64 = 1_000_000;
    let cluster = cluster(1, 3);
    let server = Server::unbound()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .channel(channel(WaitMode::Spin))
        .pollers(2)
        .pin_pollers(0)
        .max_active_queue_pairs(5)
        .serve_on(cluster.device(cluster.hosts()[0]))
        .unwrap();
    let connect = |host| connect(&cluster, host, &server, Preset::Flock, WaitMode::Spin);
    let other = connect(1);
    let end = calling(&cluster, 1, &other, 8);
    // The schedulers of server and client run at other times: both each 10 ms since then.
    cluster.run_for(5 * MS);
    let client = connect(2);
    let end_own = calling(&cluster, 2, &client, 8);
    cluster.run_for(60 * MS);
    assert!(lanes_in_use(&client) < 4);
    // The other one ends, and is found to have sent nothing.
    end.store(true, Ordering::Relaxed);
    let most = || {
        let senders = server.senders();
        let active = |lanes: &[LaneUse]| lanes.iter().filter(|lane| lane.active).count();
        senders.iter().map(|sender| active(&sender.lanes)).max()
    };
    while most() != Some(4) {
        cluster.run_for(MS / 2);
        assert!(cluster.now_ns() < 200 * MS, "{:?}", server.senders());
    }
    cluster.run_for(3 * MS / 2);
    assert_eq!(lanes_in_use(&client), 4);
    end_own.store(true, Ordering::Relaxed);
    cluster.run_for(MS);
    close(&cluster, 1, other);
    close(&cluster, 2, client);
}
