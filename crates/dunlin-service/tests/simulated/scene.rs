//! A scene of a seed: two servers, clients, what happens to them, and what must hold in the end.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use dunlin::{ChannelConfig, Client, LocalAcceptor, LocalServer, Preset, ServerBuilder, WaitMode};
use dunlin_service::private::Threads;
use dunlin_service::{Channel, Code, Server};
use dunlin_sim::{Cluster, HostId, HostParameters, NicParameters, SimDevice, SwitchParameters};
use dunlin_verbs::Device;

use crate::caller::{Caller, Manner, Party, DEADLINE};
use crate::dice::Dice;
use crate::faults::{self, Faults};
use crate::log::{Failure, Log};
use crate::service::back_server::BackServer;
use crate::service::front_server::FrontServer;
use crate::service::Service;
use crate::works::quick_server::SyncQuickServer;
use crate::works::works_server::SyncWorksServer;

/// Presets whose packets nobody sends again.
const LOSSY: [Preset; 2] = [Preset::Fasst, Preset::Herd];
const MANNERS: [Manner; 4] = [
    Manner::Tasks,
    Manner::Tasks,
    Manner::Blocking,
    Manner::Pipelined,
];
const STEP_NS: u64 = 20_000_000;
/// Within which something must have happened while threads call. A stream whose server is dead makes eight new
/// connections, and each is tried by its device for seconds.
const HANGING_NS: u64 = 120_000_000_000;
/// In which a server must have noticed that the clients of streams are gone: 30 s where they were killed, and some.
const FORGETTING_NS: u64 = 60_000_000_000;

/// Calls and those that ended as they should.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calls {
    pub made: usize,
    pub ended_well: usize,
}

/// What a seed gave.
#[derive(Debug, Default)]
pub struct Outcome {
    pub words: String,
    pub digest: u64,
    pub calls: Calls,
    pub messages: usize,
    pub given_up: usize,
    pub hops: usize,
    pub by_workers: usize,
    pub pipelined: usize,
    /// Threads that wait for each call.
    pub blocking: usize,
    pub wrong: Vec<String>,
}

impl Outcome {
    pub fn add(&mut self, other: &Self) {
        self.calls.made += other.calls.made;
        self.calls.ended_well += other.calls.ended_well;
        self.messages += other.messages;
        self.given_up += other.given_up;
        self.hops += other.hops;
        self.by_workers += other.by_workers;
        self.pipelined += other.pipelined;
        self.blocking += other.blocking;
    }

    pub fn figures(&self) -> String {
        format!(
            "{} calls, {} as they should, {} messages of streams, {} given up, {} of two hops, {} by workers, \
             {} by pipelines, {} threads that wait",
            self.calls.made,
            self.calls.ended_well,
            self.messages,
            self.given_up,
            self.hops,
            self.by_workers,
            self.pipelined,
            self.blocking
        )
    }
}

/// A host that runs threads of typed services.
pub struct Place {
    host: HostId,
    device: SimDevice,
    /// Threads that typed services have started.
    running: Arc<AtomicUsize>,
}

impl Place {
    pub fn new(cluster: &Cluster, host: HostId) -> Self {
        Self {
            host,
            device: cluster.device(host),
            running: Arc::default(),
        }
    }

    pub fn threads(&self) -> Threads {
        let (device, running) = (self.device.clone(), Arc::clone(&self.running));
        Threads::new(move |name, run| {
            running.fetch_add(1, Ordering::Relaxed);
            let ends = Arc::clone(&running);
            let run = move || {
                run();
                ends.fetch_sub(1, Ordering::Relaxed);
            };
            device.spawn(name.to_owned(), None, Box::new(run)).map(drop)
        })
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("nobody panicked")
}

fn draw_channel(dice: &mut Dice) -> ChannelConfig {
    ChannelConfig {
        ring_bytes: 16 << 10 << dice.between(0, 2),
        eager_bytes: dice.one_of(&[64, 600, 4096]),
        max_outstanding: dice.between(16, 40) as usize,
        // Who only spins would look for seconds of virtual time at what a pull waits for.
        wait: WaitMode::Doze {
            spin: Duration::from_micros(dice.one_of(&[1, 10, 50])),
        },
        loss_timeout: Duration::from_millis(50),
        ..ChannelConfig::default()
    }
}

/// Lets time pass until `done`, or for so long at most; says whether it is.
pub fn run_until(cluster: &Cluster, at_most_ns: u64, mut done: impl FnMut() -> bool) -> bool {
    let deadline = cluster.now_ns() + at_most_ns;
    while !done() && cluster.now_ns() < deadline {
        cluster.run_for(STEP_NS);
    }
    done()
}

/// Does it on a thread of a simulated host.
pub fn on(cluster: &Cluster, host: HostId, act: impl FnOnce() + Send + 'static) -> Arc<AtomicBool> {
    let done = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&done);
    cluster.spawn_thread(host, 0, move || {
        act();
        tells.store(true, Ordering::Relaxed);
    });
    done
}

pub fn run(seed: u64) -> Outcome {
    let mut dice = Dice::new(seed);
    let mut host = HostParameters::xeon_gold_5118();
    host.cores = dice.between(1, 4) as f64;
    // Short, so that threads that share a core take many turns.
    host.time_slice = 20_000_000;
    let nic = match dice.between(0, 2) {
        0 => NicParameters::connectx_3(),
        1 => NicParameters::connectx_5(),
        _ => NicParameters::connectx_6_dx(),
    };
    let count = 2 + dice.between(1, 2) as usize;
    let switch = SwitchParameters::z9264f();
    let cluster = Cluster::star(seed, count, &host, &nic, &switch);
    let places: Vec<_> = cluster
        .hosts()
        .into_iter()
        .map(|host| Place::new(&cluster, host))
        .collect();
    let (first, second) = (&places[0], &places[1]);
    let channel = draw_channel(&mut dice);
    let service = Service::default();

    let back = Server::builder()
        .threads(second.threads())
        .add_service(BackServer::new(service.clone()));
    let back = start(back, dunlin::Server::unbound(), second, &channel);
    let back_preset = connect_back(
        &cluster,
        first,
        &back.acceptor(),
        &channel,
        &service,
        &mut dice,
    );
    let window = dice.one_of(&[16 << 10, 64 << 10]);
    let workers = dice.between(1, 4) as usize;
    let serve = || {
        let front = Server::builder()
            .threads(first.threads())
            .stream_window(window)
            .add_service(FrontServer::new(service.clone()))
            .add_service(SyncWorksServer::on_workers(service.clone()))
            .add_service(SyncQuickServer::inline(service.clone()));
        let server = dunlin::Server::unbound().workers(workers);
        start(front, server, first, &channel)
    };
    let mut front = Some(serve());
    let acceptor = front.as_ref().expect("it has just begun").acceptor();
    let acceptor = Arc::new(Mutex::new(acceptor));

    let mut words = format!(
        "{}, {count} hosts, {:?}, {} out, {workers} workers, back by {back_preset}",
        nic.name, channel.wait, channel.max_outstanding
    );
    let (mut parties, mut logs, mut blocking) = (Vec::new(), Vec::new(), 0);
    for place in &places[2..] {
        let party = join(place, &acceptor, &channel, &mut dice);
        for _ in 0..dice.between(1, 3) {
            let log = Arc::new(Mutex::new(Log::default()));
            let caller = Caller {
                number: logs.len() as u64 + 1,
                party: Arc::clone(&party),
                manner: dice.one_of(&MANNERS),
                groups: dice.between(1, 12),
                together: dice.one_of(&[1, 3, 8]),
                dice: Dice::new(dice.next()),
                log: Arc::clone(&log),
            };
            words += &format!(
                "; {} {:?}: {} of {}",
                party.preset, caller.manner, caller.groups, caller.together
            );
            blocking += usize::from(caller.manner == Manner::Blocking);
            let core = dice.between(0, host.cores as u64 - 1) as usize;
            cluster.spawn_thread(place.host, core, move || caller.run());
            logs.push((place.host, party.preset, log));
        }
        parties.push((place.host, party));
    }

    let faults = faults::run(&cluster, &mut dice, |faults| {
        if faults.crashed.contains(&first.host) {
            return;
        }
        drop(front.take());
        let anew = serve();
        *lock(&acceptor) = anew.acceptor();
        front = Some(anew);
    });
    words += &format!("; {}", faults.words.join(", "));
    // Shown by `--nocapture`, also of a seed that does not end.
    println!("seed {seed}: {words}");
    let mut outcome = Outcome {
        words,
        blocking,
        ..Outcome::default()
    };
    let live = |host: HostId| !faults.crashed.contains(&host);
    wait_for_callers(&cluster, &logs, &live);
    for (number, (host, preset, log)) in logs.iter().enumerate() {
        let log = lock(log);
        outcome.calls.made += log.made;
        outcome.calls.ended_well += log.ended_well;
        outcome.messages += log.messages;
        outcome.given_up += log.given_up;
        outcome.hops += log.hops;
        outcome.by_workers += log.by_workers;
        outcome.pipelined += log.pipelined;
        let mut wrong = |what: String| {
            let what = format!("thread {} ({preset}): {what}", number + 1);
            outcome.wrong.push(what);
        };
        if live(*host) && !log.ended {
            wrong("it hangs".to_owned());
        }
        log.wrong.iter().cloned().for_each(&mut wrong);
        for failure in &log.failed {
            let has_cause = has_cause(failure, &faults, *preset, back_preset);
            if live(*host) && !has_cause {
                let Failure { what, status, .. } = failure;
                wrong(format!("{what} ends without a cause with {status}"));
            }
        }
        check_executed(number as u64 + 1, &log, &service, wrong);
    }
    // It has what the server has.
    drop(acceptor);
    leave(
        &cluster,
        parties,
        (front, back),
        &places,
        &service,
        &live,
        &mut outcome.wrong,
    );
    outcome.wrong.append(&mut service.seen().wrong);
    outcome.messages += service.seen().messages;
    outcome.digest = cluster.digest();
    outcome
}

pub fn start(
    services: Server,
    server: ServerBuilder,
    place: &Place,
    channel: &ChannelConfig,
) -> LocalServer {
    services
        .on(server)
        .expect("methods")
        .channel(channel.clone())
        .pin_pollers(0)
        .serve_on(place.device.clone())
        .expect("a server")
}

/// Gives the service its channel to the second server.
fn connect_back(
    cluster: &Cluster,
    place: &Place,
    acceptor: &LocalAcceptor,
    channel: &ChannelConfig,
    service: &Service,
    dice: &mut Dice,
) -> Preset {
    let preset = dice.one_of(Preset::ALL);
    let client = Client::builder()
        .preset(preset)
        .channel(channel.clone())
        .deadline(DEADLINE)
        .connect_on(place.device.clone(), acceptor)
        .expect("a client");
    let (threads, back) = (place.threads(), Arc::clone(&service.back));
    let connected = on(cluster, place.host, move || {
        let channel = Channel::from_client_blocking(client).expect("typed services");
        *lock(&back) = Some(channel.threads(threads));
    });
    let is_connected = run_until(cluster, HANGING_NS, || connected.load(Ordering::Relaxed));
    assert!(is_connected, "before anything happens");
    preset
}

fn join(
    place: &Place,
    acceptor: &Arc<Mutex<LocalAcceptor>>,
    channel: &ChannelConfig,
    dice: &mut Dice,
) -> Arc<Party> {
    let preset = dice.one_of(Preset::ALL);
    let (lanes, dispatched) = (dice.between(1, 4) as usize, dice.chance(1, 3));
    let channel = channel.clone();
    Arc::new(Party {
        device: place.device.clone(),
        acceptor: Arc::clone(acceptor),
        builder: Box::new(move || {
            Client::builder()
                .preset(preset)
                .lanes(lanes)
                .dispatched(dispatched)
                .channel(channel.clone())
                .deadline(DEADLINE)
        }),
        threads: place.threads(),
        window: dice.one_of(&[1 << 10, 8 << 10, 64 << 10]),
        preset,
        channel: Mutex::default(),
    })
}

type Logs = [(HostId, Preset, Arc<Mutex<Log>>)];

fn wait_for_callers(cluster: &Cluster, logs: &Logs, live: &dyn Fn(HostId) -> bool) {
    let progress = || -> usize {
        let of = |log: &Log| log.made + log.ended_well + log.failed.len() + log.messages;
        logs.iter().map(|(_, _, log)| of(&lock(log))).sum()
    };
    let over = || {
        let mut all = logs.iter();
        all.all(|(host, _, log)| !live(*host) || lock(log).ended)
    };
    let mut last = (progress(), cluster.now_ns());
    while !over() && cluster.now_ns() - last.1 < HANGING_NS {
        cluster.run_for(STEP_NS);
        let now = progress();
        if now != last.0 {
            last = (now, cluster.now_ns());
        }
    }
}

/// Whether something happened that ends a call with this.
fn has_cause(failure: &Failure, faults: &Faults, preset: Preset, back: Preset) -> bool {
    let lost = |preset: Preset| faults.lost_packets && LOSSY.contains(&preset);
    match failure.status.code() {
        Code::DeadlineExceeded if failure.hurried => true,
        // Workers wait for the second server as long as those whose calls they have.
        Code::DeadlineExceeded if failure.queued && lost(back) => true,
        Code::DeadlineExceeded | Code::Unavailable | Code::Cancelled if faults.may_break() => true,
        Code::Unavailable => lost(preset) || failure.relayed && lost(back),
        _ => false,
    }
}

fn check_executed(thread: u64, log: &Log, service: &Service, mut wrong: impl FnMut(String)) {
    let seen = service.seen();
    let of_thread = (thread, 0)..(thread + 1, 0);
    for (&(_, call), &times) in seen.executed.range(of_thread) {
        if times > 1 {
            wrong(format!("call {call} was executed {times} times"));
        }
    }
    let was_executed = |call: &u64| seen.executed.contains_key(&(thread, *call));
    for call in log.answered.iter().filter(|call| !was_executed(call)) {
        wrong(format!("call {call} was answered and not executed"));
    }
    for call in log.not_executed.iter().filter(|call| was_executed(call)) {
        wrong(format!("call {call} was executed, and said not to be"));
    }
}

/// Clients and servers go, and leave nothing behind.
fn leave(
    cluster: &Cluster,
    parties: Vec<(HostId, Arc<Party>)>,
    (front, back): (Option<LocalServer>, LocalServer),
    places: &[Place],
    service: &Service,
    live: &dyn Fn(HostId) -> bool,
    wrong: &mut Vec<String>,
) {
    let (first, second) = (places[0].host, places[1].host);
    let mut leaving = Vec::new();
    for (host, party) in parties {
        if !live(host) {
            // A process that was killed drops nothing.
            std::mem::forget(party);
            continue;
        }
        leaving.push(on(cluster, host, move || drop(party)));
    }
    let left = || leaving.iter().all(|gone| gone.load(Ordering::Relaxed));
    if !run_until(cluster, FORGETTING_NS, left) {
        wrong.push("a client does not close".to_owned());
    }
    let handlers = || service.seen().running;
    if live(first) && !run_until(cluster, FORGETTING_NS, || handlers() == 0) {
        wrong.push(format!(
            "{} handlers are left, of calls that ended",
            handlers()
        ));
    }
    let to_back = lock(&service.back).take();
    match live(first) {
        true => {
            let gone = on(cluster, first, move || drop(to_back));
            if !run_until(cluster, FORGETTING_NS, || gone.load(Ordering::Relaxed)) {
                wrong.push("a server's own channel does not close".to_owned());
            }
            drop(front);
        }
        false => std::mem::forget((front, to_back)),
    }
    match live(second) {
        true => drop(back),
        false => std::mem::forget(back),
    }
    // A process that was killed still has the server's door, which is a function of this process here.
    if places.iter().any(|place| !live(place.host)) {
        return;
    }
    for place in places {
        let running = || place.running.load(Ordering::Relaxed);
        let seconds = Duration::from_secs(5).as_nanos() as u64;
        if !run_until(cluster, seconds, || running() == 0) {
            let what = format!(
                "{} threads of host {} do not end",
                running(),
                place.host.number()
            );
            wrong.push(what);
        }
    }
}
