//! Many calls at once: batches, pipelines, threads, futures, workers.

use std::future::{poll_fn, Future};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dunlin_verbs::thread;

use super::{call, pattern, Job, Outcome, Stage, ECHO};
use crate::{CallError, Preset};

/// In a batch of more calls than a lane holds, each gets its own answer, in order.
pub fn batches_give_each_call_its_own_answer(stage: &Stage<'_>) -> Outcome {
    let server = stage.serve(stage.server());
    let count = if stage.world.is_not_real().is_none() {
        3000
    } else {
        600
    };
    stage.with_client(stage.client(&server), move |client| {
        let payloads: Vec<Vec<u8>> = (0..count).map(|i| pattern(i % 300, i as u64)).collect();
        let mut batch = client.batch();
        for payload in &payloads {
            batch = batch.call(ECHO, payload);
        }
        let answers = batch.call(12, b"no such handler").send().expect("a lane");
        assert_eq!(answers.len(), payloads.len() + 1);
        for (payload, answer) in payloads.iter().zip(&answers) {
            assert_eq!(&**answer.as_ref().expect("an answer"), &payload[..]);
        }
        let last = answers.last();
        assert!(matches!(last, Some(Err(CallError::UnknownHandler(12)))));
    });
    Ok(())
}

/// What waits for a pipeline.
#[derive(Clone, Copy)]
enum Waits {
    Thread,
    Task,
}

/// Makes `total` calls of mixed sizes, `out` at a time; each ends with its own bytes.
fn mixed(pipeline: &mut crate::Pipeline, total: u64, out: usize, waits: Waits) {
    let sizes = [0usize, 1, 40, 41, 64, 500, 4064, 4065, 5000, 70_000];
    let (mut sent, mut answered) = (0u64, 0u64);
    while answered < total {
        while sent < total && pipeline.outstanding() < out {
            let size = sizes[sent as usize % sizes.len()];
            let payload = pattern(size, sent);
            if !pipeline.submit(ECHO, &payload, sent).expect("a lane") {
                break;
            }
            sent += 1;
        }
        let take = |tag, answer: Result<&[u8], CallError>| {
            let size = sizes[tag as usize % sizes.len()];
            assert!(*answer.expect("an answer") == *pattern(size, tag));
            answered += 1;
        };
        let waited = match waits {
            Waits::Thread => pipeline.wait(take),
            Waits::Task => thread::block_on(pipeline.wait_async(take)),
        };
        waited.expect("a lane");
    }
    assert_eq!(pipeline.outstanding(), 0);
}

/// A pipeline keeps calls of all sizes outstanding, and each gets its answer.
pub fn pipelines_keep_calls_out(stage: &Stage<'_>) -> Outcome {
    let server = stage.serve(stage.server());
    let client = stage.client(&server);
    let total = if stage.world.is_not_real().is_none() {
        3000
    } else {
        600
    };
    stage.with_pipeline(&client, move |pipeline| {
        mixed(pipeline, total, 50, Waits::Thread);
    });
    assert_eq!(server.requests(), total);
    Ok(())
}

/// The same with tasks that wait: two pipelines on one thread, whose tasks alternate.
pub fn pipelines_are_awaited(stage: &Stage<'_>) -> Outcome {
    let server = stage.serve(stage.server());
    let client = stage.client(&server);
    let mut other = client.pipeline().expect("a lane");
    stage.with_pipeline(&client, move |pipeline| {
        mixed(pipeline, 200, 20, Waits::Task);
        let mut ended = [false; 2];
        for (lane, tag) in [(&mut *pipeline, 0), (&mut other, 1)] {
            // A new lane may have to hear from the server before there is room.
            while !lane.submit(ECHO, b"both", tag).expect("a lane") {
                let waited = thread::block_on(lane.wait_async(|_, _| panic!("nothing is out")));
                assert_eq!(waited.expect("a lane"), 0);
            }
        }
        let [first, second] = [pipeline, &mut other].map(|lane| {
            Box::pin(async {
                let mut tags = Vec::new();
                let waited = lane.wait_async(|tag, answer| {
                    assert_eq!(answer.expect("an answer"), b"both");
                    tags.push(tag);
                });
                assert_eq!(waited.await.expect("a lane"), 1);
                // No call is outstanding: there is nothing to wait for.
                assert_eq!(lane.wait_async(|_, _| {}).await.expect("a lane"), 0);
                tags
            })
        });
        let mut tasks = [first, second];
        thread::block_on(poll_fn(|context| {
            for (tag, (task, ended)) in tasks.iter_mut().zip(&mut ended).enumerate() {
                if *ended {
                    continue;
                }
                if let Poll::Ready(tags) = task.as_mut().poll(context) {
                    assert_eq!(tags, [tag as u64]);
                    *ended = true;
                }
            }
            match ended {
                [true, true] => Poll::Ready(()),
                _ => Poll::Pending,
            }
        }));
    });
    assert_eq!(server.requests(), 202);
    Ok(())
}

/// Threads that share a client get their own answers, and the server takes each request once.
pub fn threads_share_a_client(stage: &Stage<'_>) -> Outcome {
    let server = stage.serve(stage.server());
    let client = stage.client(&server);
    let calls = 400;
    let threads = 6u64;
    let mut jobs: Vec<Job<'static>> = Vec::new();
    for thread in 0..threads {
        // Every other one has a lane of its own.
        if thread % 2 == 0 {
            let client = client.clone();
            jobs.push(Box::new(move || {
                for i in 0..calls {
                    let payload = pattern((i % 100) as usize, thread << 32 | i);
                    let answer = client.call(ECHO, &payload).expect("an answer");
                    assert_eq!(&*answer, &payload[..]);
                }
            }));
        } else {
            let mut pipeline = client.pipeline().expect("a lane");
            jobs.push(Box::new(move || {
                for i in 0..calls {
                    let payload = pattern((i % 100) as usize, thread << 32 | i);
                    let answer = call(&mut pipeline, ECHO, &payload).expect("an answer");
                    assert_eq!(answer, payload);
                }
            }));
        }
    }
    stage.world.run(jobs);
    assert_eq!(server.requests(), threads * calls);
    Ok(())
}

/// Futures of several threads, more than a lane holds at once, all end with their own answers.
pub fn futures_of_many_tasks_end(stage: &Stage<'_>) -> Outcome {
    let server = stage.serve(stage.server());
    let client = stage.client(&server);
    let tasks = |seed: u64| {
        let client = client.clone();
        move || {
            let payloads: Vec<_> = (0..60u64)
                .map(|i| pattern((i * 137 % 9000) as usize, seed << 32 | i))
                .collect();
            let calls: Vec<_> = payloads
                .iter()
                .map(|payload| client.call_async(ECHO, payload))
                .collect();
            for (call, payload) in calls.into_iter().zip(&payloads) {
                assert!(*thread::block_on(call).expect("an answer") == **payload);
            }
        }
    };
    stage.world.run(
        (0..3)
            .map(|seed| Box::new(tasks(seed)) as Job<'_>)
            .collect(),
    );
    Ok(())
}

/// A handler on the worker pool delays no other call, neither of its client nor on its own lane.
pub fn slow_handlers_hold_up_nobody(stage: &Stage<'_>) -> Outcome {
    stage.needs_a_real_world()?;
    let gate = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&gate);
    let server = stage.server().handle_on_workers(2, move |request, reply| {
        while !opened.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        reply.write(request.payload())
    });
    let server = stage.serve(server);
    let _opener = super::Opener(Arc::clone(&gate));
    let client = stage.client(&server);
    // The slow ones are the first on their lane.
    let mut slow = client.pipeline().expect("a lane");
    assert!(slow.submit(2, &[9; 10_000], 100).expect("a lane"));
    assert!(slow.submit(2, b"slow", 101).expect("a lane"));
    let mut early = Vec::new();
    slow.poll(|tag, _| early.push(tag)).expect("a lane");
    for number in 0..50u32 {
        let answer = client.call(ECHO, &number.to_le_bytes());
        assert_eq!(*answer.expect("an answer"), number.to_le_bytes());
    }
    // A thread that FLOCK's scheduler moves to another lane waits for its outstanding calls before it sends more
    // (§5.2).
    let moves = matches!(
        stage.preset,
        Preset::Flock | Preset::FlockNoCoalescing | Preset::Auto
    );
    let mut quick = 0;
    for tag in (0..50).filter(|_| !moves) {
        while !slow.submit(ECHO, b"quick", tag).expect("a lane") {
            slow.poll(|_, _| quick += 1).expect("a lane");
        }
        while quick <= tag {
            slow.wait(|tag, answer| {
                assert!(tag < 50, "the gate is shut");
                assert_eq!(answer.expect("an answer"), b"quick");
                quick += 1;
            })
            .expect("a lane");
        }
    }
    assert!(early.is_empty(), "the gate was shut");
    gate.store(true, Ordering::Release);
    let mut ended = Vec::new();
    while slow.outstanding() > 0 {
        slow.wait(|tag, answer| ended.push((tag, answer.expect("an answer").len())))
            .expect("a lane");
    }
    ended.sort_unstable();
    assert_eq!(ended, [(100, 10_000), (101, 4)]);
    Ok(())
}
