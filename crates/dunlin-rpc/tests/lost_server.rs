//! A server that has gone, and one whose port accepts connections and never answers: deadlines hold, and no call waits
//! for another's handshake.

#[path = "common/block_on.rs"]
mod block_on;
#[path = "common/way.rs"]
mod way;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

use block_on::block_on;
use dunlin_rpc::{
    CallError, ChannelConfig, Client, Execution, Pipeline, Preset, Region, RunningServer, Server,
};
use way::{Way, NEVER, PATIENCE};

const ECHO: u16 = 1;
const SLOW: u16 = 2;

/// A deadline that passes long before a handshake is given up.
const SOON: Duration = Duration::from_millis(20);

fn serve() -> RunningServer {
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .region(&Region::new("memory", 4096).writable())
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .serve()
        .unwrap()
}

/// Runs something on a thread of its own, which must end without help from outside.
fn ends<T: Send + 'static>(what: &str, job: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, end) = mpsc::channel();
    std::thread::spawn(move || done.send(job()));
    match end.recv_timeout(PATIENCE) {
        Ok(value) => value,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

fn is_late<T>(result: &Result<T, CallError>, deadline: Duration) -> bool {
    matches!(result, Err(CallError::DeadlineExceeded { after }) if *after == deadline)
}

/// Waits until the client knows that its server is gone.
fn until_lost(client: &Client) {
    let started = Instant::now();
    while client.call_within(SOON, ECHO, b"?").is_ok() {
        assert!(started.elapsed() < PATIENCE, "the server is still there");
    }
}

#[test]
fn deadlines_hold_while_a_lost_server_is_dialled() {
    for preset in [Preset::Plain, Preset::Flock, Preset::Fasst] {
        let server = serve();
        let way = Way::to(&server);
        // A datagram session is lost only by a timeout.
        let channel = ChannelConfig {
            loss_timeout: Duration::from_millis(100),
            ..ChannelConfig::default()
        };
        let builder = Client::builder().preset(preset).channel(channel);
        let client = way.connect(builder.deadline(SOON));
        let region = client.attach("memory");
        assert_eq!(
            &*client.call_within(PATIENCE, ECHO, b"there").unwrap(),
            b"there"
        );
        way.hold();
        drop(server);
        ends(
            &format!("calls to a lost server with {preset}"),
            move || {
                until_lost(&client);
                while way.taken() == 0 {
                    let _ = client.call_within(SOON, ECHO, b"?");
                }
                // Dials are counted late when this machine is busy.
                let mut counted = 0;
                while counted < way.taken() {
                    counted = way.taken();
                    std::thread::sleep(5 * SOON);
                }
                // Futures have a lane of their own, whose loss may be known later.
                while way.taken() == counted {
                    let _ = block_on(client.call_async(ECHO, b"?"));
                }
                for _ in 0..3 {
                    let ended = client.call_within(2 * SOON, ECHO, b"late");
                    assert!(is_late(&ended, 2 * SOON), "{preset}: {ended:?}");
                    let ended = client.call(ECHO, b"late");
                    assert!(is_late(&ended, SOON), "{preset}: {ended:?}");
                    let batch = client.batch().call(ECHO, b"a").call(ECHO, b"b");
                    let ended = batch.deadline(3 * SOON).send();
                    assert!(is_late(&ended, 3 * SOON), "{preset}: {ended:?}");
                    let ended = block_on(client.call_async(ECHO, b"late"));
                    assert!(is_late(&ended, SOON), "{preset}: {ended:?}");
                    let ended = client.buffer(10);
                    assert!(is_late(&ended, SOON), "{preset}: {ended:?}");
                    let ended = client.attach("memory");
                    assert!(is_late(&ended, SOON), "{preset}: {ended:?}");
                    if let Ok(region) = &region {
                        let ended = region.read(0, 8);
                        assert!(is_late(&ended, SOON), "{preset}: {ended:?}");
                        let ended = block_on(region.read_async(0, 8));
                        assert!(is_late(&ended, SOON), "{preset}: {ended:?}");
                    }
                }
            },
        );
    }
}

/// A future's connection is not made by its caller, which is not blocked; closing ends it before the handshake is given
/// up.
#[test]
fn calling_for_a_future_does_not_dial() {
    for preset in [Preset::Plain, Preset::Flock, Preset::Fasst] {
        let server = serve();
        let way = Way::to(&server);
        let client = way.connect(Client::builder().preset(preset).lanes(1).deadline(NEVER));
        way.hold();
        if preset == Preset::Flock {
            // The only lane is lost, so that a future's port connects.
            drop(server);
            let started = Instant::now();
            while way.taken() == 0 {
                assert!(started.elapsed() < PATIENCE, "the server is still there");
                let _ = client.call_within(SOON, ECHO, b"?");
            }
        }
        let before = way.taken();
        let (client, calls) = ends(&format!("call_async with {preset}"), move || {
            let calls: Vec<_> = (0..5).map(|_| client.call_async(ECHO, b"later")).collect();
            (client, calls)
        });
        way.until_taken(before + 1);
        ends(&format!("close with {preset}"), move || {
            client.close();
            for call in calls {
                let ended = block_on(call);
                assert!(matches!(ended, Err(CallError::Closed)), "{ended:?}");
            }
        });
    }
}

/// The server's goodbye is taken before the next call is sent, also after the answer to a call that was given up.
#[test]
fn a_call_after_a_shutdown_is_known_not_to_be_executed() {
    for device in ["shm", "roce"] {
        for preset in [
            Preset::Plain,
            Preset::RawWrite,
            Preset::SelfRpc,
            Preset::Fasst,
        ] {
            let answers = Arc::new(AtomicBool::new(false));
            let waits = Arc::clone(&answers);
            let server = Server::bind("dunlin://127.0.0.1:0")
                .unwrap()
                .handle(ECHO, |request, reply| reply.write(request.payload()))
                .handle_on_workers(SLOW, move |_, reply| {
                    while !waits.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    reply.write(b"late")
                })
                .serve()
                .unwrap();
            let builder = Client::builder().preset(preset).device(device);
            let client = builder.connect(&server.address().to_string()).unwrap();
            let ended = client.call_within(SOON, SLOW, b"");
            assert!(is_late(&ended, SOON), "{preset} on {device}: {ended:?}");
            answers.store(true, Ordering::SeqCst);
            assert!(server.shutdown());
            let ended = client.call(ECHO, b"gone").unwrap_err();
            let execution = ended.execution();
            assert_eq!(
                execution,
                Execution::NotExecuted,
                "{preset} on {device}: {ended:?}"
            );
        }
    }
}

/// Closing a client does not wait for a thread that connects.
#[test]
fn closing_waits_for_no_handshake() {
    for preset in [Preset::Plain, Preset::Flock, Preset::Fasst] {
        let server = serve();
        let way = Way::to(&server);
        let client = way.connect(Client::builder().preset(preset).deadline(NEVER));
        way.hold();
        let other = client.clone();
        let dialling = std::thread::spawn(move || other.call(ECHO, b"from another thread"));
        way.until_taken(1);
        ends(&format!("close with {preset}"), move || client.close());
        drop(way);
        assert!(dialling.join().unwrap().is_err());
    }
}

/// While a lane of a connection handle is being made, its other lanes go on, new threads find them, and the handle can
/// be observed.
#[test]
fn healthy_lanes_go_on_while_another_is_dialled() {
    for dispatched in [false, true] {
        let server = serve();
        let way = Way::to(&server);
        let builder = Client::builder().preset(Preset::Flock).lanes(2);
        let client = way.connect(builder.dispatched(dispatched).deadline(NEVER));
        assert_eq!(&*client.call(ECHO, b"first").unwrap(), b"first");
        way.hold();
        let other = client.clone();
        let dialling = std::thread::spawn(move || other.call(ECHO, b"from the second thread"));
        way.until_taken(1);
        let newcomer = client.clone();
        ends("a third thread's calls", move || {
            for round in 0..300u32 {
                let answer = newcomer.call(ECHO, &round.to_le_bytes()).unwrap();
                assert_eq!(*answer, round.to_le_bytes());
            }
        });
        let watched = client.clone();
        let figures = ends("figures", move || watched.figures().unwrap());
        assert_eq!(figures.lanes.len(), 1);
        for round in 0..300u32 {
            let answer = client.call(ECHO, &round.to_le_bytes()).unwrap();
            assert_eq!(*answer, round.to_le_bytes());
        }
        drop(way);
        // It stays with the existing lane.
        let answer = dialling.join().unwrap();
        assert_eq!(&*answer.unwrap(), b"from the second thread");
    }
}

/// Threads that have lost their server do not connect to it one after the other: each ends at its own deadline.
#[test]
fn threads_do_not_queue_up_for_handshakes() {
    let server = serve();
    let way = Way::to(&server);
    let client = way.connect(Client::builder().preset(Preset::Flock).lanes(2));
    way.hold();
    drop(server);
    ends("the calls of eight threads", move || {
        until_lost(&client);
        let before = way.taken();
        let deadline = Duration::from_millis(300);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let ended = client.call_within(deadline, ECHO, b"late");
                    assert!(is_late(&ended, deadline), "{ended:?}");
                });
            }
        });
        // Two at a time, one for each lane; a thread that is woken by the end of one may just still begin another.
        let dialled = way.taken() - before;
        assert!((1..=10).contains(&dialled), "{dialled} handshakes");
    });
}

/// A call that has little time does not wait for the connection that one with more time has begun to make.
#[test]
fn each_future_has_its_own_deadline_while_a_connection_is_made() {
    let server = serve();
    let way = Way::to(&server);
    let client = way.connect(Client::builder().preset(Preset::Plain).deadline(NEVER));
    assert_eq!(
        &*block_on(client.call_async(ECHO, b"there")).unwrap(),
        b"there"
    );
    way.hold();
    drop(server);
    ends("calls that have little time", move || {
        let patient = loop {
            let call = client.call_async(ECHO, b"patient");
            if way.taken() > 0 {
                break call;
            }
            // The client soon knows that the server has gone.
            let _ = block_on(client.within(SOON).call_async(ECHO, b"?"));
        };
        for _ in 0..3 {
            let ended = block_on(client.within(SOON).call_async(ECHO, b"late"));
            assert!(is_late(&ended, SOON), "{ended:?}");
        }
        client.close();
        let ended = block_on(patient);
        assert!(matches!(ended, Err(CallError::Closed)), "{ended:?}");
    });
}

/// A call that has time for a handshake does not lose it to those that have less and come all the time.
#[test]
fn a_future_that_has_time_is_answered_among_those_that_have_none() {
    let first = serve();
    let way = Way::to(&first);
    let client = way.connect(Client::builder().preset(Preset::Plain).deadline(NEVER));
    assert_eq!(
        &*block_on(client.call_async(ECHO, b"there")).unwrap(),
        b"there"
    );
    let second = serve();
    way.lead_to(&second);
    // The handshake alone takes longer than these have: at least a round trip.
    way.slow_down(2 * SOON);
    drop(first);
    let over = Arc::new(AtomicBool::new(false));
    let (hurried, ends_them) = (client.within(SOON), Arc::clone(&over));
    let (was_late, are_late) = mpsc::channel();
    let others = std::thread::spawn(move || {
        let mut out = std::collections::VecDeque::new();
        while !ends_them.load(Ordering::SeqCst) {
            out.push_back(hurried.call_async(ECHO, b"hurried"));
            if out.len() > 8 {
                let oldest = out.pop_front().map(block_on);
                if oldest.is_some_and(|ended| is_late(&ended, SOON)) {
                    let _ = was_late.send(());
                }
            }
            std::thread::sleep(SOON / 4);
        }
        out.into_iter().for_each(|call| drop(block_on(call)));
    });
    are_late.recv_timeout(PATIENCE).unwrap();
    let patient = client.within(PATIENCE / 2).call_async(ECHO, b"patient");
    let ended = ends("a call that has time", move || block_on(patient));
    over.store(true, Ordering::SeqCst);
    others.join().unwrap();
    assert_eq!(ended.as_deref().ok(), Some(&b"patient"[..]), "{ended:?}");
}

/// A handshake that takes longer than a pipeline's first attempt may take: later ones have more time. `takes_one` makes
/// the pipeline wait for an answer.
fn goes_over_by_a_slow_handshake(
    takes_one: impl Fn(&mut Pipeline, &mut dyn FnMut(&[u8])) -> usize,
) {
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle(ECHO, |request, reply| {
            reply.write(&request.connection().to_le_bytes())
        })
        .serve()
        .unwrap();
    let way = Way::to(&server);
    let client = way.connect(Client::builder().preset(Preset::Plain).deadline(NEVER));
    let mut pipeline = client.pipeline().unwrap();
    let mut connection = || {
        let mut on = Vec::new();
        assert!(pipeline.submit(ECHO, b"", 0).unwrap());
        let taken = takes_one(&mut pipeline, &mut |answer| on.extend_from_slice(answer));
        assert_eq!(taken, 1);
        on
    };
    let former = connection();
    // That makes one session in advance, which this thread takes.
    client.change_preset(Preset::Erpc).unwrap();
    client.call(ECHO, b"").unwrap();
    way.slow_down(Duration::from_millis(300));
    let started = Instant::now();
    while connection() == former {
        assert!(started.elapsed() < PATIENCE, "it keeps its lane");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_pipeline_goes_over_by_a_slow_handshake() {
    let wait = |pipeline: &mut Pipeline, take: &mut dyn FnMut(&[u8])| {
        pipeline.wait(|_, answer| take(answer.unwrap())).unwrap()
    };
    goes_over_by_a_slow_handshake(wait);
}

/// No thread of its executor waits for the handshake.
#[test]
fn a_pipeline_of_a_task_goes_over_by_a_slow_handshake() {
    let wait = |pipeline: &mut Pipeline, take: &mut dyn FnMut(&[u8])| {
        block_on(pipeline.wait_async(|_, answer| take(answer.unwrap()))).unwrap()
    };
    goes_over_by_a_slow_handshake(wait);
}

/// A thread that cannot get a lane of a new preset goes on with the former one: its calls keep most of their time, and
/// few of them try to make the other.
#[test]
fn a_lane_that_cannot_be_made_costs_few_calls_a_part_of_their_time() {
    const CALLS: u64 = 50;
    let deadline = Duration::from_secs(8);
    let server = serve();
    let way = Way::to(&server);
    let client = way.connect(Client::builder().preset(Preset::Plain).deadline(deadline));
    let mut pipeline = client.pipeline().unwrap();
    let ((came, comes), (go, goes)) = (mpsc::channel(), mpsc::channel());
    let thread_client = client.clone();
    let thread = std::thread::spawn(move || {
        thread_client.call(ECHO, b"before").unwrap();
        came.send(()).unwrap();
        goes.recv().unwrap();
        (0..CALLS).try_for_each(|number| {
            let bytes = number.to_le_bytes();
            thread_client.call(ECHO, &bytes).map(|answer| {
                assert_eq!(*answer, bytes);
            })
        })
    });
    let mut echo = |number: u64| {
        let mut ended = Ok(());
        assert!(pipeline.submit(ECHO, b"a pipeline's", number)?);
        pipeline.wait(|_, answer| ended = answer.map(drop))?;
        ended
    };
    echo(0).unwrap();
    comes.recv_timeout(PATIENCE).unwrap();
    // That makes one session in advance, which this thread takes.
    client.change_preset(Preset::Erpc).unwrap();
    client.call(ECHO, b"after").unwrap();
    way.hold();
    go.send(()).unwrap();
    let ended = ends("calls of a thread", move || thread.join().unwrap());
    assert!(ended.is_ok(), "{ended:?}");
    let ended = (0..CALLS).try_for_each(echo);
    assert!(ended.is_ok(), "{ended:?}");
    let dialled = way.taken() as u64;
    assert!((2..CALLS / 2).contains(&dialled), "{dialled} handshakes");
}
