//! Clients that have sent their open request and wait in line until they are opened.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{mpsc, Arc, Mutex, OnceLock};

use dunlin_bootstrap::wire::{self, ClientOpen, Outcome, Proved, ServerReply};
use dunlin_bootstrap::{dial, AcceptorConfig, BootstrapError, Counts, Peer, Refusal, StopHandle};

use crate::harness::*;

/// Openings that a server may have under way at once.
const OPENINGS: u64 = 16;
/// Clients, most of which wait in line.
const CLIENTS: u64 = 200;

/// A server whose openings wait until it is released.
struct Held {
    // Dropped before the server, which waits for its openings.
    release: mpsc::Sender<()>,
    begun: Arc<AtomicU64>,
    server: Server,
}

impl Held {
    /// `end` is called at the end of each opening.
    fn new(config: AcceptorConfig, end: impl Fn() + Send + Sync + 'static) -> Self {
        let (release, released) = mpsc::channel();
        let released = Mutex::new(released);
        let begun = Arc::<AtomicU64>::default();
        let beginning = Arc::clone(&begun);
        let server = Server::opening(config, move |request, _| {
            beginning.fetch_add(1, Relaxed);
            let _ = released.lock().unwrap().recv();
            end();
            echo(request, Peer::default())
        });
        Self {
            release,
            begun,
            server,
        }
    }

    /// Clients that have sent their open requests. Some are being opened, and the server has heard them all.
    fn line(&self) -> Vec<TcpStream> {
        let line = self.clients(CLIENTS);
        // Whoever comes after them is greeted after they were heard.
        drop(dial(self.server.address(), &dialing()).unwrap());
        let begun = |_: &_| self.begun.load(Relaxed) > 0;
        self.server.wait_for("openings have begun", begun);
        line
    }

    /// Clients that have sent their open requests.
    fn clients(&self, number: u64) -> Vec<TcpStream> {
        (0..number)
            .map(|_| in_line(self.server.stranger()))
            .collect()
    }

    /// Released and stopped, it has opened those alone whose openings were under way, and refused the others.
    fn ends(self, mut line: Vec<TcpStream>) {
        let Self {
            release,
            begun,
            mut server,
        } = self;
        drop(release);
        server.stop();
        let counts = server.acceptor.counters();
        assert!((1..=OPENINGS).contains(&counts.opened), "{counts:?}");
        assert_eq!(counts.opened, begun.load(Relaxed));
        let refused = Outcome::Refused(Refusal::ShuttingDown);
        let outcomes = line.iter_mut().map(outcome);
        let refused = outcomes.filter(|one| *one == refused).count() as u64;
        assert_eq!(refused + counts.opened, CLIENTS);
    }
}

/// Has a client send its open request; it does not read what comes of it.
fn in_line(mut stream: TcpStream) -> TcpStream {
    // What is sent has arrived when this returns.
    stream.set_nodelay(true).unwrap();
    send(&mut stream, &client_hello());
    receive(&mut stream);
    let mut request = request();
    request.device = "shm".into();
    let open = Proved {
        proof: None,
        message: ClientOpen::Open(request),
    };
    send(&mut stream, &wire::encode_open(&open).unwrap());
    stream
}

/// A TCP connection from another address of this host.
fn from_elsewhere(server: &Server) -> TcpStream {
    use rustix::net::{bind, connect, socket, AddressFamily, SocketType};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let here = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0));
    bind(&socket, &here).unwrap();
    let there = SocketAddr::from((Ipv4Addr::LOCALHOST, server.address().port()));
    connect(&socket, &there).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn outcome(client: &mut TcpStream) -> ServerReply {
    wire::parse_open_reply(&receive(client)).unwrap().message
}

#[test]
fn a_stop_refuses_those_in_line_while_others_are_being_opened() {
    let held = Held::new(serving(), || {});
    let line = held.line();
    held.server.stop.stop();
    held.server.wait_for("the line is refused", |counts| {
        counts.shutting_down >= CLIENTS - OPENINGS
    });
    assert_eq!(held.server.acceptor.counters().opened, 0);
    held.ends(line);
}

#[test]
fn no_opening_begins_after_a_stop() {
    let stop = Arc::new(OnceLock::<StopHandle>::new());
    let handle = Arc::clone(&stop);
    // The thread would begin the next one before the port has seen the stop.
    let held = Held::new(serving(), move || handle.get().unwrap().stop());
    stop.set(held.server.stop.clone()).unwrap();
    let line = held.line();
    held.ends(line);
}

fn crowded() -> AcceptorConfig {
    AcceptorConfig {
        max_pending: 20,
        ..serving()
    }
}

#[test]
fn silence_takes_no_place_in_line() {
    let held = Held::new(crowded(), || {});
    let mut line = held.clients(20);
    let silent: Vec<_> = (0..30).map(|_| held.server.stranger()).collect();
    let all = |counts: &Counts| counts.accepted == 50;
    held.server.wait_for("the silent were taken", all);
    drop(held.release);
    for client in &mut line {
        let outcome = outcome(client);
        assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    }
    drop(silent);
}

#[test]
fn a_line_of_one_address_makes_room_for_another_that_asks_to_be_opened() {
    let held = Held::new(crowded(), || {});
    let mut line = held.clients(20);
    let busy = Outcome::Refused(Refusal::Busy { limit: 20 });
    // One more of the same comes too late.
    let [mut late] = held.clients(1).try_into().unwrap();
    assert_eq!(outcome(&mut late), busy);
    let mut other = in_line(from_elsewhere(&held.server));
    let last = line.last_mut().unwrap();
    assert_eq!(outcome(last), busy);
    line.pop();
    drop(held.release);
    for client in line.iter_mut().chain([&mut other]) {
        let outcome = outcome(client);
        assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    }
    assert_eq!(held.server.acceptor.counters().busy, 2);
}

#[test]
fn who_does_not_know_the_secret_displaces_nobody_who_does() {
    let mut config = crowded();
    config.secret = secret("correct horse");
    let held = Held::new(config, || {});
    let mut knowing = dialing();
    knowing.secret = secret("correct horse");
    std::thread::scope(|scope| {
        let line: Vec<_> = (0..21)
            .map(|_| scope.spawn(|| held.server.open(&knowing)))
            .collect();
        // One too many, which comes again: all others have proved themselves.
        let full = |counts: &Counts| counts.busy > 0;
        held.server.wait_for("the line is full", full);
        let mut others = dialing();
        for other in [None, secret("battery staple")] {
            others.secret = other;
            let error = held.server.open(&others).unwrap_err();
            use BootstrapError::{SecretRequired, WrongSecret};
            let is_told = matches!(error, SecretRequired { .. } | WrongSecret { .. });
            assert!(is_told, "{error}");
        }
        drop(held.release);
        for client in line {
            client.join().unwrap().unwrap();
        }
    });
}
