//! A client that changes its preset while it is used: no call fails, each is executed once, and afterwards the new
//! preset carries them.

#[path = "common/block_on.rs"]
mod block_on;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use block_on::block_on;
use dunlin_rpc::{
    ChannelConfig, Client, LocalDriver, Preset, Ready, Region, RunningServer, Server,
};

const ECHO: u16 = 1;
const GATED: u16 = 2;
const PATIENCE: Duration = Duration::from_secs(60);

/// How often each call was executed, by its number.
type Executed = Arc<Mutex<HashMap<u64, u32>>>;

fn serve(executed: &Executed, gate: &Arc<AtomicBool>) -> RunningServer {
    let (executed, gate) = (Arc::clone(executed), Arc::clone(gate));
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .region(&Region::new("memory", 4096))
        .handle(ECHO, move |request, reply| {
            let number = u64::from_le_bytes(request.payload()[..8].try_into().unwrap());
            *executed.lock().unwrap().entry(number).or_default() += 1;
            reply.write(request.payload())
        })
        .handle_on_workers(GATED, move |request, reply| {
            while !gate.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            reply.write(request.payload())
        })
        .serve()
        .unwrap()
}

/// Short and long, so that payloads are in flight on both paths.
fn payload(number: u64) -> Vec<u8> {
    let length = [8, 64, 3000, 40_000][(number % 4) as usize];
    let mut bytes = vec![number as u8; length];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// A caller that never stops, and the number of its calls that have ended.
struct Caller {
    ended: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

struct Load {
    over: Arc<AtomicBool>,
    numbers: Arc<AtomicU64>,
    callers: Vec<Caller>,
}

impl Load {
    fn start(&mut self, run: impl FnOnce(&AtomicBool, &AtomicU64, &AtomicU64) + Send + 'static) {
        let ended = Arc::new(AtomicU64::new(0));
        let (over, numbers) = (Arc::clone(&self.over), Arc::clone(&self.numbers));
        let own = Arc::clone(&ended);
        let thread = std::thread::spawn(move || run(&over, &numbers, &own));
        self.callers.push(Caller { ended, thread });
    }

    /// Waits until every caller has ended some more calls.
    fn goes_on(&self) {
        let before: Vec<u64> = self.ended().collect();
        let began = Instant::now();
        while self.ended().zip(&before).any(|(now, then)| now < then + 20) {
            assert!(
                self.callers.iter().all(|c| !c.thread.is_finished()),
                "a caller has ended"
            );
            assert!(began.elapsed() < PATIENCE, "nobody goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn ended(&self) -> impl Iterator<Item = u64> + '_ {
        let all = self.callers.iter();
        all.map(|caller| caller.ended.load(Ordering::Relaxed))
    }
}

/// Blocking threads, a thread with futures and one with a pipeline, all with one client.
fn load(client: &Client) -> Load {
    let mut load = Load {
        over: Arc::default(),
        numbers: Arc::default(),
        callers: Vec::new(),
    };
    for _ in 0..2 {
        let client = client.clone();
        load.start(move |over, numbers, ended| {
            while !over.load(Ordering::Relaxed) {
                let sent = payload(numbers.fetch_add(1, Ordering::Relaxed));
                assert_eq!(*client.call(ECHO, &sent).unwrap(), *sent);
                ended.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let futures = client.clone();
    load.start(move |over, numbers, ended| {
        while !over.load(Ordering::Relaxed) {
            let sent: Vec<_> = (0..4)
                .map(|_| payload(numbers.fetch_add(1, Ordering::Relaxed)))
                .collect();
            let calls: Vec<_> = sent.iter().map(|s| futures.call_async(ECHO, s)).collect();
            for (call, sent) in calls.into_iter().zip(&sent) {
                assert_eq!(*block_on(call).unwrap(), **sent);
                ended.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let mut pipeline = client.pipeline().unwrap();
    load.start(move |over, numbers, ended| {
        let mut next = None;
        loop {
            let over = over.load(Ordering::Relaxed);
            if over && pipeline.outstanding() == 0 {
                return;
            }
            while !over && pipeline.outstanding() < 16 {
                let number = *next.get_or_insert_with(|| numbers.fetch_add(1, Ordering::Relaxed));
                if !pipeline.submit(ECHO, &payload(number), number).unwrap() {
                    break;
                }
                next = None;
            }
            let taken = pipeline.poll(|number, answer| {
                assert_eq!(answer.unwrap(), payload(number));
                ended.fetch_add(1, Ordering::Relaxed);
            });
            if taken.unwrap() == 0 {
                std::thread::yield_now();
            }
        }
    });
    load
}

fn changes(device: &str, presets: &[Preset]) {
    let (executed, gate) = (Executed::default(), Arc::default());
    let server = serve(&executed, &gate);
    let client = Client::builder()
        .preset(presets[0])
        .device(device)
        .deadline(PATIENCE)
        .connect(&server.address().to_string())
        .unwrap();
    let load = load(&client);
    for round in 0..2 {
        for preset in presets.iter().cycle().skip(1).take(presets.len()) {
            load.goes_on();
            // Outstanding all the time, as a call and as a future.
            gate.store(false, Ordering::Release);
            let slow = client.call_async(GATED, b"slow");
            let waits = client.clone();
            let slower = std::thread::spawn(move || waits.call(GATED, b"slower").map(|_| ()));
            client.change_preset(*preset).unwrap();
            let info = client.info();
            assert_eq!(info.preset, *preset, "round {round}");
            let is_flor = info.device.starts_with("flor-");
            assert_eq!(is_flor, *preset == Preset::Flor, "{info:?}");
            load.goes_on();
            gate.store(true, Ordering::Release);
            assert_eq!(&*block_on(slow).unwrap(), b"slow");
            slower.join().unwrap().unwrap();
        }
    }
    load.over.store(true, Ordering::Relaxed);
    let ended: u64 = load
        .callers
        .into_iter()
        .map(|caller| {
            caller.thread.join().unwrap();
            caller.ended.load(Ordering::Relaxed)
        })
        .sum();
    let executed = executed.lock().unwrap();
    assert_eq!(executed.len() as u64, ended);
    assert!(executed.values().all(|times| *times == 1));
    println!("{device}: {ended} calls");
}

#[test]
fn from_xrdma_to_flor_and_back_on_shared_memory() {
    changes("shm", &[Preset::Xrdma, Preset::Flor]);
}

#[test]
fn from_xrdma_to_flor_and_back_on_roce() {
    changes("roce", &[Preset::Xrdma, Preset::Flor]);
}

/// With rings, shared lanes, message pools and datagrams.
#[test]
fn from_any_preset_to_another() {
    let presets = [
        Preset::Plain,
        Preset::Flock,
        Preset::ScaleRpc,
        Preset::Erpc,
        Preset::Auto,
        Preset::Xrdma,
    ];
    changes("shm", &presets);
}

/// A request that was filled before the change is sent by the lane after it, which cannot use its memory.
#[test]
fn a_buffer_outlives_its_lane() {
    let (executed, gate) = (Executed::default(), Arc::default());
    let server = serve(&executed, &gate);
    let presets = [
        Preset::Plain,
        Preset::Erpc,
        Preset::Flock,
        Preset::Fasst,
        Preset::Xrdma,
        Preset::Herd,
        Preset::Plain,
    ];
    let client = Client::builder().preset(presets[0]).device("shm");
    let client = client.connect(&server.address().to_string()).unwrap();
    // Short, and longer than any datagram.
    for length in [48, 100_000] {
        for pair in presets.windows(2) {
            client.change_preset(pair[0]).unwrap();
            let mut request = client.buffer(length).unwrap();
            let bytes = payload(length as u64);
            request[..bytes.len()].copy_from_slice(&bytes);
            let sent = request.to_vec();
            client.change_preset(pair[1]).unwrap();
            let answer = client.call_buffer(ECHO, request);
            assert_eq!(&answer.unwrap()[..], sent, "{pair:?}");
        }
    }
}

/// A change that fails changes nothing.
#[test]
fn without_a_server_nothing_changes() {
    let (executed, gate) = (Executed::default(), Arc::default());
    let server = serve(&executed, &gate);
    let client = Client::builder().preset(Preset::Xrdma);
    let client = client.connect(&server.address().to_string()).unwrap();
    client.change_preset(Preset::Xrdma).unwrap();
    drop(server);
    assert!(client.change_preset(Preset::Flor).is_err());
    assert_eq!(client.info().preset, Preset::Xrdma);
    client.close();
    assert!(client.change_preset(Preset::Flor).is_err());
}

/// Connections that are no longer used end, also at the server.
#[test]
fn the_former_connections_end() {
    let (executed, gate) = (Executed::default(), Arc::default());
    let server = serve(&executed, &gate);
    let client = Client::builder().preset(Preset::Xrdma).device("shm");
    let client = client.connect(&server.address().to_string()).unwrap();
    for preset in [Preset::Flor, Preset::Xrdma, Preset::Flor, Preset::Xrdma] {
        client.change_preset(preset).unwrap();
        client.call(ECHO, &payload(1)).unwrap();
    }
    let began = Instant::now();
    while server.connections() > 1 {
        assert!(began.elapsed() < PATIENCE, "{}", server.connections());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A call that was given up is not waited for: the connection ends although the server has not answered.
#[test]
fn calls_that_were_given_up_keep_no_former_connection() {
    let (executed, gate) = (Executed::default(), Arc::default());
    let server = serve(&executed, &gate);
    let client = Client::builder().preset(Preset::Plain).device("shm");
    let client = client.connect(&server.address().to_string()).unwrap();
    block_on(client.call_async(ECHO, &payload(1))).unwrap();
    drop(client.call_async(GATED, b"given up"));
    client.change_preset(Preset::Xrdma).unwrap();
    client.call(ECHO, &payload(2)).unwrap();
    block_on(client.call_async(ECHO, &payload(3))).unwrap();
    let began = Instant::now();
    // One for threads, one for futures.
    while server.connections() > 2 {
        assert!(began.elapsed() < PATIENCE, "{}", server.connections());
        std::thread::sleep(Duration::from_millis(5));
    }
    gate.store(true, Ordering::Release);
}

/// The same for a client of one thread, whose calls would wait forever for unanswered ones: one that was given up, or
/// one that is still waited for.
#[test]
fn local_clients_go_along_though_calls_are_out() {
    for is_awaited in [false, true] {
        let (executed, gate) = (Executed::default(), Arc::default());
        let server = serve(&executed, &gate);
        let client = Client::builder().preset(Preset::Plain).device("shm");
        let client = client.connect(&server.address().to_string()).unwrap();
        let (local, mut driver) = client.local().unwrap();
        let standing = driver_runs(&mut driver, async {
            local.call(ECHO, &payload(1)).await.unwrap();
            let standing = local.call_async(GATED, b"standing");
            // It has been sent when this is answered.
            local.call(ECHO, &payload(2)).await.unwrap();
            is_awaited.then_some(standing)
        });
        let requests = server.statistics().requests;
        client.change_preset(Preset::Xrdma).unwrap();
        for number in 3..100 {
            let answer = driver_runs(&mut driver, local.call(ECHO, &payload(number))).unwrap();
            assert_eq!(&answer[..], &payload(number)[..]);
        }
        assert_eq!(server.statistics().requests, requests + 97);
        let began = Instant::now();
        // That of the client's thread and the one that it will have, that of the local client, and the one that this
        // had before while a call waits there.
        while server.connections() > 3 + usize::from(is_awaited) {
            assert!(
                began.elapsed() < PATIENCE,
                "{is_awaited}: {}",
                server.connections()
            );
            driver_runs(&mut driver, local.call(ECHO, &payload(3))).unwrap();
        }
        gate.store(true, Ordering::Release);
        if let Some(standing) = standing {
            let answer = driver_runs(&mut driver, standing).unwrap();
            assert_eq!(&answer[..], b"standing");
        }
    }
}

/// A region that is being attached, or was attached with no caller left, when the preset changes, is attached again.
#[test]
fn local_clients_attach_on_the_lane_that_they_go_over_to() {
    let gate = Arc::default();
    let server = serve(&Executed::default(), &gate);
    for is_awaited in [false, true] {
        let client = Client::builder().preset(Preset::Plain).device("shm");
        let client = client.connect(&server.address().to_string()).unwrap();
        let region = client.attach("memory").unwrap();
        let (local, mut driver) = client.local().unwrap();
        // It waits for the region first.
        let read = local.read_async(&region, 0, 8);
        let read = is_awaited.then_some(read);
        if !is_awaited {
            driver_runs(&mut driver, local.call(ECHO, &payload(1))).unwrap();
        }
        client.change_preset(Preset::Xrdma).unwrap();
        let answer = driver_runs(&mut driver, local.call(ECHO, &payload(2))).unwrap();
        assert_eq!(&answer[..], &payload(2)[..]);
        let reads = read.into_iter().chain([local.read_async(&region, 0, 8)]);
        for read in reads.collect::<Vec<_>>() {
            assert_eq!(driver_runs(&mut driver, read).unwrap().len(), 8);
        }
    }
}

/// A region that was granted on a lane that ended before the grant was taken is granted.
#[test]
fn a_grant_outlives_its_lane() {
    let server = serve(&Executed::default(), &Arc::default());
    let client = Client::builder().preset(Preset::Plain).device("shm");
    let client = client.connect(&server.address().to_string()).unwrap();
    let attaching = client.attach_async("memory");
    // What was sent before this has been answered, too.
    block_on(client.call_async(ECHO, &payload(1))).unwrap();
    client.change_preset(Preset::Xrdma).unwrap();
    // That of the client's thread, and after the change one each for it and for futures.
    until("the lane of the futures ends", || server.connections() <= 3);
    let region = block_on(attaching).unwrap();
    assert_eq!(block_on(region.read_async(0, 8)).unwrap().len(), 8);
    assert_eq!(region.read(0, 8).unwrap().len(), 8);
}

fn driver_runs<F: Future>(driver: &mut LocalDriver, calls: F) -> F::Output {
    block_on(driver.run_until(calls))
}

/// Counts how often a task is woken.
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A task that waited for a place with the former preset takes one of the next, and takes none away from others.
#[test]
fn who_waits_for_a_place_is_woken_whatever_others_waited_for_before_the_change() {
    let gate = Arc::new(AtomicBool::new(false));
    let server = serve(&Executed::default(), &gate);
    let channel = ChannelConfig {
        max_outstanding: 1,
        ..ChannelConfig::default()
    };
    let builder = Client::builder().preset(Preset::Plain).channel(channel);
    let builder = builder.deadline(10 * PATIENCE);
    let client = builder.connect(&server.address().to_string()).unwrap();
    let woken: Vec<_> = (0..4).map(|_| Arc::new(Count(AtomicU64::new(0)))).collect();
    let poll = |task: usize, ready: &mut Pin<Box<Ready>>| {
        let waker = Waker::from(Arc::clone(&woken[task]));
        ready.as_mut().poll(&mut Context::from_waker(&waker))
    };
    let mut waits: Vec<_> = (0..4).map(|_| Box::pin(client.ready())).collect();
    let first = client.call_async(GATED, &payload(0));
    for task in [0, 1] {
        assert!(poll(task, &mut waits[task]).is_pending());
    }
    client.change_preset(Preset::Flock).unwrap();
    // The lane of the new preset is full, too.
    let second = client.call_async(GATED, &payload(1));
    for task in [2, 3] {
        assert!(poll(task, &mut waits[task]).is_pending());
    }
    gate.store(true, Ordering::Release);
    block_on(first).unwrap();
    block_on(second).unwrap();
    let count = |task: usize| woken[task].0.load(Ordering::SeqCst);
    until("the first that waits now is woken", || count(2) > 0);
    // One that has waited since before the change is faster.
    let Poll::Ready(Ok(place)) = poll(1, &mut waits[1]) else {
        panic!("there is a place");
    };
    assert!(poll(2, &mut waits[2]).is_pending());
    drop(place);
    until("the first of the others is woken", || count(2) > 1);
    let Poll::Ready(Ok(place)) = poll(2, &mut waits[2]) else {
        panic!("there is a place");
    };
    drop(place);
    until("the second is woken", || count(3) > 0);
}
