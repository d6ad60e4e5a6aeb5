//! Calls through the public door: sizes, errors, batches, pipelines, futures.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Arc};
use std::time::Duration;

use common::{pattern, ECHO};
use dunlin::{CallError, ChannelConfig, Client, HandlerError, Preset, Server};

#[test]
fn payloads_of_all_sizes_come_back_unchanged() {
    let (server, client) = common::echo();
    let eager = ChannelConfig::default().eager_bytes;
    let sizes = (0..=200).chain([
        1000,
        eager - 1,
        eager,
        eager + 1,
        2 * eager,
        65_536,
        1 << 20,
        16 << 20,
    ]);
    for size in sizes {
        let payload = pattern(size, size as u64);
        let reply = client.call(ECHO, &payload).unwrap();
        assert!(
            *reply == *payload,
            "{size} bytes came back as {}",
            reply.len()
        );
    }
    assert!(server.shutdown());
}

#[test]
fn requests_filled_in_place_arrive() {
    let (_server, client) = common::echo();
    for size in [0, 10, 4096, 100_000, 1 << 20] {
        let mut request = client.buffer(size).unwrap();
        request.copy_from_slice(&pattern(size, 3));
        let reply = client.call_buffer(ECHO, request).unwrap();
        assert!(*reply == *pattern(size, 3));
    }
}

#[test]
fn no_buffer_is_longer_than_a_message() {
    let (_server, client) = common::echo();
    for client in [&client, &client.within(Duration::from_secs(1))] {
        for length in [usize::MAX, usize::MAX - 5, usize::MAX / 2] {
            let buffer = client.buffer(length).map(|buffer| buffer.len());
            assert!(
                matches!(buffer, Err(CallError::TooLong { .. })),
                "{buffer:?}"
            );
        }
    }
}

/// Half a request leaves nothing behind.
#[test]
fn a_panic_while_a_request_is_written_sends_nothing() {
    let (server, client) = common::echo();
    let mut pipeline = client.pipeline().unwrap();
    let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pipeline.submit_with(ECHO, 64, 1, |target| {
            target.fill(1);
            panic!("of the test");
        })
    }));
    assert!(written.is_err());
    assert_eq!(pipeline.outstanding(), 0);
    assert!(pipeline
        .submit_with(ECHO, 3, 2, |target| target.copy_from_slice(b"two"))
        .unwrap());
    while pipeline.outstanding() > 0 {
        let wait =
            pipeline.wait(|tag, answer| assert_eq!((tag, answer.unwrap()), (2, &b"two"[..])));
        wait.unwrap();
    }
    assert!(server.shutdown());
}

#[test]
fn a_message_over_the_limit_is_an_error_and_harms_nothing() {
    let (_server, client) = common::echo();
    let limit = ChannelConfig::default().max_message_bytes;
    match client.call(ECHO, &vec![0; limit + 1]) {
        Err(CallError::TooLong {
            bytes,
            limit: named,
        }) => {
            assert_eq!((bytes, named), (limit + 1, limit));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        client.buffer(limit + 1),
        Err(CallError::TooLong { .. })
    ));
    assert_eq!(&*client.call(ECHO, b"still here").unwrap(), b"still here");
}

#[test]
fn a_response_over_the_callers_limit_is_an_error() {
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(1, |_, reply| reply.write(&[0; 100_000]))
        .handle(2, |_, reply| reply.in_place(100_000).map(drop))
        .serve()
        .unwrap();
    let config = ChannelConfig {
        max_message_bytes: 50_000,
        ..Default::default()
    };
    let client = Client::builder()
        .channel(config)
        .connect(&server.address().to_string())
        .unwrap();
    for handler in [1, 2] {
        let ended = client.call(handler, b"");
        assert!(
            matches!(ended, Err(CallError::TooLong { limit: 50_000, .. })),
            "{ended:?}"
        );
    }
}

#[test]
fn handlers_may_fail_panic_or_be_missing() {
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle(2, |_, _| Err(HandlerError::new(77, "not today")))
        .handle(3, |_, _| panic!("a bug in a handler"))
        .handle_on_workers(4, |_, _| panic!("a bug in a slow handler"))
        .serve()
        .unwrap();
    let client = Client::connect(&server.address().to_string()).unwrap();
    match client.call(2, b"") {
        Err(CallError::Handler { code, message }) => {
            assert_eq!((code, message.as_str()), (77, "not today"));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        client.call(3, b""),
        Err(CallError::HandlerPanicked)
    ));
    assert!(matches!(
        client.call(4, b""),
        Err(CallError::HandlerPanicked)
    ));
    assert!(matches!(
        client.call(999, b""),
        Err(CallError::UnknownHandler(999))
    ));
    assert!(matches!(
        client.call(999, &[0; 100_000]),
        Err(CallError::UnknownHandler(999))
    ));
    assert_eq!(&*client.call(ECHO, b"alive").unwrap(), b"alive");
}

#[test]
fn a_batch_gives_each_call_its_own_answer() {
    let (_server, client) = common::echo();
    let payloads: Vec<Vec<u8>> = (0..5000).map(|i| pattern(i % 300, i as u64)).collect();
    let mut batch = client.batch();
    for payload in &payloads {
        batch = batch.call(ECHO, payload);
    }
    let answers = batch.call(12, b"no such handler").send().unwrap();
    assert_eq!(answers.len(), payloads.len() + 1);
    for (payload, answer) in payloads.iter().zip(&answers) {
        assert_eq!(&**answer.as_ref().unwrap(), &payload[..]);
    }
    assert!(matches!(
        answers.last(),
        Some(Err(CallError::UnknownHandler(12)))
    ));
}

#[test]
fn a_pipeline_keeps_calls_of_all_sizes_out() {
    let (_server, client) = common::echo();
    let mut pipeline = client.pipeline().unwrap();
    let sizes = [0usize, 1, 40, 41, 64, 500, 4096, 5000, 70_000];
    let (mut sent, mut answered, total) = (0u64, 0u64, 20_000u64);
    while answered < total {
        while sent < total {
            let size = sizes[sent as usize % sizes.len()];
            if !pipeline.submit(ECHO, &pattern(size, sent), sent).unwrap() {
                break;
            }
            sent += 1;
            if pipeline.outstanding() >= 50 {
                break;
            }
        }
        pipeline
            .wait(|tag, answer| {
                let size = sizes[tag as usize % sizes.len()];
                assert!(*answer.unwrap() == *pattern(size, tag));
                answered += 1;
            })
            .unwrap();
    }
    assert_eq!(pipeline.outstanding(), 0);
}

#[test]
fn threads_share_a_client() {
    let (server, client) = common::echo();
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let client = client.clone();
            scope.spawn(move || {
                for i in 0..2000 {
                    let payload = pattern((i % 100) as usize, thread << 32 | i);
                    assert_eq!(&*client.call(ECHO, &payload).unwrap(), &payload[..]);
                }
            });
        }
    });
    assert_eq!(server.statistics().requests, 12_000);
}

#[test]
fn slow_handlers_on_workers_do_not_hold_up_others() {
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(2, |request, reply| {
            std::thread::sleep(Duration::from_millis(200));
            reply.write(request.payload())
        })
        .serve()
        .unwrap();
    let client = Client::connect(&server.address().to_string()).unwrap();
    let slow = client.call_async(2, &[9; 10_000]);
    for _ in 0..100 {
        client.call(ECHO, b"quick").unwrap();
    }
    assert_eq!(futures_executor::block_on(slow).unwrap().len(), 10_000);
}

#[test]
fn a_deadline_ends_the_wait_and_not_the_connection() {
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(2, |_, reply| {
            std::thread::sleep(Duration::from_millis(300));
            reply.write(b"late")
        })
        .serve()
        .unwrap();
    let client = Client::connect(&server.address().to_string()).unwrap();
    let deadline = Duration::from_millis(20);
    let ended = client.call_within(deadline, 2, b"");
    assert!(matches!(ended, Err(CallError::DeadlineExceeded { after }) if after == deadline));
    // The late answer must not be taken for that of a later call.
    for i in 0..2000u32 {
        assert_eq!(
            &*client.call(ECHO, &i.to_le_bytes()).unwrap(),
            &i.to_le_bytes()
        );
    }
    assert_eq!(&*client.call(2, b"").unwrap(), b"late");
}

#[test]
fn futures_work_under_tokio() {
    let (_server, client) = common::echo();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..200u64)
            .map(|i| {
                let client = client.clone();
                tokio::spawn(async move {
                    let payload = pattern((i * 37 % 9000) as usize, i);
                    assert!(*client.call_async(ECHO, &payload).await.unwrap() == *payload);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn dropping_a_future_cancels_its_call_alone() {
    let ran = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&ran);
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(2, move |_, reply| {
            std::thread::sleep(Duration::from_millis(5));
            counted.fetch_add(1, Ordering::Relaxed);
            reply.write(b"slow")
        })
        .serve()
        .unwrap();
    let client = Client::connect(&server.address().to_string()).unwrap();
    for round in 0..20u32 {
        let dropped = client.call_async(2, b"");
        let kept = client.call_async(2, b"");
        drop(dropped);
        let echoed = client.call_async(ECHO, &round.to_le_bytes());
        assert_eq!(
            &*futures_executor::block_on(echoed).unwrap(),
            &round.to_le_bytes()
        );
        assert_eq!(&*futures_executor::block_on(kept).unwrap(), b"slow");
    }
    assert!(ran.load(Ordering::Relaxed) >= 20);
}

#[test]
fn a_future_keeps_its_deadline() {
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle_on_workers(1, |_, reply| {
            std::thread::sleep(Duration::from_millis(400));
            reply.write(b"late")
        })
        .serve()
        .unwrap();
    let client = Client::builder()
        .deadline(Duration::from_millis(30))
        .connect(&server.address().to_string())
        .unwrap();
    let ended = futures_executor::block_on(client.call_async(1, b""));
    assert!(
        matches!(ended, Err(CallError::DeadlineExceeded { .. })),
        "{ended:?}"
    );
}

/// Also where all threads share a connection, which the thread that runs the callback has just looked at.
#[test]
fn a_callback_may_call_by_the_same_client() {
    let (server, _) = common::echo();
    for preset in [Preset::Plain, Preset::Flock, Preset::Fasst, Preset::Auto] {
        let builder = Client::builder().preset(preset).lanes(1);
        let client = builder.connect(&server.address().to_string()).unwrap();
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            // This thread's own port at the connection is there before the pipeline's.
            client.call(ECHO, b"first").unwrap();
            let mut pipeline = client.pipeline().unwrap();
            for round in 0..50u64 {
                let long = pattern(100 + 500 * round as usize, round);
                assert!(pipeline.submit(ECHO, &long, round).unwrap());
                let mut within = None;
                while pipeline.outstanding() > 0 {
                    let polled = pipeline.poll(|tag, answer| {
                        assert!(tag == round && answer.unwrap() == long);
                        within = Some(client.call(ECHO, &tag.to_le_bytes()).unwrap());
                    });
                    polled.unwrap();
                }
                assert_eq!(within.as_deref(), Some(&round.to_le_bytes()[..]));
            }
            ended.send(()).unwrap();
        });
        let patience = Duration::from_secs(60);
        assert_eq!(end.recv_timeout(patience), Ok(()), "with {preset}");
    }
}
