//! The connection handle (FLOCK §3): the lanes between a client and one server, and the threads that share them.
//!
//! Nothing here is on the path of a call. A thread attaches ([`Handle::attach`]) and gets a port and a lane; the thread
//! scheduler moves it ([`scheduling`]); it leaves.

mod scheduling;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::calls::{MOST_CALLS, MOST_PORTS};
use super::combining::Node;
use super::figures::HandleFigures;
use super::lane::SharedLane;
use super::lane_table::{usable, LaneTable, Placed};
use super::port::Port;
use super::ports::Ports;
use super::thread_port::ThreadPort;
use super::{Moves, Sharing};
use crate::call::lane::Sleeper;
use crate::error::{CallError, ConnectError};

/// Interval at which a waiting new thread checks again, which bounds the cost of a lost wake-up.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Handle {
    sharing: Sharing,
    ports: Arc<Ports>,
    calls: usize,
    lanes: Mutex<LaneTable>,
    /// Notified when making a lane has succeeded or failed.
    made: Condvar,
    /// Number of ports in use, and whether more of them send than can run at once.
    live: AtomicUsize,
    crowded: AtomicBool,
    cores: usize,
    /// Whether the thread scheduler is running.
    assigning: AtomicBool,
    /// Number of lanes over which it has spread threads.
    spread_over: AtomicUsize,
    migrations: AtomicU64,
    pub(super) closing: AtomicBool,
    /// Whether its client has gone.
    orphan: AtomicBool,
    /// Number of sleeping threads, and whether the dispatcher sleeps, too.
    pub(super) sleepers: AtomicUsize,
    pub(super) dozing: AtomicBool,
    pub(crate) event: OnceLock<Box<dyn Sleeper>>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("sharing", &self.sharing)
            .finish_non_exhaustive()
    }
}

impl Handle {
    /// Makes a handle with ports of `calls` calls each, on a host with `cores` cores. New threads are placed by a
    /// sequence from `seed`.
    pub(crate) fn new(sharing: Sharing, calls: usize, cores: usize, seed: u64) -> Arc<Self> {
        let calls = calls.min(MOST_CALLS);
        Arc::new(Self {
            ports: Arc::new(Ports::new(calls)),
            calls,
            lanes: Mutex::new(LaneTable {
                random: seed,
                ..LaneTable::default()
            }),
            made: Condvar::new(),
            live: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
            cores,
            assigning: AtomicBool::new(false),
            spread_over: AtomicUsize::new(0),
            migrations: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            orphan: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            dozing: AtomicBool::new(false),
            event: OnceLock::new(),
            sharing,
        })
    }

    pub(crate) fn ports(&self) -> &Arc<Ports> {
        &self.ports
    }

    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    /// Maximum number of messages in a thread's run.
    pub(super) fn run(&self) -> u32 {
        self.sharing.run
    }

    /// Whether only the dispatcher takes answers.
    #[inline]
    pub(super) fn is_dispatched(&self) -> bool {
        self.sharing.dispatched
    }

    /// Whether sending and polling are separate turns: threads are crowded, or the dispatcher polls.
    #[inline]
    pub(super) fn is_apart(&self) -> bool {
        self.is_dispatched() || self.is_crowded()
    }

    /// Whether there are more threads than cores, so that waiting threads yield.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed) || thread::shares_core()
    }

    fn lock(&self) -> MutexGuard<'_, LaneTable> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a port for a new thread. `open` makes a lane with the given number if there are fewer than the preset
    /// wants for this many threads; threads that have a lane are not held up. If all lanes that may be made are being
    /// made by others, it waits for one of them, at most until `until`.
    ///
    /// # Errors
    /// If no lane is open and none can be made, or there are too many ports.
    pub(crate) fn attach(
        self: &Arc<Self>,
        until: Option<Instant>,
        open: impl FnOnce(usize) -> Result<Arc<dyn SharedLane>, ConnectError>,
    ) -> Result<ThreadPort, ConnectError> {
        thread::hold(|| self.attach_held(until, open))
    }

    fn attach_held(
        self: &Arc<Self>,
        until: Option<Instant>,
        open: impl FnOnce(usize) -> Result<Arc<dyn SharedLane>, ConnectError>,
    ) -> Result<ThreadPort, ConnectError> {
        let mut lanes = self.lock();
        lanes.coming += 1;
        let (mut lanes, provided) = self.provide(lanes, until, open);
        lanes.coming -= 1;
        if let Err(error) = provided {
            self.end_if_abandoned(lanes);
            return Err(error);
        }
        let Some(port) = self.ports.open() else {
            return Err(ConnectError::Setting(format!(
                "too many threads and pipelines share a connection handle: the limit is {MOST_PORTS}"
            )));
        };
        let index = self.choose(&mut lanes);
        port.assigned.store(index, Ordering::Relaxed);
        port.home.store(index, Ordering::Relaxed);
        lanes.entries[index].lane.status().add_thread();
        self.live.fetch_add(1, Ordering::SeqCst);
        let entry = &lanes.entries[index];
        let placed = Placed {
            lane: Arc::clone(&entry.lane),
            index,
            serial: entry.serial,
        };
        drop(lanes);
        Ok(ThreadPort::new(Arc::clone(self), port, placed))
    }

    /// Ensures that there is a lane for a new thread.
    fn provide<'a>(
        &'a self,
        mut lanes: MutexGuard<'a, LaneTable>,
        until: Option<Instant>,
        open: impl FnOnce(usize) -> Result<Arc<dyn SharedLane>, ConnectError>,
    ) -> (MutexGuard<'a, LaneTable>, Result<(), ConnectError>) {
        let failures = lanes.failures;
        loop {
            if self.closing.load(Ordering::Acquire) {
                return (lanes, Err(closed()));
            }
            let usable = lanes.usable();
            match &lanes.failure {
                // This thread waited for that attempt: if the threads tried again one after the other, it would take as
                // long for each.
                Some(failure) if lanes.failures != failures && usable == 0 => {
                    let failure = ConnectError::Shared(Arc::clone(failure));
                    return (lanes, Err(failure));
                }
                _ => {}
            }
            let live = self.live.load(Ordering::Relaxed) + lanes.coming;
            if usable + lanes.making.len() < self.sharing.lanes.wanted(live) {
                return self.make(lanes, until, open);
            }
            if usable > 0 {
                return (lanes, Ok(()));
            }
            let now = thread::now();
            let left = until.map_or(LOOK_AGAIN, |until| until.saturating_duration_since(now));
            if left.is_zero() {
                return (lanes, Err(ConnectError::TimedOut));
            }
            lanes.waiting += 1;
            let (woken, _) = self
                .made
                .wait_timeout(lanes, left.min(LOOK_AGAIN))
                .unwrap_or_else(PoisonError::into_inner);
            lanes = woken;
            lanes.waiting -= 1;
        }
    }

    /// Makes another lane. The lock is not held meanwhile.
    fn make<'a>(
        &'a self,
        mut lanes: MutexGuard<'a, LaneTable>,
        until: Option<Instant>,
        open: impl FnOnce(usize) -> Result<Arc<dyn SharedLane>, ConnectError>,
    ) -> (MutexGuard<'a, LaneTable>, Result<(), ConnectError>) {
        let number = lanes.free_number();
        lanes.making.push(number);
        drop(lanes);
        let opened = open(number);
        let mut lanes = self.lock();
        lanes.making.retain(|&other| other != number);
        self.made.notify_all();
        let error = match opened {
            // The closing thread has not seen this lane, which ends with its last reference.
            Ok(_) if self.closing.load(Ordering::Acquire) => closed(),
            Ok(lane) => {
                let is_awaited = |serial| self.ports.are_awaited(serial);
                if let Some(over) = lanes.enter(number, lane, is_awaited) {
                    self.ports.reap(over);
                }
                return (lanes, Ok(()));
            }
            Err(error) => error,
        };
        if lanes.usable() > 0 && self.sharing.lanes.are_shared() {
            tracing::warn!(%error, "cannot open another lane: there is one fewer than requested");
            return (lanes, Ok(()));
        }
        let is_late = until.is_some_and(|until| thread::now() >= until);
        if lanes.waiting == 0 || is_late {
            // That this thread's own time was up does not concern others.
            return (lanes, Err(error));
        }
        let error = Arc::new(error);
        lanes.failures += 1;
        lanes.failure = Some(Arc::clone(&error));
        (lanes, Err(ConnectError::Shared(error)))
    }

    /// Chooses the lane of a new thread: a random one if all threads are moved in each interval (FLOCK §5.2), otherwise
    /// the one with the fewest threads, where it may stay.
    fn choose(&self, lanes: &mut LaneTable) -> usize {
        lanes.random = lanes
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let random = (lanes.random >> 33) as usize;
        let usable = usable(&lanes.entries);
        let chosen = if self.sharing.moves == Moves::EachInterval {
            usable.get(random % usable.len().max(1))
        } else {
            usable
                .iter()
                .min_by_key(|&&i| lanes.entries[i].lane.status().threads())
        };
        // All may have failed since they were counted: the thread notices at one of them, and attaches again.
        chosen.copied().unwrap_or(0)
    }

    /// Called when a thread leaves.
    pub(super) fn leave(&self, port: &Port) {
        let lanes = self.lock();
        let assigned = port.assigned.load(Ordering::Relaxed);
        if let Some(entry) = lanes.entries.get(assigned) {
            entry.lane.status().remove_thread();
        }
        self.live.fetch_sub(1, Ordering::SeqCst);
        self.ports.close(port);
        self.end_if_abandoned(lanes);
    }

    /// Called when the client is gone: the handle ends with its last port, including ports that are being made.
    pub(crate) fn orphan(&self) {
        self.orphan.store(true, Ordering::SeqCst);
        self.end_if_abandoned(self.lock());
    }

    fn end_if_abandoned(&self, lanes: MutexGuard<'_, LaneTable>) {
        let is_used = self.live.load(Ordering::SeqCst) > 0 || lanes.coming > 0;
        drop(lanes);
        if !is_used && self.orphan.load(Ordering::SeqCst) {
            self.close();
        }
    }

    /// The lane at this index, if it takes calls.
    pub(super) fn placed(&self, index: usize) -> Option<Placed> {
        let lanes = self.lock();
        let entry = lanes.entries.get(index)?;
        entry.lane.status().is_open().then(|| Placed {
            lane: Arc::clone(&entry.lane),
            index,
            serial: entry.serial,
        })
    }

    /// All lanes.
    pub(super) fn lanes(&self) -> Vec<Arc<dyn SharedLane>> {
        let lanes = self.lock();
        let all = lanes.entries.iter();
        all.map(|entry| Arc::clone(&entry.lane)).collect()
    }

    /// Whether one of its lanes takes calls.
    pub(crate) fn takes_calls(&self) -> bool {
        self.lock().usable() > 0
    }

    /// Wakes all sleeping threads: their lane may be lost.
    pub(super) fn wake_all(&self) {
        for port in self.ports.living() {
            port.wake();
        }
    }

    /// The live figures.
    pub(crate) fn figures(&self) -> HandleFigures {
        let assigned = |port: &Arc<Port>| port.assigned.load(Ordering::Relaxed);
        HandleFigures::new(
            self.lock().entries.iter().map(|entry| &entry.lane),
            self.live.load(Ordering::Relaxed),
            self.ports.living().map(assigned).collect(),
            self.migrations.load(Ordering::Relaxed),
        )
    }

    /// Ends all lanes: outstanding calls fail.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        // Threads that wait for a lane are woken, and a thread that enters one checks for it: see `make`.
        self.made.notify_all();
        let node = Node::new();
        for lane in self.lanes() {
            lane.close(&node, CallError::Closed);
        }
        self.wake_all();
        if let Some(event) = self.event.get() {
            event.wake();
        }
    }
}

fn closed() -> ConnectError {
    ConnectError::Setting("the client is closed".into())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::Preset;

    fn until(handle: &Handle, holds: impl Fn(&LaneTable) -> bool) {
        let started = Instant::now();
        while !holds(&handle.lock()) {
            assert!(started.elapsed().as_secs() < 20, "not within 20 s");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn who_waits_for_a_lane_hears_why_there_is_none() {
        let sharing = Preset::Flock.sharing(1).unwrap();
        let handle = Handle::new(sharing, 4, 2, 1);
        let (fail, failing) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let handle = &handle;
            let first = scope.spawn(move || {
                let open = |_| {
                    let _ = failing.recv();
                    Err(closed())
                };
                handle.attach(None, open).map(drop)
            });
            until(handle, |lanes| lanes.making == [0]);
            let another = move || handle.attach(None, |_| panic!("it tries, too")).map(drop);
            let others: Vec<_> = (0..4).map(|_| scope.spawn(another)).collect();
            until(handle, |lanes| lanes.waiting == 4);
            fail.send(()).unwrap();
            for thread in others.into_iter().chain([first]) {
                let heard = thread.join().unwrap();
                assert!(matches!(heard, Err(ConnectError::Shared(_))), "{heard:?}");
            }
        });
    }
}
