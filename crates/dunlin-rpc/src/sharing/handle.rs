//! The connection handle (FLOCK §3): the lanes between a client and one server, and the threads that share them.
//!
//! Nothing here is on the way of a call. A thread comes ([`Handle::attach`]) and gets a port and a lane; the thread scheduler moves it;
//! it goes.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dunlin_verbs::thread;
use serde::{Deserialize, Serialize};

use super::assignment::{assign, Sent};
use super::combining::Node;
use super::lane::SharedLane;
use super::ports::{Port, Ports, MOST_PORTS};
use super::statistics::Seen;
use super::thread_port::ThreadPort;
use super::Sharing;
use crate::client::lane::Sleeper;
use crate::error::{CallError, ConnectError};

/// A lane and its place among the handle's.
pub(crate) struct Placed {
    pub(crate) lane: Arc<dyn SharedLane>,
    pub(crate) index: usize,
    pub(crate) serial: u64,
}

struct Entry {
    lane: Arc<dyn SharedLane>,
    serial: u64,
    /// Threads whose port is assigned to it.
    threads: usize,
}

#[derive(Default)]
struct Lanes {
    entries: Vec<Entry>,
    /// What the scheduler saw last of each port, by id.
    seen: Vec<Seen>,
    next_serial: u64,
    random: u64,
}

/// Live figures of a connection handle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HandleFigures {
    /// One entry for each lane.
    pub lanes: Vec<LaneReport>,
    /// Threads, pipelines and futures' lanes that use the handle.
    pub threads: usize,
    /// The lane of each of them, in order of their ids (FLOCK's thread-to-QP map).
    pub assignment: Vec<usize>,
    /// Threads that the scheduler has moved to another lane so far.
    pub migrations: u64,
    /// Requests for each message that was written, over the handle's life.
    pub coalescing_degree: f64,
}

/// Live figures of one lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LaneReport {
    /// The server wants requests on it.
    pub active: bool,
    /// It takes calls: neither lost nor left by the server.
    pub open: bool,
    /// Credits left; zero when the server does not count.
    pub credits: u32,
    /// Messages written.
    pub messages: u64,
    /// Requests in them.
    pub requests: u64,
    /// Threads that had requests in them, summed over the messages.
    pub threads: u64,
    /// One-sided operations.
    pub operations: u64,
    /// How often some of them were posted together.
    pub lists: u64,
}

/// See the module.
pub(crate) struct Handle {
    sharing: Sharing,
    ports: Ports,
    calls: usize,
    lanes: Mutex<Lanes>,
    /// Ports in use, and whether those that send are more than can run at once.
    live: AtomicUsize,
    crowded: AtomicBool,
    cores: usize,
    /// The thread scheduler is at work.
    assigning: AtomicBool,
    migrations: AtomicU64,
    pub(super) closing: AtomicBool,
    /// Its client has gone.
    orphan: AtomicBool,
    /// Threads asleep, and whether the dispatcher is, too.
    pub(super) sleepers: AtomicUsize,
    pub(super) dozing: AtomicBool,
    pub(crate) bell: OnceLock<Box<dyn Sleeper>>,
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("sharing", &self.sharing)
            .finish_non_exhaustive()
    }
}

impl Handle {
    /// With ports of `calls` calls each, on a host of `cores` cores. Newcomers are placed by a sequence from `seed`.
    pub(crate) fn new(sharing: Sharing, calls: usize, cores: usize, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            ports: Ports::new(calls),
            calls,
            lanes: Mutex::new(Lanes {
                random: seed,
                ..Lanes::default()
            }),
            live: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
            cores,
            assigning: AtomicBool::new(false),
            migrations: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            orphan: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            dozing: AtomicBool::new(false),
            bell: OnceLock::new(),
            sharing,
        })
    }

    pub(crate) fn ports(&self) -> &Ports {
        &self.ports
    }

    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    /// Most messages of a thread's run.
    pub(super) fn run(&self) -> u32 {
        self.sharing.run
    }

    /// Only the dispatcher takes answers.
    #[inline]
    pub(super) fn is_dispatched(&self) -> bool {
        self.sharing.dispatched
    }

    /// Sending and looking are two turns: threads are crowded, or the dispatcher looks.
    #[inline]
    pub(super) fn is_apart(&self) -> bool {
        self.is_dispatched() || self.is_crowded()
    }

    /// More threads than cores: who waits gives its core away.
    #[inline]
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed) || thread::shares_core()
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A port for a newcomer. `open` makes a lane when there are fewer than the preset wants for so many threads.
    ///
    /// # Errors
    /// When no lane is open and none can be made, or there are too many ports.
    pub(crate) fn attach(
        self: &Arc<Self>,
        open: impl Fn(usize) -> Result<Arc<dyn SharedLane>, ConnectError>,
    ) -> Result<ThreadPort, ConnectError> {
        thread::hold(|| self.attach_held(open))
    }

    fn attach_held(
        self: &Arc<Self>,
        open: impl Fn(usize) -> Result<Arc<dyn SharedLane>, ConnectError>,
    ) -> Result<ThreadPort, ConnectError> {
        let mut lanes = self.lock();
        let live = self.live.load(Ordering::Relaxed) + 1;
        let wanted = self.sharing.lanes.wanted(live);
        let is_open = |entry: &Entry| entry.lane.status().is_open();
        let usable = lanes.entries.iter().filter(|entry| is_open(entry)).count();
        if usable < wanted {
            let dead = lanes.entries.iter().position(|entry| !is_open(entry));
            let index = dead.unwrap_or(lanes.entries.len());
            match open(index) {
                Ok(lane) => {
                    lanes.next_serial += 1;
                    let serial = lanes.next_serial;
                    let entry = Entry {
                        lane,
                        serial,
                        threads: 0,
                    };
                    match dead {
                        Some(index) => {
                            let lost = std::mem::replace(&mut lanes.entries[index], entry);
                            self.ports.reap(lost.serial);
                        }
                        None => lanes.entries.push(entry),
                    }
                }
                Err(error) if usable == 0 || !self.sharing.lanes.are_shared() => return Err(error),
                Err(error) => tracing::warn!(%error, "one lane less than wanted"),
            }
        }
        let Some(port) = self.ports.open() else {
            return Err(ConnectError::Setting(format!(
                "more than {MOST_PORTS} threads and pipelines share a connection handle"
            )));
        };
        let index = self.choose(&mut lanes);
        port.assigned.store(index, Ordering::Relaxed);
        port.home.store(index, Ordering::Relaxed);
        lanes.entries[index].threads += 1;
        self.live.store(live, Ordering::Relaxed);
        let entry = &lanes.entries[index];
        let placed = Placed {
            lane: Arc::clone(&entry.lane),
            index,
            serial: entry.serial,
        };
        drop(lanes);
        Ok(ThreadPort::new(Arc::clone(self), port, placed))
    }

    /// The lane of a newcomer: any, where threads are moved later (FLOCK §5.2); else the one with the fewest.
    fn choose(&self, lanes: &mut Lanes) -> usize {
        lanes.random = lanes
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let random = (lanes.random >> 33) as usize;
        let usable = usable(&lanes.entries);
        let chosen = if self.sharing.scheduled {
            usable.get(random % usable.len().max(1))
        } else {
            usable.iter().min_by_key(|&&i| lanes.entries[i].threads)
        };
        // All may have failed since they were counted: the thread hears it from one of them, and asks again.
        chosen.copied().unwrap_or(0)
    }

    /// A thread has gone.
    pub(super) fn leave(&self, port: &Port) {
        let mut lanes = self.lock();
        let assigned = port.assigned.load(Ordering::Relaxed);
        if let Some(entry) = lanes.entries.get_mut(assigned) {
            entry.threads = entry.threads.saturating_sub(1);
        }
        let live = self.live.fetch_sub(1, Ordering::SeqCst) - 1;
        self.ports.close(port);
        drop(lanes);
        if live == 0 && self.orphan.load(Ordering::SeqCst) {
            self.close();
        }
    }

    /// The client has gone: the handle ends with its last port.
    pub(crate) fn orphan(&self) {
        self.orphan.store(true, Ordering::SeqCst);
        if self.live.load(Ordering::SeqCst) == 0 {
            self.close();
        }
    }

    /// The lane with this number, if it takes calls.
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

    /// The thread scheduler (FLOCK §5.2): assigns threads to active lanes by what they have sent since the last time. Run in each
    /// interval, and by whoever sees that a lane was deactivated. Says whether anybody sent anything.
    pub(super) fn reassign(&self, node: &Node) -> bool {
        if self.assigning.swap(true, Ordering::Acquire) {
            // Somebody is at it.
            return true;
        }
        /// Others may assign again, also after a panic.
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        let _done = Done(&self.assigning);
        // Grants and losses are seen by leaders; a lane that nobody uses has none.
        for lane in self.lanes() {
            if !lane.status().is_lost() {
                lane.check(node, &self.ports, None);
            }
        }
        self.assign_threads()
    }

    fn assign_threads(&self) -> bool {
        let mut lanes = self.lock();
        let usable = usable(&lanes.entries);
        let ports: Vec<&Arc<Port>> = self.ports.living().collect();
        let seen = &mut lanes.seen;
        let sent: Vec<Sent> = ports
            .iter()
            .map(|port| {
                let id = usize::from(port.id);
                if seen.len() <= id {
                    seen.resize_with(id + 1, Seen::default);
                }
                port.counts.since(&mut seen[id])
            })
            .collect();
        let any = sent.iter().any(|sent| sent.requests > 0);
        let busy = sent.iter().filter(|sent| sent.requests > 0).count();
        // The other side's threads want cores, too, if it is on this machine.
        let crowded = thread::is_simulated() && busy * 2 > self.cores;
        self.crowded.store(crowded, Ordering::Relaxed);
        if usable.is_empty() {
            return any;
        }
        // Threads without statistics stay where they are, unless their lane is not active any more. So do all where threads are not
        // scheduled, and they go home when they can.
        let scheduled = self.sharing.scheduled;
        let (known, idle): (Vec<usize>, Vec<usize>) =
            (0..ports.len()).partition(|&i| scheduled && sent[i].requests > 0);
        let mut wanted: Vec<(usize, usize)> = Vec::with_capacity(ports.len());
        if !known.is_empty() {
            let weigh = |sent: Sent| Sent {
                bytes: sent.bytes + sent.requests * self.sharing.request_bytes,
                ..sent
            };
            let loads: Vec<Sent> = known.iter().map(|&i| weigh(sent[i])).collect();
            let map = assign(&loads, usable.len());
            wanted.extend(known.iter().zip(map).map(|(&i, lane)| (i, usable[lane])));
        }
        for (k, &i) in idle.iter().enumerate() {
            let now = ports[i].assigned.load(Ordering::Relaxed);
            let home = ports[i].home.load(Ordering::Relaxed);
            if !scheduled && now != home && usable.contains(&home) {
                wanted.push((i, home));
            } else if !usable.contains(&now) {
                wanted.push((i, usable[k % usable.len()]));
            }
        }
        for (i, lane) in wanted {
            let before = ports[i].assigned.swap(lane, Ordering::Relaxed);
            if before != lane {
                self.migrations.fetch_add(1, Ordering::Relaxed);
                // It may sleep for credits that the old lane does not get.
                ports[i].wake();
                if let Some(entry) = lanes.entries.get_mut(before) {
                    entry.threads = entry.threads.saturating_sub(1);
                }
                lanes.entries[lane].threads += 1;
            }
        }
        any
    }

    /// Wakes all threads that sleep: their lane may be lost.
    pub(super) fn wake_all(&self) {
        for port in self.ports.living() {
            port.wake();
        }
    }

    /// What is going on.
    pub(crate) fn figures(&self) -> HandleFigures {
        let lanes = self.lock();
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let reports: Vec<LaneReport> = lanes
            .entries
            .iter()
            .map(|entry| {
                let (status, figures) = (entry.lane.status(), entry.lane.figures());
                LaneReport {
                    active: status.is_active(),
                    open: status.is_open(),
                    credits: figures.credits.load(Ordering::Relaxed),
                    messages: load(&figures.messages),
                    requests: load(&figures.requests),
                    threads: load(&figures.threads),
                    operations: load(&figures.operations),
                    lists: load(&figures.lists),
                }
            })
            .collect();
        let messages: u64 = reports.iter().map(|lane| lane.messages).sum();
        let requests: u64 = reports.iter().map(|lane| lane.requests).sum();
        HandleFigures {
            threads: self.live.load(Ordering::Relaxed),
            assignment: self
                .ports
                .living()
                .map(|port| port.assigned.load(Ordering::Relaxed))
                .collect(),
            migrations: load(&self.migrations),
            coalescing_degree: requests as f64 / messages.max(1) as f64,
            lanes: reports,
        }
    }

    /// Ends all lanes: calls that are out fail.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        let node = Node::new();
        for lane in self.lanes() {
            lane.close(&node, &self.ports, CallError::Closed);
        }
        self.wake_all();
        if let Some(bell) = self.bell.get() {
            bell.wake();
        }
    }
}

/// Numbers of the lanes that take calls: the active ones, or all that are open when none is active.
fn usable(entries: &[Entry]) -> Vec<usize> {
    let open = |entry: &Entry| entry.lane.status().is_open();
    let active = |entry: &Entry| open(entry) && entry.lane.status().is_active();
    let those = |which: &dyn Fn(&Entry) -> bool| -> Vec<usize> {
        (0..entries.len()).filter(|&i| which(&entries[i])).collect()
    };
    let found = those(&active);
    if found.is_empty() {
        those(&open)
    } else {
        found
    }
}
