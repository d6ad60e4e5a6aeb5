//! Lanes that the server deactivates under calls that are out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Client, Preset, Server};

const ECHO: u16 = 1;
const GATED: u16 = 2;

/// A thread whose call is out on a lane that is not active any more cannot go to another; its next calls do not wait
/// for the first.
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
    // Four calls are no load: one lane is enough for this sender.
    let started = Instant::now();
    while !server.senders().iter().any(|sender| {
        let active = sender.lanes.iter().filter(|lane| lane.active).count();
        sender.dormant && active == 1 && sender.lanes.len() > 1
    }) {
        assert!(started.elapsed().as_secs() < 20, "{:?}", server.senders());
        std::thread::sleep(Duration::from_millis(2));
    }
    for pipeline in &mut pipelines {
        // More than the credits of a lane, so that it has to ask for some.
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
