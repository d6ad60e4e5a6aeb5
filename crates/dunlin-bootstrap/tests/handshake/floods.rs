//! Hostile processes that hold as many places of the port as they can get, for as long as they can: good clients
//! connect all the same.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{mpsc, Mutex};
use std::time::Duration;

use dunlin_bootstrap::{dial, AcceptorConfig, DialConfig, Peer};

use crate::harness::*;

/// What a client says first, as it is on the stream.
fn first_words() -> Vec<u8> {
    let hello = client_hello();
    let length = u32::try_from(hello.len()).unwrap().to_le_bytes();
    [&length[..], &hello].concat()
}

/// Keeps so many sockets open that have said hello and say nothing more; one that is closed comes again at once. Counts
/// them.
fn hold(server: &Server, sockets: usize, stop: &AtomicBool, opened: &AtomicU64) {
    let words = first_words();
    let open = || {
        let mut stream = TcpStream::connect((server.address().host(), server.address().port()))?;
        stream.write_all(&words)?;
        stream.set_nonblocking(true)?;
        opened.fetch_add(1, Relaxed);
        std::io::Result::Ok(stream)
    };
    let mut all: Vec<Option<TcpStream>> = (0..sockets).map(|_| None).collect();
    while !stop.load(Relaxed) {
        for socket in &mut all {
            let lives = socket.as_mut().is_some_and(|stream| loop {
                match stream.read(&mut [0; 1024]) {
                    Ok(0) => break false,
                    Ok(_) => {}
                    Err(error) => break error.kind() == ErrorKind::WouldBlock,
                }
            });
            if !lives {
                drop(socket.take());
                *socket = open().ok();
            }
            if stop.load(Relaxed) {
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends the hostile threads, also when the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Twenty good clients beside hostile threads that hold this many sockets.
fn good_clients_connect(server: &Server, sockets: usize, good: &DialConfig) {
    let (stop, opened) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _end = End(&stop);
        for _ in 0..2 {
            scope.spawn(|| hold(server, sockets / 2, &stop, &opened));
        }
        let all = sockets / 2 * 2;
        server.wait_for("the places are taken", |_| {
            opened.load(Relaxed) >= all as u64
        });
        let five = || -> Vec<_> { (0..5).map(|_| server.open(good)).collect() };
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(five)).collect();
        let ended = clients.into_iter().flat_map(|one| one.join().unwrap());
        let failed: Vec<_> = ended.filter_map(Result::err).collect();
        assert!(failed.is_empty(), "of 20 these failed: {failed:?}");
    });
}

/// Sockets that both ends of a test may have.
fn as_many_as(wanted: usize) -> usize {
    let limit = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limit.lines().find(|line| line.contains("open files"));
    let number = line.and_then(|line| line.split_whitespace().nth(3)?.parse::<usize>().ok());
    number.map_or(wanted, |limit| wanted.min(limit / 4))
}

#[test]
fn sockets_that_say_hello_and_nothing_more_lock_nobody_out() {
    for (max_pending, sockets) in [(64, 64), (64, 300), (1024, as_many_as(1000))] {
        let server = Server::new(AcceptorConfig {
            max_pending,
            ..serving()
        });
        good_clients_connect(&server, sockets, &dialing());
    }
}

#[test]
fn nor_with_a_secret_which_a_hello_does_not_need() {
    let secret = secret("between us");
    let server = Server::new(AcceptorConfig {
        max_pending: 64,
        secret: secret.clone(),
        ..serving()
    });
    let good = DialConfig {
        secret,
        ..dialing()
    };
    good_clients_connect(&server, 300, &good);
}

#[test]
fn who_has_sent_its_open_request_is_not_made_to_leave() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let config = AcceptorConfig {
        max_pending: 2,
        ..serving()
    };
    let server = Server::opening(config, move |request, _| {
        let _ = released.lock().unwrap().recv();
        echo(request, Peer::default())
    });
    std::thread::scope(|scope| {
        let mut held: Vec<_> = (0..2)
            .map(|_| dial(server.address(), &dialing()).unwrap())
            .collect();
        let last = held.pop().unwrap();
        for dialed in held {
            scope.spawn(|| assert!(dialed.open(request()).is_ok()));
        }
        // Both places are taken, one of them by who is being opened. The other goes from hand to hand.
        let newcomers: Vec<_> = (0..3)
            .map(|_| dial(server.address(), &dialing()).unwrap())
            .collect();
        let busy = server.acceptor.counters().busy;
        assert!(busy >= 3, "{busy} had to leave");
        drop(release);
        assert!(last.open(request()).is_ok());
        for dialed in newcomers {
            assert!(dialed.open(request()).is_ok());
        }
    });
    server.wait_for("all opened", |counts| counts.opened == 5);
}
