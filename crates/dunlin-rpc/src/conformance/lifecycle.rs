//! Lifecycle: deadlines, cancelled calls, sleep, closed clients, servers that shut down, vanish and come back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dunlin_verbs::thread;

use super::{eventually, Job, Outcome, Serving, Stage, ECHO};
use crate::{CallError, Client, OwnedRequest, OwnedResponder, Presence, ServerBuilder, WaitMode};

const GATED: u16 = 2;
const NOTED: u16 = 3;

/// What the gated handler waits for: on a worker, or as a deferred handler if there are no workers. It must be opened
/// before the server is dropped, which waits for its workers.
#[derive(Clone, Default)]
struct Gate(Arc<Gated>);

#[derive(Default)]
struct Gated {
    open: AtomicBool,
    began: AtomicU64,
    ran: AtomicU64,
    held: Mutex<Vec<(OwnedRequest, OwnedResponder)>>,
}

impl Gate {
    /// Adds the handler to a server.
    fn before(&self, stage: &Stage<'_>, server: ServerBuilder) -> ServerBuilder {
        let gate = Arc::clone(&self.0);
        if stage.world.is_not_real().is_some() {
            return server.handle_deferred(GATED, move |request, responder| {
                gate.began.fetch_add(1, Ordering::Relaxed);
                match gate.open.load(Ordering::Acquire) {
                    true => gate.answer(request, responder),
                    false => gate.held().push((request, responder)),
                }
            });
        }
        server.handle_on_workers(GATED, move |request, reply| {
            gate.began.fetch_add(1, Ordering::Relaxed);
            while !gate.open.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            gate.ran.fetch_add(1, Ordering::Relaxed);
            reply.write(request.payload())
        })
    }

    fn open(&self) {
        self.0.open.store(true, Ordering::Release);
        let held = std::mem::take(&mut *self.0.held());
        for (request, responder) in held {
            self.0.answer(request, responder);
        }
    }
}

impl Gated {
    fn held(&self) -> std::sync::MutexGuard<'_, Vec<(OwnedRequest, OwnedResponder)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: OwnedRequest, responder: OwnedResponder) {
        self.ran.fetch_add(1, Ordering::Relaxed);
        responder.reply(request.payload());
    }
}

/// Opens a gate when dropped, also if an assertion fails.
struct Opener(Gate);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A server with a gated handler, and what opens the gate.
fn gated_server(stage: &Stage<'_>) -> (Serving, Opener) {
    let gate = Gate::default();
    let server = stage.serve(gate.before(stage, stage.server()));
    (server, Opener(gate))
}

/// A deadline ends its call; the late answer goes to no call.
pub fn a_deadline_ends_the_wait_and_not_the_connection(stage: &Stage<'_>) -> Outcome {
    let (server, opener) = gated_server(stage);
    stage.with_client(stage.client(&server), move |client| {
        let deadline = Duration::from_millis(20);
        let ended = client.call_within(deadline, GATED, b"late");
        let over = matches!(ended, Err(CallError::DeadlineExceeded { after }) if after == deadline);
        assert!(over, "{ended:?}");
        drop(opener);
        for i in 0..500u32 {
            let answer = client.call(ECHO, &i.to_le_bytes());
            assert_eq!(&*answer.expect("an answer"), &i.to_le_bytes());
        }
        assert_eq!(&*client.call(GATED, b"now").expect("an answer"), b"now");
    });
    let brief = stage.builder().deadline(Duration::from_millis(30));
    let (server, _opener) = gated_server(stage);
    stage.with_client(stage.client_of(brief, &server), |client| {
        let ended = thread::block_on(client.call_async(GATED, b""));
        let over = matches!(ended, Err(CallError::DeadlineExceeded { .. }));
        assert!(over, "{ended:?}");
    });
    Ok(())
}

/// Dropping a future cancels its call, and no other.
pub fn dropping_a_future_cancels_its_call_alone(stage: &Stage<'_>) -> Outcome {
    let (server, opener) = gated_server(stage);
    opener.0.open();
    stage.with_client(stage.client(&server), |client| {
        for round in 0..20u32 {
            let dropped = client.call_async(GATED, b"");
            let kept = client.call_async(GATED, b"kept");
            drop(dropped);
            let echoed = thread::block_on(client.call_async(ECHO, &round.to_le_bytes()));
            assert_eq!(&*echoed.expect("an answer"), &round.to_le_bytes());
            assert_eq!(&*thread::block_on(kept).expect("an answer"), b"kept");
        }
    });
    assert!(opener.0 .0.ran.load(Ordering::Relaxed) >= 20);
    Ok(())
}

/// Server and client sleep when there is nothing to do, and are woken by what arrives.
pub fn idle_threads_sleep_and_are_woken(stage: &Stage<'_>) -> Outcome {
    let spin = Duration::from_micros(5);
    let doze = WaitMode::Doze { spin };
    let server = stage
        .server()
        .wait(doze)
        .handle_on_workers(GATED, |request, reply| {
            thread::sleep(Duration::from_millis(3));
            reply.write(request.payload())
        });
    let real = stage.world.is_not_real().is_none();
    let server = stage.serve(server);
    let client = stage.client_of(stage.builder().wait(doze), &server);
    stage.with_client(client, move |client| {
        let (sleeps_before, late_before) = crate::doze::sleeps();
        const ROUNDS: u32 = 30;
        for round in 0..ROUNDS {
            // A simulated thread reads the clock after 64 polls of 20 us.
            thread::sleep(Duration::from_millis(if real { 2 } else { 10 }));
            let payload = round.to_le_bytes();
            assert_eq!(*client.call(ECHO, &payload).expect("an answer"), payload);
            assert_eq!(*client.call(GATED, &payload).expect("an answer"), payload);
            let future = client.call_async(ECHO, &payload);
            assert_eq!(*thread::block_on(future).expect("an answer"), payload);
        }
        let (sleeps, late) = crate::doze::sleeps();
        assert!(sleeps > sleeps_before, "nobody slept");
        // Each round has at least two calls that find a thread asleep. Between processes a sleep may occasionally end
        // at its bound at the very moment when something arrives.
        let late = late - late_before;
        assert!(
            late < if real { u64::from(ROUNDS / 2) } else { 1 },
            "{late} sleeps lasted until their bound though there was something to do"
        );
    });
    Ok(())
}

/// Connections come and go, one after the other, and more than the maximum in total: what they used is free again, and
/// their presence is reported correctly.
pub fn connections_come_and_go(stage: &Stage<'_>) -> Outcome {
    let seen = Arc::<Mutex<Vec<Presence>>>::default();
    let noted = Arc::clone(&seen);
    let server = stage.server().handle(NOTED, move |request, reply| {
        noted
            .lock()
            .expect("nobody panicked")
            .push(request.presence());
        reply.write(request.payload())
    });
    let server = stage.serve(server);
    let count = match stage.world.is_not_real() {
        None => 300u32,
        Some(_) => 60,
    };
    let client = stage.client(&server);
    let shared = Client::clone(&client);
    let noted = Arc::clone(&seen);
    let coming = move || {
        for number in 0..count {
            let mut pipeline = shared.pipeline().expect("a lane");
            let payload = number.to_le_bytes();
            let answer = super::call(&mut pipeline, NOTED, &payload);
            assert_eq!(answer.expect("an answer"), payload);
            let seen = noted.lock().expect("nobody panicked");
            assert!(seen.last().is_some_and(Presence::is_there));
        }
    };
    stage.world.run(vec![Box::new(coming)]);
    drop(client);
    stage
        .world
        .wait_until("the connections end", &|| server.connections() == 0);
    let seen = seen.lock().expect("nobody panicked");
    stage
        .world
        .wait_until("nobody is there", &|| !seen.iter().any(Presence::is_there));
    Ok(())
}

/// Closing a client ends its calls on all threads, and those of no other client.
pub fn closing_ends_calls_that_are_out(stage: &Stage<'_>) -> Outcome {
    let (server, opener) = gated_server(stage);
    let client = stage.client(&server);
    let (waits, closes) = (Client::clone(&client), Client::clone(&client));
    let gate = opener.0.clone();
    let waiting = move || {
        let ended = waits.call(GATED, b"");
        assert!(matches!(ended, Err(CallError::Closed)), "{ended:?}");
    };
    let closing = move || {
        let client = closes;
        let future = client.call_async(GATED, b"");
        eventually("both calls are out", || {
            gate.0.began.load(Ordering::Relaxed) == 2
        });
        client.close();
        let ended = thread::block_on(future);
        assert!(matches!(ended, Err(CallError::Closed)), "{ended:?}");
        assert!(matches!(client.call(ECHO, b""), Err(CallError::Closed)));
        let late = thread::block_on(client.call_async(ECHO, b""));
        assert!(matches!(late, Err(CallError::Closed)), "{late:?}");
        assert!(client.pipeline().is_err());
    };
    let jobs: Vec<Job<'static>> = vec![Box::new(waiting), Box::new(closing)];
    stage.world.run(jobs);
    drop(client);
    stage
        .world
        .wait_until("the connections end", &|| server.connections() == 0);
    stage.with_client(stage.client(&server), |other| {
        assert_eq!(&*other.call(ECHO, b"other").expect("an answer"), b"other");
    });
    Ok(())
}

/// A server that shuts down answers the requests that it has taken, and refuses the rest.
pub fn a_shutdown_answers_what_was_accepted(stage: &Stage<'_>) -> Outcome {
    stage.needs_a_real_world()?;
    let (server, opener) = gated_server(stage);
    let gate = opener.0.clone();
    let client = stage.client(&server);
    let payloads: Vec<Vec<u8>> = (0..12u8)
        .map(|i| vec![i; [10, 9000][i as usize % 2]])
        .collect();
    let calls: Vec<_> = payloads
        .iter()
        .map(|payload| client.call_async(GATED, payload))
        .collect();
    eventually("all are taken", || server.requests() == 12);
    let Serving::Running(server) = server else {
        unreachable!("a real world's servers have ports");
    };
    let ended = std::thread::spawn(move || server.shutdown());
    let refuses = |error: &CallError| {
        matches!(
            error,
            CallError::ShuttingDown | CallError::Connect(_) | CallError::ConnectionLost { .. }
        )
    };
    // Calls that arrive before the server has noticed its shutdown are answered.
    eventually("later calls are refused", || match client.call(ECHO, b"") {
        Ok(_) => false,
        Err(error) => {
            assert!(refuses(&error), "{error:?}");
            true
        }
    });
    drop(opener);
    for (call, payload) in calls.into_iter().zip(&payloads) {
        assert!(*thread::block_on(call).expect("it was taken") == **payload);
    }
    assert!(
        ended.join().expect("no panic"),
        "something was not answered"
    );
    assert_eq!(gate.0.ran.load(Ordering::Relaxed), 12);
    let gone = client.call(ECHO, b"gone").expect_err("no server");
    assert!(refuses(&gone), "{gone:?}");
    Ok(())
}

/// Longer than any device takes to notice that a peer is gone without notice (soft-RoCE: 3.8 s).
const NOTICED: Duration = Duration::from_secs(10);

/// A client whose server went away, with or without notice, gets errors, and finds the next server at the address.
pub fn a_client_finds_its_server_again(stage: &Stage<'_>) -> Outcome {
    stage.needs_a_real_world()?;
    for graceful in [true, false] {
        let mut server = stage.serve(stage.server());
        let client = stage.client_of(stage.builder().deadline(NOTICED), &server);
        for round in 0..2u8 {
            let answer = client.call(ECHO, &[round]);
            assert_eq!(&*answer.expect("an answer"), &[round]);
            let future = client.call_async(ECHO, &[round; 9000]);
            assert_eq!(
                &*thread::block_on(future).expect("an answer"),
                &[round; 9000]
            );
            let builder = stage.server();
            server = match server {
                Serving::Running(old) => {
                    let address = old.address().to_string();
                    if graceful {
                        assert!(old.shutdown());
                    } else {
                        drop(old);
                    }
                    assert!(client.call(ECHO, b"down?").is_err());
                    assert!(thread::block_on(client.call_async(ECHO, b"down?")).is_err());
                    Serving::Running(Box::new(serve_again(builder, &address)))
                }
                local => local,
            };
            eventually("it is found", || client.call(ECHO, b"back").is_ok());
        }
    }
    Ok(())
}

/// Serves at an address that was in use a moment ago.
fn serve_again(builder: ServerBuilder, address: &str) -> crate::RunningServer {
    // There is only one builder, and a port that is in use may be free a moment later.
    eventually("the port is free", || {
        let port = address.trim_start_matches("dunlin://");
        std::net::TcpListener::bind(port).is_ok()
    });
    builder.serve_at(address).expect("a server")
}
