//! `auto` where datagrams carry more than rings: threads, batches and pipelines go over to them when the server asks,
//! and go back when somebody works on the server's memory.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin_rpc::{Client, Datagrams, LocalServer, Preset, Region};
use dunlin_sim::{Cluster, HostId, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::thread;

use crate::calls::{echoing, run_until, ECHO, MILLISECOND};

const REGION: &str = "memory";
/// Longer than a datagram, and than a message of a ring.
const LONG_BYTES: usize = 10_000;

/// What the threads of a machine have done, and whether they go on.
#[derive(Default)]
struct Progress {
    /// By each of them.
    answered: [AtomicU64; 6],
    stopping: AtomicBool,
    running: AtomicUsize,
}

impl Progress {
    fn least(&self) -> u64 {
        let each = self.answered.iter().map(|one| one.load(Ordering::Relaxed));
        each.min().unwrap_or(0)
    }
}

struct Bench {
    client: Client,
    server: LocalServer,
    progress: Arc<Progress>,
    host: HostId,
    cluster: Cluster,
}

/// One machine with six threads and a server, whose NICs take a microsecond more for each message that they
/// acknowledge, which datagrams are not.
fn bench() -> Bench {
    let (host, mut nic) = (HostParameters::epyc_7452(), NicParameters::connectx_3());
    nic.set("tx_wqe_ns", 300.0).expect("a parameter");
    nic.set("rx_ack_ns", 1_500.0).expect("a parameter");
    let cluster = Cluster::star(3, 2, &host, &nic, &SwitchParameters::z9264f());
    let [at, from] = cluster.hosts()[..] else {
        unreachable!("two hosts")
    };
    let server = echoing()
        .pollers(2)
        .pin_pollers(0)
        .region(&Region::new(REGION, 4096))
        .serve_on(cluster.device(at))
        .expect("a server");
    let client = Client::builder()
        .preset(Preset::Auto)
        .connect_on(cluster.device(from), &server.acceptor())
        .expect("a client");
    let progress = Arc::new(Progress::default());
    let bench = Bench {
        client,
        server,
        progress,
        host: from,
        cluster,
    };
    for thread in 0..2 {
        bench.spawn(thread, move |client, number| {
            // One of them has a long payload now and then.
            let long = thread == 1 && number % 64 == 0;
            let bytes = payload(number, if long { LONG_BYTES } else { 8 });
            let answer = client.call(ECHO, &bytes).expect("an answer");
            assert_eq!(&answer[..], bytes);
            1
        });
    }
    for thread in 2..4 {
        bench.spawn(thread, move |client, number| {
            let bytes = payload(number, 8);
            let batch = client.batch().call(ECHO, &bytes).call(ECHO, &bytes);
            for answer in batch.send().expect("a lane") {
                assert_eq!(&answer.expect("an answer")[..], bytes);
            }
            2
        });
    }
    for thread in 4..6 {
        let mut pipeline = bench.client.pipeline().expect("a lane");
        bench.spawn(thread, move |_, number| {
            let mut answered = 0;
            // Two are out all the time, but for the last.
            assert!(pipeline
                .submit(ECHO, &number.to_le_bytes(), number)
                .expect("a lane"));
            if number > 0 {
                let waited = pipeline.wait(|tag, answer| {
                    assert_eq!(answer.expect("an answer"), tag.to_le_bytes());
                    answered += 1;
                });
                waited.expect("a lane");
            }
            answered
        });
    }
    bench
}

fn payload(number: u64, bytes: usize) -> Vec<u8> {
    number
        .to_le_bytes()
        .into_iter()
        .cycle()
        .take(bytes)
        .collect()
}

impl Bench {
    /// Does one thing after the other on a core of the client's machine; each says how many answers it has had.
    fn spawn(&self, thread: usize, mut act: impl FnMut(&Client, u64) -> u64 + Send + 'static) {
        let (client, progress) = (self.client.clone(), Arc::clone(&self.progress));
        progress.running.fetch_add(1, Ordering::Relaxed);
        self.cluster.spawn_thread(self.host, thread, move || {
            let mut number = 0;
            while !progress.stopping.load(Ordering::Relaxed) {
                let answered = act(&client, number);
                progress.answered[thread].fetch_add(answered, Ordering::Relaxed);
                number += 1;
            }
            drop((act, client));
            progress.running.fetch_sub(1, Ordering::Release);
        });
    }

    /// Requests that went over rings so far.
    fn by_rings(&self) -> u64 {
        let figures = self.client.figures().expect("a connection handle");
        figures.lanes.iter().map(|lane| lane.requests).sum()
    }

    /// Requests over rings in a millisecond in which each thread was answered.
    fn in_a_millisecond(&self) -> u64 {
        let (rings, before) = (self.by_rings(), self.progress.least());
        self.cluster.run_for(MILLISECOND);
        assert!(self.progress.least() > before);
        self.by_rings() - rings
    }

    fn end(self) {
        self.progress.stopping.store(true, Ordering::Relaxed);
        run_until(&self.cluster, "the end", || {
            self.progress.running.load(Ordering::Acquire) == 0
        });
        let Self {
            client,
            server,
            cluster,
            ..
        } = self;
        drop(client);
        cluster.run_for(MILLISECOND);
        drop(server);
    }
}

#[test]
fn all_go_over_to_datagrams_when_the_server_asks_and_back_for_its_memory() {
    let bench = bench();
    bench.cluster.run_for(MILLISECOND);
    assert!(bench.in_a_millisecond() > 0);
    run_until(&bench.cluster, "datagrams alone", || {
        bench.in_a_millisecond() == 0
    });
    let client = bench.client.clone();
    let has_read = Arc::new(AtomicBool::new(false));
    let read = Arc::clone(&has_read);
    bench.cluster.spawn_thread(bench.host, 6, move || {
        let region = client.attach(REGION).expect("a region");
        assert_eq!(&region.read(8, 8).expect("memory")[..], [0; 8]);
        read.store(true, Ordering::Relaxed);
    });
    run_until(&bench.cluster, "memory", || {
        has_read.load(Ordering::Relaxed)
    });
    // For good, whatever the server asks.
    for _ in 0..100 {
        assert!(bench.in_a_millisecond() > 0);
    }
    bench.end();
}

#[test]
fn a_server_that_gains_nothing_by_datagrams_has_its_threads_back() {
    let bench = bench();
    run_until(&bench.cluster, "datagrams alone", || {
        bench.in_a_millisecond() == 0
    });
    // It doubts that now and then.
    run_until(&bench.cluster, "rings", || bench.in_a_millisecond() > 0);
    run_until(&bench.cluster, "datagrams again", || {
        bench.in_a_millisecond() == 0
    });
    bench.end();
}

/// Tasks have rings alone, and do not wait for each other's answers because the server would like datagrams.
#[test]
fn tasks_go_on_where_they_are() {
    const STUCK: u16 = 2;
    let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_3());
    let cluster = Cluster::star(3, 2, &host, &nic, &SwitchParameters::z9264f());
    let [at, from] = cluster.hosts()[..] else {
        unreachable!("two hosts")
    };
    let kept = Arc::new(std::sync::Mutex::new(Vec::new()));
    let keeps = Arc::clone(&kept);
    let server = echoing()
        .datagrams(Datagrams::Always)
        .handle_deferred(STUCK, move |_, responder| {
            keeps.lock().expect("no panic").push(responder);
        })
        .pin_pollers(0)
        .serve_on(cluster.device(at))
        .expect("a server");
    let client = Client::builder()
        .preset(Preset::Auto)
        .connect_on(cluster.device(from), &server.acceptor())
        .expect("a client");
    let ended = Arc::new(AtomicBool::new(false));
    let has_ended = Arc::clone(&ended);
    cluster.spawn_thread(from, 0, move || {
        let (local, driver) = client.local().expect("a lane");
        let mut driver = pin!(driver);
        let mut context = Context::from_waker(Waker::noop());
        let mut stuck = pin!(local.call(STUCK, b"for a long time"));
        assert!(stuck.as_mut().poll(&mut context).is_pending());
        // Enough for the server's wish to be heard.
        for number in 0..5_000u64 {
            let bytes = number.to_le_bytes();
            let mut echo = pin!(local.call(ECHO, &bytes));
            let answer = loop {
                assert!(driver.as_mut().poll(&mut context).is_pending());
                if let Poll::Ready(answer) = echo.as_mut().poll(&mut context) {
                    break answer;
                }
            };
            assert_eq!(&answer.expect("an answer")[..], bytes);
        }
        assert!(stuck.as_mut().poll(&mut context).is_pending());
        has_ended.store(true, Ordering::Relaxed);
    });
    run_until(&cluster, "the end", || ended.load(Ordering::Relaxed));
    drop(kept);
    cluster.run_for(MILLISECOND);
    drop(server);
}

/// A pipeline has calls out on both of its lanes when the server's machine is gone: each ends, once.
#[test]
fn calls_on_both_lanes_end_with_their_server() {
    const STUCK: u16 = 2;
    const CALLS: u64 = 8;
    const PAUSE: Duration = Duration::from_micros(100);
    let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_3());
    let cluster = Cluster::star(3, 2, &host, &nic, &SwitchParameters::z9264f());
    let [at, from] = cluster.hosts()[..] else {
        unreachable!("two hosts")
    };
    let kept = Arc::new(std::sync::Mutex::new(Vec::new()));
    let keeps = Arc::clone(&kept);
    let server = echoing()
        .datagrams(Datagrams::Always)
        .handle_deferred(STUCK, move |_, responder| {
            keeps.lock().expect("no panic").push(responder);
        })
        .pin_pollers(0)
        .serve_on(cluster.device(at))
        .expect("a server");
    let client = Client::builder()
        .preset(Preset::Auto)
        .connect_on(cluster.device(from), &server.acceptor())
        .expect("a client");
    let mut pipeline = client.pipeline().expect("a lane");
    let (sent, ended) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let (has_sent, has_ended) = (Arc::clone(&sent), Arc::clone(&ended));
    cluster.spawn_thread(from, 0, move || {
        let mut ends = [0; CALLS as usize];
        // The first goes over a ring, whose first word from the server asks for datagrams.
        for tag in 0..CALLS {
            assert!(pipeline.submit(STUCK, b"for ever", tag).expect("a lane"));
            // Enough for a look at what messages do not show.
            for _ in 0..2_000 {
                pipeline.poll(|_, _| {}).expect("a lane");
            }
        }
        has_sent.store(true, Ordering::Relaxed);
        let mut lost = false;
        while !lost {
            let polled = pipeline.poll(|tag, answer| {
                answer.expect_err("nobody answers");
                ends[tag as usize] += 1;
            });
            lost = polled.is_err();
            thread::sleep(PAUSE);
        }
        assert_eq!(ends, [1; CALLS as usize]);
        has_ended.store(CALLS, Ordering::Relaxed);
    });
    run_until(&cluster, "calls", || sent.load(Ordering::Relaxed));
    let by_rings = client
        .figures()
        .map(|figures| figures.lanes.iter().map(|l| l.requests).sum());
    assert!((1..CALLS).contains(&by_rings.unwrap_or(0)), "{by_rings:?}");
    cluster.crash(at);
    run_until(&cluster, "the end", || ended.load(Ordering::Relaxed) > 0);
    std::mem::forget((server, kept));
}
