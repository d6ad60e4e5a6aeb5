//! SIGKILL of servers and clients of the presets over datagrams: the device tells of it, so nobody waits for time-outs,
//! and what belonged to the dead is given back.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::sync::{mpsc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{eventually, pattern, ECHO};
use dunlin::{CallError, ChannelConfig, Client, Preset, RunningServer, Server};
use process::{listen, role, say, Other};

const NEVER: u16 = 2;
const PRESETS: [Preset; 3] = [Preset::Fasst, Preset::Erpc, Preset::Herd];
/// So long no test runs: what is noticed is not noticed by it.
const AGES: Duration = Duration::from_secs(3600);
/// Sessions of a client process.
const SESSIONS: usize = 16;

/// What this process has open is counted, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(address: &str) -> RunningServer {
    Server::bind(address)
        .unwrap()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(NEVER, |_, _| {
            say("never");
            loop {
                std::thread::park();
            }
        })
        .serve()
        .unwrap()
}

fn client(preset: Preset, address: &str) -> Client {
    let patient = ChannelConfig {
        loss_timeout: AGES,
        ..ChannelConfig::default()
    };
    let builder = Client::builder().preset(preset).channel(patient);
    builder.deadline(AGES).connect(address).unwrap()
}

/// Not a test by itself: the process that is killed.
#[test]
fn the_other_process() {
    let Some((role, argument)) = role() else {
        return;
    };
    match role.as_str() {
        "server" => {
            let server = serve(&argument);
            say(&server.address().to_string());
            while listen().is_some() {}
        }
        "client" => {
            let (preset, address) = argument.split_once(' ').unwrap();
            let client = client(preset.parse().unwrap(), address);
            // The client's own lane has never said a word; the others have.
            let mut pipelines: Vec<_> = (1..SESSIONS).map(|_| client.pipeline().unwrap()).collect();
            for pipeline in &mut pipelines {
                pipeline.submit(ECHO, b"here", 1).unwrap();
                while pipeline.outstanding() > 0 {
                    pipeline
                        .wait(|_, answer| drop(answer.unwrap().to_vec()))
                        .unwrap();
                }
            }
            say("connected");
            while listen().is_some() {}
        }
        _ => {}
    }
}

#[test]
fn a_killed_server_is_noticed_at_once_and_found_again() {
    let _alone = alone();
    for preset in PRESETS {
        let mut server = Other::start("the_other_process", "server", "dunlin://127.0.0.1:0");
        let address = server.hear();
        let client = client(preset, &address);
        assert_eq!(&*client.call(ECHO, b"here").unwrap(), b"here");
        let waiting = {
            let client = client.clone();
            std::thread::spawn(move || client.call(NEVER, b"").map(drop))
        };
        let (idle, quiet) = {
            let client = client.clone();
            let (quiet, hear) = mpsc::channel::<()>();
            let (ready, is_ready) = mpsc::channel();
            let idle = std::thread::spawn(move || {
                client.call(ECHO, b"idle").unwrap();
                ready.send(()).unwrap();
                let _ = hear.recv();
                client.call(ECHO, b"again").map(|answer| answer.to_vec())
            });
            is_ready.recv().unwrap();
            (idle, quiet)
        };
        assert_eq!(server.hear(), "never");
        server.kill();
        eventually("the caller knows", || waiting.is_finished());
        let ended = waiting.join().unwrap();
        assert!(
            matches!(ended, Err(CallError::ConnectionLost { .. })),
            "{preset}: {ended:?}"
        );
        let mut next = Other::start("the_other_process", "server", &address);
        assert_eq!(next.hear(), address);
        // A lane that was quiet all the time is not even lost: the next call connects anew.
        drop(quiet);
        eventually("the idle thread has an answer", || idle.is_finished());
        assert_eq!(idle.join().unwrap().unwrap(), b"again", "{preset}");
        assert_eq!(&*client.call(ECHO, b"back").unwrap(), b"back", "{preset}");
        next.kill();
    }
}

/// Descriptors, and bytes of shared memory that are mapped.
fn belongings() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let bytes = |line: &str| {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        number(to) - number(from)
    };
    let shared = maps.lines().filter(|line| line.contains("memfd:"));
    let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
    (files, shared.map(bytes).sum())
}

#[test]
fn killed_clients_leave_nothing() {
    let _alone = alone();
    for (preset, stays) in PRESETS.into_iter().flat_map(|p| [(p, false), (p, true)]) {
        let server = serve("dunlin://127.0.0.1:0");
        let address = server.address().to_string();
        // Whatever the first client brings for good.
        let steady = client(preset, &address);
        assert_eq!(&*steady.call(ECHO, b"first").unwrap(), b"first");
        let steady = stays.then_some(steady);
        let rest = usize::from(stays);
        eventually("only who stays", || server.connections() == rest);
        let before = belongings();
        let mut peak = (0, 0);
        for wave in 0..3 {
            let argument = format!("{preset} {address}");
            let mut clients: Vec<_> = (0..3)
                .map(|_| Other::start("the_other_process", "client", &argument))
                .collect();
            for client in &mut clients {
                assert_eq!(client.hear(), "connected");
            }
            assert_eq!(server.connections(), rest + 3 * SESSIONS, "{preset} {wave}");
            peak = peak.max(belongings());
            for client in &mut clients {
                client.kill();
            }
            // Their pipes are ours.
            drop(clients);
            eventually("the sessions of the dead end", || {
                server.connections() == rest
            });
            let what = format!("{preset}, others {stays}: from {peak:?} to {before:?}");
            let mut seen = peak;
            eventually(&what, || {
                if let Some(client) = &steady {
                    for i in 0..100 {
                        let payload = pattern(i, i as u64);
                        assert_eq!(&*client.call(ECHO, &payload).unwrap(), &payload);
                    }
                }
                let now = belongings();
                if now != std::mem::replace(&mut seen, now) {
                    println!("{now:?}, {} sessions", server.connections());
                }
                now.0 <= before.0 + 4 && now.1 <= before.1 + (2 << 20)
            });
        }
        println!("{preset}: {before:?}, at most {peak:?}, {:?}", belongings());
        let statistics = server.statistics();
        assert_eq!(statistics.violations, 0, "{preset}");
        drop(steady);
        assert!(server.shutdown(), "{preset}");
    }
}
