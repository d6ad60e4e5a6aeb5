//! The presets whose threads share queue pairs, through the public door.

mod common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use common::{eventually, pattern, ECHO};
use dunlin::{CallError, Client, HandleFigures, Preset, RunningServer, Server};

/// Every preset with a connection handle.
const SHARING: [Preset; 5] = [
    Preset::Flock,
    Preset::Spinlock2,
    Preset::Spinlock4,
    Preset::FlockNoCoalescing,
    Preset::FlockNoScheduling,
];
/// A handler that takes its time, on workers.
const SLOW: u16 = 2;
/// A handler that waits until the test lets it go.
const GATE: u16 = 3;

fn serve(gate: &Arc<AtomicBool>, most_active: usize) -> RunningServer {
    let gate = Arc::clone(gate);
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .max_active_queue_pairs(most_active)
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(SLOW, |request, reply| {
            std::thread::sleep(Duration::from_millis(5));
            reply.write(request.payload())
        })
        .handle_on_workers(GATE, move |request, reply| {
            while !gate.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            reply.write(request.payload())
        })
        .serve()
        .unwrap()
}

fn connect(server: &RunningServer, preset: Preset, lanes: usize) -> Client {
    connect_as(server, preset, lanes, false)
}

fn connect_as(server: &RunningServer, preset: Preset, lanes: usize, dispatched: bool) -> Client {
    Client::builder()
        .preset(preset)
        .lanes(lanes)
        .dispatched(dispatched)
        .connect(&server.address().to_string())
        .unwrap()
}

fn open() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(true))
}

fn figures(client: &Client) -> HandleFigures {
    client.figures().unwrap()
}

/// Calls of all kinds and sizes from many threads, each answer checked.
fn mixed_load(client: &Client, threads: u64, rounds: u64) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for round in 0..rounds {
                    let seed = thread << 32 | round;
                    let size = match (thread + round) % 7 {
                        6 if round % 10 == 0 => 20_000,
                        5 => 3000,
                        _ => (seed % 130) as usize,
                    };
                    let payload = pattern(size, seed);
                    match round % 16 {
                        3 => {
                            let mut batch = client.batch();
                            for _ in 0..20 {
                                batch = batch.call(ECHO, &payload);
                            }
                            for answer in batch.send().unwrap() {
                                assert_eq!(*answer.unwrap(), *payload);
                            }
                        }
                        7 => assert!(matches!(
                            client.call(77, &payload),
                            Err(CallError::UnknownHandler(77))
                        )),
                        11 if round < 30 => {
                            assert_eq!(*client.call(SLOW, &payload).unwrap(), *payload);
                        }
                        _ => assert_eq!(*client.call(ECHO, &payload).unwrap(), *payload),
                    }
                }
            });
        }
    });
}

#[test]
fn every_response_finds_its_caller() {
    for preset in SHARING {
        println!("{preset}");
        let server = serve(&open(), 256);
        let client = connect(&server, preset, 3);
        mixed_load(&client, 16, 60);
        let figures = figures(&client);
        assert!(
            figures.lanes.iter().all(|lane| lane.open),
            "{preset}: {figures:?}"
        );
        assert_eq!(server.statistics().violations, 0, "{preset}");
        assert!(server.shutdown(), "{preset}");
    }
}

#[test]
fn sixty_four_threads_share_two_queue_pairs() {
    for dispatched in [false, true] {
        sixty_four_threads(dispatched);
    }
}

fn sixty_four_threads(dispatched: bool) {
    let server = serve(&open(), 256);
    let client = connect_as(&server, Preset::Flock, 2, dispatched);
    let together = Barrier::new(64);
    std::thread::scope(|scope| {
        for thread in 0..64u64 {
            let (client, together) = (&client, &together);
            scope.spawn(move || {
                together.wait();
                for round in 0..100u64 {
                    let payload = (thread << 32 | round).to_le_bytes();
                    assert_eq!(*client.call(ECHO, &payload).unwrap(), payload);
                }
                together.wait();
            });
        }
    });
    assert_eq!(server.statistics().accepted, 2);
    let figures = figures(&client);
    assert_eq!(figures.lanes.len(), 2);
    let requests: u64 = figures.lanes.iter().map(|lane| lane.requests).sum();
    assert_eq!(requests, 6400);
    assert!(figures.coalescing_degree >= 1.0);
}

#[test]
fn pipelines_and_futures_share_the_lanes_too() {
    let server = serve(&open(), 256);
    let client = connect(&server, Preset::Flock, 2);
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let client = &client;
            scope.spawn(move || {
                let mut pipeline = client.pipeline().unwrap();
                let mut answered = HashSet::new();
                let mut next = 0u64;
                while answered.len() < 3000 {
                    while next < 3000 && pipeline.outstanding() < 100 {
                        let payload = (thread << 32 | next).to_le_bytes();
                        if !pipeline.submit(ECHO, &payload, next).unwrap() {
                            break;
                        }
                        next += 1;
                    }
                    pipeline
                        .wait(|tag, response| {
                            let expected = (thread << 32 | tag).to_le_bytes();
                            assert_eq!(response.unwrap(), expected);
                            assert!(answered.insert(tag), "{tag} was answered twice");
                        })
                        .unwrap();
                }
            });
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    for round in 0..50u64 {
                        let calls: Vec<_> = (0..20u64)
                            .map(|call| {
                                client.call_async(ECHO, &(thread + round + call).to_le_bytes())
                            })
                            .collect();
                        for (call, answer) in calls.into_iter().enumerate() {
                            let expected = (thread + round + call as u64).to_le_bytes();
                            assert_eq!(*answer.await.unwrap(), expected);
                        }
                    }
                });
            });
        }
    });
    // All of them have gone but the connecting thread and the futures' lane.
    eventually("ports are given back", || figures(&client).threads <= 2);
    assert_eq!(server.statistics().violations, 0);
}

#[test]
fn a_pipeline_outlives_its_client() {
    let server = serve(&open(), 256);
    let client = connect(&server, Preset::Flock, 2);
    let mut pipeline = client.pipeline().unwrap();
    drop(client);
    assert!(pipeline.submit(ECHO, b"still", 1).unwrap());
    let mut answer = Vec::new();
    pipeline
        .wait(|_, response| answer = response.unwrap().to_vec())
        .unwrap();
    assert_eq!(answer, b"still");
    drop(pipeline);
    eventually("the connection ends", || server.connections() == 0);
}

#[test]
fn a_thread_that_leaves_calls_behind_harms_nobody() {
    let gate = Arc::new(AtomicBool::new(false));
    let server = serve(&gate, 256);
    let client = connect(&server, Preset::Flock, 1);
    for _ in 0..3 {
        let leaves = client.clone();
        std::thread::spawn(move || {
            let mut pipeline = leaves.pipeline().unwrap();
            for tag in 0..4 {
                assert!(pipeline.submit(GATE, b"left", tag).unwrap());
            }
            pipeline.poll(|_, _| {}).unwrap();
            let late = leaves.call_within(Duration::from_millis(20), GATE, b"late");
            // The server's word of it may be there before the clock is looked at.
            use CallError::{DeadlineExceeded, Expired};
            let is_late = matches!(late, Err(DeadlineExceeded { .. } | Expired { .. }));
            assert!(is_late, "{late:?}");
        })
        .join()
        .unwrap();
    }
    assert_eq!(*client.call(ECHO, b"and on").unwrap(), *b"and on");
    gate.store(true, Ordering::Release);
    mixed_load(&client, 4, 30);
    assert_eq!(server.statistics().violations, 0);
    assert!(figures(&client).lanes[0].open);
}

/// One lane for three in the server: lanes are deactivated, threads move away, and every call is answered.
#[test]
fn threads_leave_lanes_that_the_server_deactivates() {
    for dispatched in [false, true] {
        leave_deactivated_lanes(dispatched);
    }
}

fn leave_deactivated_lanes(dispatched: bool) {
    let server = serve(&open(), 1);
    let client = connect_as(&server, Preset::Flock, 3, dispatched);
    let stop = AtomicBool::new(false);
    let answered = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    client.call(ECHO, &[7; 32]).unwrap();
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        eventually("one lane is active, and all threads are on it", || {
            let figures = figures(&client);
            let active: Vec<usize> = (0..figures.lanes.len())
                .filter(|&i| figures.lanes[i].active)
                .collect();
            figures.lanes.len() == 3
                && active.len() == 1
                && figures.assignment.iter().all(|lane| *lane == active[0])
        });
        let before = answered.load(Ordering::Relaxed);
        eventually("calls go on", || {
            answered.load(Ordering::Relaxed) > before + 500
        });
        stop.store(true, Ordering::Relaxed);
    });
    let report = server.senders();
    assert_eq!(report.len(), 1);
    assert_eq!(report[0].lanes.iter().filter(|lane| lane.active).count(), 1);
    assert_eq!(server.statistics().violations, 0);
}

/// A client that sends nothing keeps one active lane. Threads of the others are answered all the same, whatever the
/// preset.
#[test]
fn threads_on_lanes_of_a_dormant_client_are_not_left() {
    for preset in [Preset::Flock, Preset::FlockNoScheduling] {
        let server = serve(&open(), 256);
        let client = connect(&server, preset, 3);
        let together = Barrier::new(6);
        std::thread::scope(|scope| {
            for thread in 0..6u64 {
                let (client, together, server) = (&client, &together, &server);
                scope.spawn(move || {
                    client.call(ECHO, b"here").unwrap();
                    together.wait();
                    eventually("one lane is left", || {
                        let senders = server.senders();
                        senders[0].dormant
                            && senders[0].lanes.iter().filter(|l| l.active).count() == 1
                    });
                    // One after the other, too few to make the client functioning.
                    for turn in 0..6 {
                        together.wait();
                        if turn == thread {
                            assert_eq!(*client.call(ECHO, b"and here").unwrap(), *b"and here");
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn the_scheduler_parts_large_requests_from_small_ones() {
    let server = serve(&open(), 256);
    let client = connect(&server, Preset::Flock, 2);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (client, stop) = (&client, &stop);
            scope.spawn(move || {
                let payload = vec![1; if thread < 2 { 4000 } else { 16 }];
                while !stop.load(Ordering::Relaxed) {
                    client.call(ECHO, &payload).unwrap();
                }
            });
        }
        eventually("threads were moved", || figures(&client).migrations > 0);
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(server.statistics().violations, 0);
}

#[test]
fn a_lost_server_ends_all_calls_and_a_new_one_is_found() {
    let gate = Arc::new(AtomicBool::new(false));
    let server = serve(&gate, 256);
    let address = server.address().to_string();
    let client = connect(&server, Preset::Flock, 2);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| client.call(GATE, b"never")))
            .collect();
        eventually("calls are with the workers", || {
            server.statistics().requests >= 8
        });
        gate.store(true, Ordering::Release);
        drop(server);
        for call in waiting {
            // Some may have been answered before the end.
            let ended = call.join().unwrap();
            assert!(
                matches!(
                    ended,
                    Ok(_) | Err(CallError::ConnectionLost { .. } | CallError::ShuttingDown)
                ),
                "{ended:?}"
            );
        }
    });
    let _server = Server::bind(&address)
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .serve()
        .unwrap();
    eventually("the new server answers", || {
        client.call(ECHO, b"back").is_ok()
    });
    mixed_load_of_short_calls(&client);
}

fn mixed_load_of_short_calls(client: &Client) {
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            scope.spawn(move || {
                for _ in 0..50 {
                    let payload = thread.to_le_bytes();
                    assert_eq!(*client.call(ECHO, &payload).unwrap(), payload);
                }
            });
        }
    });
}

#[test]
fn closing_ends_the_waits_of_all_threads() {
    let gate = Arc::new(AtomicBool::new(false));
    let server = serve(&gate, 256);
    let client = connect(&server, Preset::Flock, 2);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| client.call(GATE, b"never")))
            .collect();
        eventually("calls are out", || server.statistics().requests >= 4);
        client.close();
        for call in waiting {
            assert!(matches!(call.join().unwrap(), Err(CallError::Closed)));
        }
    });
    assert!(matches!(client.call(ECHO, b"x"), Err(CallError::Closed)));
    gate.store(true, Ordering::Release);
}

#[test]
fn settings_of_sharing_have_limits() {
    let server = serve(&open(), 256);
    let address = server.address().to_string();
    for lanes in [0, 257] {
        let error = Client::builder().lanes(lanes).connect(&address);
        assert!(error.unwrap_err().to_string().contains("lanes"));
    }
    let error = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .max_active_queue_pairs(0)
        .serve();
    assert!(error
        .unwrap_err()
        .to_string()
        .contains("max_active_queue_pairs"));
}

/// A server that is always busy never announces a sleep to anybody, and posts nothing to a client that is silent.
#[test]
fn a_busy_server_notices_lanes_that_are_closed() {
    let server = serve(&open(), 256);
    let busy = connect(&server, Preset::Plain, 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ours = busy.clone();
        scope.spawn(|| {
            let client = ours;
            while !stop.load(Ordering::Relaxed) {
                client.call(ECHO, b"busy").unwrap();
            }
        });
        for round in 0..40 {
            let preset = [Preset::Plain, Preset::Flock, Preset::Spinlock2][round % 3];
            let client = connect(&server, preset, 2);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| client.call(ECHO, b"once").unwrap());
                }
            });
            if round % 2 == 0 {
                client.close();
            }
        }
        eventually("the busy client is left", || server.connections() <= 2);
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(server.statistics().violations, 0);
}

/// Sixteen times as many requests as credits, twice as many out at a time, from threads that sleep when there are none.
#[test]
fn who_sleeps_for_credits_is_woken() {
    let server = serve(&open(), 256);
    let client = Client::builder()
        .preset(Preset::Flock)
        .lanes(1)
        .wait(dunlin::WaitMode::Doze {
            spin: Duration::ZERO,
        })
        .connect(&server.address().to_string())
        .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..8 {
                    let mut batch = client.batch();
                    for _ in 0..128 {
                        batch = batch.call(ECHO, b"x");
                    }
                    assert!(batch.send().unwrap().iter().all(Result::is_ok));
                }
            });
        }
    });
    assert_eq!(server.statistics().violations, 0);
}
