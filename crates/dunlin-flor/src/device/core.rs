//! State shared by all objects of a device, and the thread that makes progress while nobody polls: like a NIC, the
//! device answers its peers whatever its process does.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, RwLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use dunlin_verbs::process::Generation;
use dunlin_verbs::progress::{self, Attended, Progress};
use dunlin_verbs::software::Completions;
use dunlin_verbs::thread::{self, Running};
use dunlin_verbs::{CompletionChannel, Device, DeviceAttributes, VerbsError};

use super::config::FlorConfig;
use super::pair::Shared;
use super::region::RegionTable;
use super::sync::{lock, read, write};

/// Interval at which the thread checks whether others poll.
const ATTENDED: Duration = Duration::from_millis(2);
/// Number of polls by others, since its own last one, that make the thread leave polling to them.
const ATTENDED_LOOKS: u64 = 10;
/// Minimum rest of a simulated thread before the next deadline: a deadline that has passed is handled by the next poll.
const LEAST_REST: Duration = Duration::from_micros(1);
/// How long it sleeps when there is nothing to wait for: it is woken by arrivals.
const AT_REST: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Core<D: Device> {
    /// The process that created the device: a child has no thread of the device.
    pub(crate) made_in: Generation,
    pub(crate) device: D,
    pub(crate) config: Arc<FlorConfig>,
    pub(crate) attributes: DeviceAttributes,
    pub(crate) regions: Arc<RegionTable<D::Region>>,
    /// Channel on which the underlying device notifies the thread.
    pub(crate) channel: D::CompletionChannel,
    pairs: RwLock<Vec<Arc<Shared<D>>>>,
    /// Whether the thread is running.
    driven: Mutex<bool>,
    began: Instant,
    /// The simulated host that the device belongs to.
    simulated_host: Option<u64>,
    /// Simulated threads that rest. The last one is woken by completions of the underlying device, and then wakes the
    /// others.
    resting: Mutex<Vec<Waker>>,
    numbers: AtomicU32,
    domains: AtomicU64,
    /// Number of polls of all queue pairs by threads that poll, and the time of the last one by any thread.
    looks: AtomicU64,
    looked_ns: AtomicU64,
    /// Number of times that the thread was asked to poll.
    calls: AtomicU64,
    /// Whether the thread leaves polling to others.
    naps: AtomicBool,
}

impl<D: Device> Core<D> {
    pub(crate) fn new(
        device: D,
        config: FlorConfig,
        attributes: DeviceAttributes,
    ) -> Result<Self, VerbsError> {
        Ok(Self {
            made_in: Generation::current(),
            channel: device.create_completion_channel()?,
            simulated_host: device.simulation().map(|simulation| simulation.host),
            resting: Mutex::new(Vec::new()),
            device,
            config: Arc::new(config),
            attributes,
            regions: Arc::new(RegionTable::new()),
            pairs: RwLock::new(Vec::new()),
            driven: Mutex::new(false),
            began: thread::now(),
            numbers: AtomicU32::new(1),
            domains: AtomicU64::new(1),
            looks: AtomicU64::new(0),
            looked_ns: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            naps: AtomicBool::new(false),
        })
    }

    pub(crate) fn next_domain(&self) -> u64 {
        self.domains.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a number that no queue pair has; 24 bits, as on the wire.
    pub(crate) fn next_number(&self) -> u32 {
        loop {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff;
            let pairs = read(&self.pairs);
            if number != 0 && pairs.iter().all(|pair| pair.number != number) {
                return number;
            }
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        let passed = match self.simulated_host {
            None => thread::now().saturating_duration_since(self.began),
            Some(_) => {
                let here = thread::simulated_now();
                let outside = || Some(self.device.simulation()?.now);
                here.or_else(outside).unwrap_or_default()
            }
        };
        u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn add(&self, pair: Arc<Shared<D>>) -> Result<(), VerbsError> {
        let limit = self.attributes.max_queue_pairs;
        let mut pairs = write(&self.pairs);
        if pairs.len() >= limit {
            return Err(VerbsError::Limit {
                resource: "max_queue_pairs",
                asked: 1,
                available: 0,
                limit,
            });
        }
        pairs.push(pair);
        Ok(())
    }

    pub(crate) fn remove(&self, number: u32) {
        write(&self.pairs).retain(|pair| pair.number != number);
    }

    /// Whether the thread has nothing to do any more; the next queue pair that is connected starts another.
    fn retire(&self) -> bool {
        let mut driven = lock(&self.driven);
        *driven = read(&self.pairs).iter().any(|pair| pair.is_at_work());
        !*driven
    }

    /// A poll by a thread other than the device's.
    pub(crate) fn poll(&self) {
        self.poll_at(self.now_ns());
    }

    fn poll_at(&self, now_ns: u64) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        if self.look_at_all(now_ns) {
            self.wake_resting();
        }
    }

    /// A poll by a thread that has found this queue empty: makes progress on the queue pairs that complete there, and
    /// on all others only if nobody has polled them for a while. Otherwise a thread with a separate queue for each of
    /// many connections would poll all connections for each queue.
    pub(crate) fn poll_for(&self, completions: &Arc<Completions<D::CompletionChannel>>) {
        let (now_ns, looked_ns) = (self.now_ns(), self.looked_ns.load(Ordering::Relaxed));
        if now_ns.saturating_sub(looked_ns) >= self.config.look_at_all_ns {
            self.poll_at(now_ns);
        } else if self.look_at(now_ns, |pair| pair.completes_to(completions)) {
            self.wake_resting();
        }
    }

    /// Polls all queue pairs; returns whether something was found that others may be waiting for.
    fn look(&self) -> bool {
        self.look_at_all(self.now_ns())
    }

    fn look_at_all(&self, now_ns: u64) -> bool {
        self.looked_ns.store(now_ns, Ordering::Relaxed);
        self.look_at(now_ns, |_| true)
    }

    fn look_at(&self, now_ns: u64, which: impl Fn(&Shared<D>) -> bool) -> bool {
        // Simulated threads run on one real thread, which must not wait for a lock that it holds itself.
        thread::hold(|| {
            let mut found = false;
            for pair in read(&self.pairs).iter().filter(|pair| which(pair)) {
                if let Some(mut engine) = pair.free_engine() {
                    found |= engine.step(pair, now_ns);
                }
            }
            found
        })
    }

    /// Lets resting simulated threads poll again: what they wait for may have arrived, and the thread that polled last
    /// is the one that completions of the underlying device wake. Returns whether there were any.
    fn wake_resting(&self) -> bool {
        if self.simulated_host.is_none() {
            return false;
        }
        let resting = std::mem::take(&mut *lock(&self.resting));
        for waker in &resting {
            waker.wake_by_ref();
        }
        !resting.is_empty()
    }

    /// Makes the thread poll: somebody is about to sleep, or has left something to do.
    pub(crate) fn attend(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.naps.swap(false, Ordering::SeqCst) {
            self.channel.wake();
        }
    }

    /// Requests that the underlying device wake the thread for further arrivals. Returns `false` if some engine is in
    /// use by another thread. This does not wait for locks: it could be a simulated thread that would have to release
    /// one.
    fn request_notify(&self) -> bool {
        thread::hold(|| {
            let mut all = true;
            for pair in read(&self.pairs).iter() {
                match pair.free_engine() {
                    Some(mut engine) => engine.request_notify(),
                    None => all = false,
                }
            }
            all
        })
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        let now_ns = self.now_ns();
        let pairs = read(&self.pairs);
        let deadlines = pairs
            .iter()
            .filter_map(|pair| pair.free_engine()?.next_deadline(now_ns));
        deadlines.min()
    }
}

impl<D: Device> Progress for Core<D> {
    fn progress(&self) {
        if self.made_in.is_current() {
            self.poll();
        }
    }
}

impl<D: Device> Attended for Core<D> {
    fn before_rest(&self, at_most: Duration) -> Option<Duration> {
        if self.look() {
            self.wake_resting();
            return None;
        }
        let own = thread::waker();
        let mut resting = lock(&self.resting);
        if !resting.iter().any(|other| other.will_wake(&own)) {
            resting.push(own);
        }
        drop(resting);
        let Some(next_ns) = self.next_deadline_ns() else {
            return Some(at_most);
        };
        let left = Duration::from_nanos(next_ns.saturating_sub(self.now_ns()));
        Some(at_most.min(left.max(LEAST_REST)))
    }
}

fn run<D: Device>(core: &Core<D>, stop: &AtomicBool) {
    let (mut looks, mut calls) = (core.looks.load(Ordering::Relaxed), 0);
    while !stop.load(Ordering::SeqCst) && !core.retire() {
        let called = core.calls.load(Ordering::SeqCst);
        core.look();
        // Simulated threads poll when there is something, not continuously.
        let rested = core.wake_resting();
        let looked = core.looks.load(Ordering::Relaxed);
        let polled = looked.wrapping_sub(looks) >= ATTENDED_LOOKS;
        let attended = (polled || rested) && called == calls;
        (looks, calls) = (looked, called);
        if attended {
            core.naps.store(true, Ordering::SeqCst);
            if core.calls.load(Ordering::SeqCst) == calls && !stop.load(Ordering::SeqCst) {
                let _ = core.channel.wait(ATTENDED);
            }
            core.naps.store(false, Ordering::SeqCst);
            continue;
        }
        let most = match core.request_notify() {
            true => AT_REST,
            false => ATTENDED,
        };
        core.look();
        core.wake_resting();
        let now_ns = core.now_ns();
        let rest = match core.next_deadline_ns() {
            None => most,
            Some(next_ns) => Duration::from_nanos(next_ns.saturating_sub(now_ns)).min(most),
        };
        core.naps.store(true, Ordering::SeqCst);
        if core.calls.load(Ordering::SeqCst) == calls && !stop.load(Ordering::SeqCst) {
            let _ = core.channel.wait(rest);
        }
        core.naps.store(false, Ordering::SeqCst);
    }
}

/// The thread; it ends when dropped.
#[derive(Debug)]
struct Driver<D: Device> {
    core: Arc<Core<D>>,
    stop: Arc<AtomicBool>,
    running: Mutex<Option<Running>>,
}

impl<D: Device> Driver<D> {
    fn start(core: &Arc<Core<D>>) -> Result<Self, VerbsError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (thread_core, thread_stop) = (Arc::clone(core), Arc::clone(&stop));
        let name = "dunlin-flor".to_owned();
        let work = Box::new(move || run(&thread_core, &thread_stop));
        let running = core
            .device
            .spawn(name, None, work)
            .map_err(|source| VerbsError::System {
                call: "starting the thread of the device",
                source,
            })?;
        Ok(Self {
            core: Arc::clone(core),
            stop,
            running: Mutex::new(Some(running)),
        })
    }
}

impl<D: Device> Drop for Driver<D> {
    fn drop(&mut self) {
        let running = lock(&self.running).take();
        if !self.core.made_in.is_current() {
            // A child has no such thread.
            return std::mem::forget(running);
        }
        self.stop.store(true, Ordering::SeqCst);
        self.core.channel.wake();
        if let Some(running) = running {
            let _ = running.join();
        }
    }
}

/// The open device; its thread ends when no queue pair is connected any more.
#[derive(Debug)]
pub(crate) struct Handle<D: Device> {
    core: Arc<Core<D>>,
    /// Present while there are connected queue pairs.
    driver: Mutex<Option<Driver<D>>>,
    registered: Once,
}

impl<D: Device> Handle<D> {
    pub(crate) fn new(core: Core<D>) -> Self {
        Self {
            core: Arc::new(core),
            driver: Mutex::new(None),
            registered: Once::new(),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core<D>> {
        &self.core
    }

    /// Starts the thread, unless it is running, because a queue pair of this device has been connected.
    pub(crate) fn drive(&self) -> Result<(), VerbsError> {
        let mut driver = lock(&self.driver);
        let mut driven = lock(&self.core.driven);
        if *driven {
            return Ok(());
        }
        let next = Driver::start(&self.core)?;
        *driven = true;
        drop(driven);
        let former = driver.replace(next);
        drop(driver);
        // The old thread has retired. Waiting for it may take virtual time, in which others need the lock.
        drop(former);
        self.registered
            .call_once(|| match self.core.simulated_host {
                None => {
                    let core: Arc<dyn Progress> = self.core.clone();
                    progress::register(Arc::downgrade(&core));
                }
                Some(host) => {
                    let core: Arc<dyn Attended> = self.core.clone();
                    progress::register_simulated(host, Arc::downgrade(&core));
                }
            });
        Ok(())
    }
}
