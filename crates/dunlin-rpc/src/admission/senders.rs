//! The senders of a server and their lanes: which of the lanes are active, as values; [`super::redistribution`] decides
//! when that changes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::Ordering;
use std::sync::Arc;

use dunlin_verbs::thread::Running;

use super::arrivals::{DatagramShare, Passes};
use super::attempts::{Attempts, Came};
use super::lane_share::LaneShare;
use super::scheduler::{distribute, newcomers_share, Load};

/// Pollers count as busy if at most one pass in this many finds nothing.
const IDLE_PART: u64 = 16;

/// The senders, by the ids by which they join.
#[derive(Default)]
pub(super) struct Senders {
    /// The lanes of each, and whether it is dormant.
    pub(super) lanes: BTreeMap<u64, Vec<Arc<LaneShare>>>,
    pub(super) dormant: BTreeMap<u64, bool>,
    /// The shared state of the pollers of datagram queue pairs.
    pub(super) datagrams: Vec<Arc<DatagramShare>>,
    /// The passes of the polling threads.
    pub(super) passes: Vec<Arc<Passes>>,
    /// Whether requests have come by datagrams in this interval.
    pub(super) by_datagrams: bool,
    /// What clients are asked for while the device of the lanes is at its limit.
    pub(super) attempts: Attempts,
    /// The scheduler's thread.
    pub(super) thread: Option<Running>,
}

impl Senders {
    /// Number of active lanes of each poller, for at least this many pollers.
    pub(super) fn active_by_poller(&self, pollers: usize) -> Vec<usize> {
        let mut active = vec![0; pollers];
        for lane in self.lanes.values().flatten() {
            if active.len() <= lane.poller {
                active.resize(lane.poller + 1, 0);
            }
            active[lane.poller] += usize::from(lane.is_active());
        }
        active
    }

    /// The usage of each sender's lanes.
    pub(super) fn uses(&self, used: impl Fn(&LaneShare) -> u64) -> Vec<Vec<u64>> {
        let own = |lanes: &Vec<Arc<LaneShare>>| lanes.iter().map(|lane| used(lane)).collect();
        self.lanes.values().map(own).collect()
    }

    /// Tells all lanes their standing; returns whether any has changed.
    pub(super) fn tell(&self) -> bool {
        let mut news = false;
        for lane in self.lanes.values().flatten() {
            news |= lane.set(self.attempts.standing(lane.is_active()));
        }
        news
    }

    /// Tells the pollers of datagram queue pairs whether clients should use them.
    pub(super) fn tell_datagrams(&self) {
        let wanted = self.attempts.sends_datagrams();
        for poller in &self.datagrams {
            poller.wanted.store(wanted, Ordering::Relaxed);
        }
    }

    /// What has arrived since the last call.
    pub(super) fn look(&mut self) -> Came {
        let mut came = Came::default();
        for lane in self.lanes.values().flatten() {
            let [requests, messages] = lane.arrivals.look();
            came.requests += requests;
            came.messages += messages;
            came.threads += messages as f64 * lane.threads();
            came.has_spare |= !lane.is_active();
        }
        for poller in &self.datagrams {
            let [requests, messages] = poller.arrivals.look();
            self.by_datagrams |= messages > 0;
            came.requests += requests;
            came.messages += messages;
            came.threads += messages as f64;
        }
        came.threads /= came.messages.max(1) as f64;
        let passes = self.passes.iter().map(|thread| thread.look());
        let [worked, idle] = passes.fold([0; 2], |sum, [worked, idle]| {
            [sum[0] + worked, sum[1] + idle]
        });
        came.pollers_are_busy = worked > IDLE_PART * idle;
        came
    }

    /// Whether a new lane of a sender would be active, with a maximum of `most`: if the sender has fewer than a
    /// newcomer's share and the maximum is not reached, or if it has none.
    pub(super) fn admits(&self, sender: u64, most: usize) -> bool {
        let functioning = self.dormant.values().filter(|&&dormant| !dormant).count();
        let of_sender = self.lanes.get(&sender);
        let share = newcomers_share(
            functioning.saturating_sub(usize::from(of_sender.is_some())),
            self.attempts.active(most),
        );
        let own = of_sender.map_or(0, |lanes| active(lanes));
        let all: usize = self.lanes.values().map(|lanes| active(lanes)).sum();
        own == 0 || own < share && all < most
    }

    /// Decides which lanes are active, `most` of them unless fewer are being tried; returns whether any client is to be
    /// told.
    ///
    /// Of a sender's lanes it chooses those whose pollers have the fewest active ones, regardless of previous use: a
    /// poller with twice as many as the others would be the bottleneck. Among equals it chooses the most used, so that
    /// a lane that asks is not passed over for an unused one, and then those that are active.
    pub(super) fn share_out(&self, uses: &[Vec<u64>], most: usize) -> bool {
        let load = |own: &Vec<u64>| Load {
            utilisation: own.iter().sum(),
            lanes: own.len(),
        };
        let loads: Vec<Load> = uses.iter().map(load).collect();
        let wanted = distribute(&loads, self.attempts.active(most));
        let mut changed = false;
        let mut by_poller = self.active_by_poller(0);
        for ((lanes, own), &wanted) in self.lanes.values().zip(uses).zip(&wanted) {
            for lane in lanes.iter().filter(|lane| lane.is_active()) {
                by_poller[lane.poller] -= 1;
            }
            let chosen = choose(lanes, own, wanted, &mut by_poller);
            for (lane, active) in lanes.iter().zip(chosen) {
                changed |= lane.set(self.attempts.standing(active));
            }
        }
        changed
    }
}

/// Number of active lanes among these.
pub(super) fn active(lanes: &[Arc<LaneShare>]) -> usize {
    lanes.iter().filter(|lane| lane.is_active()).count()
}

/// Chooses which of a sender's lanes are to be active, this many of them ([`Senders::share_out`]), and adds them to the
/// counts of active lanes by poller.
fn choose(
    lanes: &[Arc<LaneShare>],
    uses: &[u64],
    wanted: usize,
    by_poller: &mut [usize],
) -> Vec<bool> {
    // For each poller the sender's lanes, the best last.
    let mut own: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for (i, (lane, &used)) in lanes.iter().zip(uses).enumerate() {
        let rank = (Reverse(used), !lane.is_active(), i);
        own.entry(lane.poller).or_default().push(rank);
    }
    for lanes in own.values_mut() {
        lanes.sort_unstable_by_key(|&rank| Reverse(rank));
    }
    let best = |poller: usize, lanes: &mut Vec<_>, by_poller: &[usize]| {
        let rank = lanes.pop()?;
        Some(Reverse((by_poller[poller], rank, poller)))
    };
    let firsts = own
        .iter_mut()
        .filter_map(|(&poller, lanes)| best(poller, lanes, by_poller));
    let mut nexts: BinaryHeap<_> = firsts.collect();
    let mut chosen = vec![false; lanes.len()];
    for _ in 0..wanted {
        let Some(Reverse((_, (_, _, i), poller))) = nexts.pop() else {
            break;
        };
        chosen[i] = true;
        by_poller[poller] += 1;
        let lanes = own.get_mut(&poller);
        nexts.extend(lanes.and_then(|lanes| best(poller, lanes, by_poller)));
    }
    chosen
}
