//! A server that shuts down while a client is stopped: its answers arrive when the client goes on. The client is this
//! program again.

#[path = "common/again.rs"]
mod again;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin_rpc::{Client, OwnedResponder, Preset, Server};
use rustix::process::{kill_process, Pid, Signal};

use again::Again;

const KEEP: u16 = 1;
/// Number of outstanding calls: more than a send queue has entries.
const CALLS: u64 = 350;
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
    let mut out = 0;
    while out < CALLS && pipeline.submit(KEEP, b"", out).unwrap() {
        out += 1;
    }
    println!("\n{out} are out");
    let (mut answered, mut lost) = (0, Vec::new());
    while pipeline.outstanding() > 0 {
        let waited = pipeline.wait(|tag, answer| match answer {
            Ok(words) => {
                assert_eq!(words, tag.to_le_bytes());
                answered += 1;
            }
            Err(error) => lost.push(error),
        });
        if waited.is_err() {
            break;
        }
    }
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
