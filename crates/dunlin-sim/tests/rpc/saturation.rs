//! The preset `auto` against a server with a saturated NIC: threads with many outstanding calls send some of them
//! together, and none waits for a call that takes long.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use dunlin_rpc::{ChannelConfig, Client, LocalServer, Preset, Server};
use dunlin_sim::{Cluster, HostId, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::thread;

use crate::calls::{keep_out, ECHO};

const SLOW: u16 = 2;
/// The tag of the quick call.
const QUICK: u64 = 100;
/// Calls that each thread keeps outstanding.
const OUT: usize = 16;

struct Bench {
    server: LocalServer,
    clients: Vec<Client>,
    stopping: Arc<AtomicBool>,
    running: Arc<AtomicUsize>,
    /// Handlers of slow calls end when it is set.
    slow_ones_end: Arc<AtomicBool>,
    /// Dropped last: a server ends in it.
    cluster: Cluster,
}

/// Two machines with two threads each, and a server with a NIC that processes 2 M messages a second, one way: fewer
/// than they could send.
fn bench(preset: Preset) -> Bench {
    let host = HostParameters::epyc_7452();
    let mut nic = NicParameters::connectx_5();
    nic.set("tx_wqe_ns", 500.0).expect("a parameter");
    let cluster = Cluster::star(1, 3, &host, &nic, &SwitchParameters::z9264f());
    let slow_ones_end = Arc::new(AtomicBool::new(false));
    let may_end = Arc::clone(&slow_ones_end);
    let server = Server::unbound()
        .pollers(2)
        .pin_pollers(0)
        // Otherwise answers that wait for the NIC are sent together, and so are the requests that they permit, without
        // the server asking.
        .channel(ChannelConfig {
            answer_each_message: true,
            ..ChannelConfig::default()
        })
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(SLOW, move |request, reply| {
            while !may_end.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(1));
            }
            reply.write(request.payload())
        })
        .serve_on(cluster.device(cluster.hosts()[0]))
        .expect("a server");
    let connect = |&host: &HostId| {
        Client::builder()
            .preset(preset)
            .connect_on(cluster.device(host), &server.acceptor())
            .expect("a client")
    };
    let clients: Vec<Client> = cluster.hosts()[1..].iter().map(connect).collect();
    let bench = Bench {
        clients,
        server,
        stopping: Arc::default(),
        running: Arc::default(),
        slow_ones_end,
        cluster,
    };
    for thread in 0..4 {
        bench.spawn(thread, |pipeline, stopping| {
            keep_out(pipeline, (OUT, true), stopping, || ());
        });
    }
    bench
}

impl Bench {
    fn spawn(
        &self,
        thread: usize,
        run: impl FnOnce(dunlin_rpc::Pipeline, &AtomicBool) + Send + 'static,
    ) {
        let pipeline = self.clients[thread % 2].pipeline().expect("a lane");
        let (stopping, running) = (Arc::clone(&self.stopping), Arc::clone(&self.running));
        running.fetch_add(1, Ordering::Relaxed);
        let host = self.cluster.hosts()[1 + thread % 2];
        self.cluster.spawn_thread(host, thread / 2, move || {
            run(pipeline, &stopping);
            running.fetch_sub(1, Ordering::Release);
        });
    }

    /// Requests per message in the next 2 ms.
    fn degree(&self) -> f64 {
        let sent = || {
            let figures = self.clients.iter().filter_map(Client::figures);
            let lanes = figures.flat_map(|figures| figures.lanes);
            lanes.fold((0, 0), |sum, lane| {
                (sum.0 + lane.requests, sum.1 + lane.messages)
            })
        };
        let before = sent();
        self.cluster.run_for(2_000_000);
        let after = sent();
        (after.0 - before.0) as f64 / (after.1 - before.1) as f64
    }

    fn end(self) {
        self.stopping.store(true, Ordering::Relaxed);
        for _ in 0..60_000 {
            self.cluster.run_for(1_000_000);
            if self.running.load(Ordering::Acquire) == 0 {
                break;
            }
            // Lets the workers run.
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(
            self.running.load(Ordering::Acquire),
            0,
            "a thread has not ended"
        );
        assert_eq!(self.server.statistics().violations, 0);
        for (client, &host) in self.clients.into_iter().zip(&self.cluster.hosts()[1..]) {
            self.cluster.spawn_thread(host, 0, move || drop(client));
        }
        self.cluster.run_for(2_000_000);
    }
}

#[test]
fn threads_send_together_what_a_nic_at_its_limit_cannot_take_apart() {
    let degree = |preset| {
        let bench = bench(preset);
        bench.cluster.run_for(10_000_000);
        let degree = bench.degree();
        bench.end();
        degree
    };
    let (together, apart) = (degree(Preset::Auto), degree(Preset::Flock));
    // At least a quarter; some leave later than others.
    assert!(
        together > OUT as f64 / 5.0 && together > 1.5 * apart,
        "{together:.2} requests a message, and {apart:.2} with flock"
    );
}

#[test]
fn a_call_does_not_wait_for_slow_ones() {
    let bench = bench(Preset::Auto);
    bench.cluster.run_for(10_000_000);
    let slow_ones_end = Arc::clone(&bench.slow_ones_end);
    bench.spawn(4, move |mut pipeline, _| {
        let mut quick = 0;
        let mut taken = |tag: u64, answer: Result<&[u8], _>| {
            answer.expect("an answer");
            if tag == QUICK {
                quick += 1;
                // Otherwise it would wait for the others.
                slow_ones_end.store(true, Ordering::Release);
            }
        };
        for (handler, tag) in (0..OUT as u64)
            .map(|tag| (SLOW, tag))
            .chain([(ECHO, QUICK)])
        {
            while !pipeline.submit(handler, b"a call", tag).expect("a lane") {
                pipeline.poll(&mut taken).expect("a lane");
            }
            pipeline.poll(&mut taken).expect("a lane");
        }
        while pipeline.outstanding() > 0 {
            pipeline.wait(&mut taken).expect("a lane");
        }
        assert_eq!(quick, 1);
    });
    bench.end();
}
