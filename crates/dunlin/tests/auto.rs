//! The preset that users get without choosing, where no NIC has the queue pairs: a client's first lanes are one
//! thread's each, and one more makes all share.

mod common;

use std::sync::mpsc;

use common::{eventually, ECHO};
use dunlin::{CallError, Client, Preset, Server};

/// A thread that calls when it is told to, and says how that went.
struct Worker {
    go: mpsc::Sender<()>,
    went: mpsc::Receiver<Result<Vec<u8>, CallError>>,
    thread: std::thread::JoinHandle<()>,
}

impl Worker {
    fn new(client: &Client) -> Self {
        let client = client.clone();
        let (go, told) = mpsc::channel();
        let (say, went) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            while told.recv().is_ok() {
                let answer = client.call(ECHO, b"x").map(|reply| reply.to_vec());
                let _ = say.send(answer);
            }
        });
        Self { go, went, thread }
    }

    /// Ends the thread, and its lane with it.
    fn end(self) {
        drop(self.go);
        self.thread.join().unwrap();
    }

    fn call(&self) -> Result<Vec<u8>, CallError> {
        self.go.send(()).unwrap();
        self.went.recv().unwrap()
    }
}

/// Lanes that are one thread's each, in memory.
const OWN: usize = 17;
/// And over UDP, and there of loops that keep many calls out.
const OWN_OF_PACKETS: usize = 9;
const OWN_DEEP_OF_PACKETS: usize = 25;

fn workers(client: &Client, count: usize) -> Vec<Worker> {
    (0..count).map(|_| Worker::new(client)).collect()
}

#[test]
fn one_thread_too_many_makes_all_share() {
    for (device, own) in [("shm", OWN), ("roce", OWN_OF_PACKETS)] {
        one_too_many(device, own);
    }
}

fn one_too_many(device: &str, own: usize) {
    let server = common::serve_echo();
    let client = Client::builder().lanes(1).device(device);
    let client = client.connect(&server.address().to_string()).unwrap();
    assert_eq!(client.info().preset, Preset::Auto);
    let workers = workers(&client, own - 1);
    let last = Worker::new(&client);
    assert_eq!(*client.call(ECHO, b"x").unwrap(), *b"x");
    for worker in &workers {
        assert_eq!(worker.call().unwrap(), b"x");
    }
    assert!(client.figures().is_none(), "nobody shares");
    let connections = || server.connections();
    eventually("one lane each", || connections() == own);
    assert_eq!(last.call().unwrap(), b"x");
    let handle = client.figures().expect("there is a handle now");
    assert_eq!(handle.threads, 1);
    // The others come to it with their next call, and their own lanes end.
    for worker in &workers {
        assert_eq!(worker.call().unwrap(), b"x");
    }
    assert_eq!(*client.call(ECHO, b"x").unwrap(), *b"x");
    assert_eq!(client.figures().unwrap().threads, own + 1);
    eventually("one lane for all", || connections() == 1);
    assert_eq!(server.statistics().violations, 0);
}

#[test]
fn one_that_is_refused_takes_nothing_from_the_others() {
    let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
    let server = server.handle(ECHO, |request, reply| reply.write(request.payload()));
    let server = server.max_connections(OWN).serve().unwrap();
    let client = Client::connect(&server.address().to_string()).unwrap();
    let mut workers = workers(&client, OWN - 1);
    let last = Worker::new(&client);
    for _ in 0..3 {
        for worker in &workers {
            assert_eq!(worker.call().unwrap(), b"x");
        }
        assert_eq!(*client.call(ECHO, b"x").unwrap(), *b"x");
        let refused = last.call().unwrap_err();
        assert!(matches!(refused, CallError::Connect(_)), "{refused}");
    }
    assert_eq!(server.connections(), OWN);
    assert!(client.figures().is_none());
    // When one of them is gone there is room, and it is one thread's own again.
    workers.pop().unwrap().end();
    eventually("one is gone", || server.connections() == OWN - 1);
    assert_eq!(last.call().unwrap(), b"x");
    assert!(client.figures().is_none());
}

/// Each counted the lanes that were there before any of the others had one, and all had a lane of their own for ever.
#[test]
fn threads_that_come_at_the_same_time_share_too() {
    let server = common::serve_echo();
    let client = Client::builder().lanes(1);
    let client = client.connect(&server.address().to_string()).unwrap();
    let workers = workers(&client, OWN + 4);
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

/// Of 32 calls each, sixty-four loops are few; those of eight are as threads with a call each, and go along when all
/// come to share, with the calls that are out.
#[test]
fn loops_share_when_all_do_unless_they_keep_many_calls_out() {
    let server = common::serve_echo();
    let client = Client::builder().lanes(1);
    let client = client.connect(&server.address().to_string()).unwrap();
    // One lane is the connecting thread's, which does not call.
    let loops = |window, count| -> Vec<_> {
        let all = (0..count).map(|_| client.pipeline_of(window).unwrap());
        all.collect()
    };
    let mut few = loops(8, OWN - 1);
    let mut many = loops(32, 4);
    assert!(client.figures().is_none(), "nobody shares");
    for (tag, pipeline) in (0..).zip(few.iter_mut().chain(&mut many)) {
        assert!(pipeline.submit(ECHO, b"before", tag).unwrap());
    }
    few.append(&mut loops(8, 1));
    let handle = client.figures().expect("there is a handle now");
    assert_eq!(handle.threads, 1, "{handle:?}");
    let mut answers = Vec::new();
    let all = few.iter_mut().chain(&mut many);
    for (tag, pipeline) in (100..).zip(all) {
        assert!(pipeline.submit(ECHO, b"after", tag).unwrap());
        while pipeline.outstanding() > 0 {
            let waited = pipeline.wait(|tag, answer| answers.push((tag, answer.unwrap().to_vec())));
            waited.unwrap();
        }
    }
    answers.sort();
    let before = (0..OWN as u64 + 3).map(|tag| (tag, b"before".to_vec()));
    let after = (100..OWN as u64 + 104).map(|tag| (tag, b"after".to_vec()));
    assert_eq!(answers, before.chain(after).collect::<Vec<_>>());
    assert_eq!(client.figures().unwrap().threads, few.len());
    eventually("five lanes, and one for all", || server.connections() == 6);
    assert_eq!(server.statistics().violations, 0);
}

/// Over UDP many batches cost more system calls than one for all.
#[test]
fn loops_over_udp_share_when_all_do_however_many_calls_they_keep_out() {
    let server = common::serve_echo();
    let client = Client::builder().lanes(1).device("roce");
    let client = client.connect(&server.address().to_string()).unwrap();
    let loops = |count| (0..count).map(|_| client.pipeline_of(64).unwrap());
    let mut all: Vec<_> = loops(OWN_DEEP_OF_PACKETS - 1).collect();
    assert!(client.figures().is_none(), "nobody shares");
    all.extend(loops(1));
    let handle = client.figures().expect("there is a handle now");
    assert_eq!(handle.threads, 1, "{handle:?}");
    for pipeline in &mut all {
        assert!(pipeline.submit(ECHO, b"x", 0).unwrap());
        let mut answers = 0;
        while pipeline.outstanding() > 0 {
            let waited = pipeline.wait(|_, answer| answers += answer.unwrap().len());
            waited.unwrap();
        }
        assert_eq!(answers, 1);
    }
    assert_eq!(client.figures().unwrap().threads, OWN_DEEP_OF_PACKETS);
    eventually("one lane, and the connecting thread's", || {
        server.connections() == 2
    });
    assert_eq!(server.statistics().violations, 0);
}
