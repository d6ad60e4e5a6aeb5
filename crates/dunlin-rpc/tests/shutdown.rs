//! A server that shuts down while a client is stopped: its answers arrive when the client goes on. The client is this
//! program again.

#[path = "common/again.rs"]
mod again;

use std::io::Write;
use std::sync::{mpsc, Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin_rpc::{CallError, Client, OwnedResponder, Preset, Server};
use rustix::process::{kill_process, Pid, Signal};

use again::Again;

const KEEP: u16 = 1;
const BLOCK: u16 = 2;
/// Number of outstanding calls: more than a send queue has entries.
const CALLS: u64 = 350;
/// Longer than an announcement takes on the loopback interface.
const ANNOUNCED: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(20);
/// The server of the calling process, and how it calls.
const ADDRESS: &str = "DUNLIN_SHUTDOWN_ADDRESS";
const PRESET: &str = "DUNLIN_SHUTDOWN_PRESET";

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What the other process does; nothing in the test program itself.
#[test]
fn another_process() {
    let Ok(address) = std::env::var(ADDRESS) else {
        return;
    };
    let preset = std::env::var(PRESET).unwrap().parse().unwrap();
    let builder = Client::builder().device("roce").preset(preset);
    let client = builder.connect(&address).unwrap();
    let mut pipeline = client.pipeline_of(CALLS as usize).unwrap();
    if preset == Preset::ScaleRpc {
        println!("\nconnected");
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
    let mut out = 0;
    while out < CALLS && pipeline.submit(KEEP, b"", out).unwrap() {
        out += 1;
    }
    let (mut answered, mut lost) = (0, Vec::new());
    let mut answer = |tag: u64, answer: Result<&[u8], CallError>| match answer {
        Ok(words) => {
            assert_eq!(words, tag.to_le_bytes());
            answered += 1;
        }
        Err(error) => lost.push(error),
    };
    let started = Instant::now();
    while preset == Preset::ScaleRpc && started.elapsed() < ANNOUNCED {
        pipeline.poll(&mut answer).unwrap();
    }
    println!("\n{out} are out");
    while pipeline.outstanding() > 0 && pipeline.wait(&mut answer).is_ok() {}
    let first = lost.first().map(ToString::to_string);
    println!("\n{answered} answered, {} lost: {first:?}", lost.len());
}

fn signal(calling: &Again, signal: Signal) {
    kill_process(Pid::from_child(&calling.child), signal).unwrap();
}

fn is_stopped(calling: &Again) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", calling.child.id())).unwrap();
    tasks.map(Result::unwrap).all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let (_, rest) = stat.rsplit_once(") ").unwrap_or_default();
        rest.starts_with('T')
    })
}

fn answers_arrive_at_a_client_that_did_not_run(preset: Preset) {
    let kept = Arc::<Mutex<Vec<OwnedResponder>>>::default();
    let keeps = Arc::clone(&kept);
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle_deferred(KEEP, move |_, responder| {
            keeps.lock().unwrap().push(responder)
        })
        .serve()
        .unwrap();
    let mut calling = Again::new(&[
        (ADDRESS, &server.address().to_string()),
        (PRESET, &preset.to_string()),
    ]);
    let line = calling.says(" are out");
    let out: u64 = line.split(' ').next().unwrap().parse().unwrap();
    eventually("all calls have come", || {
        kept.lock().unwrap().len() as u64 == out
    });
    signal(&calling, Signal::STOP);
    eventually("the client is stopped", || is_stopped(&calling));
    let ending = std::thread::spawn(move || server.shutdown());
    for (tag, responder) in kept.lock().unwrap().drain(..).enumerate() {
        responder.reply((tag as u64).to_le_bytes());
    }
    // By then the server has done everything that it can do without the client.
    std::thread::sleep(Duration::from_millis(200));
    signal(&calling, Signal::CONT);
    assert_eq!(
        calling.says(" answered, "),
        format!("{out} answered, 0 lost: None"),
        "{preset}"
    );
    assert!(ending.join().unwrap(), "{preset}");
}

#[test]
fn what_is_answered_arrives_at_a_client_that_did_not_run_when_its_server_shut_down() {
    for preset in [Preset::Plain, Preset::Xrdma] {
        answers_arrive_at_a_client_that_did_not_run(preset);
    }
}

/// A client has announced requests and is stopped: READs of them are not answered before it goes on. Its server sees
/// the announcement after it was told to shut down.
#[test]
fn requests_that_are_being_fetched_are_answered_when_their_server_shuts_down() {
    let (entered, blocks) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let goes_on = Mutex::new(goes_on);
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(KEEP, |request, reply| reply.write(request.payload()))
        .handle(BLOCK, move |_, reply| {
            entered.send(()).unwrap();
            goes_on.lock().unwrap().recv().unwrap();
            reply.write(&[])
        })
        .serve()
        .unwrap();
    let address = server.address().to_string();
    let builder = Client::builder().device("roce").preset(Preset::Plain);
    let blocking = builder.deadline(PATIENCE).connect(&address).unwrap();
    let mut calling = Again::new(&[(ADDRESS, &address), (PRESET, &Preset::ScaleRpc.to_string())]);
    calling.says("connected");
    // The poller has taken the new client after that.
    blocking.call(KEEP, b"").unwrap();
    let blocked = std::thread::spawn(move || blocking.call(BLOCK, b"").map(drop));
    blocks.recv().unwrap();
    let mut input = calling.child.stdin.take().unwrap();
    input.write_all(b"\n").unwrap();
    let line = calling.says(" are out");
    let out = line.split(' ').next().unwrap();
    signal(&calling, Signal::STOP);
    eventually("the client is stopped", || is_stopped(&calling));
    let ending = std::thread::spawn(move || server.shutdown());
    eventually("the server takes no more clients", || {
        Client::connect(&address).is_err()
    });
    go_on.send(()).unwrap();
    blocked.join().unwrap().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    signal(&calling, Signal::CONT);
    assert_eq!(
        calling.says(" answered, "),
        format!(
            "0 answered, {out} lost: {:?}",
            Some(CallError::ShuttingDown.to_string())
        )
    );
    assert!(ending.join().unwrap());
}
