//! Robustness of the list of callable clients.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use super::{CallableChange, CallableClients, CallbackServer};
use crate::{Client, RunningServer, Server};

const ECHO: u16 = 1;
const KEEP: u16 = 2;

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        let waited = started.elapsed();
        assert!(waited.as_secs() < 20, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn connect(server: &RunningServer) -> Client {
    Client::connect(&server.address().to_string()).unwrap()
}

fn callable(server: &RunningServer) -> (Client, CallbackServer) {
    let client = connect(server);
    let serving = Server::unbound()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .serve_to(&client)
        .unwrap();
    (client, serving)
}

fn serving(list: &CallableClients) -> RunningServer {
    let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
    server.callable_clients(list).serve().unwrap()
}

#[test]
fn who_is_told_of_clients_and_panics_ends_no_connection_of_others() {
    let list = CallableClients::new(8);
    let (came, gone) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let counts = (Arc::clone(&came), Arc::clone(&gone));
    list.on_change(move |change| {
        let count = match change {
            CallableChange::Came(_) => &counts.0,
            CallableChange::Gone(_) => &counts.1,
        };
        count.fetch_add(1, Ordering::Relaxed);
        panic!("what a user's function does whose channel is closed");
    });
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .pollers(1)
        .callable_clients(&list)
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .serve()
        .unwrap();
    let (first, _first) = callable(&server);
    let (second, _second) = callable(&server);
    let third = connect(&server);
    assert_eq!(came.load(Ordering::Relaxed), 2);
    let numbers: Vec<u64> = list.list().iter().map(|client| client.number()).collect();
    assert_eq!(numbers, [1, 2], "both are there for as long as they are");
    // Its connection ends without notice, so that the polling thread must find out.
    first.close();
    eventually("the first has gone", || gone.load(Ordering::Relaxed) == 1);
    assert_eq!(&*third.call(ECHO, b"third").unwrap(), b"third");
    assert_eq!(&*second.call(ECHO, b"second").unwrap(), b"second");
    let [other] = &list.list()[..] else {
        panic!("{list:?} has the other one");
    };
    assert_eq!(other.number(), 2);
    assert_eq!(&*other.client().call(ECHO, b"back").unwrap(), b"back");
    second.close();
    eventually("the second has gone", || list.is_empty());
    assert_eq!(&*third.call(ECHO, b"third").unwrap(), b"third");
    assert_eq!(gone.load(Ordering::Relaxed), 2);
    drop(third);
    assert!(server.shutdown());
}

#[test]
fn a_waker_that_panics_ends_no_connection_of_others() {
    struct Broken;
    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            panic!("what an executor's waker does that has ended");
        }
    }
    let kept = Arc::<Mutex<Vec<_>>>::default();
    let keeps = Arc::clone(&kept);
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .pollers(1)
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_deferred(KEEP, move |_, responder| {
            let waker = Waker::from(Arc::new(Broken));
            let polled = responder.poll_cancelled(&Context::from_waker(&waker));
            assert!(polled.is_pending());
            keeps.lock().unwrap().push(responder);
        })
        .serve()
        .unwrap();
    let client = connect(&server);
    let call = client.call_async(KEEP, b"");
    eventually("the request is kept", || kept.lock().unwrap().len() == 1);
    let other = connect(&server);
    assert_eq!(&*other.call(ECHO, b"before").unwrap(), b"before");
    client.close();
    drop(call);
    eventually("the handler is told", || {
        kept.lock().unwrap()[0].is_cancelled()
    });
    assert_eq!(&*other.call(ECHO, b"after").unwrap(), b"after");
    drop(other);
    assert!(server.shutdown());
}

#[test]
fn a_client_that_comes_while_its_server_ends_holds_up_nobody() {
    let list = CallableClients::new(8);
    let told = Arc::<Mutex<Vec<_>>>::default();
    let (coming, came) = mpsc::channel();
    let (coming, tells) = (Mutex::new(coming), Arc::clone(&told));
    list.on_change(move |change| {
        tells.lock().unwrap().push(is_coming(&change));
        if let CallableChange::Came(client) = change {
            coming.lock().unwrap().send(()).unwrap();
            eventually("its server ends meanwhile", || client.is_gone());
        }
    });
    let server = serving(&list);
    let address = server.address().to_string();
    let calling = std::thread::spawn(move || {
        let client = Client::connect(&address).unwrap();
        assert!(Server::unbound().serve_to(&client).is_err());
        client
    });
    came.recv().unwrap();
    // Its connection stays open.
    assert!(server.shutdown(), "nothing is left");
    drop(calling.join().unwrap());
    assert_eq!(*told.lock().unwrap(), [true, false]);
}

fn is_coming(change: &CallableChange) -> bool {
    matches!(change, CallableChange::Came(_))
}

#[test]
fn every_client_that_came_has_gone_later_when_its_server_has_ended() {
    for _ in 0..10 {
        let list = CallableClients::new(100);
        let told = Arc::<Mutex<BTreeMap<u64, Vec<bool>>>>::default();
        let tells = Arc::clone(&told);
        list.on_change(move |change| {
            let (CallableChange::Came(client) | CallableChange::Gone(client)) = &change;
            let mut told = tells.lock().unwrap();
            let of = told.entry(client.number()).or_default();
            of.push(is_coming(&change));
        });
        let server = serving(&list);
        let address = server.address().to_string();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    // Until the server is gone.
                    while let Ok(client) = Client::connect(&address) {
                        if Server::unbound().serve_to(&client).is_err() {
                            break;
                        }
                    }
                });
            }
            eventually("some come", || told.lock().unwrap().len() > 4);
            assert!(server.shutdown(), "nothing is left");
        });
        for (number, told) in told.lock().unwrap().iter() {
            assert_eq!(*told, [true, false], "client {number}");
        }
    }
}
