//! Lanes that fail while messages of many threads are on them: every call ends once, and the other lanes go on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::combining::Node;
use crate::error::CallError;
use crate::{Client, Pipeline, Preset, RunningServer, Server};

const ECHO: u16 = 1;
const SLOW: u16 = 2;

fn serve() -> RunningServer {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(SLOW, |request, reply| {
            std::thread::sleep(Duration::from_millis(1));
            reply.write(request.payload())
        })
        .serve()
        .unwrap()
}

/// Each call has a unique number in its payload, so that an answer to another call would be detected.
struct Load<'a> {
    client: &'a Client,
    next: u64,
    out: std::collections::HashSet<u64>,
    answered: &'a AtomicU64,
    failed: &'a AtomicU64,
}

impl Load<'_> {
    /// Uses a pipeline until it fails, or until the end.
    fn run(&mut self, stop: &AtomicBool) {
        let Ok(mut pipeline) = self.client.pipeline() else {
            return;
        };
        while !stop.load(Ordering::Relaxed) {
            while pipeline.outstanding() < 40 {
                let handler = if self.next % 13 == 0 { SLOW } else { ECHO };
                match pipeline.submit(handler, &self.next.to_le_bytes(), self.next) {
                    Ok(true) => {
                        assert!(self.out.insert(self.next));
                        self.next += 1;
                    }
                    Ok(false) | Err(_) => break,
                }
            }
            if self.take(&mut pipeline).is_err() {
                assert!(self.out.is_empty(), "a call was never ended");
                return;
            }
        }
        while pipeline.outstanding() > 0 && self.take(&mut pipeline).is_ok() {}
        assert!(self.out.is_empty(), "a call was never ended");
    }

    fn take(&mut self, pipeline: &mut Pipeline) -> Result<usize, CallError> {
        let (out, answered, failed) = (&mut self.out, self.answered, self.failed);
        pipeline.wait(|tag, result| {
            assert!(out.remove(&tag), "call {tag} ended twice");
            match result {
                Ok(response) => {
                    assert_eq!(response, tag.to_le_bytes());
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                Err(CallError::ConnectionLost { .. }) => {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => panic!("{error}"),
            }
        })
    }
}

#[test]
fn a_lane_that_fails_ends_its_calls_once_and_no_others() {
    let server = serve();
    for preset in [Preset::Flock, Preset::FlockNoCoalescing, Preset::Spinlock4] {
        let client = Client::builder()
            .preset(preset)
            .lanes(3)
            .connect(&server.address().to_string())
            .unwrap();
        let stop = AtomicBool::new(false);
        let (answered, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut load = Load {
                        client: &client,
                        next: 0,
                        out: Default::default(),
                        answered: &answered,
                        failed: &failed,
                    };
                    while !stop.load(Ordering::Relaxed) {
                        load.run(&stop);
                    }
                });
            }
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut number = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        number += 1;
                        match client.call(ECHO, &number.to_le_bytes()) {
                            Ok(reply) => assert_eq!(*reply, number.to_le_bytes()),
                            Err(CallError::ConnectionLost { .. } | CallError::Connect(_)) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            let node = Node::new();
            for round in 0..30usize {
                let before = answered.load(Ordering::Relaxed);
                let handle = client.handle().unwrap();
                let lanes = handle.lanes();
                let lost = CallError::ConnectionLost {
                    why: "broken by the test".to_owned(),
                };
                lanes[round % lanes.len()].close(&node, lost);
                let started = std::time::Instant::now();
                while answered.load(Ordering::Relaxed) < before + 200 {
                    assert!(
                        started.elapsed().as_secs() < 20,
                        "{preset}: the others stand still: {:?} {:?}",
                        client.figures(),
                        server.senders()
                    );
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(failed.load(Ordering::Relaxed) > 0, "no call was hit");
        assert!(answered.load(Ordering::Relaxed) > 0);
    }
    assert_eq!(server.statistics().violations, 0);
}
