//! Calls as futures on an executor's only thread: nothing that a task does blocks, and no task is woken under a lock.

#[path = "common/block_on.rs"]
mod block_on;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use block_on::block_on;
use dunlin_rpc::{
    CallError, CallFuture, ChannelConfig, Client, ClientBuilder, Preset, Region, Reply,
    RunningServer, Server,
};

const ECHO: u16 = 1;
const GATED: u16 = 2;

/// Longer than anything takes that does not wait for a later action of the test.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than the patience of the tests: no deadline ends what hangs.
const NEVER: Duration = Duration::from_secs(300);

/// Opens the gate also if an assertion fails.
struct Gate(Arc<AtomicBool>);

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A server whose second handler answers when the gate is open.
fn gated() -> (RunningServer, Gate) {
    let gate = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&gate);
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .region(&Region::new("memory", 4096).writable().atomic())
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_on_workers(GATED, move |request, reply| {
            while !open.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            reply.write(request.payload())
        })
        .serve()
        .unwrap();
    (server, Gate(gate))
}

fn connect(builder: ClientBuilder, server: &RunningServer) -> Client {
    builder.connect(&server.address().to_string()).unwrap()
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

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn number(answer: Result<Reply, CallError>) -> u32 {
    let answer = answer.expect("an answer");
    u32::from_le_bytes(answer[..].try_into().expect("four bytes"))
}

/// More calls than a session has credits, a pool has blocks, or a ring has room for, while handlers are slow: each
/// returns at once, and all are answered when the handlers are.
#[test]
fn calls_beyond_the_room_of_a_lane_are_pending() {
    for preset in [
        Preset::Fasst,
        Preset::Herd,
        Preset::Erpc,
        Preset::RawWrite,
        Preset::ScaleRpc,
        Preset::Plain,
        Preset::Flock,
    ] {
        let (server, gate) = gated();
        let client = connect(Client::builder().preset(preset).deadline(NEVER), &server);
        let submitted = ends(&format!("100 calls with {preset}"), move || {
            let call =
                |i: u32| client.call_async(GATED, &[&i.to_le_bytes()[..], &[7; 1500]].concat());
            let futures: Vec<CallFuture> = (0..100).map(call).collect();
            (client, futures)
        });
        drop(gate);
        let (_client, futures) = submitted;
        ends(&format!("their answers with {preset}"), move || {
            for (i, future) in futures.into_iter().enumerate() {
                let answer = block_on(future).expect("an answer");
                assert_eq!(answer.len(), 1504);
                assert_eq!(answer[..4], (i as u32).to_le_bytes(), "{preset}");
            }
        });
    }
}

/// A handler whose caller has given up notices, also with one message per datagram.
#[test]
fn a_call_that_is_given_up_is_cancelled_at_the_server() {
    for (preset, messages) in [
        (Preset::Fasst, 255),
        (Preset::Fasst, 1),
        (Preset::Erpc, 255),
        (Preset::Erpc, 1),
    ] {
        let held = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&held);
        let server = Server::bind("dunlin://127.0.0.1:0")
            .unwrap()
            .handle(ECHO, |request, reply| reply.write(request.payload()))
            .handle_deferred(GATED, move |request, responder| {
                keep.lock().unwrap().push((request, responder));
            })
            .serve()
            .unwrap();
        let mut channel = ChannelConfig::default();
        channel.datagram_batches.messages = messages;
        let builder = Client::builder().preset(preset).channel(channel);
        let client = connect(builder.deadline(NEVER), &server);
        ends(&format!("{preset}, {messages} in a datagram"), move || {
            let echo = || block_on(client.call_async(ECHO, b"others go on")).expect("an answer");
            (0..3).for_each(|_| drop(echo()));
            let mut given_up = Box::pin(client.call_async(GATED, b"for nobody"));
            let mut context = Context::from_waker(Waker::noop());
            assert!(given_up.as_mut().poll(&mut context).is_pending());
            while held.lock().unwrap().is_empty() {
                echo();
            }
            drop(given_up);
            while !held.lock().unwrap()[0].0.is_cancelled() {
                echo();
            }
        });
        drop(server);
    }
}

/// A thread whose abandoned calls hold all places until they are answered waits for a place within its deadline; it
/// gets no error for having too many calls outstanding, which it could not avoid.
#[test]
fn a_call_behind_those_that_were_given_up_waits_for_its_place() {
    for preset in [
        Preset::Fasst,
        Preset::RawWrite,
        Preset::ScaleRpc,
        Preset::Plain,
        Preset::Flock,
    ] {
        let (server, gate) = gated();
        let channel = ChannelConfig {
            max_outstanding: 2,
            ..ChannelConfig::default()
        };
        let builder = Client::builder().preset(preset).channel(channel);
        let client = connect(builder.deadline(NEVER), &server);
        ends(&format!("calls behind others with {preset}"), move || {
            let hurried = client.within(Duration::from_millis(10));
            // The server may end one early that has not begun, and another is answered instead.
            let only_late = |ended: &Result<Reply, CallError>| {
                use CallError::{DeadlineExceeded, Expired};
                let late = matches!(ended, Err(DeadlineExceeded { .. } | Expired { .. }));
                assert!(late || ended.is_ok(), "{preset}: {ended:?}");
            };
            for handler in [GATED, GATED, ECHO, ECHO] {
                only_late(&hurried.call(handler, &[]));
            }
            let batch = hurried.batch().call(ECHO, &[]).call(ECHO, &[]).send();
            match batch {
                Ok(answers) => answers.iter().for_each(only_late),
                // It found no room in its time.
                Err(error) => only_late(&Err(error)),
            }
            drop(gate);
            assert_eq!(number(client.call(ECHO, &7u32.to_le_bytes())), 7);
            let answers = client.batch().call(ECHO, &[8]).call(ECHO, &[9]).send();
            assert!(answers.unwrap().iter().all(Result::is_ok), "{preset}");
        });
        drop(server);
    }
}

/// The user's limit also holds for calls that wait for room, and is a typed error.
#[test]
fn no_more_calls_than_allowed_are_out_or_wait() {
    for preset in [
        Preset::Fasst,
        Preset::RawWrite,
        Preset::Plain,
        Preset::Flock,
    ] {
        let (server, gate) = gated();
        let channel = ChannelConfig {
            max_outstanding: 40,
            ..ChannelConfig::default()
        };
        let builder = Client::builder().preset(preset).channel(channel);
        let client = connect(builder.deadline(NEVER), &server);
        let (client, mut futures) = ends("41 calls", move || {
            let call = |i: u32| client.call_async(GATED, &i.to_le_bytes());
            let futures: Vec<CallFuture> = (0..41).map(call).collect();
            (client, futures)
        });
        let refused = block_on(futures.pop().unwrap());
        let too_many = matches!(refused, Err(CallError::TooManyOutstanding { limit: 40 }));
        assert!(too_many, "{preset}: {refused:?}");
        // A call that is given up makes room for another.
        drop(futures.pop());
        drop(gate);
        ends("the others", move || {
            for (i, future) in futures.into_iter().enumerate() {
                assert_eq!(number(block_on(future)), i as u32);
            }
            assert_eq!(
                number(block_on(client.call_async(ECHO, &5u32.to_le_bytes()))),
                5
            );
        });
    }
}

/// The same for one-sided operations: the first waits for its region to be attached, and more than fit wait for room.
#[test]
fn operations_beyond_the_room_of_a_lane_are_pending() {
    for preset in [Preset::Plain, Preset::Flock] {
        let (server, _gate) = gated();
        let client = connect(Client::builder().preset(preset).deadline(NEVER), &server);
        ends(&format!("500 operations with {preset}"), move || {
            let region = client.attach("memory").unwrap();
            let adds: Vec<CallFuture> = (0..500).map(|_| region.fetch_add_async(0, 1)).collect();
            let mut seen: Vec<u64> = adds
                .into_iter()
                .map(|add| u64::from_ne_bytes(block_on(add).unwrap()[..].try_into().unwrap()))
                .collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..500));
        });
    }
}

/// A task's waker that does what executors do: it runs tasks, which call, poll and give up others.
struct Meddler {
    client: Client,
    victims: Mutex<Vec<CallFuture>>,
    woken: AtomicUsize,
}

impl Meddler {
    fn meddle(&self) {
        drop(self.victims.lock().unwrap().pop());
        let mut call = self.client.call_async(ECHO, b"from a waker");
        let waker = Waker::noop();
        let _ = std::pin::Pin::new(&mut call).poll(&mut Context::from_waker(waker));
        self.woken.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wake for Meddler {
    fn wake(self: Arc<Self>) {
        self.meddle();
    }
}

/// Runs tasks when it is dropped, as the last waker of a task that owns futures does.
struct AtEnd(Arc<Meddler>);

impl Wake for AtEnd {
    fn wake(self: Arc<Self>) {}
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.meddle();
    }
}

#[test]
fn wakers_may_call_and_drop_calls() {
    for preset in [Preset::Plain, Preset::Fasst, Preset::Flock] {
        let (server, gate) = gated();
        let client = connect(Client::builder().preset(preset).deadline(NEVER), &server);
        let victims = (0..20).map(|_| client.call_async(GATED, b"")).collect();
        let meddler = Arc::new(Meddler {
            client: client.clone(),
            victims: Mutex::new(victims),
            woken: AtomicUsize::new(0),
        });
        let meddling = Arc::clone(&meddler);
        // Workers go on, and with them the server, also if this fails.
        let _spare = Gate(Arc::clone(&gate.0));
        ends(&format!("wakers with {preset}"), move || {
            let waker = Waker::from(Arc::clone(&meddling));
            let mut calls: Vec<CallFuture> =
                (0..8).map(|_| client.call_async(GATED, b"")).collect();
            for call in &mut calls {
                let mut poll = |waker: &Waker| {
                    let polled =
                        std::pin::Pin::new(&mut *call).poll(&mut Context::from_waker(waker));
                    assert!(polled.is_pending());
                };
                // The first waker is dropped for the second.
                poll(&Waker::from(Arc::new(AtEnd(Arc::clone(&meddling)))));
                poll(&waker);
            }
            drop(gate);
            // Each is woken by what takes its answer: the driver, or a poll of another future.
            let started = std::time::Instant::now();
            while meddling.woken.load(Ordering::SeqCst) < 16 {
                assert!(started.elapsed() < PATIENCE, "{:?}", meddling.woken);
                let _ = block_on(client.call_async(ECHO, b"beside"));
            }
            client.close();
        });
    }
}

/// With room for four calls, twenty threads make two hundred: each waits for its place, and none is refused. A place
/// that is taken and not used, and one whose waiter has gone, go to the next one.
#[test]
fn who_waits_for_a_place_is_never_refused() {
    let (server, gate) = gated();
    let channel = ChannelConfig {
        max_outstanding: 4,
        ..ChannelConfig::default()
    };
    let client = connect(Client::builder().channel(channel).deadline(NEVER), &server);
    let out: Vec<CallFuture> = (0..4).map(|_| client.call_async(GATED, b"out")).collect();
    let refused = block_on(client.call_async(ECHO, b"one more"));
    assert!(matches!(
        refused,
        Err(CallError::TooManyOutstanding { limit: 4 })
    ));
    let woken = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    // The first waiter goes away, before it is woken and after.
    let mut first = Box::pin(client.ready());
    let mut second = Box::pin(client.ready());
    let mut third = Box::pin(client.ready());
    for waits in [&mut first, &mut second, &mut third] {
        assert!(waits.as_mut().poll(&mut context).is_pending());
    }
    drop(first);
    drop(gate);
    ends("the gate is open", move || {
        for call in out {
            assert_eq!(&block_on(call).unwrap()[..], b"out");
        }
    });
    // The driver wakes after it has released its lock, so possibly after the answers were seen.
    let start = std::time::Instant::now();
    while woken.0.load(Ordering::Relaxed) == 0 {
        assert!(start.elapsed() < PATIENCE, "the first that waits is woken");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(second);
    let Poll::Ready(Ok(unused)) = third.as_mut().poll(&mut context) else {
        panic!("there is a place");
    };
    drop(unused);
    let threads: Vec<_> = (0..20u32)
        .map(|thread| {
            let client = client.clone();
            std::thread::spawn(move || {
                for i in 0..10 {
                    let number_of = (100 * thread + i).to_le_bytes();
                    let permit = block_on(client.ready()).expect("a place");
                    let answer = block_on(permit.call(ECHO, &number_of));
                    assert_eq!(number(answer), 100 * thread + i);
                }
            })
        })
        .collect();
    ends("two hundred calls", move || {
        for thread in threads {
            thread.join().expect("its calls are answered");
        }
    });
    client.close();
    assert!(matches!(block_on(client.ready()), Err(CallError::Closed)));
}

/// The first places are taken before there is a connection: as many as allowed, and no more.
#[test]
fn places_that_are_taken_before_the_first_call_are_places() {
    let (server, gate) = gated();
    let channel = ChannelConfig {
        max_outstanding: 2,
        ..ChannelConfig::default()
    };
    let client = connect(Client::builder().channel(channel).deadline(NEVER), &server);
    let mut waits: Vec<_> = (0..3).map(|_| Box::pin(client.ready())).collect();
    let mut context = Context::from_waker(Waker::noop());
    let mut permits = Vec::new();
    for (at, wait) in waits.iter_mut().enumerate() {
        match wait.as_mut().poll(&mut context) {
            Poll::Ready(permit) => permits.push(permit.unwrap()),
            Poll::Pending => assert_eq!(at, 2, "there are two places"),
        }
    }
    assert_eq!(permits.len(), 2, "there are two places");
    let refused = block_on(client.call_async(ECHO, b"one more"));
    assert!(matches!(refused, Err(CallError::TooManyOutstanding { .. })));
    let calls = permits
        .into_iter()
        .map(|permit| permit.call(GATED, b"held"));
    let calls: Vec<_> = calls.collect();
    drop(gate);
    let third = waits.pop().unwrap();
    ends("three calls", move || {
        for call in calls {
            assert_eq!(&block_on(call).unwrap()[..], b"held");
        }
        let last = block_on(third).unwrap().call(ECHO, b"last");
        assert_eq!(&block_on(last).unwrap()[..], b"last");
    });
    // The next one is not used, and the one after it gets the place.
    drop(block_on(client.ready()).unwrap());
    assert_eq!(&block_on(client.call_async(ECHO, b"x")).unwrap()[..], b"x");
}

/// A place taken before a change of presets is still one afterwards, whichever lane has the places then.
#[test]
fn a_place_outlives_a_change_of_presets() {
    let (server, gate) = gated();
    let channel = ChannelConfig {
        max_outstanding: 1,
        ..ChannelConfig::default()
    };
    let builder = Client::builder().preset(Preset::Plain).channel(channel);
    let client = connect(builder.deadline(NEVER), &server);
    let held = block_on(client.ready()).unwrap();
    client.change_preset(Preset::Flock).unwrap();
    let out = client.call_async(GATED, b"out");
    // The connection carries one call at a time.
    let waits = held.call(ECHO, b"held");
    drop(gate);
    ends("two calls", move || {
        assert_eq!(&block_on(out).unwrap()[..], b"out");
        assert_eq!(&block_on(waits).unwrap()[..], b"held");
    });
}

/// A task that has polled its call leads: it polls for all. The others are still answered when it is no longer polled,
/// and when it is gone.
#[test]
fn a_leader_that_is_not_polled_any_more_holds_up_nobody() {
    for preset in [
        Preset::Plain,
        Preset::Flock,
        Preset::Fasst,
        Preset::RawWrite,
    ] {
        let (server, gate) = gated();
        let client = connect(Client::builder().preset(preset).deadline(NEVER), &server);
        ends(
            &format!("calls beside an idle leader with {preset}"),
            move || {
                block_on(client.call_async(ECHO, b"a lane")).unwrap();
                let woken = Arc::new(Count(AtomicUsize::new(0)));
                let waker = Waker::from(Arc::clone(&woken));
                let mut context = Context::from_waker(&waker);
                for kept in [true, false] {
                    let mut leader = client.call_async(GATED, b"who leads");
                    assert!(pin!(&mut leader).poll(&mut context).is_pending());
                    let leader = kept.then_some(leader);
                    for i in 0..20u32 {
                        let answer = block_on(client.call_async(ECHO, &i.to_le_bytes()));
                        assert_eq!(number(answer), i, "{preset}");
                    }
                    drop(leader);
                }
                assert!(
                    woken.0.load(Ordering::Relaxed) > 0,
                    "who leads asks to be polled again"
                );
                drop(gate);
            },
        );
    }
}

/// Tasks on several threads, whose calls end in any order, are given up or outlive others: when the one that polls for
/// answers leaves, another takes over.
#[test]
fn leaders_come_and_go_and_all_are_answered() {
    for preset in [Preset::Auto, Preset::Flock, Preset::Herd, Preset::ScaleRpc] {
        let server = Server::bind("dunlin://127.0.0.1:0")
            .unwrap()
            .handle(ECHO, |request, reply| reply.write(request.payload()))
            .serve()
            .unwrap();
        let client = connect(Client::builder().preset(preset).deadline(NEVER), &server);
        ends(&format!("threads with {preset}"), move || {
            std::thread::scope(|scope| {
                for thread in 0..4u32 {
                    let client = client.clone();
                    scope.spawn(move || {
                        for i in 0..500u32 {
                            let name = thread << 16 | i;
                            let first = client.call_async(ECHO, &name.to_le_bytes());
                            let second = client.call_async(ECHO, &(!name).to_le_bytes());
                            match (thread + i) % 4 {
                                // Given up without a poll.
                                0 => drop(first),
                                // Given up after a poll.
                                1 => {
                                    let waker = Waker::from(Arc::new(Count(AtomicUsize::new(0))));
                                    let mut first = first;
                                    let polled =
                                        pin!(&mut first).poll(&mut Context::from_waker(&waker));
                                    drop(polled);
                                }
                                _ => assert_eq!(number(block_on(first)), name),
                            }
                            assert_eq!(number(block_on(second)), !name);
                        }
                    });
                }
            });
        });
    }
}

#[test]
fn connections_and_regions_can_be_awaited() {
    let (server, gate) = gated();
    let address = server.address().to_string();
    ends("a connection and a region", move || {
        let client = block_on(Client::connect_async(&address)).unwrap();
        let region = block_on(client.attach_async("memory")).unwrap();
        assert_eq!(region.len(), 4096);
        block_on(region.write_async(8, &7u64.to_ne_bytes())).unwrap();
        assert_eq!(
            region.fetch_add(8, 1).unwrap(),
            7,
            "by this thread's own lane"
        );
        let refused = block_on(client.attach_async("another")).unwrap_err();
        assert!(matches!(refused, CallError::UnknownRegion { name, .. } if name == "another"));
        // Given up before the answers have arrived.
        drop((
            Client::connect_async(&address),
            client.attach_async("memory"),
        ));
        assert_eq!(
            client.call(ECHO, b"by a thread").unwrap()[..],
            *b"by a thread"
        );
        client.close();
        let closed = block_on(client.attach_async("memory")).unwrap_err();
        assert!(matches!(closed, CallError::Closed), "{closed:?}");
    });
    drop((gate, server));
    ends("nobody listens", || {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = nobody.local_addr().unwrap().port();
        drop(nobody);
        let refused = block_on(Client::connect_async(&format!("dunlin://127.0.0.1:{port}")));
        assert!(refused.is_err());
        assert!(block_on(Client::connect_async("no address")).is_err());
    });
}

/// Closing a client also ends what is outstanding on a lane that was replaced.
#[test]
fn closing_reaches_futures_on_the_lane_before_the_last_change() {
    let (server, gate) = gated();
    let builder = Client::builder().preset(Preset::Plain).deadline(NEVER);
    let client = connect(builder, &server);
    let call = client.call_async(GATED, b"standing");
    // It has been sent when this is answered.
    block_on(client.call_async(ECHO, b"sent")).unwrap();
    client.change_preset(Preset::Xrdma).unwrap();
    let ended = ends("a call on the former lane", move || {
        client.close();
        block_on(call)
    });
    assert!(matches!(ended, Err(CallError::Closed)), "{ended:?}");
    drop(gate);
}
