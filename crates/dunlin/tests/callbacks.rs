//! A server calls its clients.

mod common;

use std::sync::{mpsc, Mutex};
use std::time::Duration;

use common::{eventually, pattern, ECHO};
use dunlin::{
    CallError, CallableChange, CallableClient, CallableClients, CallbackServer, Client,
    HandlerError, Preset, RunningServer, ServeError, Server, ServerBuilder,
};

/// Asks the server to call back, and brings what that brought.
const ROUND: u16 = 2;
/// What clients answer.
const TWICE: u16 = 3;

fn server(callable: &CallableClients) -> RunningServer {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .callable_clients(callable)
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(ROUND, |request, reply| {
            let caller = request.caller().expect("it has registered");
            let answer = caller.client().call(TWICE, request.payload());
            let answer = answer.map_err(|error| HandlerError::new(1, error.to_string()))?;
            reply.write(&answer)
        })
        .serve()
        .unwrap()
}

fn twice() -> ServerBuilder {
    Server::unbound().handle(TWICE, |request, reply| {
        reply.write(request.payload())?;
        reply.write(request.payload())
    })
}

fn connect(server: &RunningServer, device: &str, preset: Preset) -> Client {
    let builder = Client::builder().device(device).preset(preset);
    builder.connect(&server.address().to_string()).unwrap()
}

fn callable(server: &RunningServer) -> (Client, CallbackServer) {
    let client = Client::connect(&server.address().to_string()).unwrap();
    let serving = twice().serve_to(&client).unwrap();
    (client, serving)
}

fn only(list: &CallableClients) -> CallableClient {
    let [client] = &list.list()[..] else {
        panic!("{list:?} has one");
    };
    client.clone()
}

/// Whether a call to a client that has gone says so: one on a connection that there is yet says that this is lost.
fn calls_say_so(gone: &CallableClient) -> bool {
    match gone.client().call(TWICE, b"x") {
        Err(CallError::Connect(why)) if why.is_caller_gone() => {
            assert!(!CallError::Connect(why).is_retryable());
            true
        }
        Err(CallError::ConnectionLost { .. }) => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_calls_its_client_on_every_device_and_preset_while_the_client_calls_it() {
    let list = CallableClients::new(8);
    let server = server(&list);
    for (device, preset) in [
        ("shm", Preset::Auto),
        ("shm", Preset::Flock),
        ("shm", Preset::ScaleRpc),
        ("roce", Preset::Auto),
        ("roce", Preset::Fasst),
        ("roce", Preset::Flor),
        ("shm", Preset::Flor),
    ] {
        let client = connect(&server, device, preset);
        let serving = twice().serve_to(&client).unwrap();
        assert!(serving.is_registered());
        let back = only(&list);
        assert_eq!(
            back.client().info().device,
            client.info().device,
            "{preset}"
        );
        for length in [0, 5, 100_000] {
            let sent = pattern(length, length as u64);
            let both = [&sent[..], &sent[..]].concat();
            assert!(*back.client().call(TWICE, &sent).unwrap() == both);
            if preset != Preset::Fasst || length < 1000 {
                assert!(*client.call(ROUND, &sent).unwrap() == both, "{preset}");
            }
        }
        // Many threads of the server, and the client's own calls meanwhile.
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        assert_eq!(&*back.client().call(TWICE, b"x").unwrap(), b"xx");
                    }
                });
            }
            for _ in 0..100 {
                assert_eq!(&*client.call(ECHO, b"y").unwrap(), b"y");
            }
        });
        assert!(serving.connections() > 0 && serving.statistics().requests >= 303);
        drop(serving);
        eventually(&format!("the client of {preset} has gone"), || {
            back.is_gone() && list.is_empty()
        });
        // Other devices hear of the end of a queue pair when its peer has not answered for long.
        if device == "shm" {
            eventually("calls say so", || calls_say_so(&back));
        }
        assert_eq!(
            &*client.call(ECHO, b"y").unwrap(),
            b"y",
            "the client goes on"
        );
    }
}

#[test]
fn clients_come_and_go_and_the_server_is_told() {
    let list = CallableClients::new(2);
    let (told, changes) = mpsc::channel();
    let told = Mutex::new(told);
    list.on_change(move |change| told.lock().unwrap().send(change).unwrap());
    let next = || changes.recv_timeout(Duration::from_secs(20)).unwrap();
    let server = server(&list);
    let (client, serving) = callable(&server);
    let CallableChange::Came(first) = next() else {
        panic!("it came");
    };
    assert_eq!((first.number(), first.is_gone()), (1, false));
    let (_other, other) = callable(&server);
    assert!(matches!(next(), CallableChange::Came(one) if one.number() == 2));
    let third = Client::connect(&server.address().to_string()).unwrap();
    let refused = twice().serve_to(&third).unwrap_err();
    assert!(
        refused.to_string().contains("already calls 2 clients"),
        "{refused}"
    );
    let twin = twice().serve_to(&client).unwrap_err();
    assert!(twin.to_string().contains("already"), "{twin}");
    drop(serving);
    assert!(matches!(next(), CallableChange::Gone(one) if one.number() == 1));
    assert!(first.is_gone());
    let again = twice().serve_to(&client).unwrap();
    assert!(matches!(next(), CallableChange::Came(one) if one.number() > 2));
    assert_eq!(&*client.call(ROUND, b"ab").unwrap(), b"abab");
    // What the client lets be called ends with the client that is closed, and with that alone.
    client.close();
    assert!(matches!(next(), CallableChange::Gone(_)));
    eventually("its server knows", || !again.is_registered());
    assert!(other.is_registered());
    assert_eq!(list.len(), 1);
    // Nobody is waited for.
    assert!(server.shutdown());
    assert!(list.is_empty());
    eventually("the client knows", || !other.is_registered());
}

#[test]
fn a_client_is_registered_again_when_its_server_comes_back() {
    let list = CallableClients::new(1);
    let first = server(&list);
    let address = first.address().to_string();
    let (_client, serving) = callable(&first);
    drop(first);
    eventually("it is lost", || !serving.is_registered());
    let list = CallableClients::new(1);
    let second = Server::bind(&address).unwrap().callable_clients(&list);
    let _second = second.serve().unwrap();
    eventually("it is registered again", || serving.is_registered());
    assert_eq!(&*only(&list).client().call(TWICE, b"x").unwrap(), b"xx");
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let none = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .serve()
        .unwrap();
    let client = Client::connect(&none.address().to_string()).unwrap();
    let error = twice().serve_to(&client).unwrap_err();
    assert!(matches!(
        &error,
        ServeError::Callbacks(CallError::UnknownHandler(_))
    ));
    assert!(error.to_string().contains("callable_clients"), "{error}");
    let bound = Server::bind("dunlin://127.0.0.1:0").unwrap();
    let error = bound.serve_to(&client).unwrap_err();
    assert!(error.to_string().contains("an address is set"), "{error}");
    let list = CallableClients::new(1);
    let _has_it = server(&list);
    let second = Server::bind("dunlin://127.0.0.1:0").unwrap();
    let error = second.callable_clients(&list).serve().unwrap_err();
    assert!(error.to_string().contains("another server"), "{error}");
    client.close();
    let error = twice().serve_to(&client).unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
}

#[test]
fn a_handler_on_a_polling_thread_is_told_that_it_would_wait_for_itself_and_a_future_of_its_is_not()
{
    let list = CallableClients::new(1);
    let (answered, answers) = mpsc::channel();
    let answered = Mutex::new(answered);
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .callable_clients(&list)
        .handle(ROUND, move |request, reply| {
            let caller = request.caller().expect("it has registered");
            let refused = caller.client().call(TWICE, b"x").unwrap_err();
            assert!(matches!(refused, CallError::OwnServer), "{refused}");
            let future = caller.client().call_async(TWICE, b"x");
            let answered = answered.lock().unwrap().clone();
            std::thread::spawn(move || drop(answered.send(futures_executor::block_on(future))));
            reply.write(b"asked")
        })
        .serve()
        .unwrap();
    let (client, _serving) = callable(&server);
    assert_eq!(&*client.call(ROUND, b"").unwrap(), b"asked");
    let answer = answers.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(&*answer.unwrap(), b"xx");
}

#[test]
fn both_ask_and_answer_each_other_in_turn_as_deep_as_they_like() {
    const DOWN: u16 = 4;
    /// Calls the other side with one less, on a worker.
    fn down(request: &dunlin::Request<'_>, other: &Client) -> Result<Vec<u8>, HandlerError> {
        let left = request.payload()[0];
        let failed = |error: CallError| HandlerError::new(1, error.to_string());
        match left {
            0 => Ok(Vec::new()),
            _ => Ok([&[left][..], &other.call(DOWN, &[left - 1]).map_err(failed)?].concat()),
        }
    }
    let list = CallableClients::new(1);
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .workers(4)
        .callable_clients(&list)
        .handle_on_workers(DOWN, |request, reply| {
            reply.write(&down(request, request.caller().unwrap().client())?)
        })
        .serve()
        .unwrap();
    let client = Client::connect(&server.address().to_string()).unwrap();
    let forth = client.clone();
    let _serving = Server::unbound()
        .workers(4)
        .handle_on_workers(DOWN, move |request, reply| {
            reply.write(&down(request, &forth)?)
        })
        .serve_to(&client)
        .unwrap();
    assert_eq!(&*client.call(DOWN, &[7]).unwrap(), [7, 6, 5, 4, 3, 2, 1]);
}
