//! A deadline of 20 ms, over every front, against a handler that never answers, a server that stands still, one whose
//! ring is full besides, and one that is no more: the call ends by its deadline, not by anything longer; a handler that
//! still has it is told, and one that was not begun is not run. How long each took is printed; no test asserts a time
//! but by an error that only the deadline gives.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{eventually, ECHO};
use dunlin::{
    CallError, ChannelConfig, Client, OwnedRequest, OwnedResponder, Pipeline, Region, Server,
};
use futures_executor::block_on;
use process::{listen, role, say, Other};
use rustix::process::{kill_process, Pid, Signal};

const NEVER: u16 = 2;
const HEARD: u16 = 3;
const SHORT: Duration = Duration::from_millis(20);
/// So long nobody waits: only the short deadline ends a call.
const AGES: Duration = Duration::from_secs(3600);
/// Of each front, in each situation.
const TRIES: usize = 5;

type Held = Arc<Mutex<Vec<(OwnedRequest, OwnedResponder)>>>;

/// The other process: a server that keeps calls of [`NEVER`], and says of how many their callers have given up.
fn serve(address: &str) {
    let held = Held::default();
    let keeps = Arc::clone(&held);
    let server = Server::bind(address)
        .unwrap()
        .region(&Region::new("memory", 4096).writable())
        .region(&Region::new("other", 4096).writable())
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_deferred(NEVER, move |request, responder| {
            let left = request.remaining().expect("it was said");
            assert!(left <= SHORT, "{left:?} are left");
            keeps.lock().unwrap().push((request, responder));
        })
        .handle(HEARD, move |_, reply| {
            let held = held.lock().unwrap();
            let given_up = held.iter().filter(|(request, _)| request.is_cancelled());
            let counts = [held.len() as u64, given_up.count() as u64];
            reply.write(&counts.map(u64::to_le_bytes).concat())
        })
        .serve()
        .unwrap();
    say(&server.address().to_string());
    while listen().is_some() {}
}

fn client(address: &str) -> Client {
    let channel = ChannelConfig {
        ring_bytes: 64 << 10,
        ..ChannelConfig::default()
    };
    let builder = Client::builder().channel(channel).device("shm");
    builder.deadline(AGES).connect(address).unwrap()
}

/// The fronts: each makes one call of the handler within the short deadline, and says how it ended.
type Front = (&'static str, fn(&Client, u16) -> Result<(), CallError>);

const FRONTS: [Front; 6] = [
    ("call_within", |client, handler| {
        client.call_within(SHORT, handler, b"short").map(drop)
    }),
    ("within().call", |client, handler| {
        client.within(SHORT).call(handler, &[7; 9000]).map(drop)
    }),
    ("call_async", |client, handler| {
        block_on(client.within(SHORT).call_async(handler, b"short")).map(drop)
    }),
    ("ready().call", |client, handler| {
        let permit = block_on(client.within(SHORT).ready())?;
        block_on(permit.call(handler, b"short")).map(drop)
    }),
    ("wait_async", |client, handler| {
        thread_local! {
            /// Made while all is well, and kept: a pipeline does not connect anew.
            static PIPELINE: RefCell<Option<(Pipeline, u64)>> = const { RefCell::new(None) };
        }
        PIPELINE.with_borrow_mut(|kept| {
            let (pipeline, calls) = match kept {
                Some(kept) => kept,
                none => none.insert((client.within(SHORT).pipeline()?, 0)),
            };
            *calls += 1;
            while !pipeline.submit(handler, b"short", *calls)? {
                // The ring is full.
                block_on(pipeline.wait_async(|_, _| {}))?;
            }
            // Calls before this one are out still.
            let mut ended = None;
            while ended.is_none() {
                let wait = pipeline.wait_async(|call, answer| {
                    if call == *calls {
                        ended = Some(answer.map(drop));
                    }
                });
                block_on(wait)?;
            }
            ended.unwrap_or(Ok(()))
        })
    }),
    ("batch", |client, handler| {
        let batch = client.batch().deadline(SHORT).call(handler, b"short");
        let results = batch.call(handler, b"another").send()?;
        results.into_iter().collect::<Result<Vec<_>, _>>().map(drop)
    }),
];

/// Runs every front in a situation; `None` of what it may end with: by its deadline alone.
fn all(situation: &str, client: &Client, or: fn(&CallError) -> bool) {
    for (front, call) in FRONTS {
        let mut took = Vec::new();
        for _ in 0..TRIES {
            let start = Instant::now();
            match call(client, NEVER) {
                Err(CallError::DeadlineExceeded { after }) if after == SHORT => {}
                Err(error) if or(&error) => {}
                other => panic!("{situation}, {front}: {other:?}"),
            }
            took.push(start.elapsed());
        }
        took.sort_unstable();
        println!(
            "{situation}, {front}: {:.1?} to {:.1?}",
            took[0],
            took[TRIES - 1]
        );
    }
}

fn nothing_else(_: &CallError) -> bool {
    false
}

/// Where the caller's thread is late, the server's word comes before it has looked at the clock.
fn its_server_says_so(error: &CallError) -> bool {
    matches!(error, CallError::Expired { .. })
}

#[test]
fn twenty_milliseconds_are_twenty_milliseconds_over_every_front() {
    if let Some((_, address)) = role() {
        return serve(&address);
    }
    let name = "twenty_milliseconds_are_twenty_milliseconds_over_every_front";
    let mut server = Other::start(name, "server", "dunlin://127.0.0.1:0");
    let address = server.hear();
    let client_of = client(&address);
    let region = client_of.attach("memory").unwrap();
    // The server's process hands its memory over with the first operation.
    assert_eq!(&region.read(0, 5).unwrap()[..], [0; 5]);
    block_on(client_of.call_async(ECHO, b"a lane of futures")).unwrap();

    all(
        "a handler that never answers",
        &client_of,
        its_server_says_so,
    );
    let mut begun = 0;
    eventually("the handler hears of each", || {
        let counts = client_of.call(HEARD, b"").unwrap();
        let number = |at: usize| u64::from_le_bytes(counts[at..at + 8].try_into().unwrap());
        // A batch makes two calls. One that its server takes late is not begun.
        begun = number(0);
        assert!((1..=(TRIES * (FRONTS.len() + 1)) as u64).contains(&begun));
        begun == number(8)
    });

    let pid = Pid::from_child(&server.child);
    kill_process(pid, Signal::STOP).unwrap();
    eventually("it stands still", || server.stands_still());
    all("a server that stands still", &client_of, nothing_else);
    let start = Instant::now();
    let attached = client_of.within(SHORT).attach("other");
    assert!(matches!(attached, Err(CallError::DeadlineExceeded { after }) if after == SHORT));
    println!(
        "a server that stands still, attach: {:.1?}",
        start.elapsed()
    );
    // A one-sided operation does not need the server's processor at all.
    let read = region.within(Duration::from_secs(20)).read(0, 5);
    assert_eq!(&read.unwrap()[..], [0; 5]);

    // More than its ring holds.
    let mut batch = client_of.batch().deadline(SHORT);
    for _ in 0..40 {
        batch = batch.call(ECHO, &[7; 3000]);
    }
    let results = batch.send().unwrap();
    assert!(results.iter().all(Result::is_err));
    all("a full ring", &client_of, nothing_else);

    // It goes on, and finds in its rings what is over by then: no handler is run for that.
    kill_process(pid, Signal::CONT).unwrap();
    let counts = client_of.call(HEARD, b"").unwrap();
    let ran = u64::from_le_bytes(counts[..8].try_into().unwrap());
    assert_eq!(ran, begun, "handlers ran of calls that were over");

    kill_process(pid, Signal::KILL).unwrap();
    server.kill();
    // Nobody listens there any more, which is an answer, too.
    all("a server that is no more", &client_of, |error| {
        matches!(
            error,
            CallError::ConnectionLost { .. } | CallError::Connect(_)
        )
    });

    // Somebody else listens there, and never says a word: connecting anew has no more time than the call.
    let listener = std::net::TcpListener::bind(address.trim_start_matches("dunlin://")).unwrap();
    all("a port that says nothing", &client_of, |error| {
        matches!(error, CallError::ConnectionLost { .. })
    });
    drop(listener);
}
