//! A server that calls typed services of its clients: unary methods and streams of all kinds, while clients stop
//! serving and begin again, packets are lost, queue pairs fail and hosts crash.
//!
//! Whatever happens: a unary call is executed once at most, and once when it was answered; messages of streams come in
//! order, as the service checks; no error comes without a cause; nothing hangs, and the server knows in the end that
//! its clients have gone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::{thread, CallableClients, Client, LocalAcceptor, Preset};
use dunlin_service::private::{block_on, Threads};
use dunlin_service::{Channel, Server, Status};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SimDevice, SwitchParameters};
use futures_util::stream::{self, StreamExt};

use crate::caller::DEADLINE;
use crate::dice::Dice;
use crate::faults;
use crate::scene::{on, run_until, start, Place};
use crate::service::front_client::FrontClient;
use crate::service::front_server::FrontServer;
use crate::service::{Note, Service};

const CLIENTS: usize = 2;
const ROUNDS: u64 = 6;
/// Within which all calls must have ended, and the server know that a client has gone which was killed.
const HANGING_NS: u64 = 300_000_000_000;
const PRESETS: [Preset; 5] = [
    Preset::Auto,
    Preset::Plain,
    Preset::Flock,
    Preset::ScaleRpc,
    Preset::Flor,
];

fn us(microseconds: u64) -> Duration {
    Duration::from_micros(microseconds)
}

/// What the server's calls brought.
#[derive(Debug, Default)]
struct Log {
    answered: Vec<(u64, u64)>,
    streams: usize,
    failed: Vec<String>,
}

/// A client's host: it serves its server, and begins anew as often as it is told to.
fn serve_to(
    device: SimDevice,
    acceptor: &LocalAcceptor,
    (preset, threads, service): (Preset, Threads, Service),
    (renewals, over): (&AtomicU64, &AtomicBool),
) {
    let builder = Client::builder().preset(preset).deadline(DEADLINE);
    let client = builder.connect_on(device, acceptor).expect("a client");
    while !over.load(Ordering::Relaxed) {
        let renewal = renewals.load(Ordering::Relaxed);
        let services = Server::builder()
            .threads(threads.clone())
            .add_service(FrontServer::new(service.clone()));
        // A fault may be in the way: it comes again.
        let serving = services.serve_to(&client);
        while serving.is_ok()
            && renewals.load(Ordering::Relaxed) == renewal
            && !over.load(Ordering::Relaxed)
        {
            thread::sleep(us(50));
        }
        drop(serving);
        thread::sleep(us(200));
    }
}

/// One call of each kind.
async fn call(front: &FrontClient, source: u64, number: u64, log: &mut Log) -> Result<(), Status> {
    let note = Note::new(source, number, 0, 9);
    let echoed = front.echo(note).await?.into_inner();
    assert!(echoed.is(source, number), "another's answer");
    log.answered.push((source, number));
    let of = 1 + number % 20;
    let mut counted = front
        .count(Note::new(source, 0, of, 100))
        .await?
        .into_inner();
    let mut came = 0;
    while let Some(note) = counted.message().await? {
        assert!(note.is(source, came), "out of order");
        came += 1;
    }
    assert_eq!(came, of, "it ended well");
    let notes = (0..of).map(move |number| Note::new(source, number, of, 30));
    let summed = front.sum(stream::iter(notes.clone())).await?.into_inner();
    assert_eq!(summed.number, of);
    let chat = front.chat(stream::iter(notes)).await?.into_inner();
    let back: Vec<_> = chat.collect().await;
    let back: Vec<_> = back.into_iter().collect::<Result<_, _>>()?;
    assert_eq!(back.len() as u64, of);
    log.streams += 3;
    Ok(())
}

/// The server's host: it calls all that are there, some times.
fn call_all(list: &CallableClients, threads: &Threads, log: &Mutex<Log>) {
    for round in 0..ROUNDS {
        for client in list.list() {
            let source = client.number();
            let mut seen = Log::default();
            let ended = block_on(async {
                let channel = Channel::from_client(client.client().clone()).await?;
                let front = FrontClient::new(channel.threads(threads.clone()));
                call(&front, source, round, &mut seen).await
            });
            let mut log = log.lock().expect("nobody panicked");
            log.answered.append(&mut seen.answered);
            log.streams += seen.streams;
            let failed = ended
                .err()
                .map(|status| format!("{source}/{round}: {status}"));
            log.failed.extend(failed);
        }
        thread::sleep(us(100));
    }
}

fn run(seed: u64) -> (Log, u64) {
    let mut dice = Dice::new(seed);
    let mut host = HostParameters::xeon_gold_5118();
    host.cores = dice.between(1, 4) as f64;
    let nic = NicParameters::connectx_5();
    let switch = SwitchParameters::z9264f();
    let cluster = Cluster::star(seed, 1 + CLIENTS, &host, &nic, &switch);
    let hosts = cluster.hosts();
    let places: Vec<_> = hosts
        .iter()
        .map(|host| Place::new(&cluster, *host))
        .collect();
    let service = Service::default();
    let list = CallableClients::called_by(CLIENTS + 2, Client::builder().deadline(DEADLINE));
    let server = start(
        Server::builder().threads(places[0].threads()),
        dunlin::Server::unbound().callable_clients(&list),
        &places[0],
        &dunlin::ChannelConfig::default(),
    );
    let preset = dice.one_of(&PRESETS);
    let (renewals, over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let mut ended = Vec::new();
    for (host, place) in hosts.iter().zip(&places).skip(1) {
        let (device, acceptor) = (cluster.device(*host), server.acceptor());
        let given = (preset, place.threads(), service.clone());
        let (renewals, over) = (Arc::clone(&renewals), Arc::clone(&over));
        let done = on(&cluster, *host, move || {
            serve_to(device, &acceptor, given, (&renewals, &over));
        });
        ended.push((*host, done));
    }
    let context = format!("DUNLIN_SEED={seed} DUNLIN_SEEDS=1 ({preset})");
    let came = run_until(&cluster, HANGING_NS, || list.len() == CLIENTS);
    assert!(came, "{context}: before anything happens");
    let log = Arc::<Mutex<Log>>::default();
    let (called, threads, seen) = (list.clone(), places[0].threads(), Arc::clone(&log));
    let all_called = on(&cluster, hosts[0], move || {
        call_all(&called, &threads, &seen)
    });
    let faults = faults::run(&cluster, &mut dice, |_| {
        renewals.fetch_add(1, Ordering::Relaxed);
    });
    let context = format!("{context} {}", faults.words.join(", "));
    let live = |host| !faults.crashed.contains(&host);
    if live(hosts[0]) {
        let done = run_until(&cluster, HANGING_NS, || all_called.load(Ordering::Relaxed));
        assert!(done, "{context}: the server's calls hang");
    }
    over.store(true, Ordering::Relaxed);
    for (host, done) in ended.into_iter().filter(|(host, _)| live(*host)) {
        let done = run_until(&cluster, HANGING_NS, || done.load(Ordering::Relaxed));
        assert!(done, "{context}: client {} hangs", host.number());
    }
    if live(hosts[0]) {
        let gone = run_until(&cluster, HANGING_NS, || list.is_empty());
        assert!(gone, "{context}: {list:?} has not gone");
        let done = on(&cluster, hosts[0], move || drop(server));
        assert!(run_until(&cluster, HANGING_NS, || done.load(Ordering::Relaxed)));
    } else {
        // Nobody ends a process that was killed.
        std::mem::forget(server);
    }
    let log = std::mem::take(&mut *log.lock().expect("nobody panicked"));
    let seen = service.seen();
    assert!(seen.wrong.is_empty(), "{context}: {:?}", seen.wrong);
    for (call, times) in &seen.executed {
        assert_eq!(*times, 1, "{context}: {call:?} was executed {times} times");
    }
    for call in &log.answered {
        assert!(
            seen.executed.contains_key(call),
            "{context}: {call:?} was not executed"
        );
    }
    let has_cause = faults.may_break() || faults.lost_packets;
    assert!(
        log.failed.is_empty() || has_cause,
        "{context}: {:?}",
        log.failed
    );
    drop(seen);
    (log, cluster.digest())
}

fn said(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn whatever_happens_services_of_clients_are_called_once_and_streams_are_whole() {
    let first = said("DUNLIN_SEED").unwrap_or(1);
    let count = said("DUNLIN_SEEDS");
    let (mut answered, mut streams, mut failed) = (0, 0, 0);
    for seed in first..first + count.unwrap_or(8) {
        let (log, _) = run(seed);
        answered += log.answered.len();
        streams += log.streams;
        failed += log.failed.len();
    }
    println!("{answered} calls, {streams} streams, {failed} rounds that failed");
    assert!(count.is_some() || answered > 0 && streams > 0);
}

#[test]
fn a_seed_gives_the_same_callbacks() {
    let [(one, digest), (two, again)] = [(); 2].map(|()| run(2));
    assert_eq!((digest, one.failed), (again, two.failed));
}
