//! Async handlers on tokio: thousands of them wait at once, on a few threads; who gives up ends its handler; what the
//! runtime itself counts says that nobody blocked it. `DUNLIN_FUTURES` sets how many are out (10,000).

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use common::number;
use dunlin::{
    CallError, ChannelConfig, Client, Execution, HandlerError, OwnedResponder, Preset,
    RunningServer, Server,
};
use futures_executor::block_on;
use tokio::sync::Notify;

const SLEEPING: u16 = 1;
const GATHERING: u16 = 2;
const FAILING: u16 = 3;
const KEPT: u16 = 4;
const RELEASE: u16 = 5;
/// Times that a task of the executor goes on while all calls are out.
const TICKS: u32 = 50;
/// Long enough for any answer.
const DEADLINE: Duration = Duration::from_secs(60);
/// Futures of one client: each client has one lane for them, on which a server lets 4096 calls be under way.
const EACH: usize = 2500;

/// How many handlers there are at once, now and at most.
#[derive(Default)]
struct Count {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Counts a handler for as long as its future lives.
struct Counted(Arc<Count>);

impl Counted {
    fn begin(count: &Arc<Count>) -> Self {
        let now = count.now.fetch_add(1, Ordering::SeqCst) + 1;
        count.most.fetch_max(now, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A server with one worker, whose async handlers run on this runtime. `together`: so many wait for each other.
fn serve(together: usize) -> (RunningServer, Arc<Count>) {
    let count = Arc::<Count>::default();
    let (sleeping, gathering) = (Arc::clone(&count), Arc::clone(&count));
    let all = Arc::new(Notify::new());
    let runtime = tokio::runtime::Handle::current();
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .workers(1)
        .executor(move |task| drop(runtime.spawn(task)))
        .handle_async(SLEEPING, move |request| {
            let counted = Counted::begin(&sleeping);
            async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                drop(counted);
                Ok(request.payload().to_vec())
            }
        })
        .handle_async(GATHERING, move |request| {
            let counted = Counted::begin(&gathering);
            let all = Arc::clone(&all);
            async move {
                let waiting = all.notified();
                if counted.0.most.load(Ordering::SeqCst) >= together {
                    all.notify_waiters();
                } else {
                    waiting.await;
                }
                Ok(request.payload().to_vec())
            }
        })
        .handle_async(FAILING, |request| async move {
            match request.payload() {
                b"panic" => panic!("a bug in an async handler"),
                words => Err(HandlerError::new(5, String::from_utf8_lossy(words))),
            }
        })
        .serve()
        .unwrap();
    (server, count)
}

fn connect(server: &RunningServer) -> Client {
    let channel = ChannelConfig {
        max_outstanding: EACH,
        ..ChannelConfig::default()
    };
    Client::builder()
        .channel(channel)
        .deadline(DEADLINE)
        .connect(&server.address().to_string())
        .unwrap()
}

#[tokio::test]
async fn sixty_four_that_sleep_do_so_together_with_one_worker() {
    let (server, count) = serve(0);
    let client = connect(&server);
    let start = Instant::now();
    let calls: Vec<_> = (0..64u32)
        .map(|i| client.call_async(SLEEPING, &i.to_le_bytes()))
        .collect();
    for (i, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap()[..], (i as u32).to_le_bytes());
    }
    println!("64 handlers that sleep 100 ms: {:?}", start.elapsed());
    let most = count.most.load(Ordering::SeqCst);
    assert!(most > 1, "they slept one after the other");
    let answer = client.call_async(FAILING, b"no").await;
    assert!(matches!(answer, Err(CallError::Handler { code: 5, message }) if message == "no"));
    let answer = client.call_async(FAILING, b"panic").await;
    assert!(matches!(answer, Err(CallError::HandlerPanicked)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_wait_at_once_and_who_gives_up_ends_its_handler() {
    let out = number("DUNLIN_FUTURES", 10_000);
    let (server, count) = serve(out);
    let clients: Vec<Client> = (0..out.div_ceil(EACH)).map(|_| connect(&server)).collect();
    let start = Instant::now();
    // One that is given up has its handler dropped. It waits for more calls than there are.
    let given_up = clients[0].call_async(GATHERING, b"given up");
    let until = |what: &'static str, now: usize| {
        let count = Arc::clone(&count);
        async move {
            let start = Instant::now();
            while count.now.load(Ordering::SeqCst) != now {
                assert!(start.elapsed() < DEADLINE, "{what}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    until("it has begun", 1).await;
    drop(given_up);
    until("its handler is dropped", 0).await;
    // Nobody is answered before all are there.
    let calls: Vec<_> = (0..out)
        .map(|i| {
            let call = clients[i / EACH].call_async(GATHERING, &(i as u64).to_le_bytes());
            tokio::spawn(call)
        })
        .collect();
    for (i, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().unwrap()[..], (i as u64).to_le_bytes());
    }
    report("wait for each other", out, start);
    assert_eq!(count.most.load(Ordering::SeqCst), out);
    until("all handlers have ended", 0).await;
    // The same with a timer each.
    let start = Instant::now();
    let calls: Vec<_> = (0..out)
        .map(|i| {
            let call = clients[i / EACH].call_async(SLEEPING, &(i as u64).to_le_bytes());
            tokio::spawn(call)
        })
        .collect();
    for (i, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().unwrap()[..], (i as u64).to_le_bytes());
    }
    report("sleep 100 ms", out, start);
}

/// What so many handlers took at once, and how many threads the process has for them.
fn report(what: &str, out: usize, start: Instant) {
    let (took, metrics) = (start.elapsed(), tokio::runtime::Handle::current().metrics());
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    println!(
        "{out} async handlers that {what}: {took:.1?} from the first call to the last answer, {:.0} k/s; threads of the \
         runtime: {}, of the process: {threads}; tasks left: {}; resident: {} MiB",
        out as f64 / took.as_secs_f64() / 1e3,
        metrics.num_workers(),
        metrics.num_alive_tasks(),
        common::resident_kib() / 1024
    );
}

/// A server that keeps calls until it is asked to release them, and how many it has.
fn keeping() -> (RunningServer, Arc<Mutex<Vec<OwnedResponder>>>) {
    let held = Arc::<Mutex<Vec<OwnedResponder>>>::default();
    let (keeps, releases) = (Arc::clone(&held), Arc::clone(&held));
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle_deferred(KEPT, move |_, responder| {
            keeps.lock().unwrap().push(responder)
        })
        .handle(RELEASE, move |_, reply| {
            let held = std::mem::take(&mut *releases.lock().unwrap());
            for responder in held {
                responder.reply(&b"released"[..]);
            }
            reply.write(b"")
        })
        .serve()
        .unwrap();
    (server, held)
}

/// By tokio's own count: while thousands of calls are out the one thread of the executor has nothing to do and is
/// parked, again and again, and other tasks go on. Nothing of the client holds it.
#[tokio::test(flavor = "current_thread")]
async fn the_executors_thread_is_free_while_calls_are_out() {
    let out = number("DUNLIN_FUTURES", 10_000);
    let (server, held) = keeping();
    let clients: Vec<Client> = (0..out.div_ceil(EACH)).map(|_| connect(&server)).collect();
    let calls: Vec<_> = (0..out)
        .map(|i| tokio::spawn(clients[i / EACH].call_async(KEPT, b"kept")))
        .collect();
    let start = Instant::now();
    while held.lock().unwrap().len() < out {
        assert!(start.elapsed() < DEADLINE, "not all calls are out");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let metrics = tokio::runtime::Handle::current().metrics();
    let (parked, busy) = (
        metrics.worker_park_count(0),
        metrics.worker_total_busy_duration(0),
    );
    let start = Instant::now();
    for _ in 0..TICKS {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let elapsed = start.elapsed();
    let parked = metrics.worker_park_count(0) - parked;
    let busy = metrics.worker_total_busy_duration(0) - busy;
    println!("{out} calls out for {elapsed:?}: the executor's thread was parked {parked} times, busy for {busy:?}");
    assert!(
        parked >= u64::from(TICKS),
        "parked {parked} times in {TICKS} ticks"
    );
    assert_eq!(
        held.lock().unwrap().len(),
        out,
        "nobody was answered meanwhile"
    );
    // The others have as many out as they may.
    let another = connect(&server);
    another.call_async(RELEASE, b"").await.unwrap();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap()[..], *b"released");
    }
}

/// A future that holds up the worker that polls it holds up no other, however often it is woken meanwhile.
#[test]
fn what_is_woken_while_it_is_polled_takes_one_worker() {
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(Some(released)));
    let (begun, begins) = mpsc::channel::<Waker>();
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .workers(2)
        .handle_async(KEPT, move |_| {
            let (begun, mut released) = (begun.clone(), released.lock().unwrap().take());
            std::future::poll_fn(move |context| {
                if let Some(released) = released.take() {
                    begun.send(context.waker().clone()).unwrap();
                    let _ = released.recv();
                    return Poll::Pending;
                }
                Poll::Ready(Ok::<_, HandlerError>(b"polled again".to_vec()))
            })
        })
        .handle_on_workers(RELEASE, |_, reply| reply.write(b"worked"))
        .serve()
        .unwrap();
    let client = connect(&server);
    let kept = client.call_async(KEPT, b"");
    let waker = begins.recv_timeout(DEADLINE).unwrap();
    for _ in 0..8 {
        waker.wake_by_ref();
    }
    assert_eq!(*client.call(RELEASE, b"").unwrap(), *b"worked");
    drop(release);
    assert_eq!(*block_on(kept).unwrap(), *b"polled again");
}

/// Outside of a runtime `tokio::spawn` panics: the call ends, and the thread goes on with the others.
#[test]
fn an_executor_that_panics_ends_the_call_alone() {
    for preset in [Preset::Plain, Preset::Fasst] {
        let server = Server::bind("dunlin://127.0.0.1:0")
            .unwrap()
            .executor(|task| drop(tokio::spawn(task)))
            .handle_async(SLEEPING, |_| async { Ok(Vec::new()) })
            .handle(KEPT, |request, reply| reply.write(request.payload()))
            .serve()
            .unwrap();
        for _ in 0..2 {
            let client = Client::builder().preset(preset).deadline(DEADLINE);
            let client = client.connect(&server.address().to_string()).unwrap();
            let ended = client.call(SLEEPING, b"");
            // `tokio` drops the task before it panics, others with the panic.
            let error = ended.unwrap_err();
            assert_eq!(error.execution(), Execution::Executed, "{error}");
            assert_eq!(&*client.call(KEPT, b"served").unwrap(), b"served");
        }
    }
}

/// What a handler holds may panic when it is dropped, and its thread serves others afterwards.
#[test]
fn a_worker_outlives_what_panics_when_it_is_dropped() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("dropped before it was done");
        }
    }
    let server = Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .workers(1)
        .handle_async(SLEEPING, |request| async move {
            let held = Panics;
            if request.payload() == b"for ever" {
                std::future::pending::<()>().await;
            }
            std::mem::forget(held);
            Ok(Vec::new())
        })
        .serve()
        .unwrap();
    let client = Client::connect(&server.address().to_string()).unwrap();
    for _ in 0..3 {
        let soon = Duration::from_millis(100);
        let given_up = client.call_within(soon, SLEEPING, b"for ever");
        // Where the caller's thread is late, the server's word comes before it has looked at the clock.
        use CallError::{DeadlineExceeded, Expired};
        let is_late = matches!(
            given_up,
            Err(DeadlineExceeded { .. } | Expired { begun: true })
        );
        assert!(is_late, "{given_up:?}");
        client.within(DEADLINE).call(SLEEPING, b"").unwrap();
    }
}
