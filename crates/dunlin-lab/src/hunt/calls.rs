//! The calls of a hunt: a server and clients of `dunlin-rpc` with any of its presets, whose threads call and check the
//! results.

mod ends;
mod put_off;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::{
    ChannelConfig, Client, DatagramBatches, Datagrams, Grouping, HandlerError, LocalAcceptor,
    LocalServer, Pace, Preset, Region, Server, WaitMode,
};
use dunlin_sim::HostId;

use super::caller::{self, Caller, Load, Log, ECHO, FAIL, KEY_BYTES, LATER, LIVES, NESTED};
use super::chaos;
use super::fronts::{Front, Fronts, CELLS, CELL_BYTES, REGION};
use super::kept::Kept;
use super::planted::{is_planted, Planted};
use super::terrain::Terrain;
use super::Seen;
use crate::dice::{bytes_of, Dice};
use ends::Cause;
use put_off::PutOff;

/// Presets whose packets are not retransmitted: when one is lost, a call ends with `PacketLost` a second later.
const LOSSY: [Preset; 2] = [Preset::Fasst, Preset::Herd];
/// Number and length of the steps within which all must end. A thread may lose most of its calls, a second each.
const STEPS: usize = 10_000;
const STEP_NS: u64 = 20_000_000;
/// Time within which there must be progress while threads call: a device retries for five seconds, and then a new
/// connection may take as long as a call may.
const HANGING_NS: u64 = 15_000_000_000;
/// Time within which a server must have noticed that its clients are gone: it probes them each second, and a device
/// retries for five.
const FORGETTING_NS: u64 = 15_000_000_000;

/// A client and its threads.
#[derive(Debug)]
struct Party {
    host: HostId,
    preset: Preset,
    client: Client,
    threads: usize,
    /// Whether one of its threads closes it.
    closes: bool,
}

/// Number of executions of each call, and errors in requests.
type Executed = Arc<Mutex<(BTreeMap<(u64, u64), usize>, Vec<String>)>>;

pub(super) fn run(terrain: &Terrain, dice: &mut Dice) -> Seen {
    let (_, late_before) = dunlin::simulated_sleeps();
    let server_host = terrain.any_host(dice);
    let channel = draw_channel(dice);
    let executed = Executed::default();
    let most_active = dice.between(1, 12) as usize;
    let datagrams = draw_datagrams(dice);
    let (put_off, nested) = (PutOff::default(), PutOff::default());
    let server = Kept::new(serve(
        terrain,
        server_host,
        (&channel, most_active, datagrams),
        dice,
        (&executed, &put_off, &nested),
    ));
    // Another server, which handlers of the first call.
    let second_host = terrain.any_host(dice);
    let second = Server::unbound()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .channel(channel.clone())
        .pin_pollers(0)
        .serve_on(terrain.cluster.device(second_host))
        .expect("a server");
    let second = Kept::new(second);
    let asks = Client::builder()
        .preset(any_preset(dice))
        .channel(channel.clone())
        .deadline(caller::DEADLINE)
        .connect_on(terrain.cluster.device(server_host), &second.acceptor())
        .expect("a client");
    let asks = Kept::new(asks);
    let answering = Arc::new(AtomicUsize::new(0));
    for (put_off, other) in [(&put_off, None), (&nested, Some(Client::clone(&asks)))] {
        let (answers, later) = (put_off.clone(), Dice::new(dice.next()));
        let core = terrain.any_core(server_host, dice);
        answering.fetch_add(1, Ordering::Relaxed);
        let ends = Arc::clone(&answering);
        terrain.cluster.spawn_thread(server_host, core, move || {
            answers.answer_all(other.as_ref(), later);
            drop(other);
            ends.fetch_sub(1, Ordering::Relaxed);
        });
    }
    let mut seen = Seen {
        words: format!(
            "server on {}, another on {}, rings of {} B, {} B eager, {} out, {:?}, {most_active} active at most, \
             datagrams {datagrams:?}",
            server_host.number(),
            second_host.number(),
            channel.ring_bytes,
            channel.eager_bytes,
            channel.max_outstanding,
            channel.wait
        ),
        ..Seen::default()
    };
    let (mut parties, mut logs) = (Kept::new(Vec::new()), Vec::new());
    for joined in 0..dice.between(1, 3) {
        let party = join(terrain, &server.acceptor(), &channel, dice);
        for _ in 0..party.threads {
            let log = Arc::new(Mutex::new(Log::default()));
            let (number, client) = (logs.len() as u64, party.client.clone());
            let (front, load) = (Front::draw(dice), Load::draw(dice));
            let closes_after = (party.closes && number % 2 == 0).then(|| dice.between(0, 80));
            let (dice_of_thread, seen_by) = (Dice::new(dice.next()), Arc::clone(&log));
            let core = terrain.any_core(party.host, dice);
            seen.words += &format!("; {}: {front:?}, {load}", party.preset);
            let run: Box<dyn FnOnce() + Send> = match front {
                Front::Pipeline => {
                    let pipeline = party.client.pipeline().expect("a lane");
                    let caller = Caller {
                        number,
                        pipeline,
                        client,
                        load,
                        dice: dice_of_thread,
                        log: seen_by,
                    };
                    Box::new(move || caller.run())
                }
                front => {
                    let caller = Fronts {
                        number,
                        front,
                        client,
                        load,
                        dice: dice_of_thread,
                        log: seen_by,
                        closes_after,
                        lives: LIVES,
                    };
                    Box::new(move || caller.run())
                }
            };
            terrain.cluster.spawn_thread(party.host, core, run);
            logs.push((party.host, joined, log));
        }
        parties.push(party);
    }
    // Numbers of queue pairs: the first use of each index.
    let faults = chaos::run(terrain, dice, |dice| {
        let host = terrain.any_host(dice);
        Some((host, 1 << 16 | dice.between(0, 7) as u32))
    });
    let live = |host: HostId| !faults.crashed.contains(&host);
    // A server may end while clients call, as in a shutdown.
    let mut server = Some(server);
    let vanishes = dice.chance(1, 16) && live(server_host);
    if vanishes {
        seen.words += "; the server ends";
        server = None;
    }
    let over = || {
        let mut all = logs.iter();
        all.all(|(host, _, log)| !live(*host) || lock(log).ended)
    };
    // Calls to a server that is gone end one after the other, each after a device's retries.
    let progress = || -> usize {
        let of = |log: &Log| {
            log.made as usize + log.answered.len() + log.errors.len() + log.nested.len()
        };
        logs.iter().map(|(_, _, log)| of(&lock(log))).sum()
    };
    let mut last = (progress(), terrain.cluster.now_ns());
    for _ in 0..STEPS {
        if over() || terrain.cluster.now_ns() - last.1 > HANGING_NS {
            break;
        }
        terrain.cluster.run_for(STEP_NS);
        let now = progress();
        if now != last.0 {
            last = (now, terrain.cluster.now_ns());
        }
    }
    let loses = |one, other| !terrain.lossless || faults.loses_between(one, other);
    let delays = |one, other| faults.delays_between(one, other);
    // A handler calls the second server from the first one's host.
    let asking_is_disturbed = loses(server_host, second_host) || delays(server_host, second_host);
    let kept_places: Vec<usize> = (0..parties.len() as u64)
        .map(|joined| {
            let its = logs.iter().filter(|(_, of, _)| *of == joined);
            its.map(|(_, _, log)| lock(log).kept_places()).sum()
        })
        .collect();
    for (number, (host, joined, log)) in logs.iter().enumerate() {
        let (party, log) = (&parties[*joined as usize], lock(log));
        seen.messages.0 += log.made as usize;
        seen.messages.1 += log.answered.len();
        let wrong = |what| seen.violations.push(format!("thread {number}: {what}"));
        let cause = Cause {
            live: live(*host),
            breaks: vanishes || faults.ended_between(*host, server_host),
            second: faults.ended_between(server_host, second_host),
            full: kept_places[*joined as usize] >= channel.max_outstanding,
            closes: party.closes,
            disturbed: asking_is_disturbed
                || loses(*host, server_host)
                || delays(*host, server_host),
            loses: loses(*host, server_host) && is_lossy(party.preset, datagrams)
                // Its requests are WRITEs over UC.
                || delays(*host, server_host) && party.preset == Preset::Herd,
        };
        ends::check(number as u64, &log, cause, &lock(&executed).0, wrong);
    }
    seen.violations.append(&mut lock(&executed).1);
    seen.violations.append(&mut lock(&nested.wrong));
    let late = dunlin::simulated_sleeps().1 - late_before;
    // A wake-up may be lost with its packet, and arrive too late.
    let callers = parties.iter().map(|party| party.host);
    let breaks = callers
        .chain([server_host, second_host])
        .any(|host| faults.hit(host));
    if late > 0 && !(!terrain.lossless || faults.disturbs() || breaks) {
        let what =
            format!("{late} sleeps lasted until their bound though there was something to do");
        seen.violations.push(what);
    }
    let wrong = |what| seen.violations.push(what);
    let server = (server, server_host);
    leave(
        terrain,
        (parties.into_inner(), datagrams),
        server,
        &live,
        wrong,
    );
    for all in [&put_off, &nested] {
        all.over.store(true, Ordering::Relaxed);
    }
    // The thread may be in a call.
    let answered = || answering.load(Ordering::Relaxed) == 0;
    for _ in 0..STEPS {
        if answered() || !live(server_host) {
            break;
        }
        terrain.cluster.run_for(STEP_NS);
    }
    if live(server_host) {
        if !answered() {
            let what = "a thread that answers later hangs";
            seen.violations.push(what.to_owned());
        }
        part(terrain, server_host, asks.into_inner());
    } else {
        std::mem::forget(asks);
    }
    drop(second);
    seen.faults = faults;
    seen
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().expect("nobody panicked")
}

/// A generator for what was added later, so that the numbers drawn from a seed before do not change.
fn aside(dice: &Dice) -> Dice {
    Dice::new(dice.clone().next())
}

/// Whether packets of this preset are not retransmitted if the server asks for datagrams in this way.
fn is_lossy(preset: Preset, datagrams: Datagrams) -> bool {
    LOSSY.contains(&preset) || preset == Preset::Auto && datagrams == Datagrams::Always
}

/// Whether clients of the preset `auto` are asked for datagrams from the start on: a hunt is too short for attempts.
fn draw_datagrams(dice: &Dice) -> Datagrams {
    let mut dice = aside(&aside(dice));
    match dice.chance(1, 3) {
        true => Datagrams::Always,
        false => Datagrams::default(),
    }
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
        datagram_batches: DatagramBatches {
            messages: [1, 3, 255][aside(dice).next() as usize % 3],
            ..DatagramBatches::default()
        },
        ..ChannelConfig::default()
    }
}

fn serve(
    terrain: &Terrain,
    host: HostId,
    (channel, most_active, datagrams): (&ChannelConfig, usize, Datagrams),
    dice: &mut Dice,
    (executed, put_off, nested): (&Executed, &PutOff, &PutOff),
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
        warm_up_beside: aside(dice).chance(1, 2),
    };
    let pace = Pace::new(dice.between(1, 4) as usize, grouping.slice);
    let mut server = Server::unbound();
    if dice.chance(1, 4) {
        server = server.pace(&pace);
    }
    let [echoes, fails, laters, nests] = [(); 4].map(|()| Arc::clone(executed));
    let [put_off, nested] = [put_off, nested].map(|all| Arc::clone(&all.calls));
    let cells = Region::new(REGION, CELLS * CELL_BYTES).writable().atomic();
    server
        .grouping(grouping)
        .datagrams(datagrams)
        .handle(ECHO, move |request, reply| {
            let (thread, call) = count(request.payload(), &echoes);
            reply.write(&caller::response(thread, call))
        })
        .handle(FAIL, move |request, _| {
            let (thread, call) = count(request.payload(), &fails);
            let call = call + u64::from(is_planted(Planted::OtherRefusal));
            let code = caller::refusal(thread, call);
            Err(HandlerError::new(code, caller::AS_ASKED))
        })
        .handle_deferred(LATER, move |request, responder| {
            count(request.payload(), &laters);
            lock(&put_off).push((request, responder));
        })
        .handle_deferred(NESTED, move |request, responder| {
            count(request.payload(), &nests);
            lock(&nested).push((request, responder));
        })
        .region(&cells)
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
        closes: dice.chance(1, 12),
    }
}

/// Closes a client on a live host: closing waits for threads that lead lanes, which only run in virtual time.
fn part(terrain: &Terrain, host: HostId, client: Client) -> Arc<AtomicBool> {
    let gone = Arc::new(AtomicBool::new(false));
    let left = Arc::clone(&gone);
    terrain.cluster.spawn_thread(host, 0, move || {
        drop(client);
        left.store(true, Ordering::Relaxed);
    });
    gone
}

/// Ends clients and server; checks that the server forgets the clients that are gone, including crashed ones.
fn leave(
    terrain: &Terrain,
    (parties, datagrams): (Vec<Party>, Datagrams),
    (server, server_host): (Option<Kept<LocalServer>>, HostId),
    live: &dyn Fn(HostId) -> bool,
    mut wrong: impl FnMut(String),
) {
    let cluster = &terrain.cluster;
    let mut leaving = Vec::new();
    // A server does not notice that a client over datagrams has died, or that its goodbye was lost: it keeps the place
    // until another client wants it.
    let over_datagrams =
        |party: &&Party| party.preset == Preset::Erpc || is_lossy(party.preset, datagrams);
    let over_them = parties.iter().filter(over_datagrams);
    // Those of the threads, and that of the futures.
    let lanes = |party: &Party| (party.threads + 1) * LIVES;
    let silent = over_them.map(lanes).sum();
    for party in parties {
        if !live(party.host) {
            // A process that was killed drops nothing.
            std::mem::forget(party.client);
            continue;
        }
        leaving.push(part(terrain, party.host, party.client));
    }
    let deadline = cluster.now_ns() + FORGETTING_NS;
    let connections = || server.as_ref().map_or(0, |server| server.connections());
    let forgotten = || !live(server_host) || connections() <= silent;
    let left = || leaving.iter().all(|gone| gone.load(Ordering::Relaxed));
    while !(left() && forgotten()) && cluster.now_ns() < deadline {
        cluster.run_for(STEP_NS);
    }
    if !left() {
        wrong("a client does not close".to_owned());
    }
    if !forgotten() {
        let count = connections();
        wrong(format!(
            "the server keeps {count} connections of clients that are gone"
        ));
    }
    drop(server);
}

/// A random preset.
fn any_preset(dice: &mut Dice) -> Preset {
    Preset::ALL[dice.next() as usize % Preset::ALL.len()]
}
