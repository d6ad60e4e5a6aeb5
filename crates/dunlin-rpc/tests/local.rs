//! Clients of one thread, while another thread sleeps for their driver: a wait that must end earlier than that sleep,
//! or that is for another lane, does not last as long as the sleep.

#[path = "common/block_on.rs"]
mod block_on;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

use block_on::block_on;
use dunlin_rpc::{
    CallError, ChannelConfig, Client, LocalCall, LocalClient, LocalDriver, Preset, RunningServer,
    Server,
};

/// Keeps its requests.
const STANDING: u16 = 1;
/// Answers after a while, so that its caller sleeps.
const LATER: u16 = 2;

/// Duration of the handler [`LATER`], and the deadline of calls that have little time.
const SOON: Duration = Duration::from_millis(5);
/// Less than is left of a sleep, which lasts 100 ms, when it is known to be one ([`put_to_sleep`]).
const PART_OF_A_SLEEP: Duration = Duration::from_millis(40);
/// Longer than any pause of a driver whose server has not been told yet that it sleeps, and shorter than a sleep.
const LONGER_THAN_A_PAUSE: Duration = Duration::from_millis(25);
const PATIENCE: Duration = Duration::from_secs(30);
const NEVER: Duration = Duration::from_secs(300);

fn serve() -> RunningServer {
    let kept = Mutex::new(Vec::new());
    Server::bind("dunlin://127.0.0.1:0")
        .unwrap()
        .handle_deferred(STANDING, move |_, responder| {
            kept.lock().unwrap().push(responder);
        })
        .handle_on_workers(LATER, |request, reply| {
            std::thread::sleep(SOON);
            reply.write(request.payload())
        })
        .serve()
        .unwrap()
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A client of one thread, its driver, and its server.
struct One {
    client: Client,
    local: LocalClient,
    driver: LocalDriver,
    /// Keeps the server running.
    _server: RunningServer,
}

impl One {
    fn of(preset: Preset) -> Self {
        let server = serve();
        let channel = ChannelConfig {
            max_outstanding: 2,
            ..ChannelConfig::default()
        };
        let builder = Client::builder().preset(preset).channel(channel);
        let builder = builder.device("shm").deadline(NEVER);
        let client = builder.connect(&server.address().to_string()).unwrap();
        let (local, driver) = client.local().unwrap();
        Self {
            client,
            local,
            driver,
            _server: server,
        }
    }

    /// Polls the driver until the thread that sleeps for it has slept for a while.
    fn put_to_sleep(&mut self) {
        let began = Instant::now();
        loop {
            let woken = Arc::<Woken>::default();
            let waker = Waker::from(Arc::clone(&woken));
            let polled = Pin::new(&mut self.driver).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            if !woken.0.load(Ordering::SeqCst) {
                std::thread::sleep(LONGER_THAN_A_PAUSE);
                if !woken.0.load(Ordering::SeqCst) {
                    return;
                }
            }
            assert!(began.elapsed() < PATIENCE, "it never sleeps");
        }
    }

    /// Whether this ends during the sleep that had begun before, as far as a clock can tell.
    fn ends_during_a_sleep<T>(&mut self, wait: impl Future<Output = T>) -> (bool, T) {
        let slept = Arc::new(AtomicBool::new(false));
        let sleeper = Arc::clone(&slept);
        let beside = std::thread::spawn(move || {
            std::thread::sleep(PART_OF_A_SLEEP);
            sleeper.store(true, Ordering::SeqCst);
        });
        let ended = block_on(self.driver.run_until(wait));
        let ends_before = !slept.load(Ordering::SeqCst);
        beside.join().unwrap();
        (ends_before, ended)
    }
}

/// Repeats until it has held several times in a row. A single one may fail if others occupy the processors, or hold by
/// chance.
fn until_it_holds(what: &str, mut holds: impl FnMut() -> bool) {
    let (began, mut times) = (Instant::now(), 0);
    while times < 4 {
        times = if holds() { times + 1 } else { 0 };
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
    }
}

#[test]
fn a_sleep_ends_for_a_call_that_has_less_time() {
    for preset in [Preset::Plain, Preset::Flock] {
        let mut one = One::of(preset);
        let _standing = one.local.call_async(STANDING, b"");
        let hurried = one.local.within(SOON);
        until_it_holds("a call ends in its time", || {
            one.put_to_sleep();
            let (in_time, ended) = one.ends_during_a_sleep(hurried.call(STANDING, b""));
            // A server that was late itself says so.
            let is_late = matches!(
                ended,
                Err(CallError::DeadlineExceeded { .. } | CallError::Expired { .. })
            );
            assert!(is_late, "{preset}: {ended:?}");
            in_time
        });
    }
}

#[test]
fn a_sleep_ends_for_who_has_less_time_to_wait_for_a_place() {
    for preset in [Preset::Plain, Preset::Flock] {
        let mut one = One::of(preset);
        let _standing = [0, 1].map(|_| one.local.call_async(STANDING, b""));
        let hurried = one.local.within(SOON);
        until_it_holds("a wait for a place ends in its time", || {
            one.put_to_sleep();
            let (in_time, ended) = one.ends_during_a_sleep(hurried.ready());
            let is_late =
                matches!(ended, Err(CallError::DeadlineExceeded { after }) if after == SOON);
            assert!(is_late, "{preset}: {ended:?}");
            in_time
        });
    }
}

#[test]
fn a_sleep_on_a_lane_ends_when_another_takes_its_place() {
    let mut one = One::of(Preset::Plain);
    let mut presets = [Preset::Xrdma, Preset::Plain].into_iter().cycle();
    until_it_holds("an answer on another lane is seen", || {
        let standing = one.local.call_async(STANDING, b"");
        one.put_to_sleep();
        let preset = presets.next().unwrap();
        one.client.change_preset(preset).unwrap();
        let call = one.local.call_async(LATER, b"after the change");
        let (in_time, answer) = one.ends_during_a_sleep(call);
        assert_eq!(&answer.unwrap()[..], b"after the change");
        drop(standing);
        in_time
    });
}

thread_local! {
    /// Dropped when the waker of [`meddling_waker`] is cloned.
    static VICTIM: RefCell<Option<LocalCall>> = const { RefCell::new(None) };
    static IS_WOKEN: Cell<bool> = const { Cell::new(false) };
}

/// A waker that drops a call when it is cloned: an executor may do anything there.
fn meddling_waker() -> Waker {
    fn clone(_: *const ()) -> RawWaker {
        drop(VICTIM.take());
        RawWaker::new(std::ptr::null(), &TABLE)
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        clone,
        |_| IS_WOKEN.set(true),
        |_| IS_WOKEN.set(true),
        |_| {},
    );
    // SAFETY: the functions do not use the pointer, and only access what belongs to the thread that calls them.
    unsafe { Waker::from_raw(clone(std::ptr::null())) }
}

#[test]
fn a_place_that_is_given_back_while_a_waker_is_cloned_is_found() {
    let one = One::of(Preset::Plain);
    let waker = meddling_waker();
    let context = &mut Context::from_waker(&waker);
    let [victim, _standing] = [0, 1].map(|_| one.local.call_async(STANDING, b""));
    VICTIM.set(Some(victim));
    let mut ready = pin!(one.local.ready());
    if ready.as_mut().poll(context).is_pending() {
        assert!(IS_WOKEN.get(), "nobody is told of the place");
        assert!(matches!(ready.poll(context), Poll::Ready(Ok(_))));
    }
}
