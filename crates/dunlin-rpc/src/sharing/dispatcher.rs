//! The thread of a connection handle: response dispatcher (FLOCK §4.3) and thread scheduler (§5.2).
//!
//! In the paper a dispatcher thread always polls all response buffers. Here waiting threads poll themselves as long as
//! they are awake: a core on which a waiting thread would only spin does the dispatcher's work, and with few cores a
//! spinning dispatcher takes one from the threads that work. A client may ask for the paper's behaviour. Otherwise the
//! dispatcher thread is needed only when threads sleep: then it watches all lanes of the handle, and wakes the threads
//! that answers are for. It announces the handle's sleep to the server when there is nothing to do.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use super::combining::Node;
use super::handle::Handle;
use super::lane::SharedLane;
use super::maker::LaneMaker;
use super::ports::Held;
use crate::config::{WaitMode, REST, UNHEARD_PAUSE};
use crate::doze::{doze, Doze, Dozed};

/// The interval of thread scheduling while requests are sent (free in the paper).
const INTERVAL: Duration = Duration::from_millis(10);
/// Interval of the checks for lanes that the server has activated, while requests are sent.
const LOOK_FOR_LANES: Duration = Duration::from_millis(1);
/// The interval while none are sent.
const IDLE_INTERVAL: Duration = Duration::from_millis(100);
/// Longest sleep while threads sleep, which bounds the cost of a lost wake-up.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);
/// Number of polls of a dispatcher that always polls, between two checks for new lanes, for the end and of the clock.
const LOOKS: u32 = 64;
/// Duration of busy polling if the setting is to poll always: threads that sleep are not in that mode.
const SPIN: Duration = Duration::from_micros(50);

impl Handle {
    /// Runs `wait` while the dispatcher watches.
    pub(super) fn while_dispatching(&self, wait: impl FnOnce()) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        if self.dozing.load(Ordering::SeqCst) {
            if let Some(event) = self.event.get() {
                event.wake();
            }
        }
        wait();
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Starts the thread of a handle; it ends with [`Handle::close`].
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn start(
    handle: &Arc<Handle>,
    maker: &dyn LaneMaker,
    wait: WaitMode,
) -> std::io::Result<()> {
    let handle = Arc::clone(handle);
    let spin = match wait {
        WaitMode::Doze { spin } => spin,
        WaitMode::Spin => SPIN,
    };
    maker.spawn("dunlin-dispatch", Box::new(move || run(&handle, spin)))
}

/// When the thread scheduler runs.
struct Turns {
    /// The end of the interval, and whether it is the interval of a handle that sends.
    end: Instant,
    is_busy: bool,
    /// When there is something to do next.
    next: Instant,
}

impl Turns {
    fn new() -> Self {
        let end = thread::now() + INTERVAL;
        Self {
            end,
            is_busy: true,
            next: end,
        }
    }

    /// Runs what is due now.
    fn take(&mut self, handle: &Handle, node: &Node, now: Instant) {
        if now < self.next {
            return;
        }
        let ends = now >= self.end;
        if ends {
            self.is_busy = handle.end_interval(node);
            let interval = match self.is_busy {
                true => INTERVAL,
                false => IDLE_INTERVAL,
            };
            self.end = now + interval;
        } else {
            handle.hear_of_lanes(node);
        }
        let (active, usable) = handle.active_lanes();
        if !ends && active > handle.spread_over() {
            handle.reassign(node);
        }
        self.next = match self.is_busy && active < usable {
            true => self.end.min(now + LOOK_FOR_LANES),
            false => self.end,
        };
    }
}

fn run(handle: &Handle, spin: Duration) {
    let node = Node::new();
    let mut held = Vec::new();
    let Some(event) = handle.event.get() else {
        return;
    };
    let mut turns = Turns::new();
    while !handle.closing.load(Ordering::Acquire) {
        let now = thread::now();
        turns.take(handle, &node, now);
        if handle.is_dispatched() {
            dispatch(handle, &node, &mut held);
            continue;
        }
        if handle.sleepers.load(Ordering::SeqCst) > 0 {
            watch(handle, &node, spin, turns.next);
            continue;
        }
        handle.dozing.store(true, Ordering::SeqCst);
        if handle.sleepers.load(Ordering::SeqCst) == 0 {
            let slept = event.sleep(turns.next.saturating_duration_since(now));
            if slept.is_err() {
                thread::sleep(INTERVAL);
            }
        }
        handle.dozing.store(false, Ordering::SeqCst);
    }
}

/// Polls all lanes for all threads (FLOCK §4.3). It does not send for others: threads that come meanwhile send
/// themselves.
fn dispatch(handle: &Handle, node: &Node, held: &mut Vec<Held>) {
    let lanes = handle.lanes();
    let mut any = false;
    for _ in 0..LOOKS {
        let (mut taken, mut missed) = (0, false);
        for lane in &lanes {
            match lane.hear(node, held) {
                Some(messages) => taken += messages,
                None => missed = true,
            }
            if lane.status().take_news() {
                handle.wake_all();
                taken += 1;
            }
        }
        if taken > 0 {
            any = true;
            continue;
        }
        look_in_vain(handle, missed);
    }
    if !any {
        // The threads that it polls for may be waiting for this core.
        thread::yield_now();
    }
    for lane in &lanes {
        if !lane.status().is_lost() {
            lane.check(node, None);
        }
        if lane.status().is_lost() {
            handle.wake_all();
        }
    }
}

/// Called when nothing has come. `missed` says that a lane was led by another thread: what came to it was not seen, and
/// no event will report it again.
fn look_in_vain(handle: &Handle, missed: bool) {
    if thread::is_simulated() && !missed {
        // Other threads on this core run meanwhile.
        thread::idle(REST, true);
    } else if handle.is_crowded() {
        thread::yield_now();
    } else {
        thread::relax();
    }
}

/// Polls all lanes for the sleeping threads, then sleeps itself until the server sends something.
fn watch(handle: &Handle, node: &Node, spin: Duration, until: Instant) {
    let lanes = handle.lanes();
    let mut watcher = Watcher {
        handle,
        node,
        lanes: &lanes,
    };
    let mut since = thread::now();
    while thread::now().duration_since(since) < spin {
        let (taken, missed) = watcher.poll();
        if taken > 0 {
            since = thread::now();
        } else {
            look_in_vain(handle, missed);
        }
        if handle.sleepers.load(Ordering::Relaxed) == 0 || since > until {
            return;
        }
    }
    let Ok(dozed) = doze(&mut watcher, LONGEST_SLEEP);
    if dozed == Dozed::Unheard {
        thread::sleep(UNHEARD_PAUSE);
    }
}

/// The thread of a handle while others sleep.
struct Watcher<'a> {
    handle: &'a Handle,
    node: &'a Node,
    lanes: &'a [Arc<dyn SharedLane>],
}

impl Watcher<'_> {
    /// Returns the number of messages taken, and whether another thread led a lane.
    fn poll(&self) -> (usize, bool) {
        let (mut taken, mut missed) = (0, false);
        for lane in self.lanes {
            match lane.poll(self.node, None, 1) {
                Some(messages) => taken += messages,
                None => missed = true,
            }
            if lane.status().take_news() {
                self.handle.wake_all();
                taken += 1;
            }
        }
        (taken, missed)
    }
}

impl Doze for Watcher<'_> {
    type Error = Infallible;

    fn announce(&mut self) -> Result<bool, Infallible> {
        let mut known = true;
        for lane in self.lanes {
            known &= lane.status().is_lost() || lane.prepare_sleep(self.node);
        }
        Ok(known)
    }

    fn look(&mut self) -> Result<bool, Infallible> {
        Ok(self.poll().0 > 0 || self.handle.closing.load(Ordering::Acquire))
    }

    fn check(&mut self) -> Result<(), Infallible> {
        for lane in self.lanes {
            if !lane.status().is_lost() {
                lane.check(self.node, None);
            }
        }
        if self.lanes.iter().any(|lane| lane.status().is_lost()) {
            self.handle.wake_all();
        }
        Ok(())
    }

    fn sleep(&mut self, most: Duration) -> Result<(), Infallible> {
        if self.lanes.iter().all(|lane| lane.status().is_lost()) {
            // The threads concerned are awake; nothing more will come.
            thread::sleep(UNHEARD_PAUSE);
        } else if let Some(event) = self.handle.event.get() {
            if event.sleep(most).is_err() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }
}
