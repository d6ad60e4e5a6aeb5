//! Clients that have sent their open request and wait in line until they are opened.

use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{mpsc, Arc, Mutex, OnceLock};

use dunlin_bootstrap::wire::{self, ClientOpen, Outcome, Proved, ServerReply};
use dunlin_bootstrap::{dial, AcceptorConfig, Peer, Refusal, StopHandle};

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

    /// Clients that have sent their open requests and do not read what comes of them. Some are being opened, and the
    /// server has heard them all.
    fn line(&self) -> Vec<TcpStream> {
        let line = (0..CLIENTS).map(|_| in_line(&self.server)).collect();
        // Whoever comes after them is greeted after they were heard.
        drop(dial(self.server.address(), &dialing()).unwrap());
        let begun = |_: &_| self.begun.load(Relaxed) > 0;
        self.server.wait_for("openings have begun", begun);
        line
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

fn in_line(server: &Server) -> TcpStream {
    let mut stream = server.stranger();
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
