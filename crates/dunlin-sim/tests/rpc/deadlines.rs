//! A deadline of 20 ms in virtual time: each calling interface with a handler that never answers, a server that is cut
//! off, one that has crashed, and one that is cut off with the client's ring full. Prints when each call ended; the
//! handler of a call that is over is told, or never runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin_rpc::{
    CallError, ChannelConfig, Client, OwnedRequest, OwnedResponder, Preset, Region, RemoteRegion,
    Server, ServerBuilder,
};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SwitchParameters};
use dunlin_verbs::thread;

use crate::calls::run_until;

const ECHO: u16 = 1;
/// Counts its executions, and answers.
const MARK: u16 = 2;
/// Keeps its requests.
const NEVER: u16 = 3;
const MILLISECOND: u64 = 1_000_000;
const REGION: &str = "table";
const DEADLINE: Duration = Duration::from_millis(20);
/// Maximum lateness of a deadline: 64 polls between two looks at the clock, each of which is a rest of 20 us here; and
/// as many again for the thread that wakes and polls.
const LATE_MOST: Duration = Duration::from_micros(2 * 64 * 20 + 100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    SlowHandler,
    SilentServer,
    LostServer,
    FullRing,
}

const TROUBLES: [Trouble; 4] = [
    Trouble::SlowHandler,
    Trouble::SilentServer,
    Trouble::LostServer,
    Trouble::FullRing,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    Call,
    Future,
    Batch,
    Pipeline,
    /// A pipeline awaited by a task.
    Awaited,
    Read,
    Attach,
}

const FRONTS: [Front; 7] = [
    Front::Call,
    Front::Future,
    Front::Batch,
    Front::Pipeline,
    Front::Awaited,
    Front::Read,
    Front::Attach,
];

type Held = Arc<Mutex<Vec<(OwnedRequest, OwnedResponder)>>>;

/// One call of an interface with the deadline; uses the handler `handler` where the interface calls one.
fn attempt(
    front: Front,
    client: &Client,
    region: Option<&RemoteRegion>,
    handler: u16,
) -> Result<(), CallError> {
    let hurried = client.within(DEADLINE);
    match (front, region) {
        (Front::Call, _) => hurried.call(handler, b"twenty").map(drop),
        (Front::Future, _) => thread::block_on(hurried.call_async(handler, b"twenty")).map(drop),
        (Front::Batch, _) => {
            let answers = hurried
                .batch()
                .call(handler, b"twenty")
                .call(handler, b"two")
                .send()?;
            answers.into_iter().try_for_each(|answer| answer.map(drop))
        }
        (Front::Pipeline | Front::Awaited, _) => {
            unreachable!("it is made before the trouble begins")
        }
        (Front::Read, Some(region)) => region.within(DEADLINE).read(0, 8).map(drop),
        (Front::Attach, _) | (Front::Read, None) => hurried.attach(REGION).map(drop),
    }
}

/// How long the call took, in microseconds, and how often handlers ran for calls that were over.
fn run(seed: u64, preset: Preset, front: Front, trouble: Trouble) -> Option<(u64, u64)> {
    let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
    let cluster = Cluster::star(seed, 2, &HostParameters::epyc_7452(), &nic, &switch);
    let [server_host, client_host] = [cluster.hosts()[0], cluster.hosts()[1]];
    let (held, ran) = (Held::default(), Arc::new(AtomicU64::new(0)));
    let (keeps, runs) = (Arc::clone(&held), Arc::clone(&ran));
    let server = serving(keeps, runs)
        .serve_on(cluster.device(server_host))
        .expect("a server");
    let client = Client::builder()
        .preset(preset)
        .lanes(2)
        .connect_on(cluster.device(client_host), &server.acceptor())
        .expect("a client");
    let flags: [Arc<AtomicBool>; 3] = Default::default();
    let took = Arc::new(Mutex::new(None));
    let [ready, go, over] = flags.clone();
    let (seen, caller) = (Arc::clone(&took), client.clone());
    let has_regions = !matches!(preset, Preset::Fasst | Preset::Erpc | Preset::Herd);
    if !has_regions && matches!(front, Front::Read | Front::Attach) {
        drop((client, caller));
        cluster.run_for(100 * MILLISECOND);
        return None;
    }
    // A handler that runs too late would be noticed.
    let handler = match trouble {
        Trouble::SlowHandler => NEVER,
        _ => MARK,
    };
    cluster.spawn_thread(client_host, 0, move || {
        let client = caller;
        // The lanes exist, and the server knows how long requests take.
        let warm = client.within(Duration::from_millis(500));
        warm.call(ECHO, b"warm").expect("an answer");
        thread::block_on(warm.call_async(ECHO, b"warm")).expect("an answer");
        let region = has_regions.then(|| client.attach(REGION).expect("a region"));
        if let Some(region) = &region {
            region.read(0, 8).expect("a READ");
        }
        let mut pipeline = client.within(DEADLINE).pipeline().expect("a lane");
        assert!(pipeline.submit(ECHO, b"warm", 0).expect("a lane"));
        pipeline
            .wait(|_, answer| assert!(answer.is_ok()))
            .expect("an answer");
        ready.store(true, Ordering::Relaxed);
        while !go.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_micros(100));
        }
        if trouble == Trouble::FullRing {
            for _ in 0..80 {
                let _ = client.call_within(Duration::from_micros(10), ECHO, &[1; 2000]);
                while let Ok(true) = pipeline.submit(ECHO, &[1; 2000], 1) {}
                let _ = pipeline.poll(|_, _| {});
            }
        }
        let began = thread::now();
        let ended = match front {
            Front::Pipeline => {
                let _ = pipeline.submit(handler, b"twenty", 2);
                pipeline.wait(|_, _| {}).map(drop)
            }
            Front::Awaited => {
                let _ = pipeline.submit(handler, b"twenty", 2);
                thread::block_on(pipeline.wait_async(|_, _| {})).map(drop)
            }
            front => attempt(front, &client, region.as_ref(), handler),
        };
        let took = thread::now().duration_since(began);
        let server_side =
            matches!(front, Front::Read | Front::Attach) && trouble == Trouble::SlowHandler;
        assert!(
            ended.is_err() || server_side,
            "{preset} {front:?} {trouble:?}: {ended:?}"
        );
        *seen.lock().unwrap() = Some((took, ended.is_err()));
        drop((region, pipeline, client));
        over.store(true, Ordering::Relaxed);
    });
    let [ready, go, over] = flags;
    run_until(&cluster, "the lanes are there", || {
        ready.load(Ordering::Relaxed)
    });
    let cut = match trouble {
        Trouble::SlowHandler => None,
        Trouble::LostServer => {
            cluster.crash(server_host);
            None
        }
        Trouble::SilentServer | Trouble::FullRing => Some(cluster.partition(&[server_host])),
    };
    go.store(true, Ordering::Relaxed);
    run_until(&cluster, "it ends", || took.lock().unwrap().is_some());
    let (took, failed) = took.lock().unwrap().take()?;
    // Messages that were on their way arrive now, much too late.
    drop(cut);
    cluster.run_for(100 * MILLISECOND);
    if trouble == Trouble::SlowHandler && failed {
        let held = held.lock().unwrap();
        assert!(!held.is_empty(), "{preset} {front:?}: no handler was run");
        for (request, responder) in held.iter() {
            assert!(
                request.is_cancelled() && responder.is_cancelled(),
                "{preset} {front:?}: a handler was not told"
            );
        }
    }
    cluster.run_for(2_000 * MILLISECOND);
    if trouble != Trouble::LostServer {
        run_until(&cluster, "the client leaves", || {
            over.load(Ordering::Relaxed)
        });
        held.lock().unwrap().clear();
        let left = Arc::new(AtomicBool::new(false));
        let leaves = Arc::clone(&left);
        cluster.spawn_thread(client_host, 0, move || {
            drop(client);
            leaves.store(true, Ordering::Relaxed);
        });
        run_until(&cluster, "the client closes", || {
            left.load(Ordering::Relaxed)
        });
    } else {
        std::mem::forget(client);
    }
    Some((took.as_micros() as u64, ran.load(Ordering::Relaxed)))
}

fn serving(keeps: Held, runs: Arc<AtomicU64>) -> ServerBuilder {
    Server::unbound()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle(MARK, move |request, reply| {
            runs.fetch_add(1, Ordering::Relaxed);
            reply.write(request.payload())
        })
        .handle_deferred(NEVER, move |request, responder| {
            assert!(request
                .remaining()
                .is_some_and(|left| left <= DEADLINE && !left.is_zero()));
            keeps.lock().unwrap().push((request, responder));
        })
        .region(&Region::new(REGION, 4096).writable())
        .pollers(1)
        .pin_pollers(0)
}

/// Every interface, preset and trouble; `DUNLIN_SEEDS` is the number of seeds.
fn all(presets: &[Preset]) {
    let seeds = std::env::var("DUNLIN_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok());
    for trouble in TROUBLES {
        for front in FRONTS {
            let mut took = Vec::new();
            for &preset in presets {
                for seed in 0..seeds.unwrap_or(1) {
                    let Some((us, ran)) = run(seed, preset, front, trouble) else {
                        continue;
                    };
                    let late = Duration::from_micros(us).saturating_sub(DEADLINE);
                    assert!(
                        late <= LATE_MOST,
                        "{preset} {front:?} {trouble:?} seed {seed}: {us} us"
                    );
                    assert_eq!(ran, 0, "{preset} {front:?} {trouble:?} seed {seed}: a handler ran of a call that was over");
                    took.push(us);
                }
            }
            took.sort_unstable();
            if let (Some(least), Some(most)) = (took.first(), took.last()) {
                println!(
                    "{trouble:?} {front:?}: {} calls, least {least}, median {}, most {most} us",
                    took.len(),
                    took[took.len() / 2]
                );
            }
        }
    }
}

#[test]
fn twenty_milliseconds_hold_over_pools() {
    all(&[Preset::ScaleRpc, Preset::RawWrite, Preset::SelfRpc]);
}

#[test]
fn twenty_milliseconds_hold_over_datagrams() {
    all(&[Preset::Fasst, Preset::Erpc, Preset::Herd]);
}

/// Calls without a tight deadline hold all places: a call that waits for one waits no longer than its deadline, and a
/// later one with more time gets the next.
#[test]
fn twenty_milliseconds_hold_without_a_place() {
    const LONG: Duration = Duration::from_secs(5);
    const PLACES: usize = 2;
    let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
    let cluster = Cluster::star(7, 2, &HostParameters::epyc_7452(), &nic, &switch);
    let [server_host, client_host] = [cluster.hosts()[0], cluster.hosts()[1]];
    let held = Held::default();
    let keeps = Arc::clone(&held);
    let server = Server::unbound()
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_deferred(NEVER, move |request, responder| {
            keeps.lock().unwrap().push((request, responder));
        })
        .pollers(1)
        .pin_pollers(0)
        .serve_on(cluster.device(server_host))
        .expect("a server");
    let channel = ChannelConfig {
        max_outstanding: PLACES,
        ..ChannelConfig::default()
    };
    let client = Client::builder()
        .preset(Preset::Plain)
        .channel(channel)
        .deadline(LONG)
        .connect_on(cluster.device(client_host), &server.acceptor())
        .expect("a client");
    let (over, ending) = (Arc::new(AtomicBool::new(false)), Arc::clone(&held));
    let is_over = Arc::clone(&over);
    let took = |began| thread::now().duration_since(began);
    cluster.spawn_thread(client_host, 0, move || {
        let in_time = |front: &str, took: Duration, ended: Result<(), CallError>| {
            let is_right =
                matches!(ended, Err(CallError::DeadlineExceeded { after }) if after == DEADLINE);
            assert!(is_right, "{front}: {ended:?}");
            assert!(
                took >= DEADLINE && took - DEADLINE <= LATE_MOST,
                "{front}: {took:?}"
            );
            println!("no place, {front}: {} us", took.as_micros());
        };
        let hurried = client.within(DEADLINE);
        let kept: Vec<_> = (0..PLACES).map(|_| client.call_async(NEVER, b"")).collect();
        for _ in 0..2 {
            // The driver polls, and sleeps.
            let began = thread::now();
            let ended = thread::block_on(hurried.ready()).map(drop);
            in_time("ready", took(began), ended);
        }
        ending.lock().unwrap().clear();
        let permit = thread::block_on(hurried.ready()).expect("a place");
        let answer = thread::block_on(permit.call(ECHO, b"hello")).expect("an answer");
        assert_eq!(&answer[..], b"hello");
        drop(kept);

        let (local, mut driver) = client.local().expect("a lane");
        let hurried = local.within(DEADLINE);
        let kept: Vec<_> = (0..PLACES).map(|_| local.call_async(NEVER, b"")).collect();
        for _ in 0..2 {
            let began = thread::now();
            let ended = thread::block_on(driver.run_until(hurried.call(ECHO, b"hello")));
            in_time("of one thread", took(began), ended.map(drop));
            let began = thread::now();
            let ended = thread::block_on(driver.run_until(hurried.ready()));
            in_time("ready, of one thread", took(began), ended.map(drop));
        }
        ending.lock().unwrap().clear();
        let places = async {
            // Each place is held by a permit: no call can be made without one of them.
            let permits = [hurried.ready().await?, hurried.ready().await?];
            assert!(local.call_async(ECHO, b"hello").await.is_err());
            for permit in permits {
                assert_eq!(&permit.call(ECHO, b"hello").await?[..], b"hello");
            }
            drop(hurried.ready().await?);
            hurried.call(ECHO, b"hello").await
        };
        let answer = thread::block_on(driver.run_until(places));
        assert_eq!(&answer.expect("an answer")[..], b"hello");
        drop((kept, local, hurried, driver, client));
        is_over.store(true, Ordering::Relaxed);
    });
    run_until(&cluster, "the end", || over.load(Ordering::Relaxed));
    cluster.run_for(MILLISECOND);
    drop(server);
}
