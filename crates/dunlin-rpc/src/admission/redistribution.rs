//! The server's queue-pair scheduler (FLOCK §5.1): a thread that redistributes active queue pairs among senders in each
//! interval.
//!
//! Its other two tasks in the paper, granting credits and adding up utilisation, are done by the poller of the lane,
//! where the lane's completions are taken ([`super::lane`]): a queue pair has one owner, and credits do not depend on
//! another thread.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use dunlin_verbs::thread::{self, Running};
use serde::{Deserialize, Serialize};

use super::arrivals::{DatagramShare, Passes};
use super::attempts::Attempts;
use super::lane_share::LaneShare;
use super::senders::{active, Senders};
use crate::config::Datagrams;

/// The scheduling interval (free in the paper).
const INTERVAL: Duration = Duration::from_millis(10);
/// Number of measurements of the arriving messages in each interval, if the device reports its message rate.
const LOOKS: u32 = 10;
/// The interval while no client sends.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// A sender as the scheduler sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SenderReport {
    /// An id that is the same in each report of this server. It does not reveal the one by which the sender joins, with
    /// which any client could join as that sender.
    pub sender: u64,
    /// Whether it sent nothing in the last interval (FLOCK's dormant sender).
    pub dormant: bool,
    /// Its queue pairs.
    pub lanes: Vec<LaneUse>,
}

/// A sender's queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LaneUse {
    /// Whether it gets credits.
    pub active: bool,
    /// Credits that the client had left after the last grant.
    pub credits: u64,
    /// The median coalescing degree that was last reported.
    pub degree: u64,
}

/// The registry of senders.
pub(crate) struct Admission {
    most_active: usize,
    /// Minimum and maximum of a renewal; a lane begins with the minimum.
    credits: (u32, u32),
    senders: Mutex<Senders>,
    /// Maximum number of requests of a message that are answered together.
    answered_together: AtomicUsize,
    scheduler: Mutex<Option<Waker>>,
    idle: AtomicBool,
    ending: AtomicBool,
    /// Makes the ids for reports.
    names: RandomState,
    /// Starts the scheduler's thread.
    spawn: Spawn,
    /// Wakes the pollers when a client is to be told something.
    wake: Box<dyn Fn() + Send + Sync>,
}

/// Starts a thread.
pub(crate) type Spawn =
    Box<dyn Fn(&str, Box<dyn FnOnce() + Send>) -> std::io::Result<Running> + Send + Sync>;

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission")
            .field("most_active", &self.most_active)
            .finish_non_exhaustive()
    }
}

impl Admission {
    /// Makes a registry with at most `most_active` active queue pairs, each of which gets between the minimum and the
    /// maximum of `credits` at a time. Clients are told when a device with this message rate is at its limit, and asked
    /// to use datagrams according to the setting.
    pub(crate) fn new(
        most_active: usize,
        credits: (u32, u32),
        (messages_per_second, datagrams): (Option<u64>, Datagrams),
        spawn: Spawn,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(Self {
            most_active,
            credits,
            senders: Mutex::new(Senders {
                attempts: Attempts::new(messages_per_second, datagrams),
                ..Senders::default()
            }),
            answered_together: AtomicUsize::new(usize::MAX),
            scheduler: Mutex::default(),
            idle: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            names: RandomState::new(),
            spawn,
            wake,
        })
    }

    /// Credits of a lane at the start, which is the minimum of a renewal, and the maximum of one.
    pub(crate) fn credits(&self) -> (u32, u32) {
        self.credits
    }

    /// Maximum number of requests of a message that are answered together.
    #[inline]
    pub(super) fn answered_together(&self) -> usize {
        self.answered_together.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Senders> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cost of a new lane of a sender on each of this many pollers: the sender's other lanes there, which may be
    /// active in its place, and, if it would be active, the number of active lanes.
    pub(crate) fn against(&self, sender: u64, pollers: usize) -> Vec<(usize, usize)> {
        let senders = self.lock();
        let mut against = vec![(0, 0); pollers];
        for lane in senders.lanes.get(&sender).into_iter().flatten() {
            if let Some(poller) = against.get_mut(lane.poller) {
                poller.0 += 1;
            }
        }
        if senders.admits(sender, self.most_active) {
            for (poller, active) in against.iter_mut().zip(senders.active_by_poller(pollers)) {
                poller.1 = active;
            }
        }
        against
    }

    /// Adds a new lane, on a poller, active or not ([`Senders::admits`]).
    pub(super) fn join(
        self: &Arc<Self>,
        sender: u64,
        number: u64,
        poller: usize,
    ) -> Arc<LaneShare> {
        let mut senders = self.lock();
        if let Some(lanes) = senders.lanes.get_mut(&sender) {
            lanes.retain(|lane| lane.number != number);
        }
        let active = senders.admits(sender, self.most_active);
        let standing = senders.attempts.standing(active);
        let lanes = senders.lanes.entry(sender).or_default();
        let lane = LaneShare::new(sender, number, poller, standing, self.credits.0);
        let lane = Arc::new(lane);
        lanes.push(Arc::clone(&lane));
        // All senders start functioning.
        senders.dormant.entry(sender).or_insert(false);
        if senders.thread.is_none() && !self.ending.load(Ordering::Acquire) {
            let admission = Arc::clone(self);
            match (self.spawn)("dunlin-scheduler", Box::new(move || admission.run())) {
                Ok(thread) => senders.thread = Some(thread),
                // All senders keep what they have, and the next lane tries again.
                Err(error) => tracing::error!(%error, "cannot start the scheduler thread"),
            }
        }
        drop(senders);
        self.rouse();
        lane
    }

    /// Adds a poller of a datagram queue pair.
    pub(crate) fn join_datagrams(&self) -> Arc<DatagramShare> {
        let share = Arc::new(DatagramShare::default());
        let mut senders = self.lock();
        let wanted = senders.attempts.sends_datagrams();
        share.wanted.store(wanted, Ordering::Relaxed);
        senders.datagrams.push(Arc::clone(&share));
        share
    }

    /// Watches the passes of these polling threads.
    pub(crate) fn watch(&self, passes: Vec<Arc<Passes>>) {
        self.lock().passes = passes;
    }

    /// Removes a lane that has ended. Its sender keeps at least one that is active.
    pub(super) fn leave(&self, lane: &Arc<LaneShare>) {
        let mut senders = self.lock();
        let attempts = senders.attempts;
        let Some(lanes) = senders.lanes.get_mut(&lane.sender) else {
            return;
        };
        lanes.retain(|other| !Arc::ptr_eq(other, lane));
        match lanes.first() {
            None => {
                senders.lanes.remove(&lane.sender);
                senders.dormant.remove(&lane.sender);
            }
            Some(first) if active(lanes) == 0 => {
                first.set(attempts.standing(true));
                drop(senders);
                (self.wake)();
            }
            Some(_) => {}
        }
    }

    /// Called when a client sends.
    #[inline]
    pub(super) fn rouse(&self) {
        if self.idle.load(Ordering::Relaxed) && self.idle.swap(false, Ordering::Relaxed) {
            self.wake_scheduler();
        }
    }

    fn scheduler(&self) -> MutexGuard<'_, Option<Waker>> {
        self.scheduler
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_scheduler(&self) {
        if let Some(thread) = &*self.scheduler() {
            thread.wake_by_ref();
        }
    }

    fn run(&self) {
        *self.scheduler() = Some(thread::waker());
        let looks = match self.lock().attempts.is_known() {
            true => LOOKS,
            false => 1,
        };
        let mut since = thread::now();
        for look in 1.. {
            let interval = if self.idle.load(Ordering::Relaxed) {
                IDLE_INTERVAL
            } else {
                INTERVAL / looks
            };
            thread::park(interval);
            if self.ending.load(Ordering::Acquire) {
                break;
            }
            let now = thread::now();
            self.measure(now.duration_since(since));
            since = now;
            if look % looks == 0 {
                self.redistribute();
            }
        }
    }

    /// Measures how many messages have arrived, and asks clients for something else if this calls for it.
    fn measure(&self, interval: Duration) {
        let mut senders = self.lock();
        let came = senders.look();
        let attempts = &mut senders.attempts;
        let before = attempts.active(self.most_active);
        let asks = attempts.see(came, interval);
        self.answered_together
            .store(attempts.answered_together(), Ordering::Relaxed);
        if !asks {
            return;
        }
        tracing::debug!(steps = ?attempts.steps(), ?came, "clients with the preset `auto` are asked for something new");
        let is_same = attempts.active(self.most_active) == before;
        senders.tell_datagrams();
        let changed = match is_same {
            true => senders.tell(),
            false => {
                let uses = senders.uses(LaneShare::of_late);
                senders.share_out(&uses, self.most_active)
            }
        };
        drop(senders);
        if changed {
            (self.wake)();
        }
    }

    /// Ends an interval.
    fn redistribute(&self) {
        let mut senders = self.lock();
        let uses = senders.uses(LaneShare::end_interval);
        // Unused queue pairs, while clients use datagrams, tell nothing, and should stay as they were.
        let changed =
            !senders.attempts.sends_datagrams() && senders.share_out(&uses, self.most_active);
        let by_datagrams = std::mem::take(&mut senders.by_datagrams);
        let Senders { lanes, dormant, .. } = &mut *senders;
        for (sender, own) in lanes.keys().zip(&uses) {
            dormant.insert(*sender, own.iter().all(|&used| used == 0));
        }
        let idle = dormant.values().all(|&dormant| dormant) && !by_datagrams;
        self.idle.store(idle, Ordering::Relaxed);
        drop(senders);
        if changed {
            (self.wake)();
        }
    }

    /// Reports of all senders.
    pub(crate) fn report(&self) -> Vec<SenderReport> {
        let senders = self.lock();
        let lanes = senders.lanes.iter();
        lanes
            .map(|(&sender, lanes)| SenderReport {
                sender: self.names.hash_one(sender),
                dormant: senders.dormant.get(&sender).copied().unwrap_or(false),
                lanes: lanes
                    .iter()
                    .map(|lane| LaneUse {
                        active: lane.is_active(),
                        credits: lane.credits.load(Ordering::Relaxed),
                        degree: lane.degree.load(Ordering::Relaxed),
                    })
                    .collect(),
            })
            .collect()
    }

    /// Ends the thread and waits for it.
    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Release);
        let thread = self.lock().thread.take();
        if let Some(thread) = thread {
            self.wake_scheduler();
            if thread.join().is_err() {
                tracing::error!("the scheduler panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests;
