//! Server threads that ask while they answer (FaSST §4.1): on each of three machines two threads serve the other
//! machines' requests and keep 20 calls out to them at the same time, with a channel of each kind.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dunlin_rpc::{Client, LocalServer, Pipeline, Preset, Server, ThreadProgress};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};

const ECHO: u16 = 1;
const MACHINES: usize = 3;
const THREADS: usize = 2;
/// Coroutines of a thread, each with one call out (FaSST §4.1: about 20 hide the network).
const COROUTINES: usize = 20;
/// Calls of each thread.
const CALLS: u64 = 2_000;
const MILLISECOND: u64 = 1_000_000;

/// What the task of one thread works on.
#[derive(Default)]
struct Work {
    /// Lanes to the other machines, once there are all.
    lanes: Mutex<Vec<Pipeline>>,
    answered: AtomicU64,
    /// Its lanes are gone.
    left: AtomicBool,
}

/// The coroutines of a thread, and its lanes.
struct Asking {
    work: Arc<Work>,
    ends: Arc<AtomicBool>,
    number: u64,
    lanes: Vec<Pipeline>,
    idle: Vec<u64>,
    sent: u64,
}

impl Asking {
    fn turn(&mut self) -> ThreadProgress {
        if self.ends.load(Ordering::Relaxed) {
            self.lanes.clear();
            self.work.left.store(true, Ordering::Relaxed);
            return ThreadProgress::Idle;
        }
        if self.lanes.is_empty() {
            self.lanes = std::mem::take(&mut *self.work.lanes.lock().unwrap());
            return match self.lanes.is_empty() {
                true => ThreadProgress::Idle,
                false => ThreadProgress::Worked,
            };
        }
        // Workers send, then the master polls for all of them.
        while self.sent < CALLS {
            let Some(coroutine) = self.idle.pop() else {
                break;
            };
            let lane = (self.sent % self.lanes.len() as u64) as usize;
            let payload = (self.number << 32 | coroutine).to_le_bytes();
            if !self.lanes[lane].submit(ECHO, &payload, coroutine).unwrap() {
                self.idle.push(coroutine);
                break;
            }
            self.sent += 1;
        }
        let mut answers = 0;
        for lane in &mut self.lanes {
            lane.poll(|coroutine, answer| {
                let expected = (self.number << 32 | coroutine).to_le_bytes();
                assert_eq!(answer.expect("an answer"), expected);
                self.idle.push(coroutine);
                answers += 1;
            })
            .expect("a lane");
        }
        self.work.answered.fetch_add(answers, Ordering::Relaxed);
        let out: usize = self.lanes.iter().map(Pipeline::outstanding).sum();
        match (answers, out) {
            (1.., _) => ThreadProgress::Worked,
            (0, 1..) => ThreadProgress::Waiting,
            (0, 0) => ThreadProgress::Idle,
        }
    }
}

fn run_until(cluster: &Cluster, what: &str, reached: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if reached() {
            return;
        }
        cluster.run_for(MILLISECOND / 10);
    }
    panic!("not within a second of virtual time: {what}");
}

/// Calls of a thread in a second of virtual time.
fn ask_and_answer(preset: Preset) -> f64 {
    let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
    let host = HostParameters::epyc_7452();
    let cluster = Cluster::star(7, MACHINES, &host, &nic, &switch);
    let ends = Arc::new(AtomicBool::new(false));
    let works: Vec<Vec<Arc<Work>>> = (0..MACHINES)
        .map(|_| (0..THREADS).map(|_| Arc::default()).collect())
        .collect();
    let servers: Vec<LocalServer> = (0..MACHINES)
        .map(|machine| {
            let (works, ends) = (works[machine].clone(), Arc::clone(&ends));
            let start = move |thread: dunlin_rpc::PollingThread| {
                let mut asking = Asking {
                    work: Arc::clone(&works[thread.index()]),
                    ends: Arc::clone(&ends),
                    number: (machine * THREADS + thread.index()) as u64,
                    lanes: Vec::new(),
                    idle: (0..COROUTINES as u64).collect(),
                    sent: 0,
                };
                move || asking.turn()
            };
            Server::unbound()
                .handle(ECHO, |request, reply| reply.write(request.payload()))
                .pollers(THREADS)
                .pin_pollers(0)
                .on_polling_threads(preset, start)
                .serve_on(cluster.device(cluster.hosts()[machine]))
                .expect("a server")
        })
        .collect();
    let mut clients = Vec::new();
    for (machine, works) in works.iter().enumerate() {
        let mut lanes: Vec<Vec<Pipeline>> = works.iter().map(|_| Vec::new()).collect();
        for (_, server) in servers.iter().enumerate().filter(|(at, _)| *at != machine) {
            let client = Client::builder()
                .preset(preset)
                .connect_on(cluster.device(cluster.hosts()[machine]), &server.acceptor())
                .expect("a client");
            for lanes in &mut lanes {
                lanes.push(client.pipeline_of(COROUTINES).expect("a lane"));
            }
            clients.push((machine, client));
        }
        for (work, lanes) in works.iter().zip(lanes) {
            *work.lanes.lock().unwrap() = lanes;
        }
    }
    let began = cluster.now_ns();
    let all = || works.iter().flatten();
    run_until(&cluster, &format!("{preset}: all are answered"), || {
        all().all(|work| work.answered.load(Ordering::Relaxed) == CALLS)
    });
    let took = (cluster.now_ns() - began) as f64 / 1e9;
    let requests: u64 = servers.iter().map(|s| s.statistics().requests).sum();
    assert_eq!(requests, CALLS * (MACHINES * THREADS) as u64, "{preset}");
    // Each thread has answered, too.
    for server in &servers {
        assert_eq!(server.statistics().requests, CALLS * THREADS as u64);
    }
    ends.store(true, Ordering::Relaxed);
    run_until(&cluster, "the threads leave", || {
        all().all(|work| work.left.load(Ordering::Relaxed))
    });
    let parting = Arc::new(AtomicU64::new(clients.len() as u64));
    for (machine, client) in clients {
        let parting = Arc::clone(&parting);
        cluster.spawn_thread(cluster.hosts()[machine], THREADS, move || {
            drop(client);
            parting.fetch_sub(1, Ordering::Relaxed);
        });
    }
    run_until(&cluster, "the clients part", || {
        parting.load(Ordering::Relaxed) == 0
    });
    CALLS as f64 / took
}

#[test]
fn threads_of_each_kind_ask_while_they_answer() {
    for preset in [
        Preset::Fasst,
        Preset::Herd,
        Preset::Erpc,
        Preset::Plain,
        Preset::RawWrite,
        Preset::Xrdma,
    ] {
        let rate = ask_and_answer(preset);
        println!("{preset}: a thread asks and answers {:.2} M/s", rate / 1e6);
    }
}
