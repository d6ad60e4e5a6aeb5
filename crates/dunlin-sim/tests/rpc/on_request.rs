//! `auto` where datagrams have a higher rate than rings: threads, batches and pipelines change to them when the server
//! asks, and change back when the server's memory is accessed.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin_rpc::{Client, Datagrams, LocalServer, OwnedResponder, Pipeline, Preset, Region};
use dunlin_sim::{Cluster, HostId, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::thread;

use crate::calls::{echoing, run_until, ECHO, MILLISECOND};

const REGION: &str = "memory";
/// Longer than a datagram, and than a short message of a ring.
const LONG_BYTES: usize = 10_000;

/// Progress of the threads of a machine, and whether they go on.
#[derive(Default)]
struct Progress {
    /// Number of answers, by thread.
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

/// One machine with six threads and a server, whose NICs take a microsecond more for each acknowledged message, which
/// datagrams are not.
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
    let client = connect(&cluster, from, &server);
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
            // Two calls are outstanding all the time, except for the last.
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

/// Number of requests of a client that went over rings so far.
fn by_rings(client: &Client) -> u64 {
    let figures = client.figures().expect("a connection handle");
    figures.lanes.iter().map(|lane| lane.requests).sum()
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
    /// Runs `act` repeatedly on a core of the client's machine; it returns the number of answers that it has received.
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

    fn by_rings(&self) -> u64 {
        by_rings(&self.client)
    }

    /// Number of requests over rings in a millisecond in which each thread was answered.
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
    // Permanently, whatever the server asks.
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
    // It tries rings again now and then.
    run_until(&bench.cluster, "rings", || bench.in_a_millisecond() > 0);
    run_until(&bench.cluster, "datagrams again", || {
        bench.in_a_millisecond() == 0
    });
    bench.end();
}

/// A handler that keeps its responders, so that its callers wait.
const STUCK: u16 = 2;

/// Maximum number of connections of the server.
const CONNECTIONS: usize = 8;

/// A server that asks for datagrams, and one client's machine.
struct Stuck {
    client: Client,
    server: LocalServer,
    kept: Arc<Mutex<Vec<OwnedResponder>>>,
    at: HostId,
    from: HostId,
    cluster: Cluster,
}

fn connect(cluster: &Cluster, from: HostId, server: &LocalServer) -> Client {
    Client::builder()
        .preset(Preset::Auto)
        .connect_on(cluster.device(from), &server.acceptor())
        .expect("a client")
}

fn stuck() -> Stuck {
    let (host, nic) = (HostParameters::epyc_7452(), NicParameters::connectx_3());
    let cluster = Cluster::star(3, 2, &host, &nic, &SwitchParameters::z9264f());
    let [at, from] = cluster.hosts()[..] else {
        unreachable!("two hosts")
    };
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&kept);
    let server = echoing()
        .datagrams(Datagrams::Always)
        .max_connections(CONNECTIONS)
        .handle_deferred(STUCK, move |_, responder| {
            keeps.lock().expect("no panic").push(responder);
        })
        .region(&Region::new(REGION, 4096))
        .pin_pollers(0)
        .serve_on(cluster.device(at))
        .expect("a server");
    let client = connect(&cluster, from, &server);
    Stuck {
        client,
        server,
        kept,
        at,
        from,
        cluster,
    }
}

/// Tasks use only rings, and do not wait for each other's answers because the server asks for datagrams.
#[test]
fn tasks_go_on_where_they_are() {
    let Stuck {
        client,
        server,
        kept,
        from,
        cluster,
        ..
    } = stuck();
    let ended = Arc::new(AtomicBool::new(false));
    let has_ended = Arc::clone(&ended);
    cluster.spawn_thread(from, 0, move || {
        let (local, driver) = client.local().expect("a lane");
        let mut driver = pin!(driver);
        let mut context = Context::from_waker(Waker::noop());
        let mut stuck = pin!(local.call(STUCK, b"for a long time"));
        assert!(stuck.as_mut().poll(&mut context).is_pending());
        // Enough calls for the server's wish to arrive.
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

/// This also holds after their client has changed its preset: no handshake blocks an executor.
#[test]
fn tasks_make_no_lane_of_the_other_kind_after_a_change() {
    const CALLS: u64 = 5_000;
    let Stuck {
        client,
        server,
        kept,
        from,
        cluster,
        ..
    } = stuck();
    let ended = Arc::new(AtomicBool::new(false));
    let has_ended = Arc::clone(&ended);
    cluster.spawn_thread(from, 0, move || {
        let (local, mut driver) = client.local().expect("a lane");
        let mut echo = |number: u64| {
            let bytes = number.to_le_bytes();
            let answer = thread::block_on(driver.run_until(local.call(ECHO, &bytes)));
            assert_eq!(&answer.expect("an answer")[..], bytes);
        };
        echo(0);
        for preset in [Preset::Xrdma, Preset::Auto] {
            client.change_preset(preset).expect("a way");
            echo(1);
        }
        // Enough calls for the server's wish to arrive.
        (1..CALLS).for_each(echo);
        assert_eq!(by_rings(&client), CALLS);
        has_ended.store(true, Ordering::Relaxed);
    });
    run_until(&cluster, "the end", || ended.load(Ordering::Relaxed));
    drop(kept);
    cluster.run_for(MILLISECOND);
    drop(server);
}

/// A pipeline has calls outstanding on both of its lanes when the server's machine is gone: each ends, once, whichever
/// lane notices first. A queue pair without acknowledgements does, so it is the former lane, or, where the pipeline has
/// changed back to rings, the one in use.
fn calls_on_both_lanes_end_with_their_server(comes_back: bool) {
    const CALLS: u64 = 8;
    const PAUSE: Duration = Duration::from_micros(100);
    let Stuck {
        client,
        server,
        kept,
        at,
        from,
        cluster,
    } = stuck();
    let mut pipeline = client.pipeline().expect("a lane");
    let counts = client.clone();
    let (sent, ended) = (Arc::default(), Arc::default());
    let (has_sent, has_ended): (Arc<AtomicBool>, Arc<AtomicBool>) =
        (Arc::clone(&sent), Arc::clone(&ended));
    cluster.spawn_thread(from, 0, move || {
        // Enough polls for a check of what messages do not show.
        let settle = |pipeline: &mut Pipeline| {
            for _ in 0..2_000 {
                pipeline.poll(|_, _| {}).expect("a lane");
            }
        };
        if comes_back {
            // The first call goes over a ring, whose first word from the server asks for datagrams.
            for number in 0..100 {
                assert!(pipeline.submit(ECHO, b"hello", number).expect("a lane"));
                settle(&mut pipeline);
            }
            assert_eq!(pipeline.outstanding(), 0);
        }
        let before = by_rings(&client);
        let mut ends = [0; CALLS as usize];
        for tag in 0..CALLS {
            if comes_back && tag == CALLS / 2 {
                assert_eq!(by_rings(&client), before);
                let region = client.attach(REGION).expect("a region");
                assert_eq!(&region.read(8, 8).expect("memory")[..], [0; 8]);
            }
            assert!(pipeline.submit(STUCK, b"for ever", tag).expect("a lane"));
            settle(&mut pipeline);
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
        has_ended.store(true, Ordering::Relaxed);
    });
    run_until(&cluster, "calls", || sent.load(Ordering::Relaxed));
    let over_rings = by_rings(&counts);
    match comes_back {
        false => assert!((1..CALLS).contains(&over_rings), "{over_rings}"),
        true => assert!(over_rings >= CALLS / 2, "{over_rings}"),
    }
    cluster.crash(at);
    run_until(&cluster, "the end", || ended.load(Ordering::Relaxed));
    std::mem::forget((server, kept));
}

#[test]
fn calls_on_both_lanes_end_with_their_server_when_rings_are_former() {
    calls_on_both_lanes_end_with_their_server(false);
}

#[test]
fn calls_on_both_lanes_end_with_their_server_when_rings_are_in_use() {
    calls_on_both_lanes_end_with_their_server(true);
}

/// When the server had no place for another connection, its wish for datagrams is not followed as long as it persists;
/// a change of the client's preset is.
#[test]
fn who_was_refused_datagrams_goes_by_a_new_preset() {
    const CALLS: u64 = 100;
    let Stuck {
        client,
        server,
        kept,
        from,
        cluster,
        ..
    } = stuck();
    let pipeline = client.pipeline().expect("a lane");
    let others: Vec<Client> = (0..CONNECTIONS - 2)
        .map(|_| connect(&cluster, from, &server))
        .collect();
    let (called, changed, ended) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (has_called, has_changed, has_ended) = (
        Arc::clone(&called),
        Arc::clone(&changed),
        Arc::clone(&ended),
    );
    let caller = client.clone();
    cluster.spawn_thread(from, 0, move || {
        let mut pipeline = pipeline;
        let mut both = |number: u64| {
            let bytes = number.to_le_bytes();
            assert_eq!(&caller.call(ECHO, &bytes).expect("an answer")[..], bytes);
            assert!(pipeline.submit(ECHO, &bytes, number).expect("a lane"));
            let waited = pipeline.wait(|tag, answer| {
                assert_eq!((tag, answer.expect("an answer")), (number, &bytes[..]));
            });
            waited.expect("a lane");
        };
        (0..CALLS).for_each(&mut both);
        has_called.store(true, Ordering::Release);
        while !has_changed.load(Ordering::Acquire) {
            thread::sleep(Duration::from_micros(10));
        }
        (0..CALLS).for_each(&mut both);
        has_ended.store(true, Ordering::Release);
    });
    run_until(&cluster, "calls", || called.load(Ordering::Acquire));
    assert_eq!(by_rings(&client), 2 * CALLS);
    drop(others);
    run_until(&cluster, "places", || {
        client.change_preset(Preset::Flock).is_ok()
    });
    assert_eq!(by_rings(&client), 0);
    changed.store(true, Ordering::Release);
    run_until(&cluster, "the end", || ended.load(Ordering::Acquire));
    assert_eq!(by_rings(&client), 2 * CALLS);
    drop((client, kept));
    cluster.run_for(MILLISECOND);
    drop(server);
}
