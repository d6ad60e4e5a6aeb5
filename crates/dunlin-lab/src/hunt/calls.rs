//! A hunt's load of calls: a server and clients of `dunlin-rpc` with any of its presets, whose threads call and check
//! what they get.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::{
    CallError, ChannelConfig, Client, Grouping, HandlerError, LocalAcceptor, LocalServer,
    OwnedRequest, OwnedResponder, Pace, Preset, Server, WaitMode,
};
use dunlin_sim::HostId;
use dunlin_verbs::thread;

use super::caller::{self, Caller, Load, Log, ECHO, FAIL, KEY_BYTES, LATER, LIVES};
use super::chaos;
use super::terrain::Terrain;
use super::Seen;
use crate::dice::{bytes_of, Dice};

/// Presets whose packets nobody sends again: a call ends with `PacketLost` where one is lost, a second later.
const LOSSY: [Preset; 2] = [Preset::Fasst, Preset::Herd];
/// How often time goes on until everybody has ended, and by how much. A thread may lose most of its calls, a second
/// each.
const STEPS: usize = 10_000;
const STEP_NS: u64 = 20_000_000;
/// In which a server must have noticed that its clients are gone: it probes them each second, and a device tries for
/// five.
const FORGETTING_NS: u64 = 15_000_000_000;

/// A client and its threads.
#[derive(Debug)]
struct Party {
    host: HostId,
    preset: Preset,
    client: Client,
    threads: usize,
}

/// How often each call was executed, and what was wrong with requests.
type Executed = Arc<Mutex<(BTreeMap<(u64, u64), usize>, Vec<String>)>>;

/// Calls that handlers have put off, and whether no more will come.
#[derive(Clone, Default)]
struct PutOff {
    calls: Arc<Mutex<Vec<(OwnedRequest, OwnedResponder)>>>,
    over: Arc<AtomicBool>,
}

/// How often the thread that answers calls that were put off looks, with some there and without.
const LATER_LOOK: Duration = Duration::from_micros(60);
const LATER_REST: Duration = Duration::from_micros(600);

impl PutOff {
    /// Answers in any order, some at once and some late.
    fn answer_all(self, mut dice: Dice) {
        while !self.over.load(Ordering::Relaxed) {
            let next = {
                let mut calls = lock(&self.calls);
                match calls.len() as u64 {
                    0 => None,
                    count => Some(calls.swap_remove(dice.between(0, count - 1) as usize)),
                }
            };
            let Some((request, responder)) = next else {
                thread::sleep(LATER_REST);
                continue;
            };
            // One without its key was reported when it came.
            let (thread, call) = caller::read_key(request.payload()).unwrap_or_default();
            let response = caller::response(thread, call);
            match dice.chance(1, 2) {
                true => responder.reply(response),
                false => responder.answer(|reply| reply.write(&response)),
            }
            if dice.chance(1, 2) {
                thread::sleep(LATER_LOOK);
            }
        }
    }
}

pub(super) fn run(terrain: &Terrain, dice: &mut Dice) -> Seen {
    let server_host = terrain.any_host(dice);
    let channel = draw_channel(dice);
    let executed = Executed::default();
    let most_active = dice.between(1, 12) as usize;
    let put_off = PutOff::default();
    let server = serve(
        terrain,
        server_host,
        (&channel, most_active),
        dice,
        (&executed, &put_off),
    );
    let (answers, later) = (put_off.clone(), Dice::new(dice.next()));
    let core = terrain.any_core(server_host, dice);
    let cluster = &terrain.cluster;
    cluster.spawn_thread(server_host, core, move || answers.answer_all(later));
    let mut seen = Seen {
        words: format!(
            "server on {}, rings of {} B, {} B eager, {} out, {:?}, {most_active} active at most",
            server_host.number(),
            channel.ring_bytes,
            channel.eager_bytes,
            channel.max_outstanding,
            channel.wait
        ),
        ..Seen::default()
    };
    let (mut parties, mut logs) = (Vec::new(), Vec::new());
    for _ in 0..dice.between(1, 3) {
        let party = join(terrain, &server.acceptor(), &channel, dice);
        for _ in 0..party.threads {
            let log = Arc::new(Mutex::new(Log::default()));
            let caller = Caller {
                number: logs.len() as u64,
                pipeline: party.client.pipeline().expect("a lane"),
                client: party.client.clone(),
                load: Load::draw(dice),
                dice: Dice::new(dice.next()),
                log: Arc::clone(&log),
            };
            let core = terrain.any_core(party.host, dice);
            let words = format!("; {}: {}", party.preset, caller.load);
            seen.words += &words;
            let cluster = &terrain.cluster;
            cluster.spawn_thread(party.host, core, move || caller.run());
            logs.push((party.host, party.preset, log));
        }
        parties.push(party);
    }
    // Numbers of queue pairs: the first use of each index.
    let faults = chaos::run(terrain, dice, |dice| {
        let host = terrain.any_host(dice);
        Some((host, 1 << 16 | dice.between(0, 7) as u32))
    });
    let live = |host: HostId| !faults.crashed.contains(&host);
    let over = || {
        let mut all = logs.iter();
        all.all(|(host, _, log)| !live(*host) || lock(log).ended)
    };
    for _ in 0..STEPS {
        if over() {
            break;
        }
        terrain.cluster.run_for(STEP_NS);
    }
    let loses = faults.lost_packets || !terrain.lossless;
    for (number, (host, preset, log)) in logs.iter().enumerate() {
        let log = lock(log);
        seen.messages.0 += log.made as usize;
        seen.messages.1 += log.answered.len();
        let wrong = |what| seen.violations.push(format!("thread {number}: {what}"));
        let cause = Cause {
            live: live(*host),
            breaks: faults.may_break(),
            loses: loses && LOSSY.contains(preset)
                // Its requests are WRITEs over UC.
                || faults.late_packets && *preset == Preset::Herd,
        };
        check(number as u64, &log, cause, &lock(&executed).0, wrong);
    }
    seen.violations.append(&mut lock(&executed).1);
    let wrong = |what| seen.violations.push(what);
    leave(terrain, parties, server, server_host, &live, wrong);
    put_off.over.store(true, Ordering::Relaxed);
    terrain.cluster.run_for(STEP_NS);
    seen.faults = faults;
    seen
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().expect("nobody panicked")
}

fn draw_channel(dice: &mut Dice) -> ChannelConfig {
    ChannelConfig {
        ring_bytes: 16 << 10 << dice.between(0, 2),
        eager_bytes: [64, 600, 4096][dice.next() as usize % 3],
        max_outstanding: dice.between(1, 24) as usize,
        wait: match dice.chance(1, 2) {
            true => WaitMode::Spin,
            false => WaitMode::default(),
        },
        ..ChannelConfig::default()
    }
}

fn serve(
    terrain: &Terrain,
    host: HostId,
    (channel, most_active): (&ChannelConfig, usize),
    dice: &mut Dice,
    (executed, put_off): (&Executed, &PutOff),
) -> LocalServer {
    let pollers = dice.between(1, terrain.cores[host.number()] as u64) as usize;
    let count = |payload: &[u8], executed: &Executed| {
        let mut executed = lock(executed);
        let Some((thread, call)) = caller::read_key(payload) else {
            executed.1.push("a request without its key".to_owned());
            return (u64::MAX, 0);
        };
        *executed.0.entry((thread, call)).or_default() += 1;
        if payload[KEY_BYTES..] != bytes_of(thread, call, payload.len() - KEY_BYTES) {
            let what = format!("the request {call} of thread {thread} has other bytes");
            executed.1.push(what);
        }
        (thread, call)
    };
    let grouping = Grouping {
        clients: [1, 2, 40][dice.next() as usize % 3],
        slice: Duration::from_micros([5, 20, 100][dice.next() as usize % 3]),
        by_priority: dice.chance(1, 2),
    };
    let pace = Pace::new(dice.between(1, 4) as usize, grouping.slice);
    let mut server = Server::unbound();
    if dice.chance(1, 4) {
        server = server.pace(&pace);
    }
    let [echoes, fails, laters] = [(); 3].map(|()| Arc::clone(executed));
    let put_off = Arc::clone(&put_off.calls);
    server
        .grouping(grouping)
        .handle(ECHO, move |request, reply| {
            let (thread, call) = count(request.payload(), &echoes);
            reply.write(&caller::response(thread, call))
        })
        .handle(FAIL, move |request, _| {
            let (_, call) = count(request.payload(), &fails);
            Err(HandlerError::new(call as u32, "as asked"))
        })
        .handle_deferred(LATER, move |request, responder| {
            count(request.payload(), &laters);
            lock(&put_off).push((request, responder));
        })
        .channel(channel.clone())
        .pollers(pollers)
        .pin_pollers(0)
        .max_active_queue_pairs(most_active)
        .serve_on(terrain.cluster.device(host))
        .expect("a server")
}

fn join(
    terrain: &Terrain,
    acceptor: &LocalAcceptor,
    channel: &ChannelConfig,
    dice: &mut Dice,
) -> Party {
    let host = terrain.any_host(dice);
    let preset = any_preset(dice);
    let client = Client::builder()
        .preset(preset)
        .lanes(dice.between(1, 4) as usize)
        .dispatched(dice.chance(1, 3))
        .channel(channel.clone())
        .deadline(caller::DEADLINE)
        .connect_on(terrain.cluster.device(host), acceptor)
        .expect("a client");
    Party {
        host,
        preset,
        client,
        threads: dice.between(1, 4) as usize,
    }
}

/// What there was that ends a call of a thread with an error.
struct Cause {
    /// Its host did not crash.
    live: bool,
    /// A connection may have been lost.
    breaks: bool,
    /// A packet may have been lost, and nobody sends it again.
    loses: bool,
}

/// What one thread saw, and what the server did of it.
fn check(
    thread: u64,
    log: &Log,
    cause: Cause,
    executed: &BTreeMap<(u64, u64), usize>,
    mut wrong: impl FnMut(String),
) {
    log.wrong.iter().cloned().for_each(&mut wrong);
    if cause.live && !log.ended {
        wrong(format!("it hangs after {} calls", log.made));
    }
    let is_lost = |error: &CallError| matches!(error, CallError::PacketLost { .. });
    for error in &log.errors {
        let has_cause = cause.breaks || (cause.loses && is_lost(error));
        if !has_cause {
            wrong(format!("an error without a cause: {error}"));
        }
    }
    let times = |call: u64| executed.get(&(thread, call)).copied().unwrap_or(0);
    for (&call, &said) in &log.lost {
        if times(call) != usize::from(said) {
            let times = times(call);
            wrong(format!(
                "call {call} is said to be executed {said}, and was {times} times"
            ));
        }
    }
    for call in 0..log.made {
        let (times, answered) = (times(call), log.answered.contains(&call));
        if times > 1 || answered && times == 0 {
            wrong(format!(
                "call {call} was executed {times} times, answered {answered}"
            ));
        }
    }
}

/// Clients and server go; a server forgets the clients that are gone, the crashed ones too.
fn leave(
    terrain: &Terrain,
    parties: Vec<Party>,
    server: LocalServer,
    server_host: HostId,
    live: &dyn Fn(HostId) -> bool,
    mut wrong: impl FnMut(String),
) {
    let cluster = &terrain.cluster;
    let mut leaving = Vec::new();
    // A server does not notice that one whose datagrams do not come any more is dead, or that its goodbye was lost: it
    // keeps the place until another wants it.
    let over_datagrams =
        |party: &&Party| party.preset == Preset::Erpc || LOSSY.contains(&party.preset);
    let datagrams = parties.iter().filter(over_datagrams);
    let silent = datagrams.map(|party| party.threads * LIVES).sum();
    for party in parties {
        if !live(party.host) {
            // A process that was killed drops nothing.
            std::mem::forget(party.client);
            continue;
        }
        let gone = Arc::new(AtomicBool::new(false));
        leaving.push(Arc::clone(&gone));
        // Closing waits for those who lead lanes, and they go on in virtual time only.
        cluster.spawn_thread(party.host, 0, move || {
            drop(party.client);
            gone.store(true, Ordering::Relaxed);
        });
    }
    let deadline = cluster.now_ns() + FORGETTING_NS;
    let forgotten = || !live(server_host) || server.connections() <= silent;
    let left = || leaving.iter().all(|gone| gone.load(Ordering::Relaxed));
    while !(left() && forgotten()) && cluster.now_ns() < deadline {
        cluster.run_for(STEP_NS);
    }
    if !left() {
        wrong("a client does not close".to_owned());
    }
    if !forgotten() {
        let count = server.connections();
        wrong(format!(
            "the server keeps {count} connections of clients that are gone"
        ));
    }
    drop(server);
}

fn any_preset(dice: &mut Dice) -> Preset {
    Preset::ALL[dice.next() as usize % Preset::ALL.len()]
}
