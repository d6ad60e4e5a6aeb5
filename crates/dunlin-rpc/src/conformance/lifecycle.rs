//! Ends: deadlines, cancelled calls, sleep, closed clients, servers that shut down, vanish and come back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use super::{block_on, eventually, Opener, Outcome, Serving, Stage, ECHO};
use crate::{CallError, ServerBuilder, WaitMode};

const GATED: u16 = 2;

/// A handler on workers that answers when the gate is open, and counts.
fn gated(server: ServerBuilder, gate: &Arc<AtomicBool>, ran: &Arc<AtomicU64>) -> ServerBuilder {
    let (gate, ran) = (Arc::clone(gate), Arc::clone(ran));
    server.handle_on_workers(GATED, move |request, reply| {
        while !gate.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        ran.fetch_add(1, Ordering::Relaxed);
        reply.write(request.payload())
    })
}

/// A server with a gated handler, and what opens the gate: dropped before the server, which waits for its workers.
fn gated_server(stage: &Stage<'_>) -> (Serving, Opener, Arc<AtomicU64>) {
    let gate = Arc::new(AtomicBool::new(false));
    let ran = Arc::default();
    let server = stage.serve(gated(stage.server(), &gate, &ran));
    (server, Opener(gate), ran)
}

/// A deadline ends its call; the late answer is nobody's.
pub fn a_deadline_ends_the_wait_and_not_the_connection(stage: &Stage<'_>) -> Outcome {
    stage.needs_a_real_world()?;
    let (server, opener, _) = gated_server(stage);
    let client = stage.client(&server);
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
    let brief = stage.builder().deadline(Duration::from_millis(30));
    let (server, _opener, _) = gated_server(stage);
    let client = stage.client_of(brief, &server);
    let ended = block_on(client.call_async(GATED, b""));
    assert!(
        matches!(ended, Err(CallError::DeadlineExceeded { .. })),
        "{ended:?}"
    );
    Ok(())
}

/// Who drops a future has cancelled its call, and no other.
pub fn dropping_a_future_cancels_its_call_alone(stage: &Stage<'_>) -> Outcome {
    stage.needs_a_real_world()?;
    let (server, opener, ran) = gated_server(stage);
    drop(opener);
    let client = stage.client(&server);
    for round in 0..20u32 {
        let dropped = client.call_async(GATED, b"");
        let kept = client.call_async(GATED, b"kept");
        drop(dropped);
        let echoed = block_on(client.call_async(ECHO, &round.to_le_bytes()));
        assert_eq!(&*echoed.expect("an answer"), &round.to_le_bytes());
        assert_eq!(&*block_on(kept).expect("an answer"), b"kept");
    }
    assert!(ran.load(Ordering::Relaxed) >= 20);
    Ok(())
}

/// Server and client sleep when there is nothing, and are woken by what comes.
pub fn idle_threads_sleep_and_are_woken(stage: &Stage<'_>) -> Outcome {
    stage.needs_a_real_world()?;
    let spin = Duration::from_micros(5);
    let doze = WaitMode::Doze { spin };
    let server = stage.serve(stage.server().wait(doze).handle_on_workers(
        GATED,
        |request, reply| {
            std::thread::sleep(Duration::from_millis(3));
            reply.write(request.payload())
        },
    ));
    let client = stage.client_of(stage.builder().wait(doze), &server);
    let (_, late_before) = crate::doze::sleeps();
    const ROUNDS: u32 = 30;
    for round in 0..ROUNDS {
        std::thread::sleep(Duration::from_millis(2));
        let payload = round.to_le_bytes();
        assert_eq!(*client.call(ECHO, &payload).expect("an answer"), payload);
        assert_eq!(*client.call(GATED, &payload).expect("an answer"), payload);
        let future = client.call_async(ECHO, &payload);
        assert_eq!(*block_on(future).expect("an answer"), payload);
    }
    let (sleeps, late) = crate::doze::sleeps();
    assert!(sleeps > 0, "nobody slept");
    // Each round has two calls at least that find somebody asleep. One sleep or another may end by its bound at the
    // very moment when something comes.
    let late = late - late_before;
    assert!(
        late < u64::from(ROUNDS / 2),
        "{late} sleeps lasted until their bound though there was something to do"
    );
    Ok(())
}

/// Connections come and go, one after the other and more than there may be at once: what they used is free again.
pub fn connections_come_and_go(stage: &Stage<'_>) -> Outcome {
    stage.needs_a_real_world()?;
    let server = stage.serve(stage.server());
    let client = stage.client(&server);
    for number in 0..300u32 {
        let mut pipeline = client.pipeline().expect("a lane");
        let payload = number.to_le_bytes();
        let answer = super::call(&mut pipeline, ECHO, &payload);
        assert_eq!(answer.expect("an answer"), payload);
    }
    drop(client);
    eventually("the connections end", || server.connections() == 0);
    Ok(())
}

/// Closing a client ends its calls on all threads, and no other client's.
pub fn closing_ends_calls_that_are_out(stage: &Stage<'_>) -> Outcome {
    stage.needs_a_real_world()?;
    let (server, _opener, _) = gated_server(stage);
    let client = stage.client(&server);
    let waiting = {
        let client = client.clone();
        std::thread::spawn(move || client.call(GATED, b""))
    };
    let future = client.call_async(GATED, b"");
    eventually("both calls are out", || server.requests() == 2);
    client.close();
    let ended = waiting.join().expect("no panic");
    assert!(matches!(ended, Err(CallError::Closed)), "{ended:?}");
    let ended = block_on(future);
    assert!(matches!(ended, Err(CallError::Closed)), "{ended:?}");
    assert!(matches!(client.call(ECHO, b""), Err(CallError::Closed)));
    let late = block_on(client.call_async(ECHO, b""));
    assert!(matches!(late, Err(CallError::Closed)), "{late:?}");
    assert!(client.pipeline().is_err());
    drop(client);
    eventually("the connections end", || server.connections() == 0);
    let other = stage.client(&server);
    assert_eq!(&*other.call(ECHO, b"other").expect("an answer"), b"other");
    Ok(())
}

/// A server that shuts down answers what it has taken, and refuses the rest.
pub fn a_shutdown_answers_what_was_accepted(stage: &Stage<'_>) -> Outcome {
    stage.needs_a_real_world()?;
    let (server, opener, ran) = gated_server(stage);
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
    // Those that come before the server has heard of its end are answered.
    eventually("later calls are refused", || match client.call(ECHO, b"") {
        Ok(_) => false,
        Err(error) => {
            assert!(refuses(&error), "{error:?}");
            true
        }
    });
    drop(opener);
    for (call, payload) in calls.into_iter().zip(&payloads) {
        assert!(*block_on(call).expect("it was taken") == **payload);
    }
    assert!(
        ended.join().expect("no panic"),
        "something was not answered"
    );
    assert_eq!(ran.load(Ordering::Relaxed), 12);
    let gone = client.call(ECHO, b"gone").expect_err("no server");
    assert!(refuses(&gone), "{gone:?}");
    Ok(())
}

/// Longer than any device takes to notice that a peer is gone without a word (soft-RoCE: 3.8 s).
const NOTICED: Duration = Duration::from_secs(10);

/// A client whose server went away, with a word or without, gets errors, and finds the next server at the address.
pub fn a_client_finds_its_server_again(stage: &Stage<'_>) -> Outcome {
    stage.needs_a_real_world()?;
    for graceful in [true, false] {
        let mut server = stage.serve(stage.server());
        let client = stage.client_of(stage.builder().deadline(NOTICED), &server);
        for round in 0..2u8 {
            let answer = client.call(ECHO, &[round]);
            assert_eq!(&*answer.expect("an answer"), &[round]);
            let future = client.call_async(ECHO, &[round; 9000]);
            assert_eq!(&*block_on(future).expect("an answer"), &[round; 9000]);
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
                    assert!(block_on(client.call_async(ECHO, b"down?")).is_err());
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
    // The builder is one, and a port that is in use may be free a moment later.
    eventually("the port is free", || {
        let port = address.trim_start_matches("dunlin://");
        std::net::TcpListener::bind(port).is_ok()
    });
    builder.serve_at(address).expect("a server")
}
