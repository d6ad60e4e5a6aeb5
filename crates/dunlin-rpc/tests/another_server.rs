//! Another server replaces a client's server: answers of the first still arrive, and what the second does not have is
//! an error for the call that needs it.

#[path = "common/block_on.rs"]
mod block_on;
#[path = "common/way.rs"]
mod way;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use block_on::block_on;
use dunlin_rpc::{CallError, Client, Preset, Region, RunningServer, Server};
use way::{Way, NEVER, PATIENCE};

/// Answers with the server's name.
const NAME: u16 = 1;
/// Waits for the gate whose number is the first byte of the request.
const GATED: u16 = 2;
const MIB: usize = 1 << 20;

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Default)]
struct Gates {
    open: [AtomicBool; 2],
    entered: AtomicUsize,
    left: AtomicUsize,
}

/// A server with a region of this many bytes, if any.
fn serve(name: &'static str, region: Option<usize>, gates: &Arc<Gates>) -> RunningServer {
    let gates = Arc::clone(gates);
    let mut server = Server::bind("dunlin://127.0.0.1:0").unwrap().workers(4);
    if let Some(bytes) = region {
        server = server.region(&Region::new("memory", bytes).writable());
    }
    server
        .handle(NAME, move |_, reply| reply.write(name.as_bytes()))
        .handle_on_workers(GATED, move |request, reply| {
            gates.entered.fetch_add(1, Ordering::SeqCst);
            let gate = &gates.open[usize::from(request.payload()[0])];
            while !gate.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            gates.left.fetch_add(1, Ordering::SeqCst);
            reply.write(request.payload())
        })
        .serve()
        .unwrap()
}

fn answers_as(client: &Client, name: &str) -> bool {
    let answer = client.call_within(PATIENCE, NAME, b"");
    answer.is_ok_and(|answer| *answer == *name.as_bytes())
}

/// One call is awaited and another was given up when the server says goodbye. A thread that comes then has a lane to
/// the other server; both answers still arrive, that of the abandoned call first.
#[test]
fn a_server_that_leaves_still_answers_those_who_wait() {
    for dispatched in [false, true] {
        let gates = Arc::<Gates>::default();
        let first = serve("first", None, &gates);
        let second = serve("second", None, &gates);
        let way = Way::to(&first);
        let builder = Client::builder().preset(Preset::Flock).lanes(1);
        let client = way.connect(builder.dispatched(dispatched).deadline(NEVER));
        let caller = client.clone();
        let awaited = std::thread::spawn(move || caller.call(GATED, &[0]));
        until("the call is carried out", || {
            gates.entered.load(Ordering::SeqCst) == 1
        });
        let caller = client.clone();
        let given_up =
            std::thread::spawn(move || caller.call_within(Duration::from_millis(300), GATED, &[1]));
        let given_up = given_up.join().unwrap();
        assert!(matches!(given_up, Err(CallError::DeadlineExceeded { .. })));
        way.lead_to(&second);
        let leaves = std::thread::spawn(move || first.shutdown());
        until("the second server is found", || {
            answers_as(&client, "second")
        });
        let was_entered = gates.entered.load(Ordering::SeqCst);
        gates.open[1].store(true, Ordering::SeqCst);
        until("the second answer is on its way", || {
            gates.left.load(Ordering::SeqCst) == was_entered - 1
        });
        std::thread::sleep(Duration::from_millis(20));
        gates.open[0].store(true, Ordering::SeqCst);
        let answer = awaited.join().unwrap();
        assert_eq!(
            answer.as_deref().ok(),
            Some(&[0][..]),
            "{answer:?}, dispatched: {dispatched}"
        );
        assert!(leaves.join().unwrap());
    }
}

/// A client knows a region as it was at the first server.
fn attached_before(
    second: Option<usize>,
) -> (Client, dunlin_rpc::RemoteRegion, RunningServer, Way) {
    let gates = Arc::<Gates>::default();
    let first = serve("first", Some(16 * MIB), &gates);
    let way = Way::to(&first);
    let builder = Client::builder().preset(Preset::Plain).device("shm");
    let client = way.connect(builder);
    let region = client.attach("memory").unwrap();
    drop(first);
    let second = serve("second", second, &gates);
    way.lead_to(&second);
    until("the second server is found", || {
        answers_as(&client, "second")
    });
    (client, region, second, way)
}

#[test]
fn a_region_that_is_shorter_now_ends_a_transfer_with_an_error() {
    let (_client, region, _second, _way) = attached_before(Some(MIB));
    let mut bytes = vec![0; 4 * MIB];
    let put = region.transfer().put(0, &bytes).unwrap_err();
    assert!(matches!(put.cause, CallError::RegionBounds { .. }), "{put}");
    let got = region.transfer().get(0, &mut bytes).unwrap_err();
    assert!(matches!(got.cause, CallError::RegionBounds { .. }), "{got}");
    region.transfer().put(0, &bytes[..MIB]).unwrap();
}

#[test]
fn a_region_that_is_gone_fails_its_own_operations_of_a_batch() {
    let (client, region, _second, _way) = attached_before(None);
    let batch = client
        .batch()
        .read(&region, 0, 8)
        .call(NAME, b"")
        .read(&region, 8, 8);
    let ended = batch.call(NAME, b"").send().unwrap();
    for (at, end) in ended.iter().enumerate() {
        match at % 2 {
            0 => assert!(
                matches!(end, Err(CallError::UnknownRegion { .. })),
                "{end:?}"
            ),
            _ => assert_eq!(end.as_deref().ok(), Some(&b"second"[..]), "{end:?}"),
        }
    }
}

/// The lane that proved the server reachable is useless to a pipeline if the server has gone since.
#[test]
fn a_pipeline_begins_on_no_lane_that_is_lost() {
    for is_local in [false, true] {
        let gates = Arc::<Gates>::default();
        let first = serve("first", None, &gates);
        let way = Way::to(&first);
        let builder = Client::builder().preset(Preset::Plain).device("shm");
        let client = block_on(builder.connect_async(&way.address())).unwrap();
        let second = serve("second", None, &gates);
        way.lead_to(&second);
        assert!(first.shutdown());
        until("the second server is found", || {
            answers_as(&client, "second")
        });
        let answer = if is_local {
            let (local, mut driver) = client.local().unwrap();
            let answer = block_on(driver.run_until(local.call(NAME, b"")));
            answer.map(|answer| answer.to_vec())
        } else {
            let mut pipeline = client.pipeline().unwrap();
            let submitted = pipeline.submit(NAME, b"", 0);
            assert!(matches!(submitted, Ok(true)), "{submitted:?}");
            let mut answer = None;
            let waited = pipeline.wait(|_, said| answer = Some(said.map(<[u8]>::to_vec)));
            waited.unwrap();
            answer.expect("an answer")
        };
        assert_eq!(answer.as_deref().ok(), Some(&b"second"[..]), "{answer:?}");
    }
}

/// The lanes of a connection handle are on one device: when the server comes back and is reached over another, threads
/// move to a new handle.
#[test]
fn a_server_that_comes_back_over_another_device_is_found() {
    for preset in [Preset::Flock, Preset::Spinlock2] {
        let first = serve("first", None, &Arc::default());
        let way = Way::to(&first);
        let client = way.connect(Client::builder().preset(preset).deadline(PATIENCE));
        assert!(answers_as(&client, "first"));
        assert_eq!(client.info().device, "shm");
        drop(first);
        let second = Server::bind("dunlin://127.0.0.1:0").unwrap();
        let second = second
            .device("roce")
            .handle(NAME, |_, reply| reply.write(b"second"))
            .serve()
            .unwrap();
        way.lead_to(&second);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    until("the second server is found", || {
                        answers_as(&client, "second")
                    });
                });
            }
        });
        until("this thread finds it, too", || {
            answers_as(&client, "second")
        });
    }
}
