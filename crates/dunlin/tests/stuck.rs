//! Handlers that do not return, and such that call their own server: neither keeps a server from its end, nor a client
//! waiting.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Condvar, Mutex};
use std::time::Duration;

use common::{eventually, ECHO};
use dunlin::{
    CallError, ChannelConfig, Client, Preset, Reply, RunningServer, Server, ServerBuilder, WaitMode,
};
use futures_executor::block_on;
use process::{listen, role, say, Other};

const STUCK: u16 = 2;
const WITHIN: u16 = 3;
/// Longer than any end takes, shorter than nobody's patience.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of each kind of poller, and of each kind of lane.
const PRESETS: [Preset; 9] = [
    Preset::Plain,
    Preset::Flock,
    Preset::ScaleRpc,
    Preset::RawWrite,
    Preset::SelfRpc,
    Preset::Fasst,
    Preset::Erpc,
    Preset::Herd,
    Preset::Auto,
];

/// What handlers wait for, until the test opens it at its very end.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    inside: AtomicUsize,
    left: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        self.inside.fetch_add(1, Ordering::Relaxed);
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Poller,
    Worker,
}

fn serve(place: Place, gate: &Arc<Gate>) -> RunningServer {
    serve_by(Server::bind("dunlin://127.0.0.1:0").unwrap(), place, gate)
}

fn serve_by(server: ServerBuilder, place: Place, gate: &Arc<Gate>) -> RunningServer {
    let gate = Arc::clone(gate);
    let server = server
        .workers(2)
        .handle(ECHO, |request, reply| reply.write(request.payload()));
    let server = match place {
        Place::Poller => server.handle(STUCK, move |request, reply| {
            gate.pass();
            reply.write(request.payload())
        }),
        Place::Worker => server.handle_on_workers(STUCK, move |request, reply| {
            gate.pass();
            // As long a response as asks for registered memory.
            let length = request.payload().len() * 1000;
            reply.in_place(length)?.fill(1);
            Ok(())
        }),
    };
    server.serve().unwrap()
}

fn client(preset: Preset, server: &RunningServer) -> Client {
    let builder = Client::builder().preset(preset);
    let builder = builder.deadline(PATIENCE * 2);
    builder.connect(&server.address().to_string()).unwrap()
}

/// A call, again if it got lost on its way, as a first datagram may where the machine is busy.
fn call(client: &Client, handler: u16, payload: &[u8]) -> Result<Reply, CallError> {
    loop {
        match client.call(handler, payload) {
            Err(CallError::PacketLost { executed: false }) => {}
            ended => return ended,
        }
    }
}

/// A server with two clients: one whose call is stuck, one that only stands on the same poller. What the server does in
/// its `end` is over in time, and the clients hear of it before the handler returns.
fn a_stuck_handler(preset: Preset, place: Place, end: fn(RunningServer) -> bool) {
    let name = format!("{preset} {place:?}");
    let gate = Arc::default();
    let server = serve(place, &gate);
    let (caller, other) = (client(preset, &server), client(preset, &server));
    let ended = std::thread::scope(|scope| {
        let (ready, is_ready) = mpsc::channel();
        let beside = scope.spawn(|| {
            let ready = ready;
            assert_eq!(&*call(&other, ECHO, b"before").unwrap(), b"before");
            ready.send(()).unwrap();
            eventually("the other one is stuck", || {
                gate.inside.load(Ordering::Relaxed) > 0
            });
            match place {
                // Behind the one that is stuck, on the same poller.
                Place::Poller => call(&other, ECHO, b"behind"),
                Place::Worker => call(&other, STUCK, b"behind"),
            }
        });
        is_ready.recv().unwrap();
        let stuck = scope.spawn(|| call(&caller, STUCK, b"never"));
        eventually(&format!("{name}: the handler runs"), || {
            gate.inside.load(Ordering::Relaxed) > 0
        });
        if place == Place::Worker {
            eventually("both run", || gate.inside.load(Ordering::Relaxed) == 2);
        }
        let (told, hear) = mpsc::channel();
        std::thread::spawn(move || told.send(end(server)));
        let ended = hear.recv_timeout(PATIENCE);
        // Whatever is wrong, the handlers must not wait for ever.
        let opener = Opener(&gate);
        let ended = ended.unwrap_or_else(|_| panic!("{name}: the server does not end"));
        for waiting in [stuck, beside] {
            eventually("the clients hear of it", || waiting.is_finished());
            let call = waiting.join().unwrap();
            assert!(
                matches!(
                    call,
                    Err(CallError::ConnectionLost { .. } | CallError::ShuttingDown)
                ),
                "{name}: {call:?}"
            );
        }
        assert_eq!(gate.left.load(Ordering::Relaxed), 0, "{name}");
        drop(opener);
        ended
    });
    assert!(!ended, "{name}: not everything was answered");
    eventually("the handlers return, to nobody", || {
        gate.left.load(Ordering::Relaxed) == gate.inside.load(Ordering::Relaxed)
    });
    // A lane that was quiet may be lost by that very call; then there is no server any more.
    eventually("nobody is there", || {
        matches!(caller.call(ECHO, b"gone"), Err(CallError::Connect(_)))
    });
}

struct Opener<'a>(&'a Gate);

impl Drop for Opener<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn each(end: fn(RunningServer) -> bool) {
    std::thread::scope(|scope| {
        for preset in PRESETS {
            for place in [Place::Poller, Place::Worker] {
                scope.spawn(move || a_stuck_handler(preset, place, end));
            }
        }
    });
}

#[test]
fn a_server_is_dropped_whatever_its_handlers_do() {
    each(|server| {
        drop(server);
        false
    });
}

#[test]
fn a_shutdown_ends_whatever_handlers_do() {
    each(RunningServer::shutdown);
}

/// A poller is told of 32 new sessions before it looks at them; the clients after them are asked to come again.
#[test]
fn clients_that_come_while_a_poller_stands_still_come_again() {
    for preset in [Preset::Fasst, Preset::Erpc, Preset::Herd] {
        let gate = Arc::default();
        let one = Server::bind("dunlin://127.0.0.1:0").unwrap().pollers(1);
        let server = serve_by(one, Place::Poller, &gate);
        std::thread::scope(|scope| {
            let first = client(preset, &server);
            let opener = Opener(&gate);
            scope.spawn(move || call(&first, STUCK, b"first").unwrap());
            eventually("the handler runs", || {
                gate.inside.load(Ordering::Relaxed) == 1
            });
            let server = &server;
            let others: Vec<_> = (0..40)
                .map(|_| scope.spawn(move || call(&client(preset, server), ECHO, b"other")))
                .collect();
            eventually("one is asked to come again", || {
                let endings = server.handshakes().by_name();
                !endings.contains(&("busy", 0))
            });
            drop(opener);
            for other in others {
                assert_eq!(&*other.join().unwrap().unwrap(), b"other", "{preset}");
            }
        });
    }
}

/// Not a test by itself: a process whose server has a handler that never returns, and that ends all the same.
#[test]
fn the_other_process() {
    if matches!(role(), Some((role, _)) if role == "stuck") {
        let gate = Arc::default();
        let server = serve(Place::Poller, &gate);
        say(&server.address().to_string());
        eventually("the handler runs", || {
            gate.inside.load(Ordering::Relaxed) == 1
        });
        say("inside");
        let _ = listen();
        assert!(!server.shutdown());
    }
}

#[test]
fn a_process_ends_whatever_its_handlers_do() {
    let mut other = Other::start("the_other_process", "stuck", "");
    let address = other.hear();
    let builder = Client::builder().deadline(PATIENCE * 2);
    let client = builder.connect(&address).unwrap();
    let call = client.call_async(STUCK, b"never");
    assert_eq!(other.hear(), "inside");
    other.say("end");
    eventually("the process ends", || {
        other.child.try_wait().unwrap().is_some()
    });
    let ended = block_on(call);
    assert!(
        matches!(ended, Err(CallError::ConnectionLost { .. })),
        "{ended:?}"
    );
}

/// What a handler gets from its own server, in words.
fn asked_within(client: &Client) -> String {
    let said = |result: Result<(), String>| match result {
        Ok(()) => "an answer".to_owned(),
        Err(error) => error,
    };
    let call = client.call(ECHO, b"within").map(drop);
    let batch = client.batch().call(ECHO, b"within").send().map(drop);
    let future = block_on(client.call_async(ECHO, b"within")).map(drop);
    let all = [call, batch, future].map(|result| said(result.map_err(|error| error.to_string())));
    all.join("|")
}

#[test]
fn a_handler_that_calls_its_own_server_hears_so_at_once() {
    for preset in PRESETS {
        let inner: Arc<Mutex<Option<Client>>> = Arc::default();
        let (on_poller, on_worker) = (Arc::clone(&inner), Arc::clone(&inner));
        let ask = |inner: &Mutex<Option<Client>>| {
            let client = inner.lock().unwrap().clone().unwrap();
            asked_within(&client)
        };
        let server = Server::bind("dunlin://127.0.0.1:0")
            .unwrap()
            .handle(ECHO, |request, reply| reply.write(request.payload()))
            .handle(WITHIN, move |_, reply| {
                reply.write(ask(&on_poller).as_bytes())
            })
            .handle_on_workers(STUCK, move |_, reply| {
                reply.write(ask(&on_worker).as_bytes())
            })
            .serve()
            .unwrap();
        let address = server.address().to_string();
        let elsewhere = common::serve_echo();
        let calling = |preset, to: &str| {
            let builder = Client::builder().preset(preset).deadline(PATIENCE);
            builder.connect(to).unwrap()
        };
        let outer = calling(Preset::Plain, &address);
        // A client of this preset: that of the outer call, one that others have used, and one that is new.
        let used = calling(preset, &address);
        for _ in 0..4 {
            let used = used.clone();
            let joined = std::thread::spawn(move || used.call(ECHO, b"used").map(drop));
            joined.join().unwrap().unwrap();
        }
        for client in [used, calling(preset, &address)] {
            *inner.lock().unwrap() = Some(client);
            let heard = outer.call(WITHIN, b"").unwrap();
            let heard = String::from_utf8_lossy(&heard).into_owned();
            assert_eq!(
                heard.matches("handle_on_workers").count(),
                3,
                "{preset}: {heard}"
            );
            // A worker may.
            let heard = outer.call(STUCK, b"").unwrap();
            assert_eq!(&*heard, b"an answer|an answer|an answer", "{preset}");
        }
        // And a poller may call another server.
        *inner.lock().unwrap() = Some(calling(preset, &elsewhere.address().to_string()));
        let heard = outer.call(WITHIN, b"").unwrap();
        assert_eq!(&*heard, b"an answer|an answer|an answer", "{preset}");
        *inner.lock().unwrap() = None;
    }
}

/// A handler holds its poller for longer than clients wait before they ask about a request (HERD's are written, and no
/// look has found them yet): nothing is lost, so nothing is said to be.
#[test]
fn a_poller_that_was_held_up_finds_what_was_written_before_it_answers_questions() {
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle(STUCK, |request, reply| {
            std::thread::sleep(Duration::from_millis(900));
            reply.write(request.payload())
        })
        .serve()
        .unwrap();
    // One that slept would ask only when the answers have woken it.
    let channel = ChannelConfig {
        // Less than the poller is held up; a server that is silent five times as long is taken for gone.
        loss_timeout: Duration::from_millis(600),
        wait: WaitMode::Spin,
        ..ChannelConfig::default()
    };
    let connect = |channel: ChannelConfig| {
        let builder = Client::builder().preset(Preset::Herd).channel(channel);
        builder.connect(&server.address().to_string()).unwrap()
    };
    let (asks, holds) = (connect(channel), connect(ChannelConfig::default()));
    let mut pipeline = asks.pipeline().unwrap();
    for round in 0..3u8 {
        std::thread::scope(|scope| {
            let held = scope.spawn(|| holds.call(STUCK, b"held").unwrap());
            // Some rounds begin while it is held.
            std::thread::sleep(Duration::from_millis(20));
            for tag in 0..24 {
                assert!(pipeline
                    .submit(ECHO, &[round, tag], u64::from(tag))
                    .unwrap());
            }
            let mut answered = 0;
            while answered < 24 {
                let take = |tag: u64, answer: Result<&[u8], CallError>| {
                    assert_eq!(answer.unwrap(), [round, tag as u8]);
                    answered += 1;
                };
                pipeline.wait(take).unwrap();
            }
            assert_eq!(&*held.join().unwrap(), b"held");
        });
    }
}
