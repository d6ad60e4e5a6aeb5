//! Handlers that answer later: deferred and async ones, and how they notice callers that give up.

use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin_verbs::thread;

use super::{call, eventually, pattern, Outcome, Stage, ECHO};
use crate::{Client, HandlerError, OwnedRequest, OwnedResponder, ServerBuilder};

const KEPT: u16 = 20;
const RELEASE: u16 = 21;
const WAITING: u16 = 22;
/// Number of calls that are kept at once.
const CALLS: u64 = 20;

type Held = Arc<Mutex<Vec<(OwnedRequest, OwnedResponder)>>>;

fn take(held: &Held) -> Vec<(OwnedRequest, OwnedResponder)> {
    std::mem::take(&mut *held.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A server that keeps requests until it is asked to release them, and then answers the last one first.
fn keeping(server: ServerBuilder) -> (ServerBuilder, Held) {
    let held = Held::default();
    let (keeps, releases) = (Arc::clone(&held), Arc::clone(&held));
    let server = server
        .handle_deferred(KEPT, move |request, responder| {
            let mut held = keeps.lock().unwrap_or_else(PoisonError::into_inner);
            held.push((request, responder));
        })
        .handle(RELEASE, move |_, reply| {
            for (request, responder) in take(&releases).into_iter().rev() {
                assert_eq!(request.handler(), KEPT);
                match request.payload().len() {
                    0 => responder.fail(HandlerError::new(9, "empty")),
                    1 => drop(responder),
                    2 => responder.answer(|_| panic!("a bug in an answer")),
                    _ => responder.answer(|reply| reply.write(request.payload())),
                }
            }
            reply.write(b"released")
        });
    (server, held)
}

/// Deferred handlers answer in any order, with long and short answers, errors and panics, and delay no other call.
pub fn deferred_handlers_answer_in_any_order(stage: &Stage<'_>) -> Outcome {
    let (server, _held) = keeping(stage.server());
    let server = stage.serve(server);
    let client = stage.client(&server);
    let length = |tag: u64| match tag {
        0..=3 => tag as usize,
        tag if tag % 5 == 0 => 9000 + tag as usize,
        tag => 10 * tag as usize,
    };
    // The releasing call uses a lane of its own: a lane may have less room than all these calls need.
    let mut releasing = client.pipeline().expect("a lane");
    stage.with_pipeline(&client, move |pipeline| {
        let mut ended = 0;
        let mut submitted = 0;
        let mut take = |tag: u64, answer: Result<&[u8], crate::CallError>| {
            ended += 1;
            match (tag, answer) {
                (0, Err(crate::CallError::Handler { code: 9, .. })) => {}
                (1, Err(crate::CallError::Handler { code: 0, message })) => {
                    assert!(message.contains("without an answer"), "{message}");
                }
                (2, Err(crate::CallError::HandlerPanicked)) => {}
                (tag, Ok(bytes)) if tag > 2 => assert_eq!(bytes, pattern(length(tag), tag)),
                (tag, other) => panic!("{tag}: {other:?}"),
            }
            ended
        };
        loop {
            while submitted < CALLS {
                let payload = pattern(length(submitted), submitted);
                if !pipeline.submit(KEPT, &payload, submitted).expect("a lane") {
                    break;
                }
                submitted += 1;
            }
            let mut all = 0;
            pipeline
                .poll(|tag, answer| all = take(tag, answer))
                .expect("a lane");
            if all == CALLS {
                break;
            }
            // Those that are already kept; the others later.
            let answer = call(&mut releasing, RELEASE, b"").expect("an answer");
            assert_eq!(answer, b"released");
        }
        assert_eq!(pipeline.outstanding(), 0);
        let answer = call(pipeline, ECHO, b"afterwards").expect("an answer");
        assert_eq!(answer, b"afterwards");
    });
    Ok(())
}

/// An event that async handlers wait for.
#[derive(Default)]
struct Event {
    open: bool,
    wakers: Vec<Waker>,
}

/// Waiting async handlers block neither each other nor a worker; they also run without an executor.
pub fn async_handlers_wait_together(stage: &Stage<'_>) -> Outcome {
    stage.needs_a_real_world()?;
    let event = Arc::<Mutex<Event>>::default();
    let waits = Arc::clone(&event);
    let began = Arc::<AtomicUsize>::default();
    let begin = Arc::clone(&began);
    let server = stage
        .server()
        .workers(1)
        .handle_async(WAITING, move |request| {
            let event = Arc::clone(&waits);
            begin.fetch_add(1, Ordering::Relaxed);
            async move {
                poll_fn(|context| {
                    let mut event = event.lock().unwrap_or_else(PoisonError::into_inner);
                    if event.open {
                        return Poll::Ready(());
                    }
                    event.wakers.push(context.waker().clone());
                    Poll::Pending
                })
                .await;
                Ok(request.payload().to_vec())
            }
        });
    let server = stage.serve(server);
    let client = stage.client(&server);
    let mut pipeline = client.pipeline().expect("a lane");
    let mut out = 0;
    while out < CALLS {
        let payload = pattern(100 * out as usize, out);
        if !pipeline.submit(WAITING, &payload, out).expect("a lane") {
            break;
        }
        out += 1;
    }
    pipeline
        .poll(|_, _| panic!("nobody answers yet"))
        .expect("a lane");
    eventually("all that are out have begun", || {
        let mut early = 0;
        pipeline.poll(|_, _| early += 1).expect("a lane");
        assert_eq!(early, 0, "nobody answers yet");
        began.load(Ordering::Relaxed) == out as usize
    });
    let answer = client.call(ECHO, b"meanwhile").expect("an answer");
    assert_eq!(&answer[..], b"meanwhile");
    let wakers = {
        let mut event = event.lock().unwrap_or_else(PoisonError::into_inner);
        event.open = true;
        std::mem::take(&mut event.wakers)
    };
    wakers.into_iter().for_each(Waker::wake);
    let mut ended = 0;
    while pipeline.outstanding() > 0 {
        pipeline
            .wait(|tag, answer| {
                assert_eq!(answer.expect("an answer"), pattern(100 * tag as usize, tag));
                ended += 1;
            })
            .expect("a lane");
    }
    assert!(out > 1 && ended == out, "{ended} of {out}");
    Ok(())
}

/// A task waits for a pipeline as long as the handler keeps the request, and is woken by the answer. A new wait
/// continues where one was given up.
pub fn tasks_sleep_on_pipelines(stage: &Stage<'_>) -> Outcome {
    let (server, held) = keeping(stage.server());
    let server = stage.serve(server);
    let client = stage.client(&server);
    let keeps = Arc::clone(&held);
    let mut pipeline = client.pipeline().expect("a lane");
    let waits = move || {
        assert!(pipeline.submit(KEPT, b"kept", 7).expect("a lane"));
        let given_up = Box::pin(pipeline.wait_async(|_, _| panic!("nobody answers yet")));
        assert!(poll_once(given_up).is_none());
        let mut took = Vec::new();
        let answered = thread::block_on(pipeline.wait_async(|tag, answer| {
            took.push((tag, answer.expect("an answer").to_vec()));
        }));
        assert_eq!(answered.expect("a lane"), 1);
        assert_eq!(took, [(7, b"kept".to_vec())]);
    };
    let releases = move || {
        let count = || keeps.lock().unwrap_or_else(PoisonError::into_inner).len();
        eventually("the handler has the request", || count() > 0);
        // Far longer than a task polls by itself.
        thread::sleep(Duration::from_millis(30));
        for (request, responder) in take(&keeps) {
            responder.reply(request.payload().to_vec());
        }
    };
    stage.world.run(vec![Box::new(waits), Box::new(releases)]);
    drop(held);
    Ok(())
}

/// Polls a future once, with a waker that wakes nothing.
fn poll_once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    match Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// A handler whose caller gives up, or goes away, notices.
pub fn handlers_hear_of_callers_that_give_up(stage: &Stage<'_>) -> Outcome {
    let (server, held) = keeping(stage.server());
    let server = stage.serve(server);
    let keeps = Arc::clone(&held);
    let client = stage.client(&server);
    let leaving = Client::clone(&client);
    drop(client);
    stage
        .world
        .run(vec![Box::new(move || give_up(leaving, &keeps))]);
    // Answers without a caller do no harm.
    for (_, responder) in take(&held) {
        responder.reply(&b"late"[..]);
    }
    stage.with_client(stage.client(&server), |client| {
        let answer = client.call(ECHO, b"another").expect("an answer");
        assert_eq!(&answer[..], b"another");
    });
    Ok(())
}

/// Two calls are outstanding: one is given up, then the client goes.
fn give_up(client: Client, held: &Held) {
    let count = |held: &Held| held.lock().unwrap_or_else(PoisonError::into_inner).len();
    let future = client.call_async(KEPT, b"given up");
    let stays = client.call_async(KEPT, b"stays");
    eventually("both requests are there", || count(held) == 2);
    let cancelled = |which: &[u8]| {
        let held = held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = held
            .iter()
            .filter(|(request, _)| request.payload() == which);
        let (request, responder) = found.next().expect("it is kept");
        // It may be cancelled between the two checks: once one says so, the other does, too.
        let told_responder = responder.is_cancelled();
        let told = request.is_cancelled();
        assert!(!told_responder || told, "the responder alone is told");
        assert!(
            !told || responder.is_cancelled(),
            "the request alone is told"
        );
        told
    };
    assert!(!cancelled(b"given up") && !cancelled(b"stays"));
    drop(future);
    eventually("the handler is told", || cancelled(b"given up"));
    assert!(!cancelled(b"stays"));
    drop(stays);
    drop(client);
    eventually("the handler hears that the client has gone", || {
        cancelled(b"stays")
    });
}
