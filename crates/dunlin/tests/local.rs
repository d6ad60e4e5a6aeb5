//! Calls of one thread, by its tasks: what they do when there is no room, no time, no server and no driver.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use dunlin::{
    CallError, ChannelConfig, Client, LocalClient, LocalDriver, OwnedResponder, Preset, Region,
    RunningServer, Server,
};
use tokio::task::LocalSet;

const ECHO: u16 = 1;
const KEPT: u16 = 2;

/// Requests that the server keeps.
type Kept = Arc<Mutex<Vec<OwnedResponder>>>;

/// A server that answers at once, or when the test says so.
fn serve() -> (RunningServer, Kept) {
    let kept = Kept::default();
    let keeps = Arc::clone(&kept);
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .region(&Region::new("cells", 4096).writable().atomic())
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle_deferred(KEPT, move |_, responder| {
            keeps.lock().unwrap().push(responder)
        })
        .serve()
        .unwrap();
    (server, kept)
}

fn local(server: &RunningServer, limit: usize) -> (Client, LocalClient, LocalDriver) {
    let channel = ChannelConfig {
        max_outstanding: limit,
        ..ChannelConfig::default()
    };
    let client = Client::builder()
        .channel(channel)
        .connect(&server.address().to_string())
        .unwrap();
    let (local, driver) = client.local().unwrap();
    (client, local, driver)
}

/// Runs until as many requests are kept.
async fn until_kept(kept: &Kept, count: usize) {
    while kept.lock().unwrap().len() < count {
        tokio::task::yield_now().await;
    }
}

/// A tokio runtime of one thread.
fn run<F: std::future::Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, future)
}

#[test]
fn tasks_of_a_runtime_call_and_the_driver_ends_with_them() {
    let (server, _kept) = serve();
    let (_client, local, driver) = local(&server, 8);
    run(async move {
        let driver = tokio::task::spawn_local(driver);
        let tasks: Vec<_> = (0..64u32)
            .map(|number| {
                let local = local.clone();
                tokio::task::spawn_local(async move {
                    for call in 0..50u32 {
                        let bytes = [number.to_le_bytes(), call.to_le_bytes()].concat();
                        let answer = local.call(ECHO, &bytes).await.unwrap();
                        assert_eq!(*answer, *bytes);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(local.outstanding(), 0);
        assert!(!driver.is_finished());
        drop(local);
        assert!(driver.await.unwrap().is_ok());
    });
    assert_eq!(server.statistics().requests, 64 * 50);
}

#[test]
fn one_call_more_than_may_be_out_is_refused_or_waits() {
    let (server, kept) = serve();
    let (_client, local, driver) = local(&server, 4);
    run(async move {
        tokio::task::spawn_local(driver);
        let out: Vec<_> = (0..4).map(|_| local.call_async(KEPT, b"")).collect();
        let refused = local.call_async(ECHO, b"").await;
        assert!(
            matches!(refused, Err(CallError::TooManyOutstanding { limit: 4 })),
            "{refused:?}"
        );
        until_kept(&kept, 4).await;
        // Two wait for the place that one leaves; the first gives up when it has been told.
        let waiting = [b"first", b"other"].map(|payload| {
            let local = local.clone();
            tokio::task::spawn_local(async move { local.call(ECHO, payload).await })
        });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(local.outstanding(), 4);
        let [first, other] = waiting;
        first.abort();
        kept.lock().unwrap().pop().unwrap().reply(b"place");
        assert_eq!(*other.await.unwrap().unwrap(), *b"other");
        for responder in kept.lock().unwrap().drain(..) {
            responder.reply(b"late");
        }
        for call in out {
            call.await.unwrap();
        }
    });
}

#[test]
fn who_gives_up_has_given_up_its_own_call_alone() {
    let (server, kept) = serve();
    let (_client, local, driver) = local(&server, 64);
    run(async move {
        tokio::task::spawn_local(driver);
        for round in 0..20u8 {
            let dropped = local.call_async(KEPT, b"");
            let ended = local.within(Duration::from_millis(5)).call_async(KEPT, b"");
            let ended = ended.await;
            assert!(
                matches!(
                    ended,
                    Err(CallError::DeadlineExceeded { .. } | CallError::Expired { .. })
                ),
                "{ended:?}"
            );
            drop(dropped);
            // Their places are free, and late answers are nobody's.
            let calls: Vec<_> = (0..8)
                .map(|place| local.call_async(ECHO, &[round, place]))
                .collect();
            for responder in kept.lock().unwrap().drain(..) {
                responder.reply(b"late");
            }
            for (place, call) in calls.into_iter().enumerate() {
                assert_eq!(*call.await.unwrap(), [round, place as u8]);
            }
        }
    });
}

#[test]
fn all_calls_end_when_the_server_goes() {
    let (server, kept) = serve();
    let (_client, local, driver) = local(&server, 64);
    let going = Arc::clone(&kept);
    run(async move {
        let driver = tokio::task::spawn_local(driver);
        let out: Vec<_> = (0..3).map(|_| local.call_async(KEPT, b"")).collect();
        until_kept(&kept, 3).await;
        drop(std::mem::take(&mut *kept.lock().unwrap()));
        std::thread::spawn(move || drop(server));
        for call in out {
            assert!(call.await.is_err());
        }
        // The next call finds out, if the driver has not.
        while local.call(ECHO, b"").await.is_ok() {}
        drop(local);
        driver.await.unwrap().ok();
    });
    assert!(going.lock().unwrap().is_empty());
}

#[test]
fn a_sleeping_driver_is_woken_by_an_answer_and_by_a_call() {
    let (server, kept) = serve();
    let (_client, local, driver) = local(&server, 64);
    let done = Arc::new(AtomicBool::new(false));
    let answers = {
        let (kept, done) = (Arc::clone(&kept), Arc::clone(&done));
        std::thread::spawn(move || {
            while !done.load(Ordering::Acquire) {
                // Far longer than a driver looks by itself.
                std::thread::sleep(Duration::from_millis(20));
                for responder in kept.lock().unwrap().drain(..) {
                    responder.reply(b"late");
                }
            }
        })
    };
    run(async move {
        tokio::task::spawn_local(driver);
        for _ in 0..5 {
            let late = local.call_async(KEPT, b"");
            // By now it sleeps: another call wakes it.
            tokio::time::sleep(Duration::from_millis(3)).await;
            assert_eq!(*local.call(ECHO, b"between").await.unwrap(), *b"between");
            assert_eq!(*late.await.unwrap(), *b"late");
        }
    });
    done.store(true, Ordering::Release);
    answers.join().unwrap();
}

#[test]
fn a_reply_outlives_the_calls_after_it() {
    let (server, _kept) = serve();
    let (_client, local, mut driver) = local(&server, 2);
    run(driver.run_until(async {
        let mut held = Vec::new();
        for number in 0..200u32 {
            // Short ones whose memory is used again, and long ones.
            let bytes = vec![number as u8; 1 + number as usize * 97];
            let reply = local.call(ECHO, &bytes).await.unwrap();
            assert_eq!(*reply, *bytes);
            if number % 3 == 0 {
                held.push((bytes, reply));
            }
        }
        for (bytes, reply) in held {
            assert_eq!(*reply, *bytes);
        }
    }));
}

#[test]
fn regions_are_used_by_the_same_tasks() {
    let (server, _kept) = serve();
    let (client, local, mut driver) = local(&server, 64);
    let cells = client.attach("cells").unwrap();
    run(driver.run_until(async {
        let adds: Vec<_> = (0..10)
            .map(|_| local.fetch_add_async(&cells, 8, 3))
            .collect();
        let mut found = Vec::new();
        for add in adds {
            let before = add.await.unwrap();
            found.push(u64::from_ne_bytes(before[..].try_into().unwrap()));
        }
        found.sort_unstable();
        assert_eq!(found, (0..10).map(|count| 3 * count).collect::<Vec<u64>>());
        let swapped = local
            .compare_and_swap_async(&cells, 8, (30, 77))
            .await
            .unwrap();
        assert_eq!(*swapped, 30u64.to_ne_bytes());
        local.write_async(&cells, 64, b"written").await.unwrap();
        assert_eq!(*local.read_async(&cells, 64, 7).await.unwrap(), *b"written");
        let outside = local.read_async(&cells, 4096, 1).await;
        assert!(outside.is_err(), "{outside:?}");
        assert_eq!(
            *local.read_async(&cells, 8, 8).await.unwrap(),
            77u64.to_ne_bytes()
        );
    }));
}

#[test]
fn calls_go_on_while_the_preset_changes() {
    let (server, _kept) = serve();
    let (client, local, driver) = local(&server, 64);
    let over = Arc::new(AtomicBool::new(false));
    let changes = {
        let (client, over) = (client.clone(), Arc::clone(&over));
        std::thread::spawn(move || {
            for preset in [Preset::Plain, Preset::Flock, Preset::Plain, Preset::Auto] {
                client.change_preset(preset).unwrap();
            }
            over.store(true, Ordering::Release);
        })
    };
    run(async move {
        tokio::task::spawn_local(driver);
        let tasks: Vec<_> = (0..16u64)
            .map(|number| {
                let (local, over) = (local.clone(), Arc::clone(&over));
                tokio::task::spawn_local(async move {
                    let mut calls = 0;
                    while !over.load(Ordering::Acquire) || calls < 100 {
                        let answer = local.call(ECHO, &number.to_le_bytes()).await.unwrap();
                        assert_eq!(*answer, number.to_le_bytes());
                        calls += 1;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    changes.join().unwrap();
}

#[test]
fn calls_end_with_their_driver() {
    let (server, _kept) = serve();
    let (_client, local, driver) = local(&server, 64);
    let out = local.call_async(KEPT, b"");
    drop(driver);
    assert!(matches!(run(out), Err(CallError::Closed)));
    assert!(matches!(run(local.call(ECHO, b"")), Err(CallError::Closed)));
}

thread_local! {
    /// Whom a waker asks when it is dropped, while the driver is polled.
    static ASKED: RefCell<Option<LocalClient>> = const { RefCell::new(None) };
    /// How many were.
    static ASKING: Cell<usize> = const { Cell::new(0) };
}

/// A waker that is somebody's code: its end calls for itself.
struct Asks;

impl Wake for Asks {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Asks {
    fn drop(&mut self) {
        ASKED.with_borrow(|client| {
            if let Some(client) = client {
                assert!(client.outstanding() > 0);
                ASKING.set(ASKING.get() + 1);
            }
        });
    }
}

#[test]
fn wakers_may_call_while_the_driver_falls_asleep() {
    let (server, _kept) = serve();
    let (_client, local, mut driver) = local(&server, 1);
    let out = local.call_async(KEPT, b"for long");
    let mut polls = 0;
    while ASKING.get() < 16 {
        // It is refused, and the driver is woken and forgotten but by the thread that sleeps for it, which gets another
        // waker when the driver falls asleep the next time.
        drop(local.call_async(KEPT, b"one too many"));
        ASKED.set(Some(local.clone()));
        let waker = Waker::from(Arc::new(Asks));
        let polled = Pin::new(&mut driver).poll(&mut Context::from_waker(&waker));
        ASKED.set(None);
        assert!(polled.is_pending());
        polls += 1;
        assert!(polls < 10_000, "{} wakers called", ASKING.get());
        std::thread::sleep(Duration::from_micros(100));
    }
    drop(out);
}
