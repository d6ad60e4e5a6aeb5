//! Hostile peers beside honest clients of the same preset: driven by a seed, on the device of the world.
//!
//! `DUNLIN_HOSTILE_SEED` gives the first seed, `DUNLIN_HOSTILE_SEEDS` their number.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::{thread, Device, VerbsError};

use super::{call, pattern, Job, Outcome, Serving, Skipped, Stage, ECHO};
use crate::hostile::{LONG, MARKER, ON_WORKERS, PATIENCE};
use crate::preset::ChannelKind;
use crate::{CallError, Client, Pipeline, Preset};

pub use crate::hostile::peer::peer;
pub use crate::hostile::Door;

/// Number of concurrent hostile peers, and of honest clients beside them.
const HOSTILE: usize = 2;
const GOOD: usize = 2;
/// Minimum number of calls of an honest client, however soon the hostile ones are done.
const LEAST_CALLS: u64 = 100;
/// Number of calls that an honest client keeps outstanding.
const OUT: usize = 8;

/// Pause between some calls, so that the hostile peers get their share of the time, and simulated runs are not mostly
/// honest calls.
const PAUSE: Duration = Duration::from_micros(30);

/// Outcomes of the calls of all honest clients.
#[derive(Default)]
struct Tally {
    right: AtomicU64,
    /// Reported as lost, on devices that drop packets that find no RECEIVE.
    lost: AtomicU64,
    /// Calls as seen by the handler.
    executed: AtomicU64,
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
        Err(_) => default,
    }
}

/// Signals that a hostile peer is done, also if one of its assertions failed: honest clients go on until then.
struct Leaves(Arc<AtomicUsize>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// A hostile peer gets errors and nothing else: it sees no data of other clients, does not disturb them, and leaves
/// nothing behind when it has gone.
pub fn a_peer_without_manners_harms_itself_alone(stage: &Stage<'_>) -> Outcome {
    let place = Preset::ALL.iter().position(|one| *one == stage.preset);
    let count = number("DUNLIN_HOSTILE_SEEDS", 1);
    let first = place.expect("a preset") as u64 * count + 1;
    let first = number("DUNLIN_HOSTILE_SEED", first);
    for seed in first..first + count {
        // Printed with a failure.
        println!("{stage:?}: DUNLIN_HOSTILE_SEED={seed}");
        meet(stage, seed)?;
    }
    Ok(())
}

fn meet(stage: &Stage<'_>, seed: u64) -> Outcome {
    let real = stage.world.is_not_real().is_none();
    let tally = Arc::new(Tally::default());
    let counted = Arc::clone(&tally);
    let mut server = crate::Server::unbound()
        .grouping(crate::Grouping {
            clients: 1,
            ..Default::default()
        })
        .handle(ECHO, move |request, reply| {
            if request.payload().starts_with(&MARKER) {
                counted.executed.fetch_add(1, Ordering::Relaxed);
            }
            reply.write(request.payload())
        })
        .handle(LONG, |_, reply| reply.write(&[1; 30_000]));
    if real {
        server =
            server.handle_on_workers(ON_WORKERS, |request, reply| reply.write(request.payload()));
    }
    let server = stage.serve(server);
    let client = stage.client(&server);
    let hostile = Arc::new(AtomicUsize::new(HOSTILE));
    let mut jobs: Vec<Job<'static>> = Vec::new();
    for number in 0..GOOD as u64 {
        let mut pipeline = client.pipeline().expect("a lane");
        let (hostile, tally) = (Arc::clone(&hostile), Arc::clone(&tally));
        let preset = stage.preset;
        jobs.push(Box::new(move || {
            let seed = seed << 8 | number;
            go_on(&mut pipeline, preset, seed, &hostile, &tally);
        }));
    }
    if real {
        let (client, hostile, tally) = (Client::clone(&client), hostile.clone(), tally.clone());
        let preset = stage.preset;
        jobs.push(Box::new(move || {
            call_on(&client, preset, seed, &hostile, &tally)
        }));
    }
    let good = jobs.len();
    for number in 0..HOSTILE as u64 {
        let seed = seed << 8 | number;
        let act = stage.world.hostile(&server, stage.preset, seed)?;
        let leaves = Leaves(Arc::clone(&hostile));
        jobs.push(Box::new(move || {
            let _leaves = leaves;
            act();
        }));
    }
    stage.world.run(jobs);
    let [right, lost, executed] =
        [&tally.right, &tally.lost, &tally.executed].map(|count| count.load(Ordering::Relaxed));
    println!("{right} answers were right, {lost} calls lost; {executed} executed");
    assert!(right >= LEAST_CALLS * good as u64 / 2, "hardly any answers");
    let answered = right..=right + lost;
    assert!(answered.contains(&executed), "{executed} were executed");
    newcomers_are_served(stage, &server, seed);
    // Connections of the honest clients: each thread's lanes and those that threads share.
    drop(client);
    if is_noticed(stage) {
        within_patience(stage, "nobody is left", || server.connections() == 0);
    }
    Ok(())
}

/// Whether a server notices that a client has gone: always with connected queue pairs, with others if the device
/// reports it.
fn is_noticed(stage: &Stage<'_>) -> bool {
    let is_connected = !matches!(stage.preset.channel(), ChannelKind::Datagram(_));
    is_connected || stage.world.hears_of_gone_datagrams()
}

/// Waits for a condition at the server, in the world's own time.
fn within_patience(stage: &Stage<'_>, what: &str, mut holds: impl FnMut() -> bool) {
    let step = Duration::from_millis(5);
    let mut waited = Duration::ZERO;
    while !holds() {
        assert!(waited < PATIENCE, "not within {PATIENCE:?}: {what}");
        stage.world.run(vec![Box::new(move || thread::sleep(step))]);
        waited += step;
    }
}

/// Clients that come after all that are served as if it had not happened.
fn newcomers_are_served(stage: &Stage<'_>, server: &Serving, seed: u64) {
    let client = stage.client(server);
    stage.with_pipeline(&client, move |pipeline| {
        for round in 0..20 {
            let payload = pattern([0, 40, 5000][round % 3], seed << 8 | round as u64);
            let answer = call(pipeline, ECHO, &payload);
            assert!(answer.expect("an answer to a newcomer") == payload);
        }
    });
}

/// The payload with this number of an honest client.
fn payload(seed: u64, number: u64) -> Vec<u8> {
    let length = [0, 8, 40, 100, 1000, 4000, 9000][number as usize % 7];
    [&MARKER[..], &pattern(length, seed << 20 | number)].concat()
}

/// Records how a call ended; with some presets an error is allowed.
fn ended(preset: Preset, result: Result<bool, CallError>, tally: &Tally) {
    match result {
        Ok(is_right) => {
            assert!(is_right, "an answer that is another's");
            tally.right.fetch_add(1, Ordering::Relaxed);
        }
        // Another client's datagrams took its RECEIVE: that is reported, and not as a time-out.
        Err(CallError::PacketLost { .. }) if matches!(preset, Preset::Fasst | Preset::Herd) => {
            tally.lost.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => panic!("a good call beside hostile peers: {error}"),
    }
}

/// An honest client that keeps calls outstanding until the hostile peers are done.
fn go_on(pipeline: &mut Pipeline, preset: Preset, seed: u64, hostile: &AtomicUsize, tally: &Tally) {
    let mut out = BTreeMap::new();
    let mut sent = 0;
    loop {
        let goes_on = sent < LEAST_CALLS || hostile.load(Ordering::Acquire) > 0;
        while goes_on && out.len() < OUT {
            let payload = payload(seed, sent);
            if !pipeline.submit(ECHO, &payload, sent).expect("a lane") {
                break;
            }
            out.insert(sent, payload);
            sent += 1;
        }
        if out.is_empty() && !goes_on {
            return;
        }
        // The deadline is the bound: a call that hangs is an error.
        let waited = pipeline.wait(|tag, answer| {
            let payload = out.remove(&tag).expect("a call that is out");
            ended(preset, answer.map(|answer| *answer == *payload), tally);
        });
        waited.expect("a lane");
        if sent % 4 == 0 {
            thread::sleep(PAUSE);
        }
    }
}

/// As [`go_on`], with blocking calls.
fn call_on(client: &Client, preset: Preset, seed: u64, hostile: &AtomicUsize, tally: &Tally) {
    let mut sent = 0;
    while sent < LEAST_CALLS || hostile.load(Ordering::Acquire) > 0 {
        let payload = payload(seed << 8 | 0xff, sent);
        let answer = client.call(ECHO, &payload);
        ended(preset, answer.map(|answer| *answer == *payload), tally);
        sent += 1;
        if sent % 4 == 0 {
            thread::sleep(PAUSE);
        }
    }
}

/// A hostile peer at the server's port, over the device with this name or of this kind.
pub(super) fn over(
    name: &str,
    server: &Serving,
    preset: Preset,
    seed: u64,
) -> Result<Job<'static>, Skipped> {
    let Serving::Running(server) = server else {
        unreachable!("this world's servers have ports");
    };
    let kinds = crate::devices::Kinds::of(preset);
    let name = &kinds.name(name);
    let door = Door::port(server, Some(name));
    let failed = |error: VerbsError| Skipped(format!("no device for hostile peers: {error}"));
    if name == "shm" {
        // A different device object from that of the honest clients, as if in another process.
        let device = ShmDevice::open(ShmConfig::default()).map_err(failed)?;
        return Ok(peer(device, door, preset, seed));
    }
    struct Begin(Door, Preset, u64);
    impl crate::DeviceVisitor for Begin {
        type Output = Job<'static>;

        fn visit<D: Device>(self, device: &D) -> Job<'static> {
            peer(device.clone(), self.0, self.1, self.2)
        }
    }
    let fabrics = crate::fabric::fabrics(Some(name), Default::default(), kinds).map_err(Skipped)?;
    let name = &fabrics[0].attributes().name;
    let address = server.address();
    crate::visit_device(name, Some(&address), Begin(door, preset, seed)).map_err(failed)
}
