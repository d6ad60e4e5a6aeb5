//! A poller that has nothing it can do sleeps, even if its clients leave answers unread.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Client, Preset, Server};

const BLOCK: u16 = 1;

/// Number of times that a thread has slept.
fn sleeps(thread: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

#[test]
fn a_client_that_reads_no_answers_keeps_no_poller_awake() {
    const CALLS: u64 = 2000;
    let (poller, served) = (Arc::<AtomicI32>::default(), Arc::<AtomicU64>::default());
    let (polls, serves) = (Arc::clone(&poller), Arc::clone(&served));
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .pollers(1)
        .handle(BLOCK, move |_, reply| {
            let thread = rustix::thread::gettid().as_raw_nonzero().get();
            polls.store(thread, Ordering::Relaxed);
            serves.fetch_add(1, Ordering::Relaxed);
            reply.write(&[7; 1000])
        })
        .serve()
        .unwrap();
    let builder = Client::builder().device("shm").preset(Preset::Plain);
    let client = builder.connect(&server.address().to_string()).unwrap();
    let mut pipeline = client.pipeline_of(CALLS as usize).unwrap();
    let mut out = 0;
    while out < CALLS && pipeline.submit(BLOCK, b"", out).unwrap() {
        out += 1;
    }
    let started = Instant::now();
    let patient = || {
        let waited = started.elapsed();
        assert!(waited.as_secs() < 20, "{served:?} of {out}");
        std::thread::sleep(Duration::from_millis(1));
    };
    while poller.load(Ordering::Relaxed) == 0 {
        patient();
    }
    let thread = poller.load(Ordering::Relaxed);
    let slept = sleeps(thread);
    while sleeps(thread) < slept + 5 {
        patient();
    }
    let before = served.load(Ordering::Relaxed);
    assert!(before < out, "there was room for all answers");
    let mut answered = 0;
    while pipeline.outstanding() > 0 {
        let took = pipeline.wait(|_, answer| {
            assert_eq!(answer.unwrap(), [7; 1000]);
            answered += 1;
        });
        took.unwrap();
    }
    assert_eq!((answered, served.load(Ordering::Relaxed)), (out, out));
}
