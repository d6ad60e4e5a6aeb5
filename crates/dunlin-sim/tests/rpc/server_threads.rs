//! Server threads that call while they answer (FaSST §4.1): on each of three machines two threads serve the other
//! machines' requests and keep 20 calls outstanding to them at the same time, with a channel of each kind.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dunlin_rpc::{Client, LocalServer, Peers, PollingThread, Preset, Server, ThreadProgress};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

use crate::calls::{run_in_steps, run_until};

const ECHO: u16 = 1;
const MILLISECOND: u64 = 1_000_000;
/// Precision with which the end is detected.
const STEP_NS: u64 = 10_000;

/// Size of the paper's set-up (§4.1) that is simulated.
struct Shape {
    machines: usize,
    threads: usize,
    /// Coroutines of a thread, with one call outstanding each.
    coroutines: u64,
    /// Calls of a thread.
    calls: u64,
    nic: NicParameters,
    switch: SwitchParameters,
    host: HostParameters,
}

/// State of one thread's task.
#[derive(Default)]
struct Work {
    /// The other machines' servers, once all exist.
    peers: Mutex<Option<Peers>>,
    answered: AtomicU64,
    /// Whether its connections are gone.
    left: AtomicBool,
}

/// Signals to all threads.
#[derive(Default)]
struct Signals {
    begun: AtomicBool,
    ends: AtomicBool,
}

/// The coroutines of a thread, and its connections.
struct Asking {
    work: Arc<Work>,
    signals: Arc<Signals>,
    number: u64,
    peers: Option<Peers>,
    servers: u64,
    /// Coroutines without an outstanding call.
    idle: Vec<u64>,
    sent: u64,
    calls: u64,
}

impl Asking {
    fn turn(&mut self) -> ThreadProgress {
        if self.signals.ends.load(Ordering::Relaxed) {
            self.peers = None;
            self.work.left.store(true, Ordering::Relaxed);
            return ThreadProgress::Idle;
        }
        let Some(peers) = &mut self.peers else {
            self.peers = self.work.peers.lock().unwrap().take();
            return ThreadProgress::Waiting;
        };
        if !self.signals.begun.load(Ordering::Relaxed) {
            return ThreadProgress::Waiting;
        }
        // Workers send, then the master polls for all of them.
        while self.sent < self.calls {
            let Some(coroutine) = self.idle.pop() else {
                break;
            };
            let payload = (self.number << 32 | coroutine).to_le_bytes();
            let server = (self.sent % self.servers) as usize;
            if !peers.submit(server, ECHO, &payload, coroutine).unwrap() {
                self.idle.push(coroutine);
                break;
            }
            self.sent += 1;
        }
        let (idle, number) = (&mut self.idle, self.number);
        let mut answers = 0;
        peers.poll(|_, coroutine, answer| {
            let expected = (number << 32 | coroutine).to_le_bytes();
            assert_eq!(answer.expect("an answer"), expected);
            idle.push(coroutine);
            answers += 1;
        });
        self.work.answered.fetch_add(answers, Ordering::Relaxed);
        match (answers, peers.outstanding()) {
            (1.., _) => ThreadProgress::Worked,
            (0, 1..) => ThreadProgress::Waiting,
            (0, 0) => ThreadProgress::Idle,
        }
    }
}

/// Calls of a thread per second of virtual time.
fn ask_and_answer(preset: Preset, shape: &Shape) -> f64 {
    let Shape {
        machines,
        threads,
        calls,
        ..
    } = *shape;
    let cluster = Cluster::star(7, machines, &shape.host, &shape.nic, &shape.switch);
    let signals = Arc::<Signals>::default();
    let works: Vec<Vec<Arc<Work>>> = (0..machines)
        .map(|_| (0..threads).map(|_| Arc::default()).collect())
        .collect();
    let device = |machine: usize| cluster.device(cluster.hosts()[machine]);
    let servers: Vec<LocalServer> = (0..machines)
        .map(|machine| {
            let (works, signals) = (works[machine].clone(), Arc::clone(&signals));
            let coroutines = shape.coroutines;
            let start = move |thread: PollingThread| {
                let mut asking = Asking {
                    work: Arc::clone(&works[thread.index()]),
                    signals: Arc::clone(&signals),
                    number: (machine * threads + thread.index()) as u64,
                    peers: None,
                    servers: machines as u64 - 1,
                    idle: (0..coroutines).collect(),
                    sent: 0,
                    calls,
                };
                move || asking.turn()
            };
            Server::unbound()
                .handle(ECHO, |request, reply| reply.write(request.payload()))
                .pollers(threads)
                .pin_pollers(0)
                .on_polling_threads(start)
                .serve_on(device(machine))
                .expect("a server")
        })
        .collect();
    let mut clients = Vec::new();
    for (machine, works) in works.iter().enumerate() {
        let others = servers.iter().enumerate().filter(|(at, _)| *at != machine);
        let own: Vec<Client> = others
            .map(|(_, server)| {
                Client::builder()
                    .preset(preset)
                    .connect_on(device(machine), &server.acceptor())
                    .expect("a client")
            })
            .collect();
        for work in works {
            *work.peers.lock().unwrap() = Some(Peers::new(&own).expect("connections"));
            // A poller adopts its new sessions.
            cluster.run_for(MILLISECOND);
        }
        clients.extend(own.into_iter().map(|client| (machine, client)));
    }
    signals.begun.store(true, Ordering::Relaxed);
    let began = cluster.now_ns();
    let all = || works.iter().flatten();
    run_in_steps(
        &cluster,
        STEP_NS,
        &format!("{preset}: all are answered"),
        || all().all(|work| work.answered.load(Ordering::Relaxed) == calls),
    );
    let took = (cluster.now_ns() - began) as f64 / 1e9;
    // Each machine has answered, too.
    for server in &servers {
        assert_eq!(
            server.statistics().requests,
            calls * threads as u64,
            "{preset}"
        );
    }
    signals.ends.store(true, Ordering::Relaxed);
    run_until(&cluster, "the threads leave", || {
        all().all(|work| work.left.load(Ordering::Relaxed))
    });
    let parting = Arc::new(AtomicU64::new(clients.len() as u64));
    for (machine, client) in clients {
        let parting = Arc::clone(&parting);
        cluster.spawn_thread(cluster.hosts()[machine], threads, move || {
            drop(client);
            parting.fetch_sub(1, Ordering::Relaxed);
        });
    }
    run_until(&cluster, "the clients part", || {
        parting.load(Ordering::Relaxed) == 0
    });
    calls as f64 / took
}

#[test]
fn threads_of_each_kind_ask_while_they_answer() {
    let shape = Shape {
        machines: 3,
        threads: 2,
        coroutines: 20,
        calls: 2_000,
        nic: NicParameters::connectx_5(),
        switch: SwitchParameters::z9264f(),
        host: HostParameters::epyc_7452(),
    };
    for preset in [
        Preset::Fasst,
        Preset::Herd,
        Preset::Erpc,
        Preset::Plain,
        Preset::RawWrite,
        Preset::Xrdma,
    ] {
        let rate = ask_and_answer(preset, &shape);
        println!("{preset}: a thread asks and answers {:.2} M/s", rate / 1e6);
    }
}

/// FaSST's threads on its testbed with Connect-IB: one coroutine waits for the network, twenty hide it.
/// `DUNLIN_MACHINES` and `DUNLIN_THREADS` are 11 and 14 in the paper.
#[test]
fn coroutines_of_a_thread_hide_the_network() {
    let number = |name: &str, or| {
        let set = std::env::var(name).ok();
        set.map_or(or, |set| set.parse().expect(name))
    };
    let (machines, threads) = (number("DUNLIN_MACHINES", 3), number("DUNLIN_THREADS", 2));
    let rates: Vec<(u64, f64)> = [1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32]
        .map(|coroutines| {
            let shape = Shape {
                machines,
                threads,
                coroutines,
                calls: 150 * coroutines,
                nic: NicParameters::connect_ib(),
                switch: SwitchParameters::sx6036(),
                host: HostParameters::xeon_e5_v4(),
            };
            (coroutines, ask_and_answer(Preset::Fasst, &shape))
        })
        .into();
    let most = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    for (coroutines, rate) in &rates {
        println!(
            "{machines} machines, {threads} threads, {coroutines} coroutines: a thread asks and answers {:.2} M/s, {:.2} of \
             the most",
            rate / 1e6,
            rate / most
        );
    }
    assert!(rates[0].1 < most / 4.0, "one coroutine waits");
}
