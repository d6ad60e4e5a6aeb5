//! `fork()` in a process with connections: the child gets a typed error from all that it has inherited, the parent does
//! not notice, and what the child makes anew works. Each process that forks is the test binary started again.

mod common;
#[path = "../../dunlin-shm/tests/common/process.rs"]
mod process;

use std::time::{Duration, Instant};

use common::{serve_echo, ECHO};
use dunlin::ring::{RingBuilder, RingConfig, RingError, SendError};
use dunlin::{CallError, Client, ConnectError, MeetError, Peers, Preset, Region, Server, Stream};
use dunlin_shm::{ShmConfig, ShmDevice};
use dunlin_verbs::{
    Access, CompletionChannel, CompletionQueue, CompletionQueueError, Device, VerbsError,
};
use futures_executor::block_on;
use process::{listen, role, say, Other};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long a child may take for everything, its end included.
const BOUND: Duration = Duration::from_secs(30);

/// Has a child of this process do something while this one does another thing again and again; says with which code the
/// child ended. A child that panics ends with 101, one that hangs is killed.
fn while_a_child(does: impl FnOnce(), mut meanwhile: impl FnMut()) -> i32 {
    // SAFETY: the child uses Dunlin, whose promise it is that this works, and ends without returning from here.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(does));
        // SAFETY: ends the process.
        unsafe { libc::_exit(if ended.is_ok() { 0 } else { 101 }) };
    }
    let started = Instant::now();
    loop {
        meanwhile();
        let mut status = 0;
        // SAFETY: our own child; `status` is ours.
        let ended = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
        if ended == child {
            return match libc::WIFEXITED(status) {
                true => libc::WEXITSTATUS(status),
                false => -libc::WTERMSIG(status),
            };
        }
        if started.elapsed() > BOUND {
            // SAFETY: as above.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &mut status, 0);
            }
            panic!("the child did not end");
        }
    }
}

/// Runs `test` in a process of its own, for each of these arguments; the first process serves.
fn in_processes(name: &str, arguments: &[&str], test: impl Fn(&str, &str)) {
    if let Some((_, argument)) = role() {
        let address = listen().unwrap();
        test(&argument, &address);
        return say("done");
    }
    let server = serve_echo();
    for argument in arguments {
        let mut other = Other::start(name, "forks", argument);
        other.say(&server.address().to_string());
        assert_eq!(other.hear(), "done", "{argument}");
    }
}

fn forked<T: std::fmt::Debug>(what: &str, result: Result<T, CallError>) {
    assert!(
        matches!(result, Err(CallError::Forked)),
        "{what} in the child: {result:?}"
    );
}

#[test]
fn parent_and_child_never_get_each_others_answers() {
    let presets: Vec<&str> = Preset::ALL.iter().map(|preset| preset.name()).collect();
    in_processes(
        "parent_and_child_never_get_each_others_answers",
        &presets,
        |preset, address| {
            let preset: Preset = preset.parse().unwrap();
            let connect = || Client::builder().preset(preset).connect(address).unwrap();
            let client = connect();
            let mut pipeline = client.pipeline().unwrap();
            let mut peers = Peers::new([&client]).unwrap();
            let future = client.call_async(ECHO, b"before");
            let (local, mut driver) = client.local().unwrap();
            let early = local.call_async(ECHO, b"before");
            let mut number = 0;
            let mut call = |client: &Client, who: &str| {
                number += 1;
                let sent = format!("{who} {number}");
                let answer = client.call(ECHO, sent.as_bytes());
                answer.map(|answer| {
                    let answer = String::from_utf8_lossy(&answer).into_owned();
                    assert_eq!(answer, sent, "{who} of {preset:?} got another's answer");
                })
            };
            call(&client, "parent").unwrap();
            let ends = std::sync::atomic::AtomicBool::new(false);
            let ended = std::thread::scope(|scope| {
                // Another thread is in the middle of something when this one forks.
                let busy = client.clone();
                let thread = scope.spawn({
                    let ends = &ends;
                    move || {
                        while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                            assert_eq!(&*busy.call(ECHO, b"busy").unwrap(), b"busy");
                        }
                    }
                });
                let parents = client.clone();
                let code = while_a_child(
                    || {
                        let started = Instant::now();
                        let mut calls = 0;
                        while started.elapsed() < Duration::from_millis(200) || calls < 50 {
                            let result = client.call(ECHO, b"child");
                            if let Ok(answer) = &result {
                                panic!(
                                    "child of {preset:?} got {:?}",
                                    String::from_utf8_lossy(answer)
                                );
                            }
                            forked("call", result);
                            calls += 1;
                        }
                        let a_while = Duration::from_secs(1);
                        forked("call_within", client.call_within(a_while, ECHO, b"child"));
                        forked("buffer", client.buffer(100_000));
                        forked("attach", client.attach("none"));
                        forked("batch", client.batch().call(ECHO, b"child").send());
                        forked("future", block_on(client.call_async(ECHO, b"child")));
                        forked("a future of before", block_on(future));
                        forked("a local future of before", block_on(early));
                        forked("local future", block_on(local.call_async(ECHO, b"child")));
                        forked(
                            "local call",
                            block_on(driver.run_until(local.call(ECHO, b"child"))),
                        );
                        assert!(matches!(client.local(), Err(ConnectError::Forked)));
                        assert!(matches!(client.pipeline(), Err(ConnectError::Forked)));
                        assert!(matches!(Peers::new([&client]), Err(ConnectError::Forked)));
                        forked("submit", pipeline.submit(ECHO, b"child", 1));
                        forked("poll", pipeline.poll(|_, _| panic!("an answer")));
                        forked("wait", pipeline.wait(|_, _| panic!("an answer")));
                        forked("peers", peers.submit(0, ECHO, b"child", 1));
                        forked("peers wait", peers.wait(|_, _, _| panic!("an answer")));
                        assert_eq!(peers.poll(|_, _, _| panic!("an answer")), 0);
                        assert!(client.figures().is_none());
                        client.close();
                        drop((client, pipeline, peers, local, driver));
                        let own = connect();
                        for _ in 0..50 {
                            call(&own, "child").unwrap();
                        }
                        let answer = block_on(own.call_async(ECHO, b"later"));
                        assert_eq!(&*answer.unwrap(), b"later");
                    },
                    || {
                        let sent = b"parent";
                        let answer = parents.call(ECHO, sent).unwrap();
                        assert_eq!(
                            String::from_utf8_lossy(&answer),
                            "parent",
                            "parent of {preset:?} got another's answer"
                        );
                    },
                );
                ends.store(true, std::sync::atomic::Ordering::Relaxed);
                thread.join().unwrap();
                code
            });
            assert_eq!(ended, 0, "the child of {preset:?}");
        },
    );
}

fn not_connected<T: std::fmt::Debug>(what: &str, result: std::io::Result<T>) {
    let error = result.expect_err(what);
    assert_eq!(
        error.kind(),
        std::io::ErrorKind::NotConnected,
        "{what}: {error}"
    );
    assert!(error.to_string().contains("forked"), "{what}: {error}");
}

#[test]
fn servers_streams_rings_regions_and_devices_are_the_parents() {
    let name = "servers_streams_rings_regions_and_devices_are_the_parents";
    in_processes(name, &["all"], |_, _| {
        let table = Region::new("table", 4096).writable();
        let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
        let server = server
            .region(&table)
            .handle(ECHO, |request, reply| reply.write(request.payload()));
        let server = server.serve().unwrap();
        let address = server.address().to_string();
        let client = Client::connect(&address).unwrap();
        let region = client.attach("table").unwrap();
        let long = client.call(ECHO, &[7; 100_000]).unwrap();

        let listener = Stream::bind("dunlin://127.0.0.1:0").unwrap();
        let mut ours = Stream::connect(&listener.address().to_string()).unwrap();
        let mut theirs = listener.accept().unwrap();

        let device = ShmDevice::open(ShmConfig::default()).unwrap();
        let rings = RingBuilder::new(&device, RingConfig::default());
        let consumers = rings.bind_consumers("dunlin://127.0.0.1:0").unwrap();
        let mut producer = rings
            .connect_producer(&consumers.address().to_string())
            .unwrap();
        let mut consumer = consumers.accept().unwrap();
        let channel = device.create_completion_channel().unwrap();
        let mut queue = device.create_completion_queue(16, Some(&channel)).unwrap();
        let domain = device.create_protection_domain().unwrap();

        let (parents, parents_region) = (client.clone(), region.clone());
        // What the parent goes on with cannot be moved into what the child drops: the child has copies of all the same.
        let own =
            std::cell::RefCell::new(Some((server, client, region, long, listener, consumers)));
        let in_use =
            std::cell::RefCell::new((&mut ours, &mut theirs, &mut producer, &mut consumer));
        let code = while_a_child(
            || {
                let (server, client, region, long, listener, consumers) = own.take().unwrap();
                let (ours, theirs, producer, consumer) = &mut *in_use.borrow_mut();
                forked("read of a region", region.read(0, 8));
                forked("write of a region", region.write(0, b"child"));
                forked("region, future", block_on(region.read_async(0, 8)));
                not_connected("read", block_on(ours.read(&mut [0; 8])));
                not_connected("write", block_on(ours.write(b"child")));
                not_connected("flush", block_on(theirs.flush()));
                not_connected("shutdown", block_on(theirs.shutdown()));
                assert!(matches!(listener.accept(), Err(MeetError::Forked)));
                assert!(matches!(
                    producer.try_send(b"child"),
                    Err(SendError::Ring(RingError::Forked))
                ));
                assert_eq!(producer.poll(), Err(RingError::Forked));
                assert_eq!(consumer.receive(|_| ()), Err(RingError::Forked));
                assert!(matches!(
                    queue.poll(&mut []),
                    Err(CompletionQueueError::Forked(_))
                ));
                assert!(matches!(channel.wait(BOUND), Err(VerbsError::Forked(_))));
                let allocated = device.allocate_region(&domain, 4096, Access::LOCAL_WRITE);
                assert!(matches!(allocated, Err(VerbsError::Forked(_))));
                assert_eq!(server.senders().len(), 0);
                assert!(server.observer().figures().is_none());
                assert!(!server.shutdown());
                // SAFETY: the child never looks at the parent's ends again; dropping them here is what is tested.
                unsafe {
                    std::ptr::drop_in_place(*ours);
                    std::ptr::drop_in_place(*theirs);
                    std::ptr::drop_in_place(*producer);
                    std::ptr::drop_in_place(*consumer);
                }
                drop((client, region, long, listener, consumers));

                let server = serve_echo();
                let client = Client::connect(&server.address().to_string()).unwrap();
                assert_eq!(&*client.call(ECHO, b"own").unwrap(), b"own");
                let listener = Stream::bind("dunlin://127.0.0.1:0").unwrap();
                let mut out = Stream::connect(&listener.address().to_string()).unwrap();
                let mut back = listener.accept().unwrap();
                block_on(out.write_all(b"own")).unwrap();
                let mut bytes = [0; 3];
                block_on(back.read_exact(&mut bytes)).unwrap();
                assert_eq!(&bytes, b"own");
                drop((out, back));
                assert!(server.shutdown());
            },
            || {
                assert_eq!(&*parents.call(ECHO, b"parent").unwrap(), b"parent");
                parents_region.write(0, b"parent").unwrap();
                assert_eq!(&*parents_region.read(0, 6).unwrap(), b"parent");
            },
        );
        assert_eq!(code, 0, "the child");
        // Nothing of the child came through, and the ends still work.
        let mut bytes = [0; 6];
        block_on(ours.write_all(b"parent")).unwrap();
        block_on(theirs.read_exact(&mut bytes)).unwrap();
        assert_eq!(&bytes, b"parent");
        producer.try_send(b"parent").unwrap();
        producer.flush().unwrap();
        let started = Instant::now();
        let mut seen = Vec::new();
        while seen.is_empty() {
            assert!(started.elapsed() < BOUND, "nothing came through the ring");
            producer.poll().unwrap();
            consumer.receive(|message| seen = message.to_vec()).unwrap();
        }
        assert_eq!(seen, b"parent");
        let (server, client, region, ..) = own.take().unwrap();
        drop((client, region, parents, parents_region));
        assert!(server.shutdown());
    });
}
