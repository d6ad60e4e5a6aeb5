//! A server and its clients call each other on simulated hosts, from seeds: over presets of every kind, under loss,
//! delay, pauses and queue pairs that fail, with a client or the server that crashes.
//!
//! Whatever happens: a call is executed once at most, and once when it was answered; nothing hangs; a client that
//! crashed is found to have gone; memory that clients grant has what was written when they hear of it; without faults
//! every call is answered, and every write heard of or refused. A seed that fails fails again:
//! `DUNLIN_SEED=17 DUNLIN_SEEDS=1` runs it alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::sim::{Fault, Host, Kind, Simulation};
use dunlin::{CallError, CallableClients, Client, HandlerError, Preset, Region, Server};

/// Has the server call back with the same number.
const ROUND: u16 = 1;
const PUSH: u16 = 2;
const CALLS: u64 = 12;

const PRESETS: [Preset; 6] = [
    Preset::Auto,
    Preset::Plain,
    Preset::Flock,
    Preset::ScaleRpc,
    Preset::Xrdma,
    Preset::Flor,
];
const CLIENTS: [&str; 2] = ["one", "two"];

fn us(microseconds: u64) -> Duration {
    Duration::from_micros(microseconds)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// What was executed and answered, by the number of a call.
#[derive(Default)]
struct Seen {
    executed: HashMap<u64, usize>,
    answered: Vec<u64>,
    failed: Vec<String>,
    /// Writes into memory of clients that succeeded.
    written: u64,
    /// Of these, those whose owner had no room for another event.
    full: u64,
    /// Events at owners of memory, each of which had the bytes behind it.
    heard: u64,
    gone: usize,
    /// The program beside the server has made all its calls.
    pushed: bool,
}

type Log = Arc<Mutex<Seen>>;

fn seen(log: &Log) -> std::sync::MutexGuard<'_, Seen> {
    log.lock().expect("nobody panicked")
}

fn ended(log: &Log, call: u64, what: &str, result: Result<(), CallError>) {
    match result {
        Ok(()) => seen(log).answered.push(call),
        Err(error) => seen(log).failed.push(format!("{what} {call}: {error}")),
    }
}

fn read(payload: &[u8]) -> Result<u64, HandlerError> {
    let bytes = payload.try_into();
    let bytes = bytes.map_err(|_| HandlerError::new(1, "no number"))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Takes the events of memory, whose bytes are there.
fn hear(memory: &Region, log: &Log) {
    let events = memory.notifications().expect("it has some");
    while let Some(event) = events.poll() {
        let mut bytes = [0; 8];
        let memory = memory.memory().expect("it is served");
        memory.read(event.offset as usize, &mut bytes);
        let round = u64::from_le_bytes(bytes) as u32;
        assert_eq!(
            (event.value, event.length),
            (round, 8),
            "what was written is there"
        );
        seen(log).heard += 1;
    }
}

/// The program of a client: it lets itself be called, and has the server call it.
fn client(host: &Host, preset: Preset, log: &Log) -> dunlin::sim::Ended {
    let executed = Arc::clone(log);
    // Few, so that there is no room now and then.
    let memory = Region::new("memory", 4096).writable().notified(2);
    let callbacks = || {
        let executed = Arc::clone(&executed);
        Server::unbound()
            .region(&Region::clone(&memory))
            .handle(PUSH, move |request, reply| {
                let call = read(request.payload())?;
                *seen(&executed).executed.entry(call).or_default() += 1;
                reply.write(request.payload())
            })
    };
    let builder = || Client::builder().preset(preset).deadline(us(200_000));
    let place = CLIENTS
        .iter()
        .position(|name| *name == host.name())
        .unwrap_or(0) as u64;
    // A fault may come while the connection is made.
    let begun = (0..200).find_map(|_| {
        let begun = host.connect("server", builder()).ok();
        if begun.is_none() {
            host.sleep(us(1_000));
        }
        begun
    });
    let Some(client) = begun else {
        seen(log).failed.push("no connection".to_owned());
        return Ok(());
    };
    let serving = match callbacks().serve_to(&client) {
        Ok(serving) => serving,
        Err(error) => {
            seen(log).failed.push(format!("not registered: {error}"));
            return Ok(());
        }
    };
    for call in 0..CALLS {
        let call = (place + 1) << 32 | call;
        let answer = client.call(ROUND, &call.to_le_bytes());
        let answer = answer.map(|answer| assert_eq!(*answer, call.to_le_bytes()));
        ended(log, call, "a round", answer);
        hear(&memory, log);
        host.sleep(us(host.random() % 20));
    }
    // The server pushes meanwhile. One that has crashed does not say when it has done so.
    for _ in 0..2_000 {
        hear(&memory, log);
        if seen(log).pushed {
            break;
        }
        host.sleep(us(1_000));
    }
    drop(serving);
    Ok(())
}

/// The program beside the server: it calls all clients that there are, and writes into their memory.
fn push(host: &Host, list: &CallableClients, log: &Log) -> dunlin::sim::Ended {
    for round in 0..CALLS {
        for client in list.list() {
            let call = (client.number() + 100) << 32 | round;
            let answer = client.client().call(PUSH, &call.to_le_bytes());
            let answer = answer.map(|answer| assert_eq!(*answer, call.to_le_bytes()));
            ended(log, call, "a push", answer);
            let remote = client.client().attach("memory");
            let written = remote.and_then(|remote| {
                let told = remote.write_notify(8 * round, &call.to_le_bytes(), round as u32);
                let full = matches!(told, Err(CallError::Overloaded(_)));
                let back = remote.read(8 * round, 8)?;
                assert!(told.is_err() || back[..] == call.to_le_bytes());
                if full {
                    seen(log).full += 1;
                    return Ok(());
                }
                told
            });
            match written {
                Ok(()) => seen(log).written += 1,
                Err(error) => seen(log).failed.push(format!("memory: {error}")),
            }
        }
        host.sleep(us(100 + host.random() % 100));
    }
    seen(log).pushed = true;
    // All leave, or have crashed, which the device finds out in seconds.
    for _ in 0..2_000 {
        if list.is_empty() {
            return Ok(());
        }
        host.sleep(us(10_000));
    }
    Err(format!("{list:?} has not gone").into())
}

/// What a seed is: which preset, and what happens.
fn run(seed: u64) -> (Seen, u64, bool) {
    let preset = PRESETS[seed as usize % PRESETS.len()];
    let log = Log::default();
    let list = CallableClients::called_by(4, Client::builder().deadline(us(200_000)));
    let gone = Arc::clone(&log);
    list.on_change(move |change| {
        seen(&gone).gone += usize::from(matches!(change, dunlin::CallableChange::Gone(_)));
    });
    let mut simulation = Simulation::new(seed);
    let server = Server::unbound()
        .workers(2)
        .callable_clients(&list)
        .handle_on_workers(ROUND, |request, reply| {
            let failed = |error: CallError| HandlerError::new(2, error.to_string());
            let caller = request.caller();
            let caller = caller.ok_or_else(|| HandlerError::new(3, "not registered"))?;
            reply.write(
                &caller
                    .client()
                    .call(PUSH, request.payload())
                    .map_err(failed)?,
            )
        });
    simulation.server("server", server);
    for name in CLIENTS {
        let log = Arc::clone(&log);
        simulation.program(name, move |host| client(host, preset, &log));
    }
    let (pushed, list) = (Arc::clone(&log), list.clone());
    simulation.program("server", move |host| {
        host.sleep(us(300));
        push(host, &list, &pushed)
    });
    let rough = seed % 3 != 0;
    let crash = match seed % 6 {
        1 => Some("one"),
        4 => Some("server"),
        _ => None,
    };
    if rough {
        let kinds = [Kind::Loss, Kind::Delay, Kind::Pause];
        simulation.draw_faults(us(0)..us(2_000), 3, &kinds);
    }
    if let Some(host) = crash {
        let host = host.into();
        simulation.fault(us(700 + seed % 900), Fault::Crash { host });
    }
    let report = simulation
        .run()
        .unwrap_or_else(|failed| panic!("{preset}: {failed}"));
    let mut seen = std::mem::take(&mut *seen(&log));
    let ctx = format!("DUNLIN_SEED={seed} DUNLIN_SEEDS=1 ({preset})");
    for (call, times) in &seen.executed {
        assert_eq!(*times, 1, "{ctx}: call {call:x} was executed {times} times");
    }
    for call in &seen.answered {
        assert!(
            seen.executed.contains_key(call),
            "{ctx}: call {call:x} was answered, and not executed"
        );
    }
    if !rough && crash.is_none() {
        assert!(seen.failed.is_empty(), "{ctx}: {:?}", seen.failed);
        assert_eq!(seen.gone, CLIENTS.len(), "{ctx}");
        assert!(seen.written > 0, "{ctx}");
        assert_eq!(seen.heard + seen.full, seen.written, "{ctx}");
    }
    seen.failed.sort();
    (seen, report.digest, crash.is_some())
}

#[test]
fn whatever_happens_calls_in_both_directions_are_executed_once_at_most() {
    let first = number("DUNLIN_SEED").unwrap_or(0);
    let count = number("DUNLIN_SEEDS").unwrap_or(12);
    let (mut answered, mut written, mut crashes) = (0, 0, 0);
    for seed in first..first + count {
        let (seen, _, crashed) = run(seed);
        answered += seen.answered.len();
        written += seen.written;
        crashes += usize::from(crashed);
    }
    println!("{count} seeds: {answered} calls answered, {written} writes, {crashes} crashes");
    assert!(number("DUNLIN_SEEDS").is_some() || answered > 0 && written > 0 && crashes > 0);
}

#[test]
fn a_seed_gives_the_same_run() {
    for seed in [0, 2] {
        let [(one, digest, _), (two, again, _)] = [(); 2].map(|()| run(seed));
        assert_eq!((digest, one.failed), (again, two.failed), "seed {seed}");
    }
}

#[test]
fn who_says_nothing_for_a_minute_may_still_be_called() {
    let list = CallableClients::new(1);
    let mut simulation = Simulation::new(5);
    simulation.within(Duration::from_secs(200));
    simulation.server("server", Server::unbound().callable_clients(&list));
    simulation.program("one", |host| {
        let client = host.connect("server", Client::builder())?;
        let echo = Server::unbound().handle(PUSH, |request, reply| reply.write(request.payload()));
        let serving = echo.serve_to(&client)?;
        host.sleep(Duration::from_secs(75));
        assert!(serving.is_registered());
        Ok(())
    });
    simulation.program("server", move |host| {
        host.sleep(Duration::from_secs(65));
        let [one] = &list.list()[..] else {
            return Err(format!("{list:?} has one").into());
        };
        assert_eq!(
            (one.number(), &*one.client().call(PUSH, b"still")?),
            (1, &b"still"[..])
        );
        Ok(())
    });
    simulation.run().expect("it ends");
}
