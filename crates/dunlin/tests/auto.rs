//! The preset that users get without choosing, on shared memory: a client's first four lanes are one thread's each,
//! and a fifth makes all share.

mod common;

use std::sync::mpsc;

use common::{eventually, ECHO};
use dunlin::{CallError, Client, Preset, Server};

/// A thread that calls when it is told to, and says how that went.
struct Worker {
    go: mpsc::Sender<()>,
    went: mpsc::Receiver<Result<Vec<u8>, CallError>>,
}

impl Worker {
    fn new(client: &Client) -> Self {
        let client = client.clone();
        let (go, told) = mpsc::channel();
        let (say, went) = mpsc::channel();
        std::thread::spawn(move || {
            while told.recv().is_ok() {
                let answer = client.call(ECHO, b"x").map(|reply| reply.to_vec());
                let _ = say.send(answer);
            }
        });
        Self { go, went }
    }

    fn call(&self) -> Result<Vec<u8>, CallError> {
        self.go.send(()).unwrap();
        self.went.recv().unwrap()
    }
}

#[test]
fn five_threads_share_what_four_did_not() {
    let server = common::serve_echo();
    let client = Client::builder().lanes(1);
    let client = client.connect(&server.address().to_string()).unwrap();
    assert_eq!(client.info().preset, Preset::Auto);
    let [second, third, fourth, fifth] = [(); 4].map(|()| Worker::new(&client));
    assert_eq!(*client.call(ECHO, b"x").unwrap(), *b"x");
    for worker in [&second, &third, &fourth] {
        assert_eq!(worker.call().unwrap(), b"x");
    }
    assert!(client.figures().is_none(), "nobody shares");
    let own = || server.connections();
    eventually("one lane each", || own() == 4);
    assert_eq!(fifth.call().unwrap(), b"x");
    let handle = client.figures().expect("there is a handle now");
    assert_eq!(handle.threads, 1);
    // The others come to it with their next call, and their own lanes end.
    for worker in [&second, &third, &fourth] {
        assert_eq!(worker.call().unwrap(), b"x");
    }
    assert_eq!(*client.call(ECHO, b"x").unwrap(), *b"x");
    assert_eq!(client.figures().unwrap().threads, 5);
    eventually("one lane for all", || own() == 1);
    assert_eq!(server.statistics().violations, 0);
}

#[test]
fn a_fifth_that_is_refused_takes_nothing_from_the_four() {
    let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
    let server = server.handle(ECHO, |request, reply| reply.write(request.payload()));
    let server = server.max_connections(4).serve().unwrap();
    let client = Client::connect(&server.address().to_string()).unwrap();
    let [second, third, fourth, fifth] = [(); 4].map(|()| Worker::new(&client));
    for _ in 0..3 {
        for worker in [&second, &third, &fourth] {
            assert_eq!(worker.call().unwrap(), b"x");
        }
        assert_eq!(*client.call(ECHO, b"x").unwrap(), *b"x");
        let refused = fifth.call().unwrap_err();
        assert!(matches!(refused, CallError::Connect(_)), "{refused}");
    }
    assert_eq!(server.connections(), 4);
    assert!(client.figures().is_none());
    // When one of them is gone there is room, and it is one thread's own again.
    drop(second);
    eventually("the second is gone", || server.connections() == 3);
    assert_eq!(fifth.call().unwrap(), b"x");
    assert!(client.figures().is_none());
}

/// Each counted the lanes that were there before any of the others had one, and all had a lane of their own for ever.
#[test]
fn threads_that_come_at_the_same_time_share_too() {
    let server = common::serve_echo();
    let client = Client::builder().lanes(1);
    let client = client.connect(&server.address().to_string()).unwrap();
    let workers = [(); 8].map(|()| Worker::new(&client));
    for _ in 0..2 {
        for worker in &workers {
            worker.go.send(()).unwrap();
        }
        for worker in &workers {
            assert_eq!(worker.went.recv().unwrap().unwrap(), b"x");
        }
    }
    let handle = client.figures().expect("there is a handle now");
    assert_eq!(handle.threads, workers.len());
    // The one that the client was connected with is nobody's yet.
    eventually("one lane for all", || server.connections() <= 2);
    assert_eq!(server.statistics().violations, 0);
}

/// Eight calls fill half a message; sixteen such loops are few, and of 32 calls each sixty-four are.
#[test]
fn loops_of_many_calls_have_lanes_of_their_own_up_to_a_number() {
    let server = common::serve_echo();
    let client = Client::builder().lanes(1);
    let client = client.connect(&server.address().to_string()).unwrap();
    // The first takes the lane that the client was connected with.
    let few: Vec<_> = (0..17).map(|_| client.pipeline_of(8).unwrap()).collect();
    assert!(client.figures().is_none(), "nobody shares");
    let many: Vec<_> = (0..4).map(|_| client.pipeline_of(32).unwrap()).collect();
    assert!(client.figures().is_none(), "nor with many more out");
    // Beyond sixteen those of eight are as threads with a call each: the first three still find lanes.
    let shared: Vec<_> = (0..5).map(|_| client.pipeline_of(8).unwrap()).collect();
    let handle = client.figures().expect("there is a handle now");
    assert!(handle.threads >= 1, "{handle:?}");
    let own = few.len() + many.len();
    assert!(server.connections() > own, "{}", server.connections());
    drop((few, many, shared));
    assert_eq!(server.statistics().violations, 0);
}
