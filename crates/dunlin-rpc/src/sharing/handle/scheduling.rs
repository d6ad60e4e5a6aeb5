//! The thread scheduler (FLOCK §5.2): moves threads to the lanes that the server has activated, by what they have sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use dunlin_verbs::thread;

use super::Handle;
use crate::sharing::assignment::{assign, may_stay, Sent};
use crate::sharing::combining::Node;
use crate::sharing::lane_table::usable;
use crate::sharing::port::Port;
use crate::sharing::statistics::{Counts, SeenTwice};
use crate::sharing::Moves;

impl Handle {
    /// Runs the thread scheduler (FLOCK §5.2) at the end of an interval: assigns threads to active lanes by what they
    /// have sent in it. Returns whether any thread sent anything.
    pub(in crate::sharing) fn end_interval(&self, node: &Node) -> bool {
        self.schedule(node, |counts, seen| {
            let since = seen.last;
            let sent = counts.since(&mut seen.last);
            seen.before = since;
            sent
        })
    }

    /// The same between intervals, by what was sent in the last one and since; called when a lane was found to be
    /// deactivated, or another to be active.
    pub(in crate::sharing) fn reassign(&self, node: &Node) {
        self.schedule(node, |counts, seen| counts.since(&mut { seen.before }));
    }

    fn schedule(&self, node: &Node, sent: impl Fn(&Counts, &mut SeenTwice) -> Sent) -> bool {
        if self.assigning.swap(true, Ordering::Acquire) {
            // Another thread is doing so.
            return true;
        }
        /// Lets others assign again, also after a panic.
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        let _done = Done(&self.assigning);
        // Leaders notice grants and losses; an unused lane has no leader.
        for lane in self.lanes() {
            if !lane.status().is_lost() {
                lane.check(node, None);
            }
        }
        self.assign_threads(sent)
    }

    /// Takes what the server has said about inactive lanes. For other lanes their leaders do that; these have none.
    pub(in crate::sharing) fn hear_of_lanes(&self, node: &Node) {
        for lane in self.lanes() {
            let status = lane.status();
            if status.is_open() && !status.is_active() {
                lane.check(node, None);
            }
        }
    }

    /// Number of lanes that the server has activated, and the number that could be active.
    pub(in crate::sharing) fn active_lanes(&self) -> (usize, usize) {
        let lanes = self.lock();
        (usable(&lanes.entries).len(), lanes.usable())
    }

    /// Number of lanes over which the last assignment spread threads.
    pub(in crate::sharing) fn spread_over(&self) -> usize {
        self.spread_over.load(Ordering::Relaxed)
    }

    fn assign_threads(&self, sent: impl Fn(&Counts, &mut SeenTwice) -> Sent) -> bool {
        let mut lanes = self.lock();
        let usable = usable(&lanes.entries);
        self.spread_over.store(usable.len(), Ordering::Relaxed);
        let ports: Vec<&Arc<Port>> = self.ports.living().collect();
        let seen = &mut lanes.seen;
        let sent: Vec<Sent> = ports
            .iter()
            .map(|port| {
                let id = usize::from(port.id);
                if seen.len() <= id {
                    seen.resize_with(id + 1, SeenTwice::default);
                }
                sent(&port.counts, &mut seen[id])
            })
            .collect();
        let any = sent.iter().any(|sent| sent.requests > 0);
        let busy = sent.iter().filter(|sent| sent.requests > 0).count();
        // The other side's threads need cores, too, if it is on this machine.
        let crowded = thread::is_simulated() && busy * 2 > self.cores;
        self.crowded.store(crowded, Ordering::Relaxed);
        if usable.is_empty() {
            return any;
        }
        // Threads without statistics stay where they are, unless their lane is no longer active. So do all threads if
        // they are not scheduled, and they return to their first lane when they can.
        let scheduled = self.sharing.moves != Moves::Never;
        let (known, idle): (Vec<usize>, Vec<usize>) =
            (0..ports.len()).partition(|&i| scheduled && sent[i].requests > 0);
        let mut wanted: Vec<(usize, usize)> = Vec::with_capacity(ports.len());
        if !known.is_empty() {
            let weigh = |sent: Sent| Sent {
                bytes: sent.bytes + sent.requests * self.sharing.request_bytes,
                ..sent
            };
            let loads: Vec<Sent> = known.iter().map(|&i| weigh(sent[i])).collect();
            let mut map = assign(&loads, usable.len());
            if self.sharing.moves == Moves::WhenUneven {
                let place = |&i: &usize| {
                    let now = ports[i].assigned.load(Ordering::Relaxed);
                    usable.iter().position(|&lane| lane == now)
                };
                let now: Option<Vec<usize>> = known.iter().map(place).collect();
                let may_stay = |now: &Vec<usize>| may_stay(&loads, now, &map, usable.len());
                map = now.filter(may_stay).unwrap_or(map);
            }
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
                // It may be sleeping for credits that the old lane will not get.
                ports[i].wake();
                if let Some(entry) = lanes.entries.get(before) {
                    entry.lane.status().remove_thread();
                }
                lanes.entries[lane].lane.status().add_thread();
            }
        }
        any
    }
}
