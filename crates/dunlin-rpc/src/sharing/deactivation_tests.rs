//! Lanes that the server deactivates while calls are outstanding on them.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::{Client, Preset, Region, RunningServer, Server};

const ECHO: u16 = 1;
const GATED: u16 = 2;

/// Polls until the future is ready. Calls have a deadline.
fn end_of<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::yield_now();
    }
}

/// Waits until one lane is active: few calls are no load, so one lane is enough for a sender.
fn until_one_is_active(server: &RunningServer) {
    let started = Instant::now();
    let settled = || {
        server.senders().iter().any(|sender| {
            let active = sender.lanes.iter().filter(|lane| lane.active).count();
            sender.dormant && active == 1 && sender.lanes.len() > 1
        })
    };
    while !settled() {
        assert!(started.elapsed().as_secs() < 20, "{:?}", server.senders());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The server grants a region to one connection. The answer may be taken after the thread has moved to another.
#[test]
fn a_grant_of_a_lane_that_was_left_is_not_used_on_another() {
    const BYTES: &[u8] = b"in the region";
    // The server chooses which lane stays active: often not that of the futures.
    for _ in 0..6 {
        let region = Region::new("words", BYTES.len());
        let server = Server::bind("dunlin://127.0.0.1:0")
            .unwrap()
            .handle(ECHO, |request, reply| reply.write(request.payload()))
            .region(&region)
            .serve()
            .unwrap();
        region.memory().expect("it is served").write(0, BYTES);
        let client = Client::builder()
            .preset(Preset::Flock)
            .lanes(4)
            .connect(&server.address().to_string())
            .unwrap();
        let mut pipelines: Vec<_> = (0..3).map(|_| client.pipeline().unwrap()).collect();
        for pipeline in &mut pipelines {
            assert!(pipeline.submit(ECHO, b"here", 0).unwrap());
            pipeline.wait(|_, answer| assert!(answer.is_ok())).unwrap();
        }
        let mut attaching = Box::pin(client.attach_async("words"));
        let mut once = Context::from_waker(Waker::noop());
        let asked = attaching.as_mut().poll(&mut once);
        until_one_is_active(&server);
        end_of(client.call_async(ECHO, b"moves")).unwrap();
        let attached = match asked {
            Poll::Ready(attached) => attached,
            Poll::Pending => end_of(attaching),
        };
        let read = end_of(attached.unwrap().read_async(0, BYTES.len()));
        assert_eq!(&read.unwrap()[..], BYTES);
    }
}

/// A thread with a call outstanding on a lane that is no longer active cannot move to another; its next calls do not
/// wait for the first.
#[test]
fn calls_go_on_where_an_earlier_one_holds_its_thread_on_a_lane_that_is_not_active() {
    let gate = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&gate);
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(GATED, move |request, reply| {
            while !opened.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            reply.write(request.payload())
        })
        .workers(4)
        .serve()
        .unwrap();
    let client = Client::builder()
        .preset(Preset::Flock)
        .lanes(4)
        .connect(&server.address().to_string())
        .unwrap();
    // Also when an assertion fails: the server waits for its workers.
    struct Opener(Arc<AtomicBool>);
    impl Drop for Opener {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let opener = Opener(gate);
    let mut pipelines: Vec<_> = (0..4).map(|_| client.pipeline().unwrap()).collect();
    for pipeline in &mut pipelines {
        assert!(pipeline.submit(GATED, b"held", 0).unwrap());
        pipeline.poll(|_, _| panic!("it is held")).unwrap();
    }
    until_one_is_active(&server);
    for pipeline in &mut pipelines {
        // More than the credits of a lane, so that it must ask for more.
        for round in 1..=100u64 {
            let payload = round.to_le_bytes();
            let started = Instant::now();
            while !pipeline.submit(ECHO, &payload, round).unwrap() {
                assert!(started.elapsed().as_secs() < 20, "it waits for the gate");
                pipeline.poll(|_, _| panic!("it is held")).unwrap();
            }
            let mut answered = false;
            while !answered {
                let taken = pipeline.wait(|tag, answer| {
                    assert_eq!((tag, answer.expect("an answer")), (round, &payload[..]));
                    answered = true;
                });
                taken.expect("it does not wait for the gate");
            }
        }
    }
    drop(opener);
    for pipeline in &mut pipelines {
        while pipeline.outstanding() > 0 {
            let last = |tag, answer: Result<&[u8], _>| {
                assert_eq!((tag, answer.expect("an answer")), (0, &b"held"[..]));
            };
            pipeline.wait(last).unwrap();
        }
    }
}
