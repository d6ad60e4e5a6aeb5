//! Abandoned calls: their handlers notice, however busy the server is.

#[path = "common/block_on.rs"]
mod block_on;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use block_on::block_on;
use dunlin_rpc::{Client, Preset, RunningServer, Server, ServerBuilder};

const BUSY: u16 = 1;
const FOREVER: u16 = 2;
const LENGTH: u16 = 3;

/// What an async handler holds as long as it lives.
struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Number of started handlers that never end by themselves, and number of those that were ended.
#[derive(Clone, Default)]
struct Forever {
    begun: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl Forever {
    fn handled(&self, server: ServerBuilder) -> ServerBuilder {
        let counts = self.clone();
        server.handle_async(FOREVER, move |_| {
            counts.begun.fetch_add(1, Ordering::Release);
            let guard = Guard(Arc::clone(&counts.ended));
            async move {
                let _guard = guard;
                std::future::pending().await
            }
        })
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::Acquire)
    }

    fn ended(&self) -> usize {
        self.ended.load(Ordering::Acquire)
    }
}

fn connect(server: &RunningServer) -> Client {
    Client::connect(&server.address().to_string()).unwrap()
}

#[test]
fn a_passed_deadline_is_seen_on_a_poller_that_always_has_requests() {
    /// Maximum number of handlers that run meanwhile: far longer than the deadline, and far shorter than thousands of
    /// passes.
    const MOST: usize = 40_000;
    let forever = Forever::default();
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .pollers(1)
        .handle(BUSY, |_, _| {
            let began = Instant::now();
            while began.elapsed() < Duration::from_micros(50) {
                std::hint::spin_loop();
            }
            Ok(())
        });
    let server = forever.handled(server).serve().unwrap();
    // A pipeline that is not polled tells the server nothing.
    let waiting = connect(&server).within(Duration::from_millis(100));
    let mut waits = waiting.pipeline().unwrap();
    assert!(waits.submit(FOREVER, b"", 0).unwrap());
    assert_eq!(waits.poll(|_, _| ()).unwrap(), 0, "it leaves with this");
    let busy = connect(&server);
    // Enough to keep the poller busy while this thread waits for a core.
    let mut pipeline = busy.pipeline_of(2048).unwrap();
    let mut answered = 0;
    while forever.ended() == 0 {
        assert!(answered < MOST, "{} have begun", forever.begun());
        while pipeline.submit(BUSY, b"", 0).unwrap() {}
        let count = |_, answer: Result<&[u8], _>| assert_eq!(answer.unwrap(), b"");
        answered += pipeline.wait(count).unwrap();
    }
    assert_eq!((forever.begun(), forever.ended()), (1, 1));
    drop(waits);
}

/// Futures are dropped while their requests are on their way: the cancellation arrives before the bytes.
fn abandon_long_requests(device: &str, preset: Preset, bytes: usize) {
    let forever = Forever::default();
    let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
    let server = server.handle(LENGTH, |request, reply| {
        reply.write(&request.payload().len().to_le_bytes())
    });
    let server = forever.handled(server).serve().unwrap();
    // A deadline ends what nothing else does.
    let builder = Client::builder().deadline(Duration::from_secs(1000));
    let builder = builder.device(device).preset(preset);
    let client = builder.connect(&server.address().to_string()).unwrap();
    let request = vec![7; bytes];
    let length = || {
        let answer = block_on(client.call_async(LENGTH, &request));
        assert_eq!(*answer.unwrap(), bytes.to_le_bytes());
    };
    length();
    for round in 0..20 {
        let call = client.call_async(FOREVER, &request);
        let began = Instant::now();
        // At every stage of the request, as far as these are known here.
        while began.elapsed() < round * Duration::from_micros(100) {
            std::hint::spin_loop();
        }
        drop(call);
        // It comes after the other, which has arrived when this is answered.
        length();
    }
    let started = Instant::now();
    while forever.begun() != forever.ended() {
        let (begun, ended) = (forever.begun(), forever.ended());
        let waited = started.elapsed();
        assert!(
            waited.as_secs() < 20,
            "{preset}: {ended} of {begun} have ended"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    length();
}

#[test]
fn a_request_that_is_given_up_before_it_was_fetched_is_not_run() {
    for preset in [Preset::Plain, Preset::Xrdma, Preset::RawWrite] {
        abandon_long_requests("roce", preset, 4 << 20);
    }
}

#[test]
fn a_request_that_is_given_up_before_it_is_whole_is_not_run() {
    for preset in [Preset::Fasst, Preset::Erpc] {
        abandon_long_requests("shm", preset, 100_000);
        abandon_long_requests("roce", preset, 100_000);
    }
}
