//! Calls of a server, as whoever captures them sees them: of every kind of handler and by several presets; and who may.

mod common;

use common::{eventually, ECHO};
use dunlin::{
    CallEnd, CallError, Capture, CapturedCall, Client, Grant, HandlerError, Preset, Rights, Server,
    ServerBuilder, Who, CAPTURE,
};

const WORKER: u16 = 2;
const DEFERRED: u16 = 3;
const ASYNC: u16 = 4;
const REFUSES: u16 = 5;
const PANICS: u16 = 6;

fn server() -> ServerBuilder {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(WORKER, |request, reply| reply.write(request.payload()))
        .handle_deferred(DEFERRED, |request, responder| {
            responder.reply(request.payload());
        })
        .handle_async(
            ASYNC,
            |request| async move { Ok(request.payload().to_vec()) },
        )
        .handle(REFUSES, |_, _| Err(HandlerError::new(7, "no seats")))
        .handle(PANICS, |_, _| panic!("a bug in a handler"))
        .name_handler(ECHO, "/test.Echo/Echo")
}

/// All that is there now.
fn seen(capture: &mut Capture) -> Vec<CapturedCall> {
    let mut all = Vec::new();
    loop {
        let some = capture.next_calls().unwrap();
        assert_eq!(some.missed, 0);
        if some.calls.is_empty() {
            return all;
        }
        all.extend(some.calls);
    }
}

#[test]
fn requests_and_answers_of_every_kind_of_handler_are_seen_by_any_preset() {
    let server = server().allows_capture(true).serve().unwrap();
    let address = server.address().to_string();
    let watcher = Client::connect(&address).unwrap();
    for preset in [
        Preset::Plain,
        Preset::Flock,
        Preset::ScaleRpc,
        Preset::Fasst,
    ] {
        let client = Client::builder().preset(preset).connect(&address).unwrap();
        client.call(ECHO, b"before").unwrap();
        let mut capture = watcher.capture(5).unwrap();
        for id in [ECHO, WORKER, DEFERRED, ASYNC] {
            assert_eq!(&*client.call(id, b"a request").unwrap(), b"a request");
        }
        client.call(REFUSES, b"two").unwrap_err();
        client.call(PANICS, b"").unwrap_err();
        // An answer may be there before what is known of it is kept.
        let mut calls = Vec::new();
        eventually("all six are seen", || {
            calls.extend(seen(&mut capture));
            calls.len() == 6
        });
        for (call, id) in calls.iter().zip([ECHO, WORKER, DEFERRED, ASYNC]) {
            assert_eq!(
                (call.handler, call.end),
                (id, CallEnd::Answered),
                "{preset:?}"
            );
            assert_eq!(
                (&call.request[..], &call.answer[..]),
                (&b"a req"[..], &b"a req"[..])
            );
            assert_eq!((call.request_bytes, call.answer_bytes), (9, 9));
            assert!(call.connection == calls[0].connection && !call.peer.is_empty());
            assert!(!call.began.is_zero());
        }
        assert_eq!(calls[0].name, "/test.Echo/Echo");
        assert_eq!(
            (&calls[4].request[..], calls[4].end),
            (&b"two"[..], CallEnd::Failed(7))
        );
        assert_eq!(
            (&calls[4].answer[..], calls[4].answer_bytes),
            (&b"no se"[..], 8)
        );
        assert_eq!(calls[5].end, CallEnd::Panicked);
        assert!(calls
            .windows(2)
            .all(|two| two[0].number + 1 == two[1].number));
    }
}

#[test]
fn who_asks_too_seldom_is_told_what_it_missed() {
    let server = server().allows_capture(true).serve().unwrap();
    let client = Client::connect(&server.address().to_string()).unwrap();
    let mut capture = client.capture(u32::MAX).unwrap();
    let long = vec![7; 200_000];
    let (mut seen, mut missed) = (0, 0);
    for made in 1..=100 {
        client.call(ECHO, &long).unwrap();
        // Who asks for nothing within five seconds is told nothing.
        while made % 10 == 0 && seen + missed < made {
            let some = capture.next_calls().unwrap();
            // A call of 400 kB is longer than an answer that shows calls.
            seen += some.calls.len() as u64;
            missed += some.missed;
        }
    }
    assert_eq!((seen, missed), (0, 100));
    client.call(ECHO, b"short").unwrap();
    assert_eq!(capture.next_calls().unwrap().calls.len(), 1);
}

#[test]
fn a_server_shows_nobody_what_others_say_unless_it_is_told_to() {
    let quiet = server().serve().unwrap();
    let client = Client::connect(&quiet.address().to_string()).unwrap();
    let refused = client.capture(64).unwrap_err();
    assert!(
        matches!(refused, CallError::UnknownHandler(CAPTURE)),
        "{refused}"
    );

    // Who may call everything may not yet do this.
    let everything = Grant::new().call_named("*").read("*");
    let rights = Rights::new().allow(Who::Anyone, everything.clone());
    let strict = server()
        .allows_capture(true)
        .rights(rights)
        .serve()
        .unwrap();
    let client = Client::connect(&strict.address().to_string()).unwrap();
    let refused = client.capture(64).unwrap_err();
    assert!(refused.to_string().contains("capture"), "{refused}");

    let rights = Rights::new().allow(Who::Anyone, everything.call(CAPTURE));
    let open = server()
        .allows_capture(true)
        .rights(rights)
        .serve()
        .unwrap();
    let client = Client::connect(&open.address().to_string()).unwrap();
    client.capture(64).unwrap();
}
