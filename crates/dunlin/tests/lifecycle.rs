//! Beginnings and ends: shutdown, reconnection, closing, threads that go, a server that stands still.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{eventually, pattern, ECHO};
use dunlin::{CallError, Client, Preset, RunningServer, Server};
use futures_executor::block_on;
use process::{listen, role, say, Other};
use rustix::process::{kill_process, Pid, Signal};

const SLOW: u16 = 2;

/// An echo, and a slow echo on workers that counts.
fn serve(address: &str, ran: &Arc<AtomicU64>) -> RunningServer {
    let ran = Arc::clone(ran);
    Server::bind(address)
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(SLOW, move |request, reply| {
            std::thread::sleep(Duration::from_millis(150));
            ran.fetch_add(1, Ordering::Relaxed);
            reply.write(request.payload())
        })
        .serve()
        .unwrap()
}

/// Serves on an address that was in use a moment ago.
fn serve_again(address: &str) -> RunningServer {
    let started = Instant::now();
    loop {
        let server = Server::bind(address)
            .unwrap()
            .handle(ECHO, |request, reply| reply.write(request.payload()))
            .serve();
        match server {
            Ok(server) => return server,
            Err(error) => assert!(started.elapsed().as_secs() < 20, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_shutdown_answers_what_was_accepted_and_refuses_the_rest() {
    let ran = Arc::new(AtomicU64::new(0));
    let server = serve("dunlin://127.0.0.1:0", &ran);
    let client = Client::connect(&server.address().to_string()).unwrap();
    let payloads: Vec<_> = (0..12)
        .map(|i| pattern([10, 9000][i % 2], i as u64))
        .collect();
    let calls: Vec<_> = payloads
        .iter()
        .map(|payload| client.call_async(SLOW, payload))
        .collect();
    // All were accepted when an answer to a later call of the same lane is there.
    assert_eq!(
        &*block_on(client.call_async(ECHO, b"mark")).unwrap(),
        b"mark"
    );
    eventually("long requests are taken, too", || {
        server.statistics().requests == payloads.len() as u64 + 1
    });
    let ended = std::thread::spawn(move || server.shutdown());
    for (call, payload) in calls.into_iter().zip(&payloads) {
        assert!(*block_on(call).unwrap() == **payload);
    }
    for round in 0..20 {
        let late = if round % 2 == 0 {
            client.call(ECHO, b"late")
        } else {
            block_on(client.call_async(ECHO, b"late"))
        };
        assert!(
            matches!(
                late,
                Err(CallError::ShuttingDown
                    | CallError::Connect(_)
                    | CallError::ConnectionLost { .. })
            ),
            "{late:?}"
        );
    }
    assert!(ended.join().unwrap(), "not everything was answered");
    assert_eq!(ran.load(Ordering::Relaxed), payloads.len() as u64);
    let gone = client.call(ECHO, b"gone");
    assert!(matches!(gone, Err(CallError::Connect(_))), "{gone:?}");
}

#[test]
fn calls_during_a_shutdown_are_refused_while_others_are_finished() {
    let ran = Arc::new(AtomicU64::new(0));
    let server = serve("dunlin://127.0.0.1:0", &ran);
    let client = Client::connect(&server.address().to_string()).unwrap();
    let mut pipeline = client.pipeline().unwrap();
    assert!(pipeline.submit(SLOW, b"accepted", 1).unwrap());
    pipeline.poll(|_, _| panic!("too early")).unwrap();
    eventually("it was accepted", || server.statistics().requests == 1);
    let ended = std::thread::spawn(move || server.shutdown());
    let mut answers = Vec::new();
    let mut refused = None;
    let mut tag = 2;
    eventually("a later call is refused", || {
        match pipeline.submit(ECHO, b"later", tag) {
            Ok(true) => tag += 1,
            Ok(false) => {}
            Err(error) => refused = Some(error),
        }
        let polled = pipeline.poll(|tag, answer| answers.push((tag, answer.map(<[u8]>::to_vec))));
        refused = refused.take().or(polled.err());
        refused.is_some() || answers.iter().any(|(tag, a)| *tag > 1 && a.is_err())
    });
    while pipeline.outstanding() > 0 {
        let _ = pipeline.wait(|tag, answer| answers.push((tag, answer.map(<[u8]>::to_vec))));
    }
    assert!(ended.join().unwrap());
    assert_eq!(answers.len() as u64, tag - 1, "not each call ended once");
    // A call that crosses with the server's end is lost, not refused.
    let refuses = |error: &CallError| {
        matches!(
            error,
            CallError::ShuttingDown | CallError::ConnectionLost { .. }
        )
    };
    for (tag, answer) in answers {
        match answer {
            Ok(bytes) if tag == 1 => assert_eq!(bytes, b"accepted"),
            Ok(bytes) => assert_eq!(bytes, b"later"),
            Err(error) => {
                assert!(tag > 1, "an accepted call was lost: {error}");
                assert!(refuses(&error), "{error:?}");
            }
        }
    }
    if let Some(error) = refused {
        assert!(refuses(&error), "{error:?}");
    }
}

#[test]
fn a_client_finds_its_server_again() {
    for graceful in [true, false] {
        let mut server = serve_again("dunlin://127.0.0.1:0");
        let address = server.address().to_string();
        let client = Client::connect(&address).unwrap();
        for round in 0..5u8 {
            assert_eq!(&*client.call(ECHO, &[round]).unwrap(), &[round]);
            let future = client.call_async(ECHO, &[round; 9000]);
            assert_eq!(&*block_on(future).unwrap(), &[round; 9000]);
            if graceful {
                assert!(server.shutdown());
            } else {
                drop(server);
            }
            for _ in 0..3 {
                let down = client.call(ECHO, b"down?");
                assert!(
                    matches!(
                        down,
                        Err(CallError::Connect(_)
                            | CallError::ConnectionLost { .. }
                            | CallError::ShuttingDown)
                    ),
                    "{down:?}"
                );
                let down = block_on(client.call_async(ECHO, b"down?"));
                assert!(
                    matches!(
                        down,
                        Err(CallError::Connect(_)
                            | CallError::ConnectionLost { .. }
                            | CallError::ShuttingDown)
                    ),
                    "{down:?}"
                );
            }
            let words = client.call(ECHO, b"down?").unwrap_err().to_string();
            assert!(words.starts_with("not connected"), "{words}");
            assert!(
                words.contains(address.trim_start_matches("dunlin://")),
                "{words}"
            );
            server = serve_again(&address);
        }
        assert_eq!(&*client.call(ECHO, b"back").unwrap(), b"back");
    }
}

#[test]
fn closing_ends_calls_that_are_out() {
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(SLOW, |_, reply| {
            std::thread::sleep(Duration::from_secs(3));
            reply.write(b"late")
        })
        .serve()
        .unwrap();
    let client = Client::connect(&server.address().to_string()).unwrap();
    let waiting = {
        let client = client.clone();
        std::thread::spawn(move || client.call(SLOW, b""))
    };
    let future = client.call_async(SLOW, b"");
    eventually("both calls are out", || server.statistics().requests == 2);
    client.close();
    let ended = waiting.join().unwrap();
    assert!(matches!(ended, Err(CallError::Closed)), "{ended:?}");
    let ended = block_on(future);
    assert!(matches!(ended, Err(CallError::Closed)), "{ended:?}");
    assert!(matches!(client.call(ECHO, b""), Err(CallError::Closed)));
    assert!(matches!(
        block_on(client.call_async(ECHO, b"")),
        Err(CallError::Closed)
    ));
    assert!(client.pipeline().is_err());
    assert!(matches!(
        client.batch().call(ECHO, b"").send(),
        Err(CallError::Closed)
    ));
    eventually("the connections end", || server.connections() == 0);
    // Closing is for this client alone.
    let other = Client::connect(&server.address().to_string()).unwrap();
    assert_eq!(&*other.call(ECHO, b"other").unwrap(), b"other");
}

#[test]
fn clients_may_be_dropped_anywhere() {
    let (server, client) = common::echo();
    let address = server.address().to_string();
    for _ in 0..10 {
        let client = Client::connect(&address).unwrap();
        let clone = client.clone();
        let other = std::thread::spawn(move || {
            assert_eq!(&*clone.call(ECHO, b"there").unwrap(), b"there");
            clone
        });
        let clone = other.join().unwrap();
        let futures: Vec<_> = (0..5).map(|_| clone.call_async(ECHO, &[1; 6000])).collect();
        drop(client);
        std::thread::spawn(move || drop(clone)).join().unwrap();
        for future in futures {
            match block_on(future) {
                Ok(reply) => assert_eq!(&*reply, &[1; 6000]),
                Err(error) => assert!(matches!(error, CallError::Closed), "{error:?}"),
            }
        }
    }
    eventually("only the first client is left", || {
        server.connections() == 1
    });
    assert_eq!(&*client.call(ECHO, b"here").unwrap(), b"here");
}

#[test]
fn a_thread_that_ends_closes_its_lane() {
    let server = common::serve_echo();
    let client = Client::builder().preset(Preset::Plain);
    let client = client.connect(&server.address().to_string()).unwrap();
    eventually("one lane", || server.connections() == 1);
    let (stop, wait) = mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let threads: Vec<_> = (0..5)
        .map(|_| {
            let (client, wait) = (client.clone(), Arc::clone(&wait));
            std::thread::spawn(move || {
                client.call(ECHO, b"").unwrap();
                let _ = wait.lock().unwrap().recv();
            })
        })
        .collect();
    eventually("a lane for each thread", || server.connections() == 6);
    drop(stop);
    for thread in threads {
        thread.join().unwrap();
    }
    eventually("the lanes of the threads are closed", || {
        server.connections() == 1
    });
    assert_eq!(server.statistics().violations, 0);
}

/// Not a test by itself: a server that is stopped and continued.
#[test]
fn the_other_process() {
    if matches!(role(), Some((role, _)) if role == "server") {
        let (server, _client) = common::echo();
        say(&server.address().to_string());
        while listen().is_some() {}
    }
}

/// Whether every thread of the process is stopped: a signal takes its time.
fn stands_still(other: &Other) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", other.child.id())).unwrap();
    tasks.into_iter().all(|task| {
        let status = std::fs::read_to_string(task.unwrap().path().join("status"));
        status.is_ok_and(|text| text.contains("State:\tT"))
    })
}

/// Pipelines do not connect anew, so what they bring tells whether the connection has lived.
#[test]
fn a_server_that_stands_still_for_two_seconds_keeps_its_connections() {
    let mut server = Other::start("the_other_process", "server", "");
    let address = server.hear();
    let mut pipelines = Vec::new();
    for (preset, device) in [
        (Preset::Plain, "shm"),
        (Preset::Plain, "roce"),
        (Preset::Flor, "flor-shm"),
        (Preset::Flor, "flor-roce"),
    ] {
        let client = Client::builder().preset(preset).device(device);
        let client = client.deadline(Duration::from_secs(20)).connect(&address);
        let client = client.unwrap();
        assert_eq!(&*client.call(ECHO, b"moving").unwrap(), b"moving");
        let mut pipeline = client.pipeline().unwrap();
        assert!(pipeline.submit(ECHO, b"before", 0).unwrap());
        pipeline
            .wait(|_, answer| assert_eq!(answer.unwrap(), b"before"))
            .unwrap();
        pipelines.push((device, client, pipeline));
    }
    kill_process(Pid::from_child(&server.child), Signal::STOP).unwrap();
    eventually("all threads of the server stand still", || {
        stands_still(&server)
    });
    let long = pattern(100_000, 3);
    for (_, _, pipeline) in &mut pipelines {
        assert!(pipeline.submit(ECHO, b"meanwhile", 0).unwrap());
        assert!(pipeline.submit(ECHO, &long, 1).unwrap());
        pipeline
            .poll(|_, _| panic!("an answer of a server that stands still"))
            .unwrap();
    }
    let stood = Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    kill_process(Pid::from_child(&server.child), Signal::CONT).unwrap();
    if stood.elapsed() > Duration::from_secs(3) {
        // This process has waited for a processor: what stands still for longer may be given up.
        return;
    }
    for (device, _, pipeline) in &mut pipelines {
        while pipeline.outstanding() > 0 {
            let waited = pipeline.wait(|tag, answer| {
                let answer = answer.unwrap_or_else(|error| panic!("{device}: {error}"));
                assert_eq!(answer, if tag == 0 { b"meanwhile" } else { &long[..] });
            });
            waited.unwrap_or_else(|error| panic!("{device}: {error}"));
        }
    }
}

#[test]
fn a_server_that_stands_still_ends_calls_by_their_deadlines() {
    let mut server = Other::start("the_other_process", "server", "");
    let address = server.hear();
    let deadline = Duration::from_millis(300);
    let client = Client::builder()
        .deadline(deadline)
        .connect(&address)
        .unwrap();
    let patient = Client::builder()
        .deadline(Duration::from_secs(20))
        .connect(&address)
        .unwrap();
    // Both lanes are there before the server stands still.
    let unhurried = client.within(Duration::from_secs(20));
    assert_eq!(&*unhurried.call(ECHO, b"moving").unwrap(), b"moving");
    assert_eq!(
        &*block_on(unhurried.call_async(ECHO, b"moving")).unwrap(),
        b"moving"
    );
    for _ in 0..2 {
        kill_process(Pid::from_child(&server.child), Signal::STOP).unwrap();
        eventually("all threads of the server stand still", || {
            stands_still(&server)
        });
        for size in [10, 100_000] {
            let ended = client.call(ECHO, &pattern(size, 1));
            assert!(
                matches!(ended, Err(CallError::DeadlineExceeded { after }) if after == deadline),
                "{ended:?}"
            );
            let ended = block_on(client.call_async(ECHO, &pattern(size, 2)));
            assert!(
                matches!(ended, Err(CallError::DeadlineExceeded { after }) if after == deadline),
                "{ended:?}"
            );
        }
        let batch = client.batch().call(ECHO, b"one").call(ECHO, b"two");
        for ended in batch.send().unwrap() {
            assert!(
                matches!(ended, Err(CallError::DeadlineExceeded { .. })),
                "{ended:?}"
            );
        }
        let waiting = {
            let patient = patient.clone();
            std::thread::spawn(move || {
                let first = patient
                    .call(ECHO, &pattern(50_000, 5))
                    .map(|reply| reply.to_vec());
                (
                    first,
                    patient.call(ECHO, b"again").map(|reply| reply.to_vec()),
                )
            })
        };
        kill_process(Pid::from_child(&server.child), Signal::CONT).unwrap();
        // Late answers come first, and none of them is taken for another call's.
        for i in 0..500u64 {
            let payload = pattern((i * 29 % 7000) as usize, i);
            let patient_call = patient.call(ECHO, &payload).unwrap();
            assert!(*patient_call == *payload);
        }
        for size in [10, 100_000, 20] {
            let payload = pattern(size, size as u64);
            eventually("the connection works again", || {
                let reply = client.call(ECHO, &payload);
                match reply {
                    Ok(reply) => {
                        assert!(*reply == *payload);
                        true
                    }
                    Err(error) => {
                        assert!(
                            matches!(
                                error,
                                CallError::DeadlineExceeded { .. } | CallError::Expired { .. }
                            ),
                            "{error:?}"
                        );
                        false
                    }
                }
            });
        }
        let reply = block_on(patient.call_async(ECHO, b"future")).unwrap();
        assert_eq!(&*reply, b"future");
        // A thread whose lane has to be made while the server stands still has to wait for it, too.
        let (first, again) = waiting.join().unwrap();
        match first {
            Ok(bytes) => assert!(bytes == pattern(50_000, 5)),
            Err(error) => assert!(matches!(error, CallError::Connect(_)), "{error:?}"),
        }
        assert_eq!(again.unwrap(), b"again");
    }
}

/// Destructors of a thread's own values may call, also when what the client keeps of the thread is gone already.
#[test]
fn the_last_words_of_a_thread_are_calls_like_others() {
    struct LastWords(Client, Arc<AtomicU64>);
    impl Drop for LastWords {
        fn drop(&mut self) {
            // A panic here would end the process.
            match self.0.call(ECHO, b"last words") {
                Ok(answer) if *answer == *b"last words" => {}
                ended => return eprintln!("{ended:?}"),
            }
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<LastWords>> = const { std::cell::RefCell::new(None) };
    }
    let server = serve("dunlin://127.0.0.1:0", &Arc::default());
    for preset in [Preset::Plain, Preset::Flock, Preset::Fasst] {
        let client = Client::builder().preset(preset);
        let client = client.connect(&server.address().to_string()).unwrap();
        let said = Arc::<AtomicU64>::default();
        let words = LastWords(client.clone(), Arc::clone(&said));
        let thread = std::thread::spawn(move || {
            // Before the first call: what was made last is dropped first.
            LAST.set(Some(words));
            client.call(ECHO, b"first words").unwrap();
        });
        thread.join().unwrap();
        assert_eq!(said.load(Ordering::Relaxed), 1, "{preset}");
    }
}
