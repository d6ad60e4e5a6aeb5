//! Servers of the preset `scalerpc` that change turns together (ScaleRPC §4.2, *Global Synchronization*): a client that
//! needs several of them has its turn at all of them at the same time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin_rpc::{Client, Grouping, LocalServer, Pace, Peers, Preset, Server};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::thread;

const ECHO: u16 = 1;
const SERVERS: usize = 3;
const CLIENT_HOSTS: usize = 3;
const GROUPS: usize = 3;
const CLIENTS: usize = 24;
const SLICE: Duration = Duration::from_micros(30);

struct World {
    cluster: Cluster,
    servers: Vec<LocalServer>,
    paces: Vec<Pace>,
}

impl World {
    /// Servers with a pace each, or none, whose clocks have different offsets.
    fn new(together: bool) -> Self {
        let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_5());
        let switch = SwitchParameters::z9264f();
        let cluster = Cluster::star(7, SERVERS + CLIENT_HOSTS, &host, &nic, &switch);
        let paces: Vec<_> = (0..SERVERS).map(|_| Pace::new(GROUPS, SLICE)).collect();
        let mut servers = Vec::new();
        for (at, pace) in paces.iter().enumerate() {
            let mut server = Server::unbound()
                .pollers(1)
                .pin_pollers(0)
                .grouping(Grouping {
                    clients: CLIENTS / GROUPS,
                    slice: SLICE,
                    by_priority: false,
                    ..Grouping::default()
                })
                .handle(ECHO, |request, reply| reply.write(request.payload()));
            if together {
                server = server.pace(pace);
            }
            let device = cluster.device(cluster.hosts()[at]);
            servers.push(server.serve_on(device).expect("a server"));
        }
        Self {
            cluster,
            servers,
            paces,
        }
    }

    fn client(&self, host: usize, server: usize, preset: Preset) -> Client {
        let device = self.cluster.device(self.cluster.hosts()[host]);
        let builder = Client::builder().preset(preset);
        let client = builder.connect_on(device, &self.servers[server].acceptor());
        client.expect("a client")
    }

    /// All servers but the first follow it; their clocks have increasing offsets.
    fn follow(&self, stop: &Arc<AtomicBool>) {
        for at in 1..SERVERS {
            self.cluster.run_for(13_337);
            let time_server = self.client(at, 0, Preset::Plain);
            let (pace, stop) = (self.paces[at].clone(), Arc::clone(stop));
            self.cluster
                .spawn_thread(self.cluster.hosts()[at], 1, move || {
                    while !stop.load(Ordering::Acquire) {
                        pace.synchronize(&time_server).expect("the time");
                        thread::sleep(Duration::from_millis(1));
                    }
                });
        }
    }
}

/// Groups of calls to all servers that were made together and answered in 10 ms, by 24 threads that each make one group
/// after the other.
fn transactions(world: &World, stop: &Arc<AtomicBool>) -> usize {
    let done = Arc::new(AtomicUsize::new(0));
    let running = Arc::new(AtomicUsize::new(0));
    for number in 0..CLIENTS {
        let host = SERVERS + number % CLIENT_HOSTS;
        let clients: Vec<_> = (0..SERVERS)
            .map(|server| world.client(host, server, Preset::ScaleRpc))
            .collect();
        let mut peers = Peers::new(&clients).expect("lanes");
        let (done, running, stop) = (Arc::clone(&done), Arc::clone(&running), Arc::clone(stop));
        running.fetch_add(1, Ordering::AcqRel);
        let core = number / CLIENT_HOSTS;
        world
            .cluster
            .spawn_thread(world.cluster.hosts()[host], core, move || {
                while !stop.load(Ordering::Acquire) {
                    for server in 0..SERVERS {
                        let payload = [server as u8; 32];
                        assert!(peers.submit(server, ECHO, &payload, 0).expect("a lane"));
                    }
                    let mut missing = SERVERS;
                    while missing > 0 {
                        peers
                            .wait(|server, _, answer| {
                                assert_eq!(answer.expect("an answer"), [server as u8; 32]);
                                missing -= 1;
                            })
                            .expect("a lane");
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
                drop((peers, clients));
                running.fetch_sub(1, Ordering::AcqRel);
            });
    }
    world.cluster.run_for(3_000_000);
    let before = done.load(Ordering::Relaxed);
    world.cluster.run_for(10_000_000);
    let made = done.load(Ordering::Relaxed) - before;
    stop.store(true, Ordering::Release);
    for _ in 0..1_000 {
        if running.load(Ordering::Acquire) == 0 {
            break;
        }
        world.cluster.run_for(1_000_000);
    }
    assert_eq!(running.load(Ordering::Acquire), 0, "a thread has not ended");
    made
}

#[test]
fn clients_of_several_servers_have_their_turns_at_the_same_time() {
    let stop = Arc::default();
    let alone = transactions(&World::new(false), &stop);
    let stop = Arc::default();
    let world = World::new(true);
    world.follow(&stop);
    let together = transactions(&world, &stop);
    // The others have learnt the time a few times; none is off by more than half a microsecond, on a network with equal
    // delays in both directions.
    let clocks: Arc<Mutex<Vec<i64>>> = Arc::default();
    let (paces, seen) = (world.paces.clone(), Arc::clone(&clocks));
    world
        .cluster
        .spawn_thread(world.cluster.hosts()[0], 2, move || {
            let now = thread::now();
            let clocks = paces.iter().map(|pace| pace.common_ns(now));
            seen.lock().expect("no panic").extend(clocks);
        });
    world.cluster.run_for(1_000_000);
    let clocks = clocks.lock().expect("no panic").clone();
    for (at, pace) in world.paces.iter().enumerate().skip(1) {
        assert!(pace.synchronizations() >= 5, "{}", pace.synchronizations());
        let off = (clocks[at] - clocks[0]).abs();
        assert!(off < 500, "{off} ns off");
    }
    eprintln!("{alone} transactions alone, {together} together");
    assert!(together > 2 * alone, "{together} against {alone}");
}
